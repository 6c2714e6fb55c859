"""Imagining with posteriors: what the planner of `vblrl.py` is handed to score candidates with.

forward    one posterior. Every particle is a network drawn from it and kept over the horizon        (Algorithm 1)
backward   two posteriors. Both predict for the same particles; the more confident one goes on       (Algorithm 2)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posterity.models import confidence, network, normaliser, posterior
from posterity.models.confidence import BackwardSettings
from posterity.models.network import NetworkSettings, Prediction, Weights
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.planning.cem import PlannerSettings
from posterity.planning.imagine import Box, Imagined, imagined_returns

# (key, observation [O], candidates [N, T, A]) -> returns [P, N], notes
Returns = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]


class Model(NamedTuple):
    """A posterior in use."""

    posterior: Posterior
    noise: jax.Array  # factor on its spread


class Chosen(NamedTuple):
    """How often the world model's prediction went on, as a share of candidates, for one imagined step."""

    reward: jax.Array
    state: jax.Array


class Imagination:
    """How returns are imagined: the settings of planner, network and backward choice, and the box of living states."""

    def __init__(
        self, planner: PlannerSettings, shape: NetworkSettings, backward: BackwardSettings, alive: Box | None
    ) -> None:
        self.planner = planner
        self.shape = shape
        self.choice = backward
        self.alive = alive

    def draw(self, key: jax.Array, model: Model) -> Weights:
        """P networks."""
        keys = jax.random.split(key, self.planner.particles)
        return jax.vmap(lambda k: posterior.sample(k, model.posterior, model.noise))(keys)

    def forward(self, key: jax.Array, model: Model, units: Normaliser) -> Returns:
        """Returns as one posterior imagines them."""
        networks = self.draw(key, model)

        def step(k: jax.Array, obs: jax.Array, action: jax.Array) -> Imagined:
            drawn, output_key = self._drawn(k, [(model, networks)])
            predicted = self._predict(drawn[0], units, obs, action)
            return Imagined(*self._outcome(output_key, units, obs, predicted))

        return partial(self._returns, step)

    def backward(self, key: jax.Array, task: Model, world: Model, units: Normaliser, scale: jax.Array) -> Returns:
        """Returns as the more confident of two posteriors imagines each step. `scale` [1 + O]: the data's deviation."""
        task_key, world_key = jax.random.split(key)
        pairs = [(task, self.draw(task_key, task)), (world, self.draw(world_key, world))]

        def step(k: jax.Array, obs: jax.Array, action: jax.Array) -> Imagined:
            drawn, output_key = self._drawn(k, pairs)
            own, general = (self._predict(networks, units, obs, action) for networks in drawn)
            chosen = confidence.choose(own, general, scale, self.choice)
            note = Chosen(chosen.world[..., 0].mean(), chosen.world[..., 1:].mean())
            return Imagined(*self._outcome(output_key, units, obs, chosen.prediction), note)

        return partial(self._returns, step)

    def _returns(self, step: Any, key: jax.Array, obs: jax.Array, candidates: jax.Array) -> tuple[jax.Array, Any]:
        return imagined_returns(key, step, obs, candidates, self.planner.particles, self.alive)

    def _drawn(self, key: jax.Array, pairs: list[tuple[Model, Weights]]) -> tuple[list[Weights], jax.Array]:
        """The networks of a step, drawn anew if so set, and the key for its outputs."""
        draw_key, output_key = jax.random.split(key)
        if not self.planner.redraw:
            return [networks for _, networks in pairs], output_key
        keys = jax.random.split(draw_key, len(pairs))
        return [self.draw(k, model) for k, (model, _) in zip(keys, pairs, strict=True)], output_key

    def _predict(self, networks: Weights, units: Normaliser, obs: jax.Array, action: jax.Array) -> Prediction:
        """[P, N, 1 + O] for observations [P, N, O] and actions [N, A]."""
        actions = jnp.broadcast_to(action, (obs.shape[0], *action.shape))
        taken = normaliser.inputs(units, obs, actions)
        return jax.vmap(lambda w, x: network.forward(w, x, self.shape))(networks, taken)

    def _outcome(
        self, key: jax.Array, units: Normaliser, obs: jax.Array, predicted: Prediction
    ) -> tuple[jax.Array, jax.Array]:
        """Rewards [P, N] and next observations [P, N, O]: drawn from the prediction, or its mean."""
        mean, log_variance = predicted
        if self.planner.output == "sample":
            mean = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        return normaliser.outcome(units, obs, mean)

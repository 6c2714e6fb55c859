"""Imagining with posteriors: what the planner of `vblrl.py` is handed to score candidates with.

forward    one posterior. Every particle is a network drawn from it and kept over the horizon        (Algorithm 1)
backward   two posteriors. Both predict for the same particles; the more confident one goes on       (Algorithm 2),
           or both do, each by how sure it is
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posterity.kernels import common as kernels
from posterity.agents.base import Strategy
from posterity.errors import UserError
from posterity.models import confidence, horizon, network, normaliser, posterior
from posterity.models.confidence import BackwardSettings
from posterity.models.mlp import NetworkSettings, Prediction, Weights
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.planning import folding, fused
from posterity.planning.cem import PlannerSettings
from posterity.planning.rollout import Box, Final, Imagined, Step, imagined_returns
from posterity.types import Spec

Returns = Callable[[jax.Array, jax.Array], tuple[jax.Array, Any]]  # (key, candidates [N, T, A]) -> [P, N], notes


class Model(NamedTuple):
    """A posterior in use."""

    posterior: Posterior
    noise: jax.Array  # factor on its spread
    value: Any = ()  # of what follows the horizon; empty: nothing does


class Chosen(NamedTuple):
    """How much of what went on was the world model's, as a share of candidates or a weight, for one imagined step."""

    reward: jax.Array
    state: jax.Array


class Imagination:
    """How returns are imagined: the settings of planner, network and backward choice, and what all tasks share."""

    def __init__(
        self,
        planner: PlannerSettings,
        shape: NetworkSettings,
        backward: BackwardSettings,
        spec: Spec,
        gamma: float = 0.0,
    ) -> None:
        self.planner = planner
        self.shape = shape
        self.choice = backward
        self.gamma = gamma  # of what follows the horizon
        box = spec.alive
        self.alive: Box | None = None if box is None else (jnp.float32(box[0]), jnp.float32(box[1]))
        self.why_plain = _why_plain(planner, shape, spec)  # empty: the kernel imagines
        if planner.fused == "on" and self.why_plain:
            raise UserError(f"planner.fused is on, but {self.why_plain}")

    def draw(self, key: jax.Array, model: Model) -> Weights:
        """P networks."""
        keys = jax.random.split(key, self.planner.particles)
        return jax.vmap(lambda k: posterior.sample(k, model.posterior, model.noise))(keys)

    def forward(self, key: jax.Array, model: Model, units: Normaliser, obs: jax.Array) -> Returns:
        """Returns from `obs` [O] as one posterior imagines them."""
        networks = self.draw(key, model)
        if not self.why_plain:
            return self._fused(networks, units, obs, self._final(model, units))

        def step(k: jax.Array, place: jax.Array, action: jax.Array) -> Imagined:
            drawn, output_key = self._drawn(k, [(model, networks)])
            predicted = self._predict(drawn[0], units, place, action)
            return Imagined(*self._outcome(output_key, units, place, predicted))

        return partial(self._plain, step, obs, self._final(model, units))

    def backward(
        self,
        strategy: Strategy,
        key: jax.Array,
        task: Model,
        world: Model,
        units: Normaliser,
        scale: jax.Array,
        obs: jax.Array,
    ) -> Returns:
        """Returns as two posteriors imagine each step together. `scale` [1 + O]: the data's deviation."""
        task_key, world_key = jax.random.split(key)
        pairs = [(task, self.draw(task_key, task)), (world, self.draw(world_key, world))]

        def step(k: jax.Array, place: jax.Array, action: jax.Array) -> Imagined:
            drawn, output_key = self._drawn(k, pairs)
            own, general = (self._predict(networks, units, place, action) for networks in drawn)
            if strategy == "blend":
                others = (self._predict(_others(networks), units, place, action) for networks in drawn)
                doubts = map(confidence.variance, (own, general), others)
                chosen = confidence.blend(own, general, *doubts)
            else:
                chosen = confidence.choose(own, general, scale, self.choice)
            note = Chosen(chosen.world[..., 0].mean(), chosen.world[..., 1:].mean())
            return Imagined(*self._outcome(output_key, units, place, chosen.prediction), note)

        return partial(self._plain, step, obs, self._final(task, units))

    def _final(self, model: Model, units: Normaliser) -> Final | None:
        """What is said about last states: the task's own value, if there is one."""
        if not model.value:
            return None
        return lambda last: horizon.predict(model.value, units, last, self.gamma)

    def _plain(
        self, step: Step, obs: jax.Array, final: Final | None, key: jax.Array, candidates: jax.Array
    ) -> tuple[jax.Array, Any]:
        return imagined_returns(key, step, obs, candidates, self.planner.particles, self.alive, final)

    def _fused(self, networks: Weights, units: Normaliser, obs: jax.Array, final: Final | None) -> Returns:
        """The same as one kernel."""
        kernel = fused.ready(
            networks,
            units,
            obs,
            self.alive,
            activation=self.shape.activation,
            log_variance_low=self.shape.log_variance_low,
            log_variance_high=self.shape.log_variance_high,
            sample=self.planner.output == "sample",
            precision=self.planner.products,
            interpret=not kernels.nvidia(),
            final=final,
        )
        return lambda key, candidates: (kernel(jax.random.key_data(key), candidates), ())

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


def _others(networks: Weights) -> Weights:
    """For every particle the network of another: what two draws differ by in one place is doubt."""
    return jax.tree.map(lambda leaf: jnp.roll(leaf, 1, axis=0), networks)


def _memory() -> int:
    """Bytes of weights that fit on the chip beside the rest of the kernel, by the card's generation."""
    if kernels.capability() >= (9, 0):
        return folding.SHARED_MEMORY
    return 140 * 1024 if kernels.capability() == (8, 0) else 76 * 1024


def _why_plain(planner: PlannerSettings, shape: NetworkSettings, spec: Spec) -> str:
    """Why the plain path imagines, or nothing: then the kernel does."""
    if planner.fused == "off":
        return "planner.fused is off"
    if planner.fused == "auto" and not kernels.nvidia():
        return "there is no NVIDIA GPU"
    if planner.redraw:
        return "the fused planner keeps its networks, and planner.redraw draws new ones"
    sizes = (spec.obs_dim + len(spec.low), *shape.hidden, 2 * (1 + spec.obs_dim))
    layers = [
        (jax.ShapeDtypeStruct((1, *pair), jnp.float32), jax.ShapeDtypeStruct((1, pair[1]), jnp.float32))
        for pair in pairwise(sizes)
    ]
    return folding.supported(layers, spec.obs_dim, len(spec.low), shape.activation, planner.products, _memory())

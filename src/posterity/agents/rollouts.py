"""Imagined rollouts: what the planner of `vblrl.py` is handed to score candidates with.

forward    one model. Every particle is a network drawn from it and kept over the horizon             (Algorithm 1)
backward   two models. Both predict for the same particles; the more confident one goes on            (Algorithm 2),
           or both do, each by how sure it is
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from posterity.errors import UserError
from posterity.kernels import common
from posterity.kernels import rollout as fused
from posterity.kernels.weights import Precision
from posterity.models import actor_critic, confidence, critic, reward_map, termination
from posterity.models.actor_critic import ActionBox
from posterity.models.dynamics import DynamicsModel, NetworkSettings
from posterity.models.mlp import Layers
from posterity.models.reward_map import Lattice
from posterity.planning.cem import PlannerSettings
from posterity.planning.rollout import Box, Ended, ImaginedStep, Returns, Step, TerminalValue, imagined_returns
from posterity.types import Spec, StepFunction

# rewards [P, N] of steps: (observations [P, N, O], actions [N, A], next ones [P, N, O])
StepReward = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
PROPOSALS = 2  # of the actor for each network, among the candidates of every search


class KnownStep:
    """A function of steps that the spec knows, for particles and candidates."""

    def __init__(self, function: StepFunction, name: str, spec: Spec) -> None:
        self.function, self.discrete = function, spec.actions > 0
        obs, action = jnp.zeros((1, 2, spec.obs_dim)), jnp.zeros((2, len(spec.low)))
        try:
            jax.eval_shape(self, obs, action, obs)
        except Exception as error:
            why = " ".join(f"{error}".split())[:200]
            raise UserError(f"JAX cannot trace {name}=; write it with jax.numpy or plain operators ({why})") from error

    @classmethod
    def of(cls, spec: Spec, name: Literal["reward", "terminated"]) -> KnownStep | None:
        """The spec's reward or termination, if it has one."""
        function = spec.reward if name == "reward" else spec.terminated
        return None if function is None else cls(function, name, spec)

    def __call__(self, obs: jax.Array, action: jax.Array, next_obs: jax.Array) -> jax.Array:
        """[P, N] for observations [P, N, O], actions [N, A] and next observations [P, N, O]."""
        given = action.argmax(axis=-1) if self.discrete else action
        each = jnp.broadcast_to(given[None], (obs.shape[0], *given.shape))
        flat = (part.reshape(-1, *part.shape[2:]) for part in (obs, each, next_obs))
        return jnp.asarray(self.function(*flat), jnp.float32).reshape(obs.shape[:2])


class Rollouts:
    """How returns are imagined, for one lane."""

    def __init__(
        self,
        spec: Spec,
        planner: PlannerSettings,
        network: NetworkSettings,
        kernels: common.Mode,
        precision: Precision,
        gamma: float,
        lattice: int = 0,
    ) -> None:
        """`lattice`: points in each dimension of the map that says what steps earn; 0: networks say so."""
        self.lattice = Lattice(lattice, spec.obs_dim)
        self.box = ActionBox(jnp.float32(spec.low), jnp.float32(spec.high))
        self.planner, self.network = planner, network
        self.precision: Precision = precision
        self.gamma = gamma  # of the critics
        box = spec.alive
        self.alive: Box | None = None if box is None else (jnp.float32(box[0]), jnp.float32(box[1]))
        self.reward, self.terminated = KnownStep.of(spec, "reward"), KnownStep.of(spec, "terminated")
        self.fallback_reason = fused.fallback_reason(kernels, network, spec.obs_dim, len(spec.low), precision)
        if not self.fallback_reason and (self.reward or self.terminated or spec.learn_termination):
            self.fallback_reason = "the fused planner knows no reward or termination but the learned reward and a box"
        if not self.fallback_reason and lattice:
            self.fallback_reason = "the fused planner knows no map of rewards"
        if kernels == "on" and self.fallback_reason:
            raise UserError(f"kernels are on, but {self.fallback_reason}")

    def forward(self, key: jax.Array, model: DynamicsModel, obs: jax.Array) -> Returns:
        """Returns from `obs` [O] as one model imagines them."""
        networks = model.sample(key, self.planner.particles)
        if not self.fallback_reason:
            return self._fused(model, networks, obs)

        def step(k: jax.Array, place: jax.Array, action: jax.Array) -> ImaginedStep:
            prediction = model.predict(networks, place, action, self.network)
            return ImaginedStep(*model.step(jax.random.split(k)[1], place, prediction, self._samples))

        return self._plain(step, model, obs)

    def proposals(self, key: jax.Array, model: DynamicsModel, obs: jax.Array) -> jax.Array | None:
        """[K, T, A] what the actor would do from `obs` [O] on, as networks of the model imagine it; None: no actor.

        Of each network's proposals the first has the likeliest actions.
        """
        if model.actor_critic is None:
            return None
        draw_key, walk_key = jax.random.split(key)
        networks = model.sample(draw_key, self.planner.particles)
        actor, units = model.actor_critic.actor, model.normaliser
        likeliest = (jnp.arange(PROPOSALS) == 0)[None, :, None]

        def walk(place: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
            action_key, step_key = jax.random.split(k)
            drawn, _ = actor_critic.sample_action(action_key, actor, units, place, self.box)
            action = jnp.where(likeliest, actor_critic.mean_action(actor, units, place, self.box), drawn)
            prediction = model.predict_each(networks, place, action, self.network)
            return model.step(step_key, place, prediction, self._samples)[1], action

        start = jnp.broadcast_to(obs, (self.planner.particles, PROPOSALS, *obs.shape))
        _, actions = jax.lax.scan(walk, start, jax.random.split(walk_key, self.planner.horizon))
        each = jnp.moveaxis(actions, 0, 2)  # [P, M, T, A]
        return jnp.where(jnp.isfinite(each), each, 0.0).reshape(-1, *each.shape[2:])

    def backward(
        self, variant: str, key: jax.Array, task: DynamicsModel, world: DynamicsModel, obs: jax.Array
    ) -> Returns:
        """Returns as two models imagine each step together. The facts: how much of reward and state was the world's."""
        keys = jax.random.split(key)
        pairs = [(model, model.sample(k, self.planner.particles)) for k, model in zip(keys, (task, world), strict=True)]

        def step(k: jax.Array, place: jax.Array, action: jax.Array) -> ImaginedStep:
            own, general = (model.predict(networks, place, action, self.network) for model, networks in pairs)
            if variant == "blend":
                others = (model.predict(_others(drawn), place, action, self.network) for model, drawn in pairs)
                variances = map(confidence.variance, (own, general), others)
                choice = confidence.blend(own, general, *variances)
            else:
                choice = confidence.choose(own, general, task.target_std)
            facts = (choice.world[..., 0].mean(), choice.world[..., 1:].mean())
            return ImaginedStep(*task.step(jax.random.split(k)[1], place, choice.prediction, self._samples), facts)

        return self._plain(step, task, obs)

    @property
    def _samples(self) -> bool:
        return self.planner.output == "sample"

    def _terminal_value(self, model: DynamicsModel) -> TerminalValue | None:
        """The critic of the model, if it has one."""
        pair = model.actor_critic
        if pair is not None:
            return lambda last: actor_critic.value(pair, model.normaliser, last, self.box, self.gamma)
        own = model.critic
        return None if own is None else lambda last: critic.value(own, model.normaliser, last, self.gamma)

    def _plain(self, step: Step, model: DynamicsModel, obs: jax.Array) -> Returns:
        value, known = self._terminal_value(model), self.reward or self._mapped(model)

        def told(k: jax.Array, place: jax.Array, action: jax.Array) -> ImaginedStep:
            imagined = step(k, place, action)
            return imagined if known is None else imagined._replace(reward=known(place, action, imagined.next_obs))

        return lambda key, candidates: imagined_returns(
            key, told, obs, candidates, self.planner.particles, self.alive, value, self._ended(model)
        )

    def _mapped(self, model: DynamicsModel) -> StepReward | None:
        """What steps are expected to earn by the map of rewards, if there is one."""
        belief, units = model.rewards, model.normaliser
        if belief is None:
            return None
        return lambda place, action, following: reward_map.promised(belief, self.lattice, units, following)

    def _ended(self, model: DynamicsModel) -> Ended | None:
        """What ends an episode, if it is known or learned; else the box does."""
        layers = model.termination
        if self.terminated is not None or layers is None:
            return self.terminated
        return lambda place, action, following: termination.probability(layers, model.normaliser, following)

    def _fused(self, model: DynamicsModel, networks: Layers, obs: jax.Array) -> Returns:
        """The same as one kernel."""
        kernel = fused.make_fused_returns(
            networks,
            model.normaliser,
            obs,
            self.alive,
            self.network,
            sample=self._samples,
            precision=self.precision,
            interpret=not common.nvidia(),
            terminal_value=self._terminal_value(model),
        )
        return lambda key, candidates: (kernel(jax.random.key_data(key), candidates), ())


def _others(networks: Layers) -> Layers:
    """For every particle the network of another: what two draws differ by in one place is epistemic."""
    return jax.tree.map(partial(jnp.roll, shift=1, axis=0), networks)

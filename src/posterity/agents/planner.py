"""Planning with dynamics models: search by CEM through imagined rollouts, for all lanes.

plan             with one model (Algorithm 1)
plan_backward    with a task's model and the world's together (Algorithm 2)
forecast         what a found plan promises, for the record
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.base import Info, Keys, Policy
from posterity.agents.rollouts import Rollouts
from posterity.agents.training import VblrlSettings
from posterity.models import actor_critic, latent
from posterity.models.actor_critic import ActorCritic
from posterity.models.dynamics import DynamicsModel
from posterity.planning.cem import Plan
from posterity.planning.rollout import Returns
from posterity.planning.search import make_search
from posterity.types import BoolArray, HostArray, Spec, Transition

EXPLORATION = 0.1  # least deviation of an action that explores, in halves of the range


class Planner:
    """The programs that plan, compiled once."""

    def __init__(self, spec: Spec, settings: VblrlSettings) -> None:
        self.spec, self.settings = spec, settings.planner
        self.search = make_search(spec, settings.planner, settings.colour)
        self.fresh_plan = self.search.fresh
        self.rollouts = Rollouts(
            spec,
            settings.planner,
            settings.network,
            settings.kernels,
            settings.matmul_precision,
            settings.value.gamma,
            settings.reward_map.lattice,
        )
        precision = settings.outer_precision
        self.plan = lanes.compiled(partial(self._plan, False), precision)
        self.explore = lanes.compiled(partial(self._plan, True), precision)
        self.forecast = lanes.compiled(self._forecast, precision)
        self.plan_backward = {
            variant: lanes.compiled(partial(self._plan_backward, variant), precision)
            for variant in ("confidence", "blend")
        }

    def random_actions(self, keys: Keys) -> HostArray:
        """[L, A] uniform within the bounds, or the numbers [L] of discrete ones."""
        return np.stack([self.spec.random_action(key.generator()) for key in keys])

    def executed(self, action: jax.Array) -> HostArray:
        """Actions [L, A] of plans as the environments take them."""
        return self.spec.decoded(lanes.to_host(action))

    # One lane ----------------------------------------------------------------------------------------------------

    def _plan(
        self, explores: bool, key: jax.Array, obs: jax.Array, first: jax.Array, model: DynamicsModel, plan: Plan
    ) -> tuple[jax.Array, Plan]:
        """The first action of what the search found, and where the next search begins.

        An actor learns of what was tried, so where there is one an action that explores is drawn around the found one.
        """
        if self.settings.cem_iterations == 0 and model.actor_critic is not None:
            return self._actor_alone(explores, key, obs, model), plan
        draw_key, search_key = jax.random.split(key)
        proposals = self.rollouts.proposals(jax.random.fold_in(draw_key, 1), model, obs)
        found, last_key = self._search(search_key, self.rollouts.forward(draw_key, model, obs), plan, first, proposals)
        action = self.search.chosen(found.mean)[0]
        if explores:
            low, high = self.rollouts.box
            std = jnp.maximum(jnp.sqrt(found.variance[0]), 0.5 * EXPLORATION * (high - low))
            action = jnp.clip(action + std * jax.random.normal(last_key, action.shape), low, high)
        return action, self.search.shifted(found)

    def _actor_alone(self, explores: bool, key: jax.Array, obs: jax.Array, model: DynamicsModel) -> jax.Array:
        """A draw of the policy if it explores, else its likeliest action."""
        what = _of_its_task(model).actor, model.normaliser, obs, self.rollouts.box
        return actor_critic.sample_action(key, *what)[0] if explores else actor_critic.mean_action(*what)

    def _of_two_actors(self, obs: jax.Array, task: DynamicsModel, world: DynamicsModel) -> tuple[jax.Array, jax.Array]:
        """Of a task's own actor and today's, the action that all critics together, carefully, hold for the better one.

        Also returns whether it is today's.
        """
        pairs = [_of_its_task(model) for model in (task, world)]
        actions = jnp.stack([actor_critic.mean_action(p.actor, task.normaliser, obs, self.rollouts.box) for p in pairs])
        here = jnp.broadcast_to(obs, (len(pairs), *obs.shape))
        told = [actor_critic.values(p.critics, task.normaliser, here, actions, self.rollouts.gamma) for p in pairs]
        best = actor_critic.careful(jnp.concatenate(told)).argmax()
        return actions[best], best.astype(jnp.float32)

    def _forecast(
        self, key: jax.Array, obs: jax.Array, model: DynamicsModel, action: jax.Array, after: Plan, sums: jax.Array
    ) -> jax.Array:
        """Adds to the forecasts what the found plan will earn within its horizon, by the networks it was found by."""
        draw_key, search_key = jax.random.split(key)
        within = self.rollouts.forward(draw_key, model._replace(critic=None, actor_critic=None), obs)
        found = jnp.concatenate([action[None], self.search.chosen(after.mean)[:-1]])
        promised, _ = within(jax.random.split(search_key)[1], found[None])
        return sums + jnp.stack([promised.mean(), promised.std(), jnp.float32(1.0)])

    def _plan_backward(
        self,
        variant: str,
        key: jax.Array,
        obs: jax.Array,
        first: jax.Array,
        task: DynamicsModel,
        world: DynamicsModel,
        plan: Plan,
    ) -> tuple[jax.Array, Plan, tuple[jax.Array, ...]]:
        """Search with two models, and tell how much of the found plan the world's predicted."""
        if self.settings.cem_iterations == 0:
            action, world_share = self._of_two_actors(obs, task, world)
            return action, plan, (world_share,)
        draw_key, search_key = jax.random.split(key)
        returns = self.rollouts.backward(variant, draw_key, task, world, obs)
        proposals = self.rollouts.proposals(jax.random.fold_in(draw_key, 1), task, obs)
        found, last_key = self._search(search_key, returns, plan, first, proposals)
        best = self.search.chosen(found.mean)
        _, facts = returns(last_key, best[None])
        return best[0], self.search.shifted(found), tuple(fact.mean() for fact in facts)

    def _search(
        self, key: jax.Array, returns: Returns, plan: Plan, first: jax.Array, proposals: jax.Array | None = None
    ) -> tuple[Plan, jax.Array]:
        """What the search finds from where the last one ended, and a key that is left.

        In a new episode it begins from what an actor proposes, if there is one.
        """
        search_key, last_key = jax.random.split(key)
        fresh = self.fresh_plan
        if proposals is not None:
            fresh = fresh._replace(mean=proposals.mean(axis=0))
        begin = jax.tree.map(lambda fresh, kept: jnp.where(first, fresh, kept), fresh, plan)

        def score(k: jax.Array, candidates: jax.Array) -> jax.Array:
            return returns(k, candidates)[0].mean(axis=0)

        return self.search.improved(search_key, score, begin, proposals), last_key


def _of_its_task(model: DynamicsModel) -> ActorCritic:
    """Actor and critics, told which task it is if there are latents."""
    pair = model.actor_critic
    assert pair is not None
    return pair if model.latents is None else actor_critic.in_task(pair, latent.told(model.latents))


class Adapts(Protocol):
    """What a policy learns of the task it is in while it acts."""

    def observe(self, keys: Keys, model: DynamicsModel, step: Transition) -> DynamicsModel:
        """The model after one more step [L, ...]."""
        ...


class PlannedPolicy(Policy):
    """Plans in an evaluation and does not learn: with one model, or with a task's and the world's together."""

    def __init__(
        self,
        planner: Planner,
        models: tuple[DynamicsModel, ...],
        random: BoolArray,
        variant: str = "",
        adapts: Sequence[Adapts] = (),
    ) -> None:
        self.planner, self.models, self.random, self.variant, self.adapts = planner, models, random, variant, adapts
        self.plan = lanes.repeated(planner.fresh_plan, len(random))
        self.shares: tuple[jax.Array, ...] = ()  # of reward and state that the world's model predicted

    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        """The first action of the plan; a random one where nothing had been learned."""
        if self.variant:
            program = self.planner.plan_backward[self.variant]
            action, self.plan, self.shares = program(keys, obs, first, *self.models, self.plan)
        else:
            action, self.plan = self.planner.plan(keys, obs, first, *self.models, self.plan)
        planned = self.planner.executed(action)
        if self.random.any():
            anywhere = self.random.reshape(-1, *(1 for _ in planned.shape[1:]))
            planned = np.where(anywhere, self.planner.random_actions(keys), planned)
        return planned

    def observe(self, keys: Keys, step: Transition) -> None:
        """Infers which task it is, where that is not known yet."""
        if self.adapts:
            step = step._replace(action=self.planner.spec.encoded(step.action))
        for each in self.adapts:
            self.models = (each.observe(keys, self.models[0], step),)

    def facts(self) -> Info:
        """How much of the last plan the world's model predicted, where there were two."""
        return {
            name: np.asarray(share) for name, share in zip(("world_reward", "world_state"), self.shares, strict=False)
        }

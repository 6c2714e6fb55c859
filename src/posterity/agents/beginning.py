"""How a run of VBLRL begins, and what a task begins with where nothing is inherited."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.base import Keys
from posterity.agents.guard import Guard, Guards
from posterity.agents.inference import TaskInference
from posterity.agents.programs import Programs
from posterity.agents.reward_learning import RewardLearning
from posterity.agents.training import INITIAL_WIDTH, VblrlSettings
from posterity.agents.trial import Trial, Trials
from posterity.agents.vblrl_state import VblrlState
from posterity.models import normaliser, replay
from posterity.models.actor_critic import ActorCriticTraining
from posterity.models.critic import CriticTraining
from posterity.models.termination import TerminationTraining
from posterity.planning.cem import Plan
from posterity.types import Array, Budget, Spec


class Networks(NamedTuple):
    """What is learned beside the posteriors; None: not at all, by the settings."""

    critic: CriticTraining | None
    actor: ActorCriticTraining | None
    termination: TerminationTraining | None


class Beginning:
    """Fresh states and networks, for all lanes."""

    def __init__(
        self,
        spec: Spec,
        settings: VblrlSettings,
        budget: Budget,
        programs: Programs,
        inference: TaskInference | None,
        rewards: RewardLearning | None,
        trials: Trials,
    ) -> None:
        self.trials = trials
        self.spec, self.settings, self.budget = spec, settings, budget
        self.programs, self.inference, self.rewards, self.guards = programs, inference, rewards, Guards()

    def state(self, keys: Keys, plan: Plan) -> VblrlState:
        """A fresh world posterior and an empty replay. `plan` is where the first search begins."""
        world, count, fresh = self.programs.init(keys), len(keys), self.networks(keys)
        prior = self.programs.fixed_prior(world.posterior)
        latents = None if self.inference is None else self.inference.begin(keys, world.posterior, 0)
        dims = (self.spec.obs_dim, len(self.spec.low))
        nothing = None if self.rewards is None else self.rewards.nothing_known(count)
        return VblrlState(
            world=world,
            world_prior=prior,
            task=self.programs.restart(world.posterior),
            prior=prior,
            width=jnp.full(count, INITIAL_WIDTH, jnp.float32),
            latents=latents,
            task_latents=latents,
            recent=None if self.inference is None else self.inference.empty(count),
            normaliser=lanes.repeated(normaliser.identity(*dims), count),
            target_std=jnp.ones((count, 1 + dims[0])),
            critic=fresh.critic,
            actor=fresh.actor,
            guard=self.guard(fresh.actor),
            trial=None if fresh.actor is None else self.trial(fresh.actor, np.zeros(count, np.int32)),
            termination=fresh.termination,
            reward_prior=nothing,
            rewards=None if self.rewards is None or nothing is None else self.rewards.fresh(nothing),
            replay=lanes.repeated(self._room(), count),
            plan=lanes.repeated(plan, count),
            forecast=jnp.zeros((count, 3)),
            task_number=-1,
            iteration=0,
            step=0,
        )

    def networks(self, keys: Keys) -> Networks:
        """Critic, actor and classifier of ends that know nothing."""

        def named(name: str) -> Keys:
            return [key.fold(name) for key in keys]

        return Networks(
            self.programs.init_critic(named("value")) if self.settings.value.gradient_steps else None,
            self.programs.init_actor(named("actor")) if self.settings.policy.updates_per_step else None,
            self.programs.init_termination(named("termination")) if self.spec.learn_termination else None,
        )

    def guard(self, actor: ActorCriticTraining | None) -> Guard | None:
        """Where the actor acts alone, it is watched from the beginning of a task on."""
        if actor is None or self.settings.planner.cem_iterations:
            return None
        return self.guards.begin(actor.now.actor)

    def trial(self, fresh: ActorCriticTraining, since: Array) -> Trial | None:
        """Of an actor that is inherited, beside one that is `fresh`, if the settings ask for it."""
        return self.trials.begin(fresh, since) if self.trials.iterations else None

    def _room(self) -> replay.Replay:
        """An empty replay of one lane."""
        return replay.empty(
            self.budget.tasks,
            self.budget.iterations * self.budget.steps_per_iteration,
            self.spec.obs_dim,
            len(self.spec.low),
            self.spec.learn_termination,
            self.settings.replay.finished_transitions,
        )

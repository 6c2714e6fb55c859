"""Variational Bayesian Lifelong RL (paper, Algorithms 1 and 2), and the two baselines that are variants of it.

    for each task:
        task posterior <- world posterior, which is its prior too (not in the first task)             begin_task
        for each iteration:
            for each step:
                draw P networks from the posterior; search the actions whose imagined return is best   act
                execute the first action of the search's mean
            add the steps to the replay                                                               update
            fit the task posterior on this task's transitions                                         update
            fit the world posterior on all tasks' transitions                                         update

In the first iterations of a task the world model plans, until there is data for the task's own (appendix D). Random
actions are taken only in the very first iteration.

Going back to an earlier task (Algorithm 2), both its own posterior, frozen when it ended, and the world posterior of
today imagine every step, and the more confident prediction goes on; or both do, each by how sure it is.      policy
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import diagnostics, lanes
from posterity.agents.actor_learning import ActorCriticLearning
from posterity.agents.base import Agent, Behaviour, Info, Keys, Score
from posterity.agents.beginning import Beginning
from posterity.agents.evaluation import Evaluation
from posterity.agents.fitting import Fitting
from posterity.agents.guard import earned
from posterity.agents.host_actor import HostActor
from posterity.agents.inference import TaskInference
from posterity.agents.memory import check_room
from posterity.agents.planner import PlannedPolicy, Planner
from posterity.agents.programs import Programs
from posterity.agents.reward_learning import reward_learning
from posterity.agents.training import Training, VblrlSettings, Who
from posterity.agents.trial import Trials
from posterity.agents.vblrl_state import VARIANTS, VblrlSnapshot, VblrlState
from posterity.errors import UserError
from posterity.models.confidence import BACK_VARIANTS
from posterity.models.dynamics import DynamicsModel
from posterity.types import Array, BoolArray, Budget, HostArray, Spec, Transition

FORECAST_EVERY = 16  # steps between two plans that are imagined once more, for the record
NORMALISER_ITERATIONS = 5  # of the first task, from which the normaliser is estimated


class Vblrl(Agent[VblrlState, VblrlSnapshot]):
    """Algorithms 1 and 2."""

    summary = "variational Bayesian lifelong RL: the paper's algorithm"
    settings_type = VblrlSettings
    task_memory = "replay"

    def __init__(self, spec: Spec, settings: VblrlSettings, budget: Budget, variant: str = "vblrl") -> None:
        self.name, self.variant = variant, VARIANTS[variant]
        self.spec, self.budget = spec, budget
        self.settings = settings = self.variant.adapted(settings)
        check_room(spec, settings.replay, budget)
        if spec.actions and settings.policy.updates_per_step:
            raise UserError(
                "An actor gives real numbers, and these actions are discrete; set policy.updates_per_step to 0"
            )
        self.planner = Planner(spec, settings)
        self.inference = TaskInference(spec, settings) if settings.latent.size else None
        self.rewards = reward_learning(spec, settings, self.variant)
        self.training = Training(spec, settings, self.variant.inherits)
        self.programs = Programs(self.training, self._actor_learning(), budget.tasks if self.inference else 0)
        self.trials = Trials(settings.policy.trial_iterations if self.variant.inherits else 0)
        self.fitting = Fitting(self.variant, settings, budget, self.programs, self.inference, self.trials)
        parts = self.programs, self.inference, self.rewards
        self.beginning = Beginning(spec, settings, budget, *parts, self.trials)
        self.evaluation = Evaluation(settings, self.variant, self.planner, self.inference, self.rewards)
        self.actor = HostActor(spec, settings.policy.noise)

    def _actor_learning(self) -> ActorCriticLearning:
        """How an actor learns beside the model, if there is one."""
        settings = self.settings
        alone = settings.planner.cem_iterations == 0
        return ActorCriticLearning(
            self.spec,
            settings.value.gamma,
            settings.policy.updates_per_step * self.budget.steps_per_iteration,
            self.variant.inherits,
            settings.policy.imagined_share,
            settings.network,
            settings.planner.particles,
            alone=alone,
            context=settings.latent.size if alone else 0,
            imagined_error=settings.policy.imagined_error,
        )

    # Algorithm 1 -------------------------------------------------------------------------------------------------

    def init(self, keys: Keys) -> VblrlState:
        """A fresh world posterior and an empty replay."""
        return self.beginning.state(keys, self.planner.fresh_plan)

    def begin_task(self, keys: Keys, state: VblrlState) -> VblrlState:
        """The world posterior becomes the task's, and its prior unless this is the first task."""
        number = state.task_number + 1
        if self.variant.inherits:
            state = self.fitting.inherit(state._replace(task_number=number))
        else:
            fresh = self.programs.init(keys)
            prior = self.programs.fixed_prior(fresh.posterior)
            state = state._replace(task=fresh, prior=prior, **self.beginning.networks(keys)._asdict())
        if self.inference is not None:
            latents = self.inference.begin(keys, state.world.posterior, number)
            state = state._replace(latents=latents, task_latents=latents, recent=self.inference.empty(len(keys)))
        if self.rewards is not None:
            known = number, state.reward_prior, state.rewards, state.normaliser, state.replay
            prior, belief = self.rewards.begin(keys, *known)
            state = state._replace(reward_prior=prior, rewards=belief)
        if state.trial is not None:
            fresh = self.programs.init_actor([key.fold("fresh") for key in keys])
            state = state._replace(trial=self.beginning.trial(fresh, state.trial.since))
        return state._replace(guard=self.beginning.guard(state.actor), task_number=number, iteration=0, step=0)

    def act(self, keys: Keys, state: VblrlState, obs: HostArray, first: BoolArray) -> tuple[VblrlState, HostArray]:
        """The first action of the best plan found, or a random one before anything was learned."""
        if self._explores(state):
            blind = self.planner.random_actions if state.guard is None else self.actor.random
            return state._replace(step=state.step + 1), blind(keys)
        if state.guard is not None:
            who = state.guard.playing, state.normaliser
            action = self.actor.act(keys, obs, *who, explores=True, latents=state.latents)
            return state._replace(step=state.step + 1), action
        model = self.acting(state)
        search = self.planner.explore if state.actor is not None else self.planner.plan
        action, plan = search(keys, obs, first, model, state.plan)
        lanes.ask_for(action)
        forecast = state.forecast
        if state.step % FORECAST_EVERY == 0:
            forecast = self.planner.forecast(keys, obs, model, action, plan, forecast)
        return state._replace(plan=plan, forecast=forecast, step=state.step + 1), self.planner.executed(action)

    def behaviour(self, state: VblrlState) -> Behaviour | None:
        """The actor, where it acts alone and infers nothing from what it meets in this iteration."""
        met = state.iteration * self.budget.steps_per_iteration
        infers = self.inference is not None and met < self.settings.latent.transitions
        if state.guard is None or infers or self._explores(state):
            return None
        return self.actor.plain(state.guard.playing, state.normaliser, state.latents)

    def observe(self, keys: Keys, state: VblrlState, step: Transition) -> VblrlState:
        """Updates the map of rewards, if there is one, and infers the latent while the task is new."""
        state = self.with_reward(state, step)
        if self.inference is None or state.recent is None:
            return state
        seen = state.iteration * self.budget.steps_per_iteration + state.step  # this one counted in
        if seen > self.settings.latent.transitions:
            return state
        recent = state.recent.put(seen - 1, step._replace(action=self.spec.encoded(step.action)))
        if self._explores(state) or not self.inference.due(seen):
            return state._replace(recent=recent)
        world = state.world.posterior, state.task_number, state.normaliser
        return state._replace(recent=recent, latents=self.inference.online(keys, *world, state.latents, *recent, seen))

    def with_reward(self, state: VblrlState, step: Transition) -> VblrlState:
        """With one more step in the map of rewards, if there is one."""
        if self.rewards is None:
            return state
        return state._replace(rewards=self.rewards.observe(state.rewards, state.normaliser, step))

    def update(self, keys: Keys, state: VblrlState, rows: Transition) -> tuple[VblrlState, Info]:
        """Remember the iteration, then fit the posteriors and the critic."""
        coded = rows._replace(action=self.spec.encoded(rows.action))
        new = Transition(*(np.asarray(part).astype(np.float32) for part in coded))
        fit_keys = [key.fold("fit") for key in keys]
        facts: dict[str, Array] = {}
        if not self._explores(state):
            facts |= self.programs.check([key.fold("check") for key in keys], self.acting(state), new)
            facts |= diagnostics.forecasts(state.forecast, rows, self.settings.planner.horizon)
        if self.settings.ensemble and self._compares(state):
            models = self.model_of("task", state), self.model_of("world", state)
            state = state._replace(
                width=self.programs.widened([key.fold("width") for key in keys], state.width, *models, new)
            )
            facts["prior_width"] = state.width
        memory = self.programs.remember(state.replay, state.task_number, new)
        state = state._replace(replay=memory)
        if (state.task_number == 0 or not self.variant.inherits) and state.iteration < NORMALISER_ITERATIONS:
            units, target_std = self.programs.measure(state.normaliser, memory, state.task_number)
            state = state._replace(normaliser=units, target_std=target_std)
            if self.rewards is not None:  # which is in these units
                told = state.reward_prior, units, memory, state.task_number
                prior, belief = self.rewards.again(*told)
                state = state._replace(reward_prior=prior, rewards=belief)
        state, losses = self.fitting.posteriors(fit_keys, state)
        model = self.acting(state) if self.settings.policy.imagined_share else None
        state, more = self.fitting.values(fit_keys, state, model)
        facts |= losses | more
        state = self._followed(state, rows)
        if state.guard is not None:
            facts["guarded"] = state.guard.left > 0
        facts |= self.trials.facts(state.trial, state.task_number, state.iteration)
        place = f"task {state.task_number}, iteration {state.iteration}"
        info = diagnostics.checked(facts, "model", place, "try a lower learning rate")
        none = jnp.zeros_like(state.forecast)
        return state._replace(forecast=none, iteration=state.iteration + 1, step=0), info

    def _followed(self, state: VblrlState, rows: Transition) -> VblrlState:
        """Which actor acts in the next iteration, after what this one has earned."""
        if state.guard is None or state.actor is None:
            return state
        when, guards = (state.task_number, state.iteration), self.beginning.guards
        if state.trial is None or not self.trials.under_way(*when):
            return state._replace(guard=guards.follow(state.guard, state.actor.now.actor, earned(rows)))
        tried = self.trials.follow(state.trial, state.actor, *when, earned(rows))
        return state._replace(actor=tried.networks, trial=tried.trial, guard=guards.begin(tried.playing))

    def _explores(self, state: VblrlState) -> bool:
        """Whether actions are random: in the very first iteration; without transfer, until a task can be fitted."""
        if self.variant.inherits:
            return state.task_number <= 0 and state.iteration == 0
        return state.iteration * self.budget.steps_per_iteration < self.settings.task_min_transitions

    def acting(self, state: VblrlState) -> DynamicsModel:
        """The model that plans: in the first iterations of a task the world's, where it is inherited."""
        early = self.variant.inherits and state.iteration < self.start_iterations
        return self.model_of("world" if early else self.variant.planner, state)

    def _compares(self, state: VblrlState) -> bool:
        """Whether both posteriors have been fitted to this task, and one is the other's prior."""
        fitted = state.iteration * self.budget.steps_per_iteration >= self.settings.task_min_transitions
        return len(self.variant.fitted) == 2 and self.training.inherits and state.task_number > 0 and fitted

    def model_of(self, who: Who, state: VblrlState) -> DynamicsModel:
        """The task's model or the world's, as it is now."""
        posterior = state.world.posterior if who == "world" else state.task.posterior
        critic = None if state.critic is None else state.critic.critic
        latents = state.latents if who == "world" else state.task_latents
        ends = None if state.termination is None else state.termination.layers
        carried = state.normaliser, state.target_std, critic, ends, state.actor_critic, state.rewards
        return self.evaluation.model(who, posterior, latents, *carried)

    # Evaluation, and Algorithm 2 ---------------------------------------------------------------------------------

    @property
    def start_iterations(self) -> int:
        """Iterations of a task before its own posterior plans."""
        needed = -(-self.settings.task_min_transitions // self.budget.steps_per_iteration)
        return max(self.settings.world_iterations, needed)

    @property
    def back_variants(self) -> tuple[str, ...]:
        """Whose predictions Back is planned with, or whose actor acts; the one that is set comes first."""
        if len(self.variant.fitted) < 2:
            return ()
        own = self.settings.backward.variant
        return own, *(other for other in BACK_VARIANTS if other != own)

    def snapshot(self, keys: Keys, state: VblrlState) -> VblrlSnapshot:
        """Both posteriors as they are now."""
        random = np.full(len(keys), self._explores(state))
        critic = None if state.critic is None else state.critic.critic
        posteriors = state.world.posterior, state.task.posterior
        latents = state.latents, state.task_latents, np.full(len(keys), state.task_number, np.int32)
        ends = None if state.termination is None else state.termination.layers
        acting = state.actor_critic
        return VblrlSnapshot(
            *posteriors, state.normaliser, state.target_std, critic, random, *latents, ends, acting, state.rewards
        )

    def policy(self, own: VblrlSnapshot, latest: VblrlSnapshot, score: Score, variant: str) -> PlannedPolicy:
        """Forward scores plan with one model; Back combines the task's own and today's world model."""
        return self.evaluation.policy(own, latest, score, variant)

    def describe(self) -> Mapping[str, str]:
        """The device, and whether planning and fitting run as fused kernels."""
        precision = self.settings.matmul_precision
        plan, fit = self.planner.rollouts.fallback_reason, self.training.fallback_reason
        told = {
            "device": jax.devices()[0].device_kind,
            "planner": f"plain ({plan})" if plan else f"fused, {precision}",
            "fit": f"plain ({fit})" if fit else "fused",
        }
        return told if jax.default_backend() == "cpu" else told | {"matmul_precision": precision}  # a CPU has one

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
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import diagnostics, lanes
from posterity.agents.base import Agent, Info, Keys, Score
from posterity.agents.planner import PlannedPolicy, Planner
from posterity.agents.training import Training, VblrlSettings, Who
from posterity.errors import UserError
from posterity.models import elbo, normaliser, replay
from posterity.models.confidence import BACK_VARIANTS
from posterity.models.critic import Critic, CriticTraining
from posterity.models.dynamics import DynamicsModel
from posterity.models.elbo import Learning
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.models.replay import Replay
from posterity.planning.cem import Plan
from posterity.types import Array, BoolArray, Budget, HostArray, Spec, Transition

FORECAST_EVERY = 16  # steps between two plans that are imagined once more, for the record
NORMALISER_ITERATIONS = 5  # of the first task, from which the normaliser is estimated


class Variant(NamedTuple):
    """What sets a method apart."""

    fitted: tuple[Who, ...]  # the posteriors that are learned
    inherits: bool  # a task begins with the world posterior and the critic; else with nothing, and random actions
    planner: Who  # whose posterior plans once a task is under way


VARIANTS: dict[str, Variant] = {
    "vblrl": Variant(fitted=("task", "world"), inherits=True, planner="task"),
    "single-task": Variant(fitted=("task",), inherits=False, planner="task"),
    "pooled": Variant(fitted=("world",), inherits=True, planner="world"),
}


class VblrlState(NamedTuple):
    """Everything a run is. Arrays have a leading axis of lanes; numbers are the same for all."""

    world: Learning
    task: Learning
    prior: Posterior  # of the task posterior: the world posterior when the task began; in the first task the fixed one
    normaliser: Normaliser
    target_std: jax.Array  # [L, 1 + O] the targets' deviation in the normaliser's units
    critic: CriticTraining | None
    replay: Replay
    plan: Plan  # where the next search begins
    forecast: jax.Array  # [L, 3] sum of predicted returns, of their standard deviations, and how many
    task_number: int
    iteration: int  # of the present task
    step: int  # of the present iteration


class VblrlSnapshot(NamedTuple):
    """What it takes to act later as at one moment of a run."""

    world: Posterior
    task: Posterior
    normaliser: Normaliser
    target_std: jax.Array
    critic: Critic | None
    random: Array  # [L] nothing was learned yet: actions are random


class Vblrl(Agent[VblrlState, VblrlSnapshot]):
    """Algorithms 1 and 2."""

    summary = "variational Bayesian lifelong RL: the paper's algorithm"
    settings_type = VblrlSettings
    task_memory = "replay"

    def __init__(self, spec: Spec, settings: VblrlSettings, budget: Budget, variant: str = "vblrl") -> None:
        self.spec, self.settings, self.budget = spec, settings, budget
        self.variant = VARIANTS[variant]
        self.planner = Planner(spec, settings)
        self.training = training = Training(spec, settings, self.variant.inherits and settings.task_prior == "world")
        program = partial(lanes.compiled, precision=settings.outer_precision)
        self._init = program(training.init)
        self._init_critic = program(training.init_critic)
        self._begin = program(elbo.begin)
        self._remember = program(replay.add, donate=[0])
        self._measure = program(training.measure)
        self._check = program(training.check)
        self._fit_critic = program(training.fit_critic)
        groups: tuple[tuple[Who, ...], ...] = (("task",), ("world",), ("task", "world"))
        self.fit: dict[tuple[Who, ...], lanes.Program] = {
            group: program(partial(training.fit, group)) for group in groups
        }

    def init(self, keys: Keys) -> VblrlState:
        """A fresh world posterior and an empty replay."""
        world, count = self._init(keys), len(keys)
        dims = (self.spec.obs_dim, len(self.spec.low))
        capacity = self.budget.iterations * self.budget.steps_per_iteration
        return VblrlState(
            world=world,
            task=world,
            prior=self.training.fixed_prior(world.posterior),
            normaliser=lanes.repeated(normaliser.identity(*dims), count),
            target_std=jnp.ones((count, 1 + dims[0])),
            critic=self._fresh_critic(keys),
            replay=lanes.repeated(replay.empty(self.budget.tasks, capacity, *dims), count),
            plan=lanes.repeated(self.planner.fresh_plan, count),
            forecast=jnp.zeros((count, 3)),
            task_number=-1,
            iteration=0,
            step=0,
        )

    # Algorithm 1 -------------------------------------------------------------------------------------------------

    def begin_task(self, keys: Keys, state: VblrlState) -> VblrlState:
        """The world posterior becomes the task's, and its prior unless this is the first task."""
        if self.variant.inherits:
            task, critic = self._begin(state.world.posterior), state.critic
        else:
            task, critic = self._init(keys), self._fresh_critic(keys)
        inherited = self.training.inherits and state.task_number >= 0  # before that the world posterior is no belief
        prior = task.posterior if inherited else self.training.fixed_prior(task.posterior)
        return state._replace(
            task=task, prior=prior, critic=critic, task_number=state.task_number + 1, iteration=0, step=0
        )

    def act(self, keys: Keys, state: VblrlState, obs: HostArray, first: BoolArray) -> tuple[VblrlState, HostArray]:
        """The first action of the best plan found, or a random one before anything was learned."""
        if self._explores(state):
            return state, self.planner.random_actions(keys)
        model = self.acting(state)
        action, plan = self.planner.plan(keys, obs, first, model, state.plan)
        forecast = state.forecast
        if state.step % FORECAST_EVERY == 0:
            forecast = self.planner.forecast(keys, obs, model, action, plan, forecast)
        return state._replace(plan=plan, forecast=forecast, step=state.step + 1), lanes.to_host(action)

    def update(self, keys: Keys, state: VblrlState, rows: Transition) -> tuple[VblrlState, Info]:
        """Remember the iteration, then fit the posteriors and the critic."""
        new = Transition(*(np.asarray(part).astype(np.float32) for part in rows))
        fit_keys = [key.fold("fit") for key in keys]
        facts: dict[str, Array] = {}
        if not self._explores(state):
            facts |= self._check([key.fold("check") for key in keys], self.acting(state), new)
            facts |= diagnostics.forecasts(state.forecast, rows, self.settings.planner.horizon)
        memory = self._remember(state.replay, state.task_number, new)
        state = state._replace(replay=memory)
        if (state.task_number == 0 or not self.variant.inherits) and state.iteration < NORMALISER_ITERATIONS:
            units, target_std = self._measure(state.normaliser, memory, state.task_number)
            state = state._replace(normaliser=units, target_std=target_std)
        state, losses = self._fit_due(fit_keys, state)
        facts |= losses
        if state.critic is not None:
            critic, facts["value_error"] = self._fit_critic(
                fit_keys, state.critic, state.normaliser, memory, state.task_number
            )
            state = state._replace(critic=critic)
        place = f"task {state.task_number}, iteration {state.iteration}"
        info = diagnostics.checked(facts, "model", place, "try a lower learning rate")
        none = jnp.zeros_like(state.forecast)
        return state._replace(forecast=none, iteration=state.iteration + 1, step=0), info

    def _fit_due(self, keys: Keys, state: VblrlState) -> tuple[VblrlState, dict[str, Array]]:
        """The posteriors after fitting those that are due, and their losses."""
        transitions = (state.iteration + 1) * self.budget.steps_per_iteration
        due: tuple[Who, ...] = tuple(
            who for who in self.variant.fitted if who == "world" or transitions >= self.settings.task_min_transitions
        )
        learned: dict[Who, Learning] = {"task": state.task, "world": state.world}
        facts: dict[str, Array] = {}
        # On a GPU both are fitted in one program, which takes little longer than one of them.
        groups: list[tuple[Who, ...]] = [due] if jax.default_backend() == "gpu" else [(who,) for who in due]
        for group in filter(None, groups):
            fitted = self.fit[group](keys, learned, state.prior, state.normaliser, state.replay, state.task_number)
            for who, (learning, loss) in zip(group, fitted, strict=True):
                learned[who] = learning
                facts |= {f"{who}_{part}": value for part, value in loss._asdict().items()}
        return state._replace(world=learned["world"], task=learned["task"]), facts

    def _explores(self, state: VblrlState) -> bool:
        """Whether actions are random: in the very first iteration; without transfer, until a task can be fitted."""
        if self.variant.inherits:
            return state.task_number <= 0 and state.iteration == 0
        return state.iteration * self.budget.steps_per_iteration < self.settings.task_min_transitions

    def acting(self, state: VblrlState) -> DynamicsModel:
        """The model that plans: in the first iterations of a task the world's, where it is inherited."""
        early = self.variant.inherits and state.iteration < self.start_iterations
        who: Who = "world" if early else self.variant.planner
        posterior = state.world.posterior if who == "world" else state.task.posterior
        critic = None if state.critic is None else state.critic.critic
        return self._model(who, posterior, state.normaliser, state.target_std, critic)

    def _model(
        self, who: Who, posterior: Posterior, units: Normaliser, target_std: jax.Array, critic: Critic | None
    ) -> DynamicsModel:
        noise = lanes.full(target_std.shape[0], self.settings.noise(who))
        return DynamicsModel(posterior, units, noise, target_std, critic)

    def _fresh_critic(self, keys: Keys) -> CriticTraining | None:
        return self._init_critic([key.fold("value") for key in keys]) if self.settings.value.enabled else None

    # Evaluation, and Algorithm 2 ---------------------------------------------------------------------------------

    @property
    def start_iterations(self) -> int:
        """Iterations of a task before its own posterior plans."""
        needed = -(-self.settings.task_min_transitions // self.budget.steps_per_iteration)
        return max(self.settings.world_iterations, needed)

    @property
    def back_variants(self) -> tuple[str, ...]:
        """With two posteriors, whose predictions Back is planned with; the one that is set comes first."""
        if len(self.variant.fitted) < 2:
            return ()
        own = self.settings.backward.variant
        return own, *(other for other in BACK_VARIANTS if other != own)

    def snapshot(self, keys: Keys, state: VblrlState) -> VblrlSnapshot:
        """Both posteriors as they are now."""
        random = np.full(len(keys), self._explores(state))
        critic = None if state.critic is None else state.critic.critic
        posteriors = state.world.posterior, state.task.posterior
        return VblrlSnapshot(*posteriors, state.normaliser, state.target_std, critic, random)

    def policy(self, own: VblrlSnapshot, latest: VblrlSnapshot, score: Score, variant: str) -> PlannedPolicy:
        """Forward scores plan with one model; Back combines the task's own and today's world model."""
        random = np.asarray(own.random)
        carried = jax.device_put((own.normaliser, own.target_std, own.critic))
        task, world, latest_world = jax.device_put((own.task, own.world, latest.world))
        task, world = self._model("task", task, *carried), self._model("world", world, *carried)
        today = self._model("world", latest_world, *carried)
        if score == "back" and variant in ("confidence", "blend"):
            if variant == "confidence" and self.settings.planner.particles < 2:
                raise UserError("Confidence is a spread over particles, and this run plans with one; try blend")
            return PlannedPolicy(self.planner, (task, today), random, variant)
        if score == "back":
            return PlannedPolicy(self.planner, (today if self._by_world(variant) else task,), random)
        early = score == "zero-shot" and self.variant.inherits
        return PlannedPolicy(self.planner, (world if early or self.variant.planner == "world" else task,), random)

    def _by_world(self, variant: str) -> bool:
        return variant == "world-only" or self.variant.planner == "world"

    def describe(self) -> Mapping[str, str]:
        """The device, and whether planning and fitting run as fused kernels."""
        precision = self.settings.matmul_precision
        plan, fit = self.planner.rollouts.fallback_reason, self.training.fallback_reason
        return {
            "device": jax.devices()[0].device_kind,
            "planner": f"plain ({plan})" if plan else f"fused, {precision}",
            "fit": f"plain ({fit})" if fit else "fused",
            "matmul_precision": precision,
        }

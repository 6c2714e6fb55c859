"""Actor and critics alone: no model, no plan, and unless asked for no transfer. What vblrl has beside its model.

    for each iteration:  act by the policy;  keep the transitions;  fit critics and actor to them many times over

Every task begins with fresh networks. With `transfer` they go on from task to task, and a share of every batch is of
earlier tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from posterity.agents import diagnostics, lanes
from posterity.agents.actor_learning import ActorCriticLearning, measured
from posterity.agents.base import Agent, Behaviour, Info, Keys, Policy, Score
from posterity.agents.guard import Guard, Guards, earned
from posterity.agents.host_actor import HostActor
from posterity.agents.trial import Trial, Trials
from posterity.errors import UserError
from posterity.models import actor_critic, normaliser, replay
from posterity.models.actor_critic import ActorCriticTraining
from posterity.models.mlp import Layers
from posterity.models.noise import Noise, noise_setting
from posterity.models.normaliser import Normaliser
from posterity.models.replay import Replay
from posterity.settings import Settings, setting
from posterity.types import Array, BoolArray, Budget, HostArray, Spec, Transition

NORMALISER_ITERATIONS = 5  # of the first task, from which the normaliser is estimated


class ActorCriticAgentSettings(Settings):
    """What the actor-critic method can be told."""

    hidden: tuple[int, ...] = setting(actor_critic.HIDDEN, "Units of each hidden layer of actor and critics.")
    gamma: float = setting(0.99, "Discount of the critics.", ge=0, lt=1)
    updates_per_step: int = setting(8, "Gradient steps on the critics for every step in the environment.", ge=1)
    noise: Noise = noise_setting()
    trial_iterations: int = actor_critic.trial_setting()
    transfer: bool = setting(False, "Go on with the networks of the task before; false: every task from scratch.")


class ActorCriticState(NamedTuple):
    """Everything a run is. Arrays have a leading axis of lanes; numbers are the same for all."""

    training: ActorCriticTraining
    guard: Guard
    normaliser: Normaliser
    replay: Replay
    trial: Trial | None  # of what is inherited; None: there is none
    task_number: int
    iteration: int


class ActorCriticSnapshot(NamedTuple):
    """What acts."""

    actor: Layers
    normaliser: Normaliser
    random: Array  # [L] nothing was learned yet: actions are random


class ActorCriticMethod(Agent[ActorCriticState, ActorCriticSnapshot]):
    """Soft actor-critic with an ensemble of critics and many updates a step."""

    summary = "actor and critics without a model, every task from scratch (--transfer: the same ones for all)"
    settings_type = ActorCriticAgentSettings
    task_memory = "replay"

    def __init__(self, spec: Spec, settings: ActorCriticAgentSettings, budget: Budget) -> None:
        if spec.actions:
            raise UserError("The actor of actor-critic gives real numbers, and these actions are discrete; use vblrl")
        self.spec, self.budget, self.transfers = spec, budget, settings.transfer
        steps = settings.updates_per_step * budget.steps_per_iteration
        learning = ActorCriticLearning(spec, settings.gamma, steps, settings.transfer, hidden=settings.hidden)
        self.fresh = lanes.compiled(learning.init)
        self.fit = lanes.compiled(
            lambda key, training, units, memory, task, since: learning.fit(
                key, training, units, memory, task, since=since
            )
        )
        self.actor, self.guards = HostActor(spec, settings.noise), Guards()
        self.trials = Trials(settings.trial_iterations if settings.transfer else 0)
        self.measure = lanes.compiled(lambda memory, task: measured(spec, memory, task))
        self.remember = lanes.compiled(replay.add, donate=[0])

    def init(self, keys: Keys) -> ActorCriticState:
        """Fresh networks and an empty replay."""
        dims, count = (self.spec.obs_dim, len(self.spec.low)), len(keys)
        capacity = self.budget.iterations * self.budget.steps_per_iteration
        room = replay.empty(self.budget.tasks, capacity, *dims, self.spec.learn_termination)
        fresh = self.fresh(keys)
        return ActorCriticState(
            fresh,
            self.guards.begin(fresh.now.actor),
            lanes.repeated(normaliser.identity(*dims), count),
            lanes.repeated(room, count),
            self.trials.begin(fresh, np.zeros(count, np.int32)) if self.trials.iterations else None,
            task_number=-1,
            iteration=0,
        )

    def begin_task(self, keys: Keys, state: ActorCriticState) -> ActorCriticState:
        """Fresh networks, or those there are."""
        number = state.task_number + 1
        training = state.training if self.transfers and number else self.fresh(keys)
        trial = None if state.trial is None else self.trials.begin(self.fresh(keys), state.trial.since)
        guard = self.guards.begin(training.now.actor)
        return state._replace(training=training, guard=guard, trial=trial, task_number=number, iteration=0)

    def act(
        self, keys: Keys, state: ActorCriticState, obs: HostArray, first: BoolArray
    ) -> tuple[ActorCriticState, HostArray]:
        """A draw of the policy, or a random action before anything was learned."""
        if self._explores(state):
            return state, self.actor.random(keys)
        return state, self.actor.act(keys, obs, state.guard.playing, state.normaliser, explores=True)

    def behaviour(self, state: ActorCriticState) -> Behaviour | None:
        """The actor."""
        return None if self._explores(state) else self.actor.plain(state.guard.playing, state.normaliser)

    def update(self, keys: Keys, state: ActorCriticState, rows: Transition) -> tuple[ActorCriticState, Info]:
        """Remember the iteration, then learn."""
        new = Transition(*(np.asarray(part).astype(np.float32) for part in rows))
        memory = self.remember(state.replay, state.task_number, new)
        units = state.normaliser
        if (state.task_number == 0 or not self.transfers) and state.iteration < NORMALISER_ITERATIONS:
            units = self.measure(memory, state.task_number)
        since = 0 if state.trial is None else state.trial.since
        training, loss = self.fit(keys, state.training, units, memory, state.task_number, since)
        place = f"task {state.task_number}, iteration {state.iteration}"
        learned, facts = state._replace(normaliser=units, replay=memory), loss._asdict()
        del facts["imagined"]  # there is no model
        when = state.task_number, state.iteration
        if state.trial is not None and self.trials.under_way(*when):
            fresh, _ = self.fit([key.fold("fresh") for key in keys], state.trial.fresh, units, memory, when[0], when[0])
            tried = self.trials.follow(state.trial._replace(fresh=fresh), training, *when, earned(rows))
            training, guard = tried.networks, self.guards.begin(tried.playing)
            learned = learned._replace(trial=tried.trial)
        else:
            guard = self.guards.follow(state.guard, training.now.actor, earned(rows))
        facts |= {"guarded": guard.left > 0} | self.trials.facts(learned.trial, *when)
        info = diagnostics.checked(facts, "critic", place, "try fewer updates per step")
        learned = learned._replace(training=training, guard=guard)
        return learned._replace(iteration=state.iteration + 1), info

    def _explores(self, state: ActorCriticState) -> bool:
        return state.iteration == 0 and (state.task_number <= 0 or not self.transfers)

    def snapshot(self, keys: Keys, state: ActorCriticState) -> ActorCriticSnapshot:
        """The actor that acts."""
        random = np.full(len(keys), self._explores(state))
        return ActorCriticSnapshot(state.guard.playing, state.normaliser, random)

    def policy(self, own: ActorCriticSnapshot, latest: ActorCriticSnapshot, score: Score, variant: str) -> ActorPolicy:
        """The actor that the task ended with, in Back too."""
        return ActorPolicy(self, own)

    def describe(self) -> Mapping[str, str]:
        """The device."""
        return {"device": jax.devices()[0].device_kind}


class ActorPolicy(Policy):
    """Plays the likeliest actions."""

    def __init__(self, method: ActorCriticMethod, own: ActorCriticSnapshot) -> None:
        self.method, self.random = method, np.asarray(own.random)
        self.actor, self.normaliser = own.actor, own.normaliser

    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        """[L, A] likeliest actions; random ones where nothing had been learned."""
        likely = self.method.actor.act(keys, obs, self.actor, self.normaliser, explores=False)
        return np.where(self.random[:, None], self.method.actor.random(keys), likely)

"""In which order vblrl learns after an iteration: the posteriors, which task this is, then values, actor and ends."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from posterity.agents.base import Keys
from posterity.agents.inference import TaskInference
from posterity.agents.programs import Programs
from posterity.agents.training import VblrlSettings, Who
from posterity.agents.trial import Trials
from posterity.agents.vblrl_state import Variant, VblrlState
from posterity.models.dynamics import DynamicsModel
from posterity.models.elbo import Learning
from posterity.models.posterior import Posterior
from posterity.types import Array, Budget

Facts = dict[str, Array]  # numbers [L] for the record


class Fitting:
    """What is fitted to what, for all lanes."""

    def __init__(
        self,
        variant: Variant,
        settings: VblrlSettings,
        budget: Budget,
        programs: Programs,
        inference: TaskInference | None,
        trials: Trials,
    ) -> None:
        self.variant, self.settings, self.budget = variant, settings, budget
        self.programs, self.inference, self.trials = programs, inference, trials

    def inherit(self, state: VblrlState) -> VblrlState:
        """The task posterior begins as the world's, which is its prior; in the first task that is no belief yet."""
        world = state.world.posterior
        inherited = self.variant.inherits and state.task_number > 0
        prior = self.programs.task_prior(world, state.width) if inherited else self.programs.fixed_prior(world)
        return state._replace(task=self.programs.restart(world), prior=prior, task_latents=state.latents)

    def posteriors(self, keys: Keys, state: VblrlState) -> tuple[VblrlState, Facts]:
        """The posteriors after fitting those that are due, and their losses."""
        transitions = (state.iteration + 1) * self.budget.steps_per_iteration
        due: tuple[Who, ...] = tuple(
            who for who in self.variant.fitted if who == "world" or transitions >= self.settings.task_min_transitions
        )
        if self.inference is not None:
            return self._with_latents(keys, state, due, self.inference)
        # On a GPU both are fitted in one program, which takes little longer than one of them.
        groups: list[tuple[Who, ...]] = [due] if jax.default_backend() == "gpu" else [(who,) for who in due]
        facts: Facts = {}
        for group in filter(None, groups):
            state, losses = self._fit(keys, state, group)
            facts |= losses
        return state, facts

    def values(self, keys: Keys, state: VblrlState, model: DynamicsModel | None) -> tuple[VblrlState, Facts]:
        """Whatever there is of critic, actor and classifier of ends. `model` imagines for the actor."""
        data = state.normaliser, state.replay, state.task_number
        facts: Facts = {}
        if state.critic is not None:
            critic, facts["value_error"] = self.programs.fit_critic(keys, state.critic, *data)
            state = state._replace(critic=critic)
        if state.actor is not None:
            known = None
            if self.inference is not None and state.guard is not None:  # it acts alone, and is told which task it is
                known = self.inference.told(state.latents, state.world.posterior, state.task_number)
            since = 0 if state.trial is None else state.trial.since
            actor, told = self.programs.fit_actor(keys, state.actor, *data, model, known, since)
            state, facts = state._replace(actor=actor), facts | told._asdict()
            if state.trial is not None and self.trials.under_way(state.task_number, state.iteration):
                own = [key.fold("fresh") for key in keys], state.trial.fresh, *data, model, known, state.task_number
                state = state._replace(trial=state.trial._replace(fresh=self.programs.fit_actor(*own)[0]))
        if state.termination is not None:
            ends, facts["termination_accuracy"] = self.programs.fit_termination(keys, state.termination, *data)
            state = state._replace(termination=ends)
        return state, facts

    def _with_latents(
        self, keys: Keys, state: VblrlState, due: tuple[Who, ...], inference: TaskInference
    ) -> tuple[VblrlState, Facts]:
        """The world posterior first, then which task this is by it, then the task posterior, which begins from both."""
        if state.iteration == 0:
            known = inference.remember(state.latents, state.world.posterior, state.task_number)
            state = state._replace(world=state.world._replace(posterior=known))
        state, facts = self._fit(keys, state, ("world",))
        world = state.world.posterior, state.task_number, state.normaliser
        latents = inference.offline([key.fold("latent") for key in keys], *world, state.latents, state.replay)
        state = state._replace(latents=latents)
        facts["latent"] = jnp.mean(latents[:, 0], axis=1)  # [L, Z] as the first member has it
        if "task" in due:
            state, losses = self._fit(keys, self.inherit(state), ("task",))
            facts |= losses
        return state, facts

    def _fit(self, keys: Keys, state: VblrlState, group: tuple[Who, ...]) -> tuple[VblrlState, Facts]:
        """Fits the posteriors of a group in one program."""
        learned: dict[Who, Learning] = {"task": state.task, "world": state.world}
        priors: dict[Who, Posterior] = {"task": state.prior, "world": state.world_prior}
        data = state.normaliser, state.replay, state.task_number, state.task_latents
        facts: Facts = {}
        for who, (learning, loss) in zip(group, self.programs.fit[group](keys, learned, priors, *data), strict=True):
            learned[who] = learning
            facts |= {f"{who}_{part}": value for part, value in loss._asdict().items()}
        return state._replace(world=learned["world"], task=learned["task"]), facts

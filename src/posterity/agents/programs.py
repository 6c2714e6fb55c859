"""The compiled programs of VBLRL's training: `training.py` says what one lane does, these do it for all lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from posterity.agents import lanes
from posterity.agents.actor_learning import ActorCriticLearning
from posterity.agents.lanes import Program
from posterity.agents.training import Training, Who
from posterity.models import elbo, replay
from posterity.models.elbo import Learning

Result = TypeVar("Result")
GROUPS: tuple[tuple[Who, ...], ...] = (("task",), ("world",), ("task", "world"))  # posteriors fitted in one program


class Programs:
    """Each is compiled when it is first called, and once."""

    def __init__(self, training: Training, actor: ActorCriticLearning, tasks: int) -> None:
        """`tasks`: those of the run that have a latent of their own; 0 without latents."""

        def program(one: Callable[..., Result], donate: Sequence[int] = ()) -> Program[Result]:
            return lanes.compiled(one, training.settings.outer_precision, donate)

        self.init = program(partial(training.init, tasks=tasks))
        self.init_critic = program(training.init_critic)
        self.init_actor = program(actor.init)
        self.fit_actor = program(actor.fit)
        self.init_termination = program(training.init_termination)
        self.fit_termination = program(training.fit_termination)
        self.restart = program(training.restart)
        self.fixed_prior = program(training.fixed_prior)
        self.task_prior = program(training.task_prior)
        self.widened = program(training.widened)
        self.remember = program(replay.add, donate=[0])
        self.measure = program(training.measure)
        self.check = program(training.check)
        self.fit_critic = program(training.fit_critic)
        self.fit: dict[tuple[Who, ...], Program[list[tuple[Learning, elbo.Loss]]]] = {
            group: program(partial(training.fit, group)) for group in GROUPS
        }

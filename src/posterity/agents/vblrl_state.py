"""What VBLRL and its variants are set apart by, and everything that a run of them remembers."""

from __future__ import annotations

from typing import NamedTuple

import jax

from posterity.agents.guard import Guard
from posterity.agents.inference import Recent
from posterity.agents.training import VblrlSettings, Who
from posterity.agents.trial import Trial
from posterity.models.actor_critic import ActorCritic, ActorCriticTraining
from posterity.models.critic import Critic, CriticTraining
from posterity.models.elbo import Learning
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.models.replay import Replay
from posterity.models.reward_map import RewardBelief, RewardPrior
from posterity.models.termination import TerminationTraining
from posterity.planning.cem import Plan
from posterity.types import Array


class Variant(NamedTuple):
    """What sets a method apart."""

    fitted: tuple[Who, ...]  # the posteriors that are learned
    inherits: bool  # a task begins with the world posterior and the critic; else with nothing, and random actions
    planner: Who  # whose posterior plans once a task is under way
    latent: tuple[int, int]  # bounds of the latent's size
    tells_tasks_apart: bool = True  # or else one model is for all tasks

    def adapted(self, settings: VblrlSettings) -> VblrlSettings:
        """The settings with a latent such as this method has."""
        least, most = self.latent
        size = min(max(settings.latent.size, least), most)
        return settings.model_copy(update={"latent": settings.latent.model_copy(update={"size": size})})


ANY = 1 << 10  # no upper bound
VARIANTS: dict[str, Variant] = {
    "vblrl": Variant(fitted=("task", "world"), inherits=True, planner="task", latent=(0, ANY)),
    "single-task": Variant(fitted=("task",), inherits=False, planner="task", latent=(0, 0)),
    "hip-mdp": Variant(fitted=("world",), inherits=True, planner="world", latent=(1, ANY)),
    "pooled": Variant(fitted=("world",), inherits=True, planner="world", latent=(0, 0), tells_tasks_apart=False),
}


class VblrlState(NamedTuple):
    """Everything a run is. Arrays have a leading axis of lanes; numbers are the same for all."""

    world: Learning  # leaves [L, E, ...]
    world_prior: Posterior
    task: Learning
    prior: Posterior  # of the task posterior: the world posterior when the task began; in the first task the fixed one
    width: jax.Array  # [L] of that prior, where the posteriors are ensembles: how far tasks differ in their weights
    latents: jax.Array | None  # [L, E, M, Z] hypotheses about the task, for the world's networks; None: they take none
    task_latents: jax.Array | None  # those that the task's networks have learned with
    recent: Recent | None  # the task's first transitions
    normaliser: Normaliser
    target_std: jax.Array  # [L, 1 + O] the targets' deviation in the normaliser's units
    critic: CriticTraining | None
    actor: ActorCriticTraining | None
    guard: Guard | None  # where the actor acts alone
    trial: Trial | None  # of the actor that is inherited; None: it is not tried
    termination: TerminationTraining | None
    reward_prior: RewardPrior | None  # of a new task's map of rewards; None: the networks predict rewards
    rewards: RewardBelief | None  # what is believed of the task's own
    replay: Replay
    plan: Plan  # where the next search begins
    forecast: jax.Array  # [L, 3] sum of predicted returns, of their standard deviations, and how many
    task_number: int
    iteration: int  # of the present task
    step: int  # of the present iteration

    @property
    def actor_critic(self) -> ActorCritic | None:
        """Actor and critics that act now."""
        if self.actor is None or self.guard is None:
            return None if self.actor is None else self.actor.now
        return self.actor.now._replace(actor=self.guard.playing)


class VblrlSnapshot(NamedTuple):
    """What it takes to act later as at one moment of a run."""

    world: Posterior
    task: Posterior
    normaliser: Normaliser
    target_std: jax.Array
    critic: Critic | None
    random: Array  # [L] nothing was learned yet: actions are random
    latents: jax.Array | None  # [L, E, M, Z]
    task_latents: jax.Array | None  # [L, E, M, Z]
    task_number: Array  # [L] of the task it was taken in
    termination: Layers | None = None
    actor: ActorCritic | None = None
    rewards: RewardBelief | None = None

"""Who plays when a run of VBLRL is evaluated: Start, Train and zero-shot by one model, Back by two (Algorithm 2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.base import Score
from posterity.agents.inference import Adaptation, TaskInference
from posterity.agents.planner import PlannedPolicy, Planner
from posterity.agents.reward_learning import RewardAdaptation, RewardLearning
from posterity.agents.training import VblrlSettings, Who
from posterity.agents.vblrl_state import Variant, VblrlSnapshot
from posterity.errors import UserError
from posterity.models.actor_critic import ActorCritic
from posterity.models.critic import Critic
from posterity.models.dynamics import DynamicsModel
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.models.reward_map import RewardBelief
from posterity.types import Key


class Evaluation:
    """Models and policies, for all lanes."""

    def __init__(
        self,
        settings: VblrlSettings,
        variant: Variant,
        planner: Planner,
        inference: TaskInference | None,
        rewards: RewardLearning | None,
    ) -> None:
        self.settings, self.variant, self.planner = settings, variant, planner
        self.inference, self.rewards = inference, rewards

    def model(
        self,
        who: Who,
        posterior: Posterior,
        latents: jax.Array | None,
        units: Normaliser,
        target_std: jax.Array,
        critic: Critic | None,
        termination: Layers | None,
        actor: ActorCritic | None,
        rewards: RewardBelief | None,
    ) -> DynamicsModel:
        """A posterior with all that it takes to plan with it."""
        strength = self.settings.noise(who)
        noise = lanes.full(target_std.shape[0], strength) if strength else None
        plain = posterior._replace(latents=None)
        return DynamicsModel(plain, units, noise, target_std, critic, latents, termination, actor, rewards)

    def policy(self, own: VblrlSnapshot, latest: VblrlSnapshot, score: Score, variant: str) -> PlannedPolicy:
        """Forward scores plan with one model; Back combines the task's own and today's world model."""
        random = np.asarray(own.random)
        if score == "back":
            return self._back(own, latest, variant)
        carried = jax.device_put((own.normaliser, own.target_std, own.critic, own.termination, own.actor, own.rewards))
        if self.variant.planner == "task" and not (score == "zero-shot" and self.variant.inherits):
            task, latents = jax.device_put((own.task, own.task_latents))
            model = self.model("task", task, latents, *carried)
            return PlannedPolicy(self.planner, (model,), random, adapts=self._learning_rewards(score))
        world, latents = jax.device_put((own.world, own.latents))
        adapts = self._learning_rewards(score)
        if self.inference is not None and score != "train":  # which task this is has yet to be found out
            adapts = (*adapts, Adaptation(self.inference, world, jnp.asarray(own.task_number)))
        return PlannedPolicy(self.planner, (self.model("world", world, latents, *carried),), random, adapts=adapts)

    def _learning_rewards(self, score: Score) -> tuple[RewardAdaptation, ...]:
        """What learns the map of rewards while a new task is evaluated."""
        return () if self.rewards is None or score == "train" else (RewardAdaptation(self.rewards),)

    def _back(self, own: VblrlSnapshot, latest: VblrlSnapshot, variant: str) -> PlannedPolicy:
        """By the task's own posterior and today's world posterior together, or by one of them."""
        random = np.asarray(own.random)
        carried = jax.device_put((own.normaliser, own.target_std, own.critic, own.termination, own.actor, own.rewards))
        task, world, task_latents, latents = jax.device_put((own.task, latest.world, own.task_latents, own.latents))
        if self.inference is not None:
            keys = [Key.of(0)] * len(random)  # the same for all: what a lane draws does not depend on its place
            latents = self.inference.of_task(keys, world, jnp.asarray(own.task_number))
        then = self.model("task", task, task_latents, *carried)
        today = self.model("world", world, latents, *carried)
        if latest.actor is not None:
            today = today._replace(actor_critic=jax.device_put(latest.actor))
        if variant not in ("confidence", "blend"):
            by_world = variant == "world-only" or self.variant.planner == "world"
            return PlannedPolicy(self.planner, (today if by_world else then,), random)
        planner = self.settings.planner
        if planner.cem_iterations and variant == "confidence" and planner.particles < 2:
            raise UserError("Confidence is a spread over particles, and this run plans with one; try blend")
        return PlannedPolicy(self.planner, (then, today), random, variant)

"""What one lane learns after an iteration, as pure functions: both posteriors, the normaliser and the critic.

`vblrl.py` says when, and runs these for all lanes.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from posterity.errors import UserError
from posterity.kernels import elbo as fused
from posterity.models import critic, dynamics, elbo, normaliser, posterior, replay
from posterity.models.confidence import BackwardSettings
from posterity.models.critic import CriticSettings, CriticTraining
from posterity.models.dynamics import DynamicsModel, NetworkSettings
from posterity.models.elbo import Batch, Fit, LearnerSettings, Learning
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.models.replay import Replay, Rows
from posterity.planning.cem import PlannerSettings
from posterity.settings import Settings, setting
from posterity.types import Spec, Transition

Who = Literal["task", "world"]
INITIAL_SCALE = 0.02  # standard deviation of every weight before learning


class VblrlSettings(Settings):
    """What VBLRL, single-task and pooled can be told."""

    planner: PlannerSettings = PlannerSettings()
    learner: LearnerSettings = LearnerSettings()
    network: NetworkSettings = NetworkSettings()
    value: CriticSettings = CriticSettings()
    backward: BackwardSettings = BackwardSettings()
    world_iterations: int = setting(
        2, "Iterations at the start of a task in which the world model plans (released code: 2).", ge=0
    )
    task_min_transitions: int = setting(
        200, "Transitions of a task before its posterior is fitted (released code: 200).", ge=1
    )
    task_prior: Literal["world", "fixed"] = setting(
        "world", "Prior of the task posterior: the world posterior, or the fixed one (released code: fixed)."
    )
    bayesian: Literal["both", "world", "none"] = setting(
        "both", "Which models are Bayesian; the others are plain networks (the paper's ablation: world)."
    )
    normalise: bool = setting(True, "Normalise the networks' inputs and targets.")
    kernels: Literal["auto", "on", "off"] = setting(
        "auto", "Fused GPU kernels: auto (on NVIDIA GPUs), on (without a GPU: interpreted, slowly) or off."
    )
    matmul_precision: Literal["bf16", "tf32", "f32"] = setting(
        "bf16", "Matrix products on a GPU; bf16 is for the fused planner, elsewhere it means tf32."
    )

    @property
    def outer_precision(self) -> Literal["tf32", "f32"]:
        """Of matrix products outside the fused planner."""
        return "f32" if self.matmul_precision == "f32" else "tf32"

    def noise(self, who: Who) -> float:
        """Factor on a posterior's spread: 0 makes it a plain network."""
        return float(self.bayesian == "both" or (self.bayesian == "world" and who == "world"))


class Training:
    """Everything that is learned, for one lane."""

    def __init__(self, spec: Spec, settings: VblrlSettings, inherits: bool) -> None:
        self.spec, self.settings = spec, settings
        self.inherits = inherits  # whether the world posterior is the prior of every task but the first
        self.dims = (spec.obs_dim, len(spec.low))
        self.exact = settings.matmul_precision == "f32"
        self.fallback_reason = fused.fallback_reason(settings.kernels, settings.network, *self.dims, self.exact)
        if settings.kernels == "on" and self.fallback_reason:
            raise UserError(f"kernels are on, but {self.fallback_reason}")

    def init(self, key: jax.Array) -> Learning:
        """A posterior that knows nothing."""
        return elbo.begin(dynamics.init(key, *self.dims, self.settings.network, INITIAL_SCALE))

    def fixed_prior(self, q: Posterior) -> Posterior:
        """The prior of a posterior that has no other."""
        return posterior.gaussian(q, self.settings.learner.prior_scale)

    def init_critic(self, key: jax.Array) -> CriticTraining:
        """A critic that values nothing yet."""
        return critic.init(key, self.spec.obs_dim)

    def measure(self, old: Normaliser, memory: Replay, task: jax.Array) -> tuple[Normaliser, jax.Array]:
        """From the transitions of a task: the normaliser, and the targets' deviation in its units."""
        obs, action = memory.obs[task], memory.action[task]
        plain = normaliser.identity(*self.dims)
        inputs = plain.inputs(obs, action)
        targets = plain.targets(obs, memory.reward[task], memory.next_obs[task])
        bounds = self.spec.min_scale
        least = None if bounds is None else (jnp.float32(bounds[0]), jnp.float32(bounds[1]))
        filled = jnp.arange(obs.shape[0]) < memory.filled[task]
        measured = normaliser.estimate(inputs, targets, filled, least)
        new = measured if self.settings.normalise else old
        return new, measured.target_scale / new.target_scale

    def fit(
        self,
        who: tuple[Who, ...],
        key: jax.Array,
        learned: dict[Who, Learning],
        prior: Posterior,
        units: Normaliser,
        memory: Replay,
        task: jax.Array,
    ) -> list[tuple[Learning, elbo.Loss]]:
        """The task's posterior on its own transitions, the world's on those of all tasks so far, or both at once."""
        settings = self.settings.learner

        def task_batch(k: jax.Array) -> Batch:
            return _batch(units, replay.sample_task(k, memory, task, settings.task_batch_size))

        def world_batch(k: jax.Array) -> Batch:
            rows = replay.sample_world(k, memory, task + 1, settings.world_batch_tasks, settings.world_batch_size)
            return _batch(units, rows)

        kl_scale = self._prior_kl_scale(task, memory.filled[task]) if self.inherits else jnp.float32(1.0)
        fits = {
            "task": Fit(
                jax.random.fold_in(key, 0),
                learned["task"],
                prior,
                task_batch,
                settings.task_learning_rate,
                self.settings.noise("task"),
                kl_scale,
            ),
            "world": Fit(
                jax.random.fold_in(key, 1),
                learned["world"],
                self.fixed_prior(prior),
                world_batch,
                settings.world_learning_rate,
                self.settings.noise("world"),
            ),
        }
        chosen, network = [fits[name] for name in who], self.settings.network
        if self.fallback_reason:
            return elbo.fit(chosen, settings.gradient_steps, elbo.gradient(network, settings))
        return fused.fit(chosen, settings.gradient_steps, network, settings, self.exact)

    def _prior_kl_scale(self, task: jax.Array, transitions: jax.Array) -> jax.Array:
        """How tightly the prior holds the task posterior: less and less where it is the world's, as data comes in."""
        settings = self.settings.learner
        annealed = jnp.minimum(settings.prior_kl_anneal_transitions / jnp.maximum(transitions, 1), 1.0)
        return jnp.where(task > 0, jnp.maximum(annealed, settings.prior_kl_scale), 1.0)

    def fit_critic(
        self, key: jax.Array, training: CriticTraining, units: Normaliser, memory: Replay, task: jax.Array
    ) -> tuple[CriticTraining, jax.Array]:
        """The value of states, from the task's transitions."""
        settings, box = self.settings.value, self.spec.alive

        def draw(k: jax.Array) -> critic.CriticBatch:
            rows = replay.sample_task(k, memory, task, critic.BATCH_SIZE)
            ended = jnp.zeros(critic.BATCH_SIZE)
            if box is not None:
                ended = 1.0 - ((rows.next_obs > box[0]) & (rows.next_obs < box[1])).all(axis=-1)
            return critic.CriticBatch(rows.obs, rows.reward, rows.next_obs, ended)

        earned = memory.reward[task]  # and 0, which an end is worth: also where nothing is filled in yet
        training = critic.widened(training, earned.min(initial=0.0), earned.max(initial=0.0), settings.gamma)
        return critic.fit(jax.random.fold_in(key, 2), training, units, draw, settings)

    def check(self, key: jax.Array, model: DynamicsModel, rows: Transition) -> dict[str, jax.Array]:
        """How well the acting model foretold this iteration, which it has not learned from yet."""
        networks = model.sample(key, self.settings.planner.particles)
        obs, action, reward, next_obs = map(jnp.asarray, rows[:4])
        held = model.calibration(networks, obs, action, reward, next_obs, self.settings.network)
        return {
            "model_rmse": held.rmse,
            "coverage_90": held.coverage_90,
            "aleatoric_std": held.aleatoric_std,
            "epistemic_std": held.epistemic_std,
        }


def _batch(units: Normaliser, rows: Rows) -> Batch:
    """Transitions as the network takes them."""
    return Batch(units.inputs(rows.obs, rows.action), units.targets(rows.obs, rows.reward, rows.next_obs))

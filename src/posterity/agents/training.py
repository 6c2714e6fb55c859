"""What one lane learns after an iteration, as pure functions: both posteriors, the normaliser and the critic.

`vblrl.py` says when, and runs these for all lanes.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from pydantic import model_validator

from posterity.agents.actor_learning import ended, measured
from posterity.errors import UserError
from posterity.kernels import elbo as fused
from posterity.models import critic, dynamics, elbo, latent, posterior, replay, termination
from posterity.models.actor_critic import ActorCriticSettings
from posterity.models.confidence import BackwardSettings
from posterity.models.critic import CriticSettings, CriticTraining
from posterity.models.dynamics import DynamicsModel, NetworkSettings
from posterity.models.elbo import Batch, Fit, LearnerSettings, Learning
from posterity.models.latent import LatentSettings
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.models.replay import Replay, ReplaySettings, Rows
from posterity.models.reward_map import RewardMapSettings
from posterity.models.termination import TerminationTraining
from posterity.planning.cem import PlannerSettings
from posterity.settings import Settings, setting
from posterity.types import Spec, Transition

Who = Literal["task", "world"]
INITIAL_SCALE = 0.02  # standard deviation of every weight before learning
INITIAL_WIDTH = 0.03  # how far a task's weights lie from the world's, in deviations of a fresh network, to begin with
WIDTHS = (0.003, 0.3)  # the least and the greatest of it
COLOUR = 2.5  # of the noise of plans where rewards are sparse, so that they get somewhere
WIDTH_STEP = 0.2  # of its logarithm, after an iteration


class VblrlSettings(Settings):
    """What VBLRL, single-task and pooled can be told."""

    planner: PlannerSettings = PlannerSettings()
    learner: LearnerSettings = LearnerSettings()
    network: NetworkSettings = NetworkSettings()
    value: CriticSettings = CriticSettings()
    policy: ActorCriticSettings = ActorCriticSettings()
    backward: BackwardSettings = BackwardSettings()
    latent: LatentSettings = LatentSettings()
    reward_map: RewardMapSettings = RewardMapSettings()
    replay: ReplaySettings = ReplaySettings()
    members: int = setting(
        1, "Networks in the ensemble whose disagreement is the doubt; 1: one Gaussian over weights (paper).", ge=1
    )
    world_iterations: int = setting(
        2, "Iterations at the start of a task in which the world model plans (released code: 2).", ge=0
    )
    task_min_transitions: int = setting(
        200, "Transitions of a task before its posterior is fitted (released code: 200).", ge=1
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

    @model_validator(mode="after")
    def _someone_acts(self) -> VblrlSettings:
        if not self.planner.cem_iterations and not self.policy.updates_per_step:
            raise ValueError(
                "cem_iterations is 0, so an actor would act alone; set policy.updates_per_step to 1 or more"
            )
        if self.planner.cem_iterations and self.policy.noise != "white":
            raise ValueError("policy.noise is of an actor that acts alone; set planner.cem_iterations to 0")
        if self.planner.cem_iterations and self.policy.trial_iterations:
            raise ValueError("policy.trial_iterations are of an actor that acts alone; set planner.cem_iterations to 0")
        return self

    @property
    def outer_precision(self) -> Literal["tf32", "f32"]:
        """Of matrix products outside the fused planner."""
        return "f32" if self.matmul_precision == "f32" else "tf32"

    @property
    def colour(self) -> float:
        """Of the noise that plans are searched with."""
        return COLOUR if self.reward_map.lattice else 0.0

    @property
    def ensemble(self) -> bool:
        """Whether members are plain networks that disagree."""
        return self.members > 1

    def noise(self, who: Who) -> float:
        """Factor on a member's spread: 0 makes it a plain network."""
        if self.ensemble:
            return 0.0
        return float(self.bayesian == "both" or (self.bayesian == "world" and who == "world"))


class Training:
    """Everything that is learned, for one lane."""

    def __init__(self, spec: Spec, settings: VblrlSettings, inherits: bool) -> None:
        self.spec, self.settings = spec, settings
        self.inherits = inherits  # whether the world posterior is the prior of every task but the first
        self.dims = (spec.obs_dim, len(spec.low))
        self.exact = settings.matmul_precision == "f32"
        self.fallback_reason = fused.fallback_reason(settings.kernels, settings.network, *self.dims, self.exact)
        if settings.ensemble and not self.fallback_reason:
            self.fallback_reason = "plain networks are fitted faster by the compiler"
        if settings.kernels == "on" and self.fallback_reason:
            raise UserError(f"kernels are on, but {self.fallback_reason}")

    def init(self, key: jax.Array, tasks: int) -> Learning:
        """A posterior [E, ...] that knows nothing of `tasks` tasks."""
        settings, size = self.settings, self.settings.latent.size
        keys = key[None] if settings.members == 1 else jax.random.split(key, settings.members)

        def member(k: jax.Array) -> Learning:
            fresh = dynamics.init(k, *self.dims, settings.network, INITIAL_SCALE, size)
            return elbo.begin(fresh._replace(latents=latent.no_latents(tasks, size)) if size and tasks else fresh)

        return jax.vmap(member)(keys)

    def restart(self, q: Posterior) -> Learning:
        """The same weights with fresh optimisers, for one task: its latent is given and no more learned."""
        return jax.vmap(elbo.begin)(q._replace(latents=None))

    def fixed_prior(self, q: Posterior) -> Posterior:
        """The prior of a posterior that has no other. Members of an ensemble are held where they began."""
        if self.settings.ensemble:
            return posterior.anchored(q.mean, 1.0)
        return posterior.gaussian(q, self.settings.learner.prior_scale)

    def task_prior(self, q: Posterior, width: jax.Array) -> Posterior:
        """The world posterior as a task's prior. Around the members of an ensemble it is as wide as tasks differ."""
        if self.settings.ensemble:
            return posterior.anchored(q.mean, width)
        return q._replace(latents=None)

    def widened(
        self, key: jax.Array, width: jax.Array, task: DynamicsModel, world: DynamicsModel, rows: Transition
    ) -> jax.Array:
        """The width of the task's prior, after both models have been asked about transitions they have not seen.

        Where the task's own networks foretell them better than the world's do, tasks differ by more than was thought,
        and else by less. It is the sign of the slope of the prequential evidence.
        """
        obs, action, reward, next_obs = map(jnp.asarray, rows[:4])

        def told(model: DynamicsModel) -> jax.Array:
            networks = model.sample(key, self.settings.planner.particles)
            return model.log_likelihood(networks, obs, action, reward, next_obs, self.settings.network)

        factor = jnp.exp(WIDTH_STEP * jnp.sign(told(task) - told(world)))
        return jnp.clip(width * factor, *WIDTHS)

    def init_critic(self, key: jax.Array) -> CriticTraining:
        """A critic that values nothing yet."""
        return critic.init(key, self.spec.obs_dim)

    def init_termination(self, key: jax.Array) -> TerminationTraining:
        """A classifier for which nothing ends an episode yet."""
        return termination.init(key, self.spec.obs_dim)

    def fit_termination(
        self, key: jax.Array, training: TerminationTraining, units: Normaliser, memory: Replay, task: jax.Array
    ) -> tuple[TerminationTraining, jax.Array]:
        """What ends an episode, from all tasks so far; without transfer from this one."""
        place = jnp.arange(memory.filled.shape[0])
        counts = (place >= 0) if self.inherits else place == task
        steps = self.settings.learner.gradient_steps
        return termination.fit(jax.random.fold_in(key, 3), training, units, memory, counts, steps)

    def measure(self, old: Normaliser, memory: Replay, task: jax.Array) -> tuple[Normaliser, jax.Array]:
        """From the transitions of a task: the normaliser, and the targets' deviation in its units."""
        found = measured(self.spec, memory, task)
        new = found if self.settings.normalise else old
        return new, found.target_scale / new.target_scale

    def fit(
        self,
        who: tuple[Who, ...],
        key: jax.Array,
        learned: dict[Who, Learning],
        priors: dict[Who, Posterior],
        units: Normaliser,
        memory: Replay,
        task: jax.Array,
        latents: jax.Array | None,
    ) -> list[tuple[Learning, elbo.Loss]]:
        """The task's posterior on its own transitions, the world's on those of all tasks so far, or both at once.

        All members of all posteriors are fitted side by side, each on batches of its own. `latents` [E, M, Z] are the
        hypotheses about the task that its networks are given.
        """
        count, settings, network = self.settings.members, self.settings.learner, self.settings.network
        chosen = [
            self._fit(name, number, key, learned[name], priors[name], units, memory, task, latents)
            for name in who
            for number in range(count)
        ]
        if self.fallback_reason:
            fitted = elbo.fit(chosen, settings.gradient_steps, elbo.gradient(network, settings))
        else:
            fitted = fused.fit(chosen, settings.gradient_steps, network, settings, self.exact)
        together = [fitted[place * count : (place + 1) * count] for place in range(len(who))]
        joined = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *group) for group in together]
        return [(learning, jax.tree.map(lambda part: part.mean(axis=0), loss)) for learning, loss in joined]

    def _fit(
        self,
        who: Who,
        number: int,
        key: jax.Array,
        learned: Learning,
        prior: Posterior,
        units: Normaliser,
        memory: Replay,
        task: jax.Array,
        latents: jax.Array | None,
    ) -> Fit:
        """What one member of a posterior is fitted to."""
        settings = self.settings.learner
        key = jax.random.fold_in(key, 0 if who == "task" else 1)
        key = jax.random.fold_in(key, number) if self.settings.ensemble else key

        def task_batch(k: jax.Array) -> Batch:
            batch = _batch(units, replay.sample_task(k, memory, task, settings.task_batch_size))
            if latents is None:
                return batch
            place = jax.random.randint(jax.random.fold_in(k, 1), batch.inputs.shape[:1], 0, latents.shape[1])
            return batch._replace(inputs=jnp.concatenate([batch.inputs, latents[number, place]], axis=-1))

        def world_batch(k: jax.Array) -> Batch:
            met = (memory.filled > 0).sum()  # the present task is the last of them, unless it was met before
            rows = replay.sample_world(k, memory, met, elbo.WORLD_BATCH_TASKS, settings.world_batch_size)
            return _batch(units, rows)._replace(tasks=rows.task if self.settings.latent.size else None)

        own = who == "task"
        return Fit(
            key,
            jax.tree.map(lambda leaf: leaf[number], learned),
            jax.tree.map(lambda leaf: leaf[number], prior),
            task_batch if own else world_batch,
            settings.task_learning_rate if own else settings.world_learning_rate,
            self.settings.noise(who),
            self._kl_weight(who, task, memory.filled),
            None if own or not self.settings.latent.size else _latent_weight(memory.filled),
        )

    def _kl_weight(self, who: Who, task: jax.Array, filled: jax.Array) -> jax.Array:
        """Of the KL beside the mean log-likelihood. For an ensemble one over the transitions, as Bayes' rule has it."""
        if self.settings.ensemble:
            return 1.0 / jnp.maximum(filled[task] if who == "task" else filled.sum(), 1)
        if self.settings.noise(who) == 0.0:  # a plain network is fitted to the likelihood alone
            return jnp.float32(0.0)
        scale = self._prior_kl_scale(task, filled[task]) if who == "task" and self.inherits else jnp.float32(1.0)
        return scale * self.settings.learner.kl_weight

    def _prior_kl_scale(self, task: jax.Array, transitions: jax.Array) -> jax.Array:
        """How tightly the prior holds the task posterior: less and less where it is the world's, as data comes in."""
        settings = self.settings.learner
        annealed = jnp.minimum(settings.prior_kl_anneal_transitions / jnp.maximum(transitions, 1), 1.0)
        return jnp.where(task > 0, jnp.maximum(annealed, settings.prior_kl_scale), 1.0)

    def fit_critic(
        self, key: jax.Array, training: CriticTraining, units: Normaliser, memory: Replay, task: jax.Array
    ) -> tuple[CriticTraining, jax.Array]:
        """The value of states, from the task's transitions."""
        gamma = self.settings.value.gamma

        def draw(k: jax.Array) -> critic.CriticBatch:
            rows = replay.sample_task(k, memory, task, critic.BATCH_SIZE)
            return critic.CriticBatch(rows.obs, rows.reward, rows.next_obs, ended(self.spec, rows))

        rows, filled = replay.transitions(memory, task)
        earned = jnp.where(filled, rows.reward, 0.0)  # and 0, which an end is worth
        training = critic.widened(training, earned.min(initial=0.0), earned.max(initial=0.0), gamma)
        return critic.fit(jax.random.fold_in(key, 2), training, units, draw, gamma, self.settings.value.gradient_steps)

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


def _latent_weight(filled: jax.Array) -> jax.Array:
    """[K] of each task's latent: batches have as many rows of each task that has any, and n of its own."""
    met = filled > 0
    return met / (jnp.maximum(filled, 1) * jnp.maximum(met.sum(), 1))


def _batch(units: Normaliser, rows: Rows) -> Batch:
    """Transitions as the network takes them."""
    return Batch(units.inputs(rows.obs, rows.action), units.targets(rows.obs, rows.reward, rows.next_obs))

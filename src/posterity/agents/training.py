"""What one lane learns after an iteration, as pure functions: both posteriors, the units, what follows the horizon.

`vblrl.py` says when, and runs these for all lanes through `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from posterity.models import replay as memory
from posterity.agents.rollouts import Model
from posterity.errors import UserError
from posterity.models import elbo, horizon, normaliser, posterior, uncertainty
from posterity.models.confidence import BackwardSettings
from posterity.models.elbo import Batch, Fit, LearnerSettings, Learning
from posterity.models.critic import HorizonSettings, ValueLearning
from posterity.models.mlp import NetworkSettings, Weights
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.planning.cem import PlannerSettings
from posterity.models.replay import Replay
from posterity.settings import Settings, setting
from posterity.types import Spec, Transition

LEAST = 1e-6  # of the hold, where it widens the prior
Who = Literal["task", "world"]
Group = tuple[Who, ...]  # posteriors that are fitted in one program


class VblrlSettings(Settings):
    """What VBLRL can be told."""

    planner: PlannerSettings = PlannerSettings()
    learner: LearnerSettings = LearnerSettings()
    network: NetworkSettings = NetworkSettings()
    backward: BackwardSettings = BackwardSettings()
    horizon: HorizonSettings = HorizonSettings()
    world_iterations: int = setting(
        2, "Iterations of a task in which the world posterior acts (released code: 2).", ge=0
    )
    world_every: int = setting(
        0, "The world posterior acts in every so many iterations of a task too; 0: in the first ones only.", ge=0
    )
    task_minimum: int = setting(200, "Transitions of a task before its posterior is fitted (released code: 200).", ge=1)
    task_prior: Literal["world", "fixed"] = setting("world", "Prior of the task posterior (released code: fixed).")
    task_noise: float = setting(1.0, "Factor on the task posterior's spread; 0 is a plain network.", ge=0)
    normalise: bool = setting(True, "Learn in units in which inputs and targets have mean 0 and deviation 1.")
    precision: Literal["tf32", "f32"] = setting("tf32", "Matrix products on a GPU outside the fused planner.")
    normaliser_iterations: int = setting(5, "Iterations of the first task from which the units are estimated.", ge=1)


class Lessons:
    """Everything that is learned, for one lane."""

    def __init__(self, spec: Spec, settings: VblrlSettings, inherits: bool) -> None:
        self.spec = spec
        self.settings = settings
        self.inherits = inherits  # whether the world posterior is the prior of every task but the first
        sizes, exact = (spec.obs_dim + len(spec.low), 1 + spec.obs_dim), settings.precision == "f32"
        self.why_plain = elbo.why_plain(settings.network, settings.learner, *sizes, exact)  # empty: by the kernel
        if settings.learner.fused == "on" and self.why_plain:
            raise UserError(f"learner.fused is on, but {self.why_plain}")

    def fresh(self, data: jax.Array) -> Learning:
        """A posterior that knows nothing."""
        key, settings = jax.random.wrap_key_data(data), self.settings
        dims = (self.spec.obs_dim, len(self.spec.low))
        q = posterior.init(key, *dims, settings.network, settings.learner.initial_scale)
        return elbo.begin(q)

    def fixed_prior(self, q: Posterior) -> Posterior:
        """The prior of a posterior that has no other."""
        return posterior.gaussian(q, self.settings.learner.prior_scale)

    def batch(self, units: Normaliser, rows: memory.Rows) -> Batch:
        """Transitions as the network takes them."""
        return Batch(
            normaliser.inputs(units, rows.obs, rows.action),
            normaliser.targets(units, rows.obs, rows.reward, rows.next_obs),
        )

    def measure(self, units: Normaliser, replay: Replay, number: jax.Array) -> tuple[Normaliser, jax.Array]:
        """From the transitions of task `number`: the units, and the targets' deviation in them."""
        obs, action = replay.obs[number], replay.action[number]
        plain = normaliser.identity(obs.shape[-1], action.shape[-1])
        inputs = normaliser.inputs(plain, obs, action)
        targets = normaliser.targets(plain, obs, replay.reward[number], replay.next_obs[number])
        least = self.spec.least
        smallest = None if least is None else (jnp.float32(least[0]), jnp.float32(least[1]))
        filled = jnp.arange(obs.shape[0]) < replay.filled[number]
        measured = normaliser.estimate(inputs, targets, filled, smallest)
        units = measured if self.settings.normalise else units
        return units, measured.target_scale / units.target_scale

    def fit(
        self,
        who: Group,
        data: jax.Array,
        learned: dict[Who, Learning],
        prior: Posterior,
        units: Normaliser,
        replay: Replay,
        number: jax.Array,
    ) -> list[tuple[Learning, elbo.Loss]]:
        """The task's posterior on its own transitions, the world's on those of all tasks so far, or both at once."""
        settings, key = self.settings.learner, jax.random.wrap_key_data(data)

        def task_batch(k: jax.Array) -> Batch:
            return self.batch(units, memory.sample_task(k, replay, number, settings.task_rows))

        def world_batch(k: jax.Array) -> Batch:
            rows = memory.sample_world(k, replay, number + 1, settings.world_tasks, settings.world_rows)
            return self.batch(units, rows)

        noise, fixed = settings.posterior_noise, self.fixed_prior(prior)
        task_noise = noise * self.settings.task_noise
        factor = self._hold(number, replay.filled[number]) if self.inherits else jnp.float32(1.0)
        if settings.inherited_hold == "wider":  # means are pulled as by the lighter KL, spreads to the wider prior's
            prior, factor = posterior.wider(prior, jax.lax.rsqrt(jnp.maximum(factor, LEAST))), jnp.float32(1.0)
        keys = {"task": jax.random.fold_in(key, 0), "world": jax.random.fold_in(key, 1)}
        fits = {
            "task": Fit(keys["task"], learned["task"], prior, task_batch, settings.task_rate, task_noise, factor),
            "world": Fit(keys["world"], learned["world"], fixed, world_batch, settings.world_rate, noise),
        }
        steps = settings.task_steps if "task" in who else settings.world_steps
        return elbo.fit_all([fits[name] for name in who], steps, self.settings.network, settings)

    def _hold(self, number: jax.Array, rows: jax.Array) -> jax.Array:
        """How tightly the prior holds the task posterior: less and less where it is the world's, as data comes in."""
        learner = self.settings.learner
        fading = jnp.minimum(learner.inherited_rows / jnp.maximum(rows, 1), 1.0)
        return jnp.where(number > 0, jnp.maximum(fading, learner.inherited_kl), 1.0)

    def fresh_value(self, data: jax.Array) -> ValueLearning:
        """Nothing follows the horizon yet."""
        return horizon.init(jax.random.wrap_key_data(data), self.spec.obs_dim, self.settings.horizon)

    def fit_value(
        self, data: jax.Array, value: ValueLearning, units: Normaliser, replay: Replay, number: jax.Array
    ) -> tuple[ValueLearning, jax.Array]:
        """What follows a state, from the task's transitions."""
        settings, box = self.settings.horizon, self.spec.alive

        def draw(k: jax.Array) -> horizon.Steps:
            rows = memory.sample_task(k, replay, number, settings.rows)
            ended = jnp.zeros(settings.rows)
            if box is not None:
                ended = 1.0 - ((rows.next_obs > box[0]) & (rows.next_obs < box[1])).all(axis=-1)
            return horizon.Steps(rows.obs, rows.reward, rows.next_obs, ended)

        key = jax.random.fold_in(jax.random.wrap_key_data(data), 2)
        earned = replay.reward[number]  # and 0, which an end is worth: also where nothing is filled in yet
        value = horizon.bounded(value, earned.min(initial=0.0), earned.max(initial=0.0), settings.gamma)
        return horizon.fit(key, value, units, draw, settings)

    def check(
        self,
        draw: Callable[[jax.Array, Model], Weights],
        data: jax.Array,
        model: Model,
        units: Normaliser,
        rows: Transition,
    ) -> dict[str, jax.Array]:
        """How well the acting posterior foretold this iteration, which it has not learned from yet."""
        networks = draw(jax.random.wrap_key_data(data), model)
        inputs = normaliser.inputs(units, rows.obs, rows.action)
        targets = normaliser.targets(units, rows.obs, rows.reward, rows.next_obs)
        forecast = uncertainty.predict(networks, inputs, self.settings.network)
        held = uncertainty.calibration(forecast, targets)
        return {
            "model_error": held.error,
            "model_coverage": held.coverage,
            "aleatory": held.aleatory,
            "epistemic": held.epistemic,
        }

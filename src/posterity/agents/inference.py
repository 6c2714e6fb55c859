"""What is believed about the present task while it is met: hypotheses about its latent, for all lanes.

begin       before anything is known: one of the tasks met so far, or a new one
online      from the transitions of the iteration that is under way
offline     from the task's transitions in the replay, after the world posterior has learned from them
of_task     of an earlier task, as the world posterior has it by now
told        what an actor learns by: the latents of all tasks, the present one's as its hypotheses are
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.base import Keys
from posterity.agents.training import VblrlSettings
from posterity.models import latent, replay
from posterity.models.dynamics import DynamicsModel
from posterity.models.latent import Evidence
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Latents, Posterior
from posterity.models.replay import Replay
from posterity.types import HostArray, Spec, Transition


class Recent(NamedTuple):
    """The first W transitions of a task, as they come in."""

    obs: HostArray  # [L, W, O]
    action: HostArray  # [L, W, A]
    reward: HostArray  # [L, W]
    next_obs: HostArray  # [L, W, O]

    def put(self, place: int, step: Transition) -> Recent:
        """The same with a step [L, ...] written down."""
        rows = Recent(*(np.array(kept) for kept in self))
        for kept, new in zip(rows, step[:4], strict=True):
            kept[:, place] = new
        return rows


class TaskInference:
    """The programs that infer, compiled once. With a latent of size 0 there is nothing to infer."""

    def __init__(self, spec: Spec, settings: VblrlSettings) -> None:
        self.settings, self.network = settings.latent, settings.network
        self.dims = (spec.obs_dim, len(spec.low))
        precision = settings.outer_precision
        self.begin = lanes.compiled(self._begin, precision)
        self.online = lanes.compiled(self._online, precision)
        self.offline = lanes.compiled(self._offline, precision)
        self.of_task = lanes.compiled(self._of_task, precision)
        self.remember = lanes.compiled(self._remember, precision)
        self.told = lanes.compiled(self._told, precision)

    def empty(self, count: int) -> Recent:
        """Nothing was met yet, in `count` lanes."""
        obs, action = self.dims
        rows = (count, self.settings.transitions)
        shapes = ((*rows, obs), (*rows, action), rows, (*rows, obs))
        return Recent(*(np.zeros(shape, np.float32) for shape in shapes))

    def first(self, memory: Replay, task: int) -> Recent:
        """What a memory of everything has of a task's first transitions."""
        rows = self.empty(memory.filled.shape[0])
        for room, kept in zip(rows, memory[:4], strict=True):
            there = np.asarray(kept[:, task, : room.shape[1]])
            room[:, : there.shape[1]] = there
        return rows

    def due(self, seen: int) -> bool:
        """Whether the hypotheses are updated after `seen` transitions of a task: early on more often."""
        if seen > self.settings.transitions:
            return False
        return seen % latent.EVERY == 0 or seen in (1, 2, 4)

    # One lane ----------------------------------------------------------------------------------------------------

    def _begin(self, key: jax.Array, world: Posterior, tasks: jax.Array) -> jax.Array:
        known = _known(world)
        keys = jax.random.split(key, known.mean.shape[0])
        return jax.vmap(lambda k, each: latent.prior_draws(k, each, tasks, latent.DRAWS))(keys, known)

    def _online(
        self,
        key: jax.Array,
        world: Posterior,
        tasks: jax.Array,
        units: Normaliser,
        before: jax.Array,
        obs: jax.Array,
        action: jax.Array,
        reward: jax.Array,
        next_obs: jax.Array,
        seen: jax.Array,
    ) -> jax.Array:
        counts = (jnp.arange(obs.shape[0]) < seen).astype(jnp.float32)
        evidence = Evidence(units.inputs(obs, action), units.targets(obs, reward, next_obs), counts)
        return self._infer(key, world, tasks, evidence, before)

    def _offline(
        self, key: jax.Array, world: Posterior, tasks: jax.Array, units: Normaliser, before: jax.Array, memory: Replay
    ) -> jax.Array:
        rows = replay.sample_task(jax.random.fold_in(key, 1), memory, tasks, self.settings.transitions)
        share = jnp.minimum(memory.filled[tasks] / self.settings.transitions, 1.0)  # fewer rows come several times
        evidence = Evidence(
            units.inputs(rows.obs, rows.action),
            units.targets(rows.obs, rows.reward, rows.next_obs),
            jnp.broadcast_to(share, (self.settings.transitions,)),
        )
        own = self._of_task(jax.random.fold_in(key, 2), world, tasks)  # as the fit has it: a good place to begin from
        return self._infer(key, world, tasks, evidence, jnp.concatenate([before, own], axis=1))

    def _infer(
        self, key: jax.Array, world: Posterior, tasks: jax.Array, evidence: Evidence, before: jax.Array
    ) -> jax.Array:
        known = _known(world)
        keys = jax.random.split(key, known.mean.shape[0])
        return jax.vmap(
            lambda k, weights, each, old: latent.infer(k, weights, each, tasks, evidence, self.network, old)
        )(keys, world.mean, known, before)

    def _remember(self, latents: jax.Array, world: Posterior, task: jax.Array) -> Posterior:
        known = jax.vmap(lambda some, each: latent.remembered(some, each, task))(latents, _known(world))
        return world._replace(latents=known)

    def _told(self, latents: jax.Array, world: Posterior, task: jax.Array) -> Latents:
        known = jax.tree.map(lambda leaf: leaf[0], _known(world))
        return latent.remembered(latents[0], known, task)

    def _of_task(self, key: jax.Array, world: Posterior, task: jax.Array) -> jax.Array:
        known = _known(world)
        keys = jax.random.split(key, known.mean.shape[0])
        return jax.vmap(lambda k, each: latent.draws(k, each, task, latent.DRAWS))(keys, known)


class Adaptation:
    """Infers the task of an evaluation while it acts, with the networks held."""

    def __init__(self, inference: TaskInference, world: Posterior, tasks: jax.Array) -> None:
        self.inference, self.world, self.tasks = inference, world, tasks
        self.recent = inference.empty(tasks.shape[0])
        self.seen = 0

    def observe(self, keys: Keys, model: DynamicsModel, step: Transition) -> DynamicsModel:
        """The model with the hypotheses that are left after one more step [L, ...]."""
        self.seen += 1
        if self.seen > self.inference.settings.transitions:
            return model
        self.recent = self.recent.put(self.seen - 1, step)
        if not self.inference.due(self.seen):
            return model
        arguments = self.world, self.tasks, model.normaliser, model.latents, *self.recent, self.seen
        return model._replace(latents=self.inference.online(keys, *arguments))


def _known(world: Posterior) -> Latents:
    assert world.latents is not None
    return world.latents

"""Transitions of all tasks, on the device, and how many of each there are.

Shapes never change, so programs that read it compile once; new rows are written in place (the buffers are donated).

    everything      K tasks x capacity C
    bounded         the present task has a memory of its own with room for all C transitions. Of every task F
                    transitions stay, K x F in all: a uniform sample without replacement (a reservoir; Vitter 1985)

Every transition of a task has a random rank, by its place in the task, and the F of lowest rank so far are those that
stay. So the sample of the present task is there from the beginning, and nothing has to be done when a task ends. With
F = C it is the whole task in order, and all draws are those of a memory that keeps everything.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.settings import Settings, setting
from posterity.types import Array, Transition


class ReplaySettings(Settings):
    """What is remembered of earlier tasks."""

    finished_transitions: int = setting(
        2000, "Transitions of each finished task that stay, a uniform sample; 0: all of them (paper).", ge=0
    )


class Rows(NamedTuple):
    """Transitions taken from memory."""

    obs: jax.Array  # [B, O]
    action: jax.Array  # [B, A]
    reward: jax.Array  # [B]
    next_obs: jax.Array  # [B, O]
    task: jax.Array | None = None  # [B] where they come from several
    terminated: jax.Array | None = None  # [B] where it is kept


class Replay(NamedTuple):
    """One lane's transitions. Where termination follows from the observation (`Spec.alive`), it is not kept.

    F is C where everything is kept, and `present` is then None.
    """

    obs: jax.Array  # [K, F, O]
    action: jax.Array  # [K, F, A]
    reward: jax.Array  # [K, F]
    next_obs: jax.Array  # [K, F, O]
    filled: jax.Array  # [K] transitions met; the first F places of a task hold the smaller of this and F
    terminated: jax.Array | None = None  # [K, F] 1 where a step ended its episode; None: it is not learned
    present: Rows | None = None  # [C, ...] all transitions of the present task, whose number is `task` []


def empty(
    tasks: int, capacity: int, obs_dim: int, action_dim: int, terminations: bool = False, finished: int = 0
) -> Replay:
    """Room for `capacity` transitions of each of `tasks` tasks; with `terminations` for what ended an episode too.

    `finished`: of tasks that are over there is room for so many; 0: for all.
    """
    kept = min(finished, capacity) if finished else capacity

    def room(*rows: int) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        return (
            jnp.zeros((*rows, obs_dim)),
            jnp.zeros((*rows, action_dim)),
            jnp.zeros(rows),
            jnp.zeros((*rows, obs_dim)),
        )

    ended = jnp.zeros((tasks, kept)) if terminations else None
    filled = jnp.zeros(tasks, dtype=jnp.int32)
    present = Rows(*room(capacity), jnp.int32(0), jnp.zeros(capacity) if terminations else None) if finished else None
    return Replay(*room(tasks, kept), filled, ended, present)


def add(replay: Replay, task: jax.Array, rows: Transition) -> Replay:
    """The rows [B, ...] after those `task` has. There must be room: capacity is what a run will collect."""
    at = replay.filled[task]
    filled = replay.filled.at[task].add(rows.reward.shape[0])

    def put(kept: jax.Array, new: Array) -> jax.Array:
        start = (task, at, *(jnp.int32(0) for _ in kept.shape[2:]))
        return jax.lax.dynamic_update_slice(kept, jnp.asarray(new, kept.dtype)[None], start)

    if replay.present is None:
        parts = (put(kept, new) for kept, new in zip(replay[:4], rows[:4], strict=True))
        ended = None if replay.terminated is None else put(replay.terminated, rows.terminated)
        return Replay(*parts, filled=filled, terminated=ended)
    present = _appended(replay.present, task, at, rows)
    place = _reservoir(task, filled[task], present.reward.shape[0], replay.reward.shape[1])

    def keep(kept: jax.Array, whole: jax.Array) -> jax.Array:
        start = (task, *(jnp.int32(0) for _ in kept.shape[1:]))
        return jax.lax.dynamic_update_slice(kept, whole[place][None], start)

    parts = (keep(kept, whole) for kept, whole in zip(replay[:4], present[:4], strict=True))
    ended, whole = replay.terminated, present.terminated
    ended = None if ended is None or whole is None else keep(ended, whole)
    return Replay(*parts, filled=filled, terminated=ended, present=present)


def _appended(present: Rows, task: jax.Array, at: jax.Array, rows: Transition) -> Rows:
    """The present task's memory with further rows; what it holds of another task is out of reach, and overwritten."""

    def put(kept: jax.Array, new: Array) -> jax.Array:
        start = (at, *(jnp.int32(0) for _ in kept.shape[1:]))
        return jax.lax.dynamic_update_slice(kept, jnp.asarray(new, kept.dtype), start)

    parts = (put(kept, new) for kept, new in zip(present[:4], rows[:4], strict=True))
    ended = None if present.terminated is None else put(present.terminated, rows.terminated)
    return Rows(*parts, task=jnp.asarray(task, jnp.int32), terminated=ended)


def _reservoir(task: jax.Array, count: jax.Array, capacity: int, size: int) -> jax.Array:
    """[F] the places of those of the first `count` transitions of a task that stay, in order; then places of no use.

    Ranks depend on the place alone, so that neither how rows came in nor how much room there is changes them.
    """
    place = jnp.arange(capacity)
    key = jax.random.fold_in(jax.random.key(0), task)
    rank = jax.vmap(lambda each: jax.random.uniform(jax.random.fold_in(key, each)))(place)
    order = jnp.argsort(jnp.where(place < count, rank, jnp.inf))
    return jnp.sort(order[:size])


def transitions(replay: Replay, task: jax.Array) -> tuple[Rows, jax.Array]:
    """All transitions [C, ...] that are kept of the present task, and which of the places [C] hold one."""
    if replay.present is not None:
        rows = replay.present
    else:
        ended = None if replay.terminated is None else replay.terminated[task]
        rows = Rows(*(kept[task] for kept in replay[:4]), terminated=ended)
    return rows._replace(task=None), jnp.arange(rows.reward.shape[0]) < replay.filled[task]


def sample_task(key: jax.Array, replay: Replay, task: jax.Array, batch_size: int) -> Rows:
    """`batch_size` transitions of the present task, uniformly with replacement; of any where everything is kept."""
    place = jax.random.randint(key, (batch_size,), 0, jnp.maximum(replay.filled[task], 1))
    if replay.present is not None:
        parts, ended = (kept[place] for kept in replay.present[:4]), replay.present.terminated
        return Rows(*parts, terminated=None if ended is None else ended[place])
    ended = None if replay.terminated is None else replay.terminated[task, place]
    return Rows(*(kept[task, place] for kept in replay[:4]), terminated=ended)


def sample_world(key: jax.Array, replay: Replay, seen: jax.Array, tasks: int, batch_size: int) -> Rows:
    """`batch_size` transitions from each of `tasks` of the first `seen` tasks; with fewer, tasks come again."""
    task_key, row_key = jax.random.split(key)
    total, present = replay.filled.shape[0], replay.present
    order = jnp.argsort(jnp.where(jnp.arange(total) < seen, jax.random.uniform(task_key, (total,)), jnp.inf))
    chosen = order[jnp.arange(tasks) % jnp.minimum(seen, total)]
    there = replay.filled[chosen]
    if present is not None and present.task is not None:
        there = jnp.where(chosen == present.task, there, jnp.minimum(there, replay.reward.shape[1]))
    limit = jnp.maximum(there, 1)[:, None]
    place = jax.random.randint(row_key, (tasks, batch_size), 0, jnp.broadcast_to(limit, (tasks, batch_size)))

    def taken(kept: jax.Array, whole: jax.Array | None) -> jax.Array:
        rows = kept[chosen[:, None], jnp.minimum(place, kept.shape[1] - 1)]
        if whole is not None and present is not None and present.task is not None:
            now = (chosen == present.task).reshape(tasks, *(1 for _ in rows.shape[1:]))
            rows = jnp.where(now, whole[place], rows)
        return rows.reshape(tasks * batch_size, *kept.shape[2:])

    wholes = (None,) * 4 if present is None else present[:4]
    rows = (taken(kept, whole) for kept, whole in zip(replay[:4], wholes, strict=True))
    return Rows(*rows, task=jnp.repeat(chosen, batch_size))


def sample_mixed(
    key: jax.Array, replay: Replay, task: jax.Array, share: float, batch_size: int, since: jax.Array | int = 0
) -> Rows:
    """`batch_size` transitions, each with probability `share` of one of the tasks before `task`, else of `task`.

    Of the tasks before, only those from `since` on count; where there are none, all transitions are of `task`.
    """
    which_key, task_key, place_key = jax.random.split(key, 3)
    earlier = (jax.random.uniform(which_key, (batch_size,)) < share) & (task > since)
    chosen = jnp.where(earlier, jax.random.randint(task_key, (batch_size,), since, jnp.maximum(task, since + 1)), task)
    there, present = replay.filled[chosen], replay.present
    if present is not None:
        there = jnp.where(earlier, jnp.minimum(there, replay.reward.shape[1]), there)
    limit = jnp.maximum(there, 1)
    place = jnp.minimum((jax.random.uniform(place_key, (batch_size,)) * limit).astype(jnp.int32), limit - 1)

    def taken(kept: jax.Array, whole: jax.Array | None) -> jax.Array:
        rows = kept[chosen, jnp.minimum(place, kept.shape[1] - 1)]
        return (
            rows if whole is None else jnp.where(earlier.reshape(-1, *(1 for _ in rows.shape[1:])), rows, whole[place])
        )

    wholes = (None,) * 4 if present is None else present[:4]
    parts = (taken(kept, whole) for kept, whole in zip(replay[:4], wholes, strict=True))
    own = None if present is None else present.terminated
    ended = None if replay.terminated is None else taken(replay.terminated, own)
    return Rows(*parts, task=chosen, terminated=ended)

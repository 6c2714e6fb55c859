"""Transitions of all tasks, on the device: K tasks x capacity C, and how many of each are there.

Shapes never change, so programs that read it compile once; new rows are written in place (the buffers are donated).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posterity.types import Array, Transition


class Replay(NamedTuple):
    """One lane's transitions. Where termination follows from the observation (`Spec.alive`), it is not kept."""

    obs: jax.Array  # [K, C, O]
    action: jax.Array  # [K, C, A]
    reward: jax.Array  # [K, C]
    next_obs: jax.Array  # [K, C, O]
    filled: jax.Array  # [K]
    terminated: jax.Array | None = None  # [K, C] 1 where a step ended its episode; None: it is not learned


class Rows(NamedTuple):
    """Transitions taken from memory."""

    obs: jax.Array  # [B, O]
    action: jax.Array  # [B, A]
    reward: jax.Array  # [B]
    next_obs: jax.Array  # [B, O]
    task: jax.Array | None = None  # [B] where they come from several
    terminated: jax.Array | None = None  # [B] where it is kept


def empty(tasks: int, capacity: int, obs_dim: int, action_dim: int, terminations: bool = False) -> Replay:
    """Room for `capacity` transitions of each of `tasks` tasks; with `terminations` for what ended an episode too."""
    return Replay(
        jnp.zeros((tasks, capacity, obs_dim)),
        jnp.zeros((tasks, capacity, action_dim)),
        jnp.zeros((tasks, capacity)),
        jnp.zeros((tasks, capacity, obs_dim)),
        jnp.zeros(tasks, dtype=jnp.int32),
        jnp.zeros((tasks, capacity)) if terminations else None,
    )


def add(replay: Replay, task: jax.Array, rows: Transition) -> Replay:
    """The rows [B, ...] after those `task` has. There must be room: capacity is what a run will collect."""
    at = replay.filled[task]

    def put(kept: jax.Array, new: Array) -> jax.Array:
        start = (task, at, *(jnp.int32(0) for _ in kept.shape[2:]))
        return jax.lax.dynamic_update_slice(kept, jnp.asarray(new, kept.dtype)[None], start)

    return Replay(
        put(replay.obs, rows.obs),
        put(replay.action, rows.action),
        put(replay.reward, rows.reward),
        put(replay.next_obs, rows.next_obs),
        replay.filled.at[task].add(rows.reward.shape[0]),
        None if replay.terminated is None else put(replay.terminated, rows.terminated),
    )


def sample_task(key: jax.Array, replay: Replay, task: jax.Array, batch_size: int) -> Rows:
    """`batch_size` transitions of one task, uniformly with replacement."""
    place = jax.random.randint(key, (batch_size,), 0, jnp.maximum(replay.filled[task], 1))
    ended = None if replay.terminated is None else replay.terminated[task, place]
    return Rows(*(kept[task, place] for kept in replay[:4]), terminated=ended)


def sample_world(key: jax.Array, replay: Replay, seen: jax.Array, tasks: int, batch_size: int) -> Rows:
    """`batch_size` transitions from each of `tasks` of the first `seen` tasks; with fewer, tasks come again."""
    task_key, row_key = jax.random.split(key)
    total = replay.filled.shape[0]
    order = jnp.argsort(jnp.where(jnp.arange(total) < seen, jax.random.uniform(task_key, (total,)), jnp.inf))
    chosen = order[jnp.arange(tasks) % jnp.minimum(seen, total)]
    limit = jnp.maximum(replay.filled[chosen], 1)[:, None]
    place = jax.random.randint(row_key, (tasks, batch_size), 0, jnp.broadcast_to(limit, (tasks, batch_size)))
    rows = (kept[chosen[:, None], place].reshape(tasks * batch_size, *kept.shape[2:]) for kept in replay[:4])
    return Rows(*rows, task=jnp.repeat(chosen, batch_size))


def sample_mixed(key: jax.Array, replay: Replay, task: jax.Array, share: float, batch_size: int) -> Rows:
    """`batch_size` transitions, each with probability `share` of one of the tasks before `task`, else of `task`.

    In the first task all are its own.
    """
    which_key, task_key, place_key = jax.random.split(key, 3)
    earlier = (jax.random.uniform(which_key, (batch_size,)) < share) & (task > 0)
    chosen = jnp.where(earlier, jax.random.randint(task_key, (batch_size,), 0, jnp.maximum(task, 1)), task)
    limit = jnp.maximum(replay.filled[chosen], 1)
    place = jnp.minimum((jax.random.uniform(place_key, (batch_size,)) * limit).astype(jnp.int32), limit - 1)
    ended = None if replay.terminated is None else replay.terminated[chosen, place]
    return Rows(*(kept[chosen, place] for kept in replay[:4]), task=chosen, terminated=ended)

"""Room in the replay: whether there is enough on this computer, and making some where it is full."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from posterity.errors import UserError
from posterity.models.replay import Replay, ReplaySettings, Rows
from posterity.types import Budget, HostArray, Spec

Part = TypeVar("Part", Replay, Rows)
Place = tuple[int | slice | HostArray, ...]  # rows of an array


def check_room(spec: Spec, settings: ReplaySettings, budget: Budget) -> None:
    """Refuses a memory that is larger than this computer's, before it is laid out."""
    present = budget.iterations * budget.steps_per_iteration
    finished = min(settings.finished_transitions or present, present)
    size = 4 * (2 * spec.obs_dim + len(spec.low) + 1) * (budget.tasks * finished + present)
    if "SC_PHYS_PAGES" not in os.sysconf_names:  # a system that does not tell
        return
    if size > (whole := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise UserError(
            f"The transitions of {budget.tasks} tasks take {size / 2**30:.3g} GiB, and this computer has "
            f"{whole / 2**30:.3g}; set fewer --tasks, or keep less of each: --replay.finished-transitions 2000"
        )


def bounded(memory: Replay, transitions: int, task: int | None = None) -> Replay:
    """One lane's memory [1, K, C, ...] with at most so many transitions of each task, or of one.

    They are evenly spaced over the life of a task. What is thinned out often is mostly recent.
    """
    counts = np.array(memory.filled)
    many = [each for each, count in enumerate(counts[0].tolist()) if count > transitions and task in (None, each)]
    if not many:
        return memory
    present = memory.present
    if present is not None and (now := int(np.asarray(present.task)[0])) in many:
        even = np.linspace(0, counts[0, now] - 1, transitions).astype(int)
        present = _taken(present, [((0, slice(transitions)), (0, even))])
    places: list[tuple[Place, Place]] = []
    for each in many:
        kept = min(int(counts[0, each]), memory.reward.shape[2])  # of a bounded memory fewer than were met
        room = min(transitions, kept)
        places.append(((0, each, slice(room)), (0, each, np.linspace(0, kept - 1, room).astype(int))))
        counts[0, each] = transitions
    return _taken(memory, places)._replace(filled=jnp.asarray(counts), present=present)


def _taken(part: Part, places: Sequence[tuple[Place, Place]]) -> Part:
    """Rows moved: the first of every pair of places takes the rows of the second."""
    arrays = {name: np.array(leaf) for name, leaf in part._asdict().items() if isinstance(leaf, jax.Array | np.ndarray)}
    for name, array in arrays.items():
        if name not in ("filled", "task"):
            for to, of in places:
                array[to] = array[of]
    return part._replace(**{name: jnp.asarray(array) for name, array in arrays.items()})


def thinned(memory: Replay, task: int, rows: int) -> Replay:
    """One lane's memory with room for so many more rows of a task: half of what there is goes if there is none."""
    whole = memory.reward if memory.present is None else memory.present.reward[:, None]
    room = whole.shape[2] - rows
    return bounded(memory, room // 2, task) if int(np.asarray(memory.filled)[0, task]) > room else memory

"""Making room in a replay that is full: the transitions of a task, evenly thinned."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from posterity.models.replay import Replay


def bounded(memory: Replay, transitions: int, task: int | None = None) -> Replay:
    """One lane's memory [1, K, C, ...] with at most so many transitions of each task, or of one.

    They are evenly spaced over the life of a task. What is thinned out often is mostly recent.
    """
    counts = np.array(memory.filled)
    if not any(count > transitions and task in (None, each) for each, count in enumerate(counts[0].tolist())):
        return memory
    parts = {name: np.array(part) for name, part in memory._asdict().items() if part is not None}
    for each, count in enumerate(counts[0].tolist()):
        if count > transitions and task in (None, each):
            kept = np.linspace(0, count - 1, transitions).astype(int)
            for name, part in parts.items():
                if name != "filled":
                    part[0, each, :transitions] = part[0, each, kept]
            counts[0, each] = transitions
    return memory._replace(**{name: jnp.asarray(part) for name, part in parts.items()})._replace(
        filled=jnp.asarray(counts)
    )


def thinned(memory: Replay, task: int, rows: int) -> Replay:
    """One lane's memory with room for so many more rows of a task: half of what there is goes if there is none."""
    room = memory.reward.shape[2] - rows
    return bounded(memory, room // 2, task) if int(np.asarray(memory.filled)[0, task]) > room else memory

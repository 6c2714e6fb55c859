"""The best way to look for the goal of point-goal.

Until the first reward nothing is learned but where the goal is not, so a way to look for it is a path x_1 .. x_T that
does not depend on the goal. Let c_t be the share of the arc that x_1 .. x_t have seen. The path is worth

    J(x) = sum_t c_t = sum_t (T - t + 1) (c_t - c_{t-1})                                         (pointgoal_optimum.py)

so what is seen first at step t counts T - t + 1 times. The best path is searched, without any guess of its shape, over
states (position, part of the arc seen):

    1. On a lattice of positions. Of all ways to reach a position at step t, the `width` of greatest value so far are
       kept. Two ways that saw the same part are one, and the better of them is enough. With unlimited width this is
       dynamic programming, and exact on the lattice.
    2. Around the path found, on 5 x 5 positions about each of its own, again and again; the grid is halved whenever the
       path no longer improves.

The part seen is a bit mask over equal parts of the arc. A part counts as seen when its midpoint is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posterity.families.pointgoal import PointGoalSettings, goal_places, reached
from posterity.types import FloatArray, IntArray

Masks = NDArray[np.uint64]
WORD = 64
LATTICE_PARTS, FINE_PARTS = 2 * WORD, 16 * WORD
WIDTH = 20
FINEST = 0.01  # the last grid, in steps
GAIN = 1e-3  # a path is better if it is worth this much more


def best_path(settings: PointGoalSettings) -> FloatArray:
    """The path [T, 2] of the explorer that finds the goal soonest on average. It takes seconds."""
    lattice, spacing = lattice_of(settings)
    path = search(settings, [lattice] * settings.max_episode_steps, WIDTH, LATTICE_PARTS)
    offsets = np.stack(np.meshgrid(*[np.linspace(-1.0, 1.0, 5)] * 2), axis=-1).reshape(-1, 2)
    worth, spacing = value(settings, path), spacing / 2
    while spacing > FINEST * settings.step:
        other = search(settings, [position + spacing * offsets for position in path], WIDTH, FINE_PARTS)
        if (found := value(settings, other)) > worth + GAIN:
            path, worth = other, found
        else:
            spacing /= 2
    return path


def first_seen(settings: PointGoalSettings, path: FloatArray, parts: int = 4096) -> IntArray:
    """For each of the arc's parts, how many steps of `path` [T, 2] end without having seen it; T: it is never seen."""
    seen = reached(settings, path[:, None], goal_places(settings, parts))
    return np.where(seen.any(axis=0), seen.argmax(axis=0), len(path))


def value(settings: PointGoalSettings, path: FloatArray, parts: int = 4096) -> float:
    """J of a path [T, 2]."""
    return float((len(path) - first_seen(settings, path, parts)).mean())


def lattice_of(settings: PointGoalSettings) -> tuple[FloatArray, float]:
    """Positions [N, 2] no farther out than the arc and hardly below the origin, and the space between them."""
    spacing = settings.step / np.ceil(2 * settings.step / settings.goal_radius)
    reach = int(np.ceil(settings.radius / spacing))
    axis = spacing * np.arange(-reach, reach + 1)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    near = np.hypot(grid[:, 0], grid[:, 1]) <= settings.radius * (1 + 1e-9)
    return grid[near & (grid[:, 1] >= -settings.step * (1 + 1e-9))], float(spacing)


def search(settings: PointGoalSettings, layers: Sequence[FloatArray], width: int, parts: int) -> FloatArray:
    """The best path [T, 2] that at step t is in one of `layers[t]` [N, 2], of those that the beam keeps."""
    goals = goal_places(settings, parts)
    salt = np.random.default_rng(0).integers(2**63, size=parts // WORD, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    before, at = np.zeros((1, 2)), np.zeros(1, np.int64)
    seen, worth = np.zeros((1, parts // WORD), np.uint64), np.zeros(1)
    steps: list[tuple[IntArray, IntArray]] = []
    for step, after in enumerate(layers):
        view: Masks = np.packbits(reached(settings, after[:, None], goals), axis=1).view(np.uint64)
        within = np.abs(before[:, None] - after).max(axis=-1) <= settings.step * (1 + 1e-9)
        parent, child = np.nonzero(within[at])
        now = seen[parent] | view[child]
        new = np.bitwise_count(now ^ seen[parent]).sum(axis=1, dtype=np.int64)
        total = worth[parent] + (len(layers) - step) * new / parts
        kept = _best(child, (now * salt).sum(axis=1, dtype=np.uint64), total, width)
        before, at, seen, worth = after, child[kept], now[kept], total[kept]
        steps.append((parent[kept], at))
    state, path = int(worth.argmax()), []
    for (parent, at), layer in zip(reversed(steps), reversed(layers), strict=True):
        path.append(layer[at[state]])
        state = parent[state]
    return np.array(path[::-1])


def _best(child: IntArray, fingerprint: Masks, total: FloatArray, width: int) -> IntArray:
    """The `width` best states of each position, at most one with the same part of the arc seen."""
    order = np.lexsort((-total, fingerprint, child))
    same = (np.diff(child[order]) == 0) & (np.diff(fingerprint[order]) == 0)
    order = order[np.concatenate([[True], ~same])]
    order = order[np.lexsort((-total[order], child[order]))]
    place = child[order]
    rank = np.arange(len(order)) - np.searchsorted(place, place)
    return order[rank < width]

"""What point-goal can earn: knowing the goal, exploring as well as possible, by posterior sampling, at random.

**Knowing the goal.** The fastest way moves both coordinates at once, so after n steps a square of side 2 n step can be
reached. The first reward comes at the first n at which the square touches the disc around the goal, and then at every
step: T - n + 1 in an episode of T steps.

**Knowing the family but not the goal** (Bayes-optimal, first episode). Three facts make it a search for one path:

    1. A reward is the most a step can give, and staying earns it again. So after the first reward staying is optimal.
    2. Before it every step has shown the same, no reward. So the agent learns nothing that it could choose by, and all
       it does is a path x_1 .. x_T fixed in advance. (Chance in its actions cannot help: it mixes paths.)
    3. The first reward comes at the first step that sees the goal, tau = min {t : |x_t - goal| <= goal_radius}, and the
       return is T - tau + 1, or 0. With c_t = P(tau <= t), the share of the arc seen by step t,

           E[return] = sum_t P(tau <= t) = sum_t c_t = J(x).

`pointgoal_search.best_path` maximises J over paths. It finds a path and its exact value, so the number is a return that
can be had. That nothing is better is not proved but searched for: docs/families/point-goal.md says how far.

**Posterior sampling** (Thompson) goes the fastest way to a goal drawn from those still possible, and draws again when
it is near enough to see that the goal is not there. Given its draws it too is a path until the first reward, so
E[return] = E[J(x)], and only the draws are simulated.

**A random walk** draws every action uniformly and does not stay: E[return] = E[sum_t (share of the arc seen at x_t)].

In later episodes the explorers go the fastest way to where they were first rewarded. That is a little less than knowing
the goal earns, since a place that is reached sooner may see it too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posterity.errors import UserError
from posterity.families.pointgoal import PointGoalSettings, goal_places, reached
from posterity.families.pointgoal_search import best_path, first_seen
from posterity.types import BoolArray, FloatArray, IntArray, Key

KEY = Key.of(0).fold("point-goal optimum")
PARTS = 4096  # of the arc, where what is computed is exact but for them
WALKS, WALK_PARTS = 2000, 256  # where draws are simulated


class Estimate(NamedTuple):
    """A mean over simulated draws and its standard error, which is 0 where nothing was simulated."""

    mean: float
    error: float


class Explorer(NamedTuple):
    """Expected returns of one that looks for the goal until it is rewarded."""

    first: Estimate  # of the first episode
    later: Estimate  # of an episode after one in which the goal was found
    found: Estimate  # the chance that the first episode finds it


class Returns(NamedTuple):
    """Expected returns of an episode of point-goal, over the goals of the family."""

    known_goal: float  # in every episode; no agent earns more
    bayes_optimal: Explorer
    thompson: Explorer
    random_walk: Estimate  # in every episode


def optimal_return(settings: PointGoalSettings) -> Returns:
    """What the four agents earn. It takes some ten seconds."""
    if settings.graded:
        raise UserError("The optimum of point-goal is known for the plain reward only, without 'graded'")
    return Returns(
        known_goal=float(known_goal_returns(settings, goal_places(settings, PARTS)).mean()),
        bayes_optimal=explorer(settings, best_path(settings)[None], PARTS),
        thompson=explorer(settings, thompson_paths(settings, WALKS, KEY.fold("thompson")), WALK_PARTS),
        random_walk=random_walk(settings, WALKS, KEY.fold("random walk")),
    )


def known_goal_returns(settings: PointGoalSettings, goals: FloatArray) -> FloatArray:
    """The return [N] of one that knows which of `goals` [N, 2] is the goal."""
    squares = settings.step * np.arange(1, settings.max_episode_steps + 1)
    gap = np.maximum(np.abs(goals[:, None]) - squares[:, None], 0.0)  # [N, T, 2] from the square to the goal
    return (np.hypot(gap[..., 0], gap[..., 1]) <= settings.goal_radius * (1 + 1e-9)).sum(axis=1).astype(float)


def explorer(settings: PointGoalSettings, paths: FloatArray, parts: int) -> Explorer:
    """What the paths [N, T, 2], taken until the first reward, earn in this episode and in later ones."""
    goals, first, found, later = goal_places(settings, parts), [], [], []
    reach = settings.step * np.arange(1, settings.max_episode_steps + 1)[:, None, None]
    for path in paths:
        wait = first_seen(settings, path, parts)
        known = np.flatnonzero(wait < len(path))
        way = np.clip(path[wait[known]], -reach, reach)  # [T, N, 2] the fastest to where each goal was first seen
        first.append(len(path) - wait.mean())
        found.append(len(known) / parts)
        later.append(reached(settings, way, goals[known]).sum() / parts)
    chance = max(float(np.mean(found)), 1e-12)
    ratio = np.mean(later) / chance  # of those that found it; its error is by the delta method
    return Explorer(
        _estimate(np.array(first)),
        _estimate(ratio + (np.array(later) - ratio * np.array(found)) / chance),
        _estimate(np.array(found)),
    )


def thompson_paths(settings: PointGoalSettings, count: int, key: Key) -> FloatArray:
    """Paths [count, T, 2] of posterior sampling as long as it is not rewarded."""
    generator, goals = key.generator(), goal_places(settings, WALK_PARTS)
    position, possible = np.zeros((count, 2)), np.ones((count, WALK_PARTS), bool)
    target = generator.integers(WALK_PARTS, size=count)
    paths = np.empty((count, settings.max_episode_steps, 2))
    for step in range(settings.max_episode_steps):
        refuted = np.flatnonzero(~possible[np.arange(count), target])
        target[refuted] = _draw(generator, possible[refuted])
        position = position + np.clip(goals[target] - position, -settings.step, settings.step)
        possible &= ~reached(settings, position[:, None], goals)
        paths[:, step] = position
    return paths


def random_walk(settings: PointGoalSettings, count: int, key: Key) -> Estimate:
    """The return of actions drawn uniformly."""
    shape = (count, settings.max_episode_steps, 2)
    paths = key.generator().uniform(-settings.step, settings.step, shape).cumsum(axis=1)
    goals = goal_places(settings, WALK_PARTS)
    return _estimate(np.array([reached(settings, path[:, None], goals).mean(axis=1).sum() for path in paths]))


def _draw(generator: np.random.Generator, possible: BoolArray) -> IntArray:
    """One of the possible goals of each row [N, parts], evenly; any where none is left."""
    return np.where(possible, generator.random(possible.shape), 0.0).argmax(axis=1)


def _estimate(values: FloatArray) -> Estimate:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return Estimate(float(values.mean()), error)

"""What random play tells of an environment that does not say it: the box of observations outside which it terminates.

The planner takes a termination for what it is only if it is told when one happens. A box is found as follows. A bound
on one number of the observation is good if no observation after which the episode went on lies beyond it. Bounds are
taken one after the other, each the one beyond which most terminations lie that are not explained yet. A bound is placed
half-way between the two sides, or at a number that the environment itself has there (`x_threshold`). The first half of
the play gives the box, the second half has to agree. Gymnasium's walking bodies say more (`healthy_z_range`): what they
say is the beginning of the box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from posterity.families.base import Env
from posterity.types import BoolArray, FloatArray, HostArray, Key, Task, Transition

STEPS = 3000  # of random play
HELD = 5  # steps for which every second episode holds a random action, so that it gets further
FEWEST = 8  # terminations from which a box is looked for
LEAST_SHARE = 0.05  # of the terminations: a bound that explains fewer is chance
EXPLAINED, MISTAKEN = 0.95, 0.01  # of the second half: terminations explained, at least; others beyond, at most
BOUNDS = 6  # a box has at most so many sides
KNOWN = "say alive={index: (low, high)} or terminated=function if you know it"
Box = tuple[FloatArray, FloatArray]


class Bound(NamedTuple):
    """One side of a box: number `number` of an observation may not be below (side -1) or above (side 1) `value`."""

    number: int
    side: int
    value: float


class Estimate(NamedTuple):
    """What was found, and what there is to say of it."""

    alive: Box | None
    note: str  # empty: nothing to say
    steps: int
    terminations: int


def random_play(
    make: Callable[[Task], Env],
    tasks: Sequence[Task],
    draw: Callable[[np.random.Generator], HostArray],
    steps: int = STEPS,
) -> Transition:
    """Transitions [B, ...] of random actions in several tasks, the same at every call."""
    rows: list[tuple[FloatArray, HostArray, float, FloatArray, bool, bool]] = []
    for task in tasks:
        env, key = make(task), Key.of(0).fold("play", task.index)
        generator, episode, moment = key.generator(), 0, 0
        obs, action = env.reset(seed=key.fold("episode", 0).seed())[0], draw(key.fold("held").generator())
        for _ in range(steps // len(tasks)):
            if episode % 2 == 0 or moment % HELD == 0:
                action = draw(generator)
            following, reward, terminated, truncated, _ = env.step(action)
            kept = (np.asarray(obs, np.float64), action, float(reward), np.asarray(following, np.float64))
            rows.append((*kept, bool(terminated), bool(truncated)))
            obs, moment = following, moment + 1
            if terminated or truncated:
                episode, moment = episode + 1, 0
                obs = env.reset(seed=key.fold("episode", episode).seed())[0]
        env.close()
    return Transition(*(np.stack(column) for column in zip(*rows, strict=True)))


def told_numbers(env: Env) -> list[tuple[float, float]]:
    """Ranges that an environment has as attributes, by names such as `healthy_z_range` and `theta_threshold`."""
    ranges: list[tuple[float, float]] = []
    for name, value in vars(env.unwrapped).items():
        if isinstance(value, tuple | list) and len(value) == 2 and "range" in name:
            ranges.append((float(value[0]), float(value[1])))
        elif isinstance(value, float | int) and ("threshold" in name or "limit" in name):
            ranges.append((-abs(float(value)), abs(float(value))))
    return ranges


def told_bounds(env: Env) -> list[Bound]:
    """What Gymnasium's walking bodies say of themselves: the ranges of height and angle in which they are healthy.

    The height is the second coordinate of a body in the plane, which has an angle too, and the third of one in space.
    Where in the observation it stands is seen from its value after a reset.
    """
    body = env.unwrapped
    height, angle = getattr(body, "_healthy_z_range", None), getattr(body, "_healthy_angle_range", None)
    if height is None or not getattr(body, "_terminate_when_unhealthy", False):
        return []
    obs = np.asarray(env.reset(seed=0)[0])
    place = np.array(getattr(body, "data").qpos)  # noqa: B009 (of an environment of any class)
    ranges = {1: height, 2: angle} if angle is not None else {2: height}
    bounds: list[Bound] = []
    for coordinate, (low, high) in ranges.items():
        for index in np.flatnonzero(obs == place[coordinate])[:1]:
            both = (Bound(int(index), -1, float(low)), Bound(int(index), 1, float(high)))
            bounds += [bound for bound in both if math.isfinite(bound.value)]
    return bounds


def alive_box(play: Transition, told: Sequence[tuple[float, float]], begin: Sequence[Bound] = ()) -> Estimate:
    """The box, if there is one. It begins with the bounds `begin`, unless the play contradicts them."""
    obs, ended = np.asarray(play.next_obs), np.asarray(play.terminated, dtype=bool)
    steps, count = len(ended), int(ended.sum())
    begin = [] if _beyond(obs[~ended], begin).any() else list(begin)
    if count == 0 and not begin:
        return Estimate(None, "", steps, 0)
    if begin and (count == 0 or _beyond(obs[ended], begin).mean() >= EXPLAINED):
        box = _box(begin, obs)
        return Estimate(box, f"an episode ends outside {box_words(box)} (by its healthy ranges)", steps, count)
    if count < FEWEST:
        few = f"{count} terminations in {steps} steps of random play are too few to tell what ends an episode"
        return Estimate(None, f"{few}, so that is learned; {KNOWN}", steps, count)
    turn = np.arange(steps) % 2  # every second step of either kind
    turn[ended] = np.arange(count) % 2
    bounds = _bounds(obs[turn == 0], ended[turn == 0], told, begin)
    beyond = _beyond(obs, bounds)
    explained, mistaken = beyond[ended & (turn == 1)].mean(), beyond[~ended & (turn == 1)].mean()
    if explained < EXPLAINED or mistaken > MISTAKEN:
        none = f"no box of observations explains the {count} terminations in {steps} steps of random play"
        return Estimate(None, f"{none}, so what ends an episode is learned; {KNOWN}", steps, count)
    box = _round_out(*_box(bounds, obs), obs[~ended])
    return Estimate(box, f"an episode ends outside {box_words(box)} (from random play)", steps, count)


def _box(bounds: Sequence[Bound], obs: FloatArray) -> Box:
    """The box with these sides."""
    low, high = np.full(obs.shape[1], -np.inf), np.full(obs.shape[1], np.inf)
    for index, side, value in bounds:
        if side < 0:
            low[index] = max(low[index], value)
        else:
            high[index] = min(high[index], value)
    return low, high


def box_words(box: Box) -> str:
    """A box in words: the sides it has."""
    sides = [
        f"obs[{index}] in [{low:.4g}, {high:.4g}]"
        for index, (low, high) in enumerate(zip(*box, strict=True))
        if math.isfinite(low) or math.isfinite(high)
    ]
    return ", ".join(sides) or "no bounds at all"


def _bounds(
    obs: FloatArray, ended: BoolArray, told: Sequence[tuple[float, float]], begin: Sequence[Bound]
) -> list[Bound]:
    """The sides of the box, after those it begins with the one that explains most first."""
    going, over = obs[~ended], obs[ended]
    least, most = going.min(axis=0), going.max(axis=0)
    left, bounds = ~_beyond(over, begin), list(begin)
    while left.any() and len(bounds) < BOUNDS:
        below, above = (over < least) & left[:, None], (over > most) & left[:, None]
        counts = np.stack([below.sum(axis=0), above.sum(axis=0)])
        side, index = np.unravel_index(int(counts.argmax()), counts.shape)
        if counts[side, index] < max(2.0, LEAST_SHARE * len(over)):
            break
        hit = (below if side == 0 else above)[:, index]
        near = over[hit, index].max() if side == 0 else over[hit, index].min()
        edge = least[index] if side == 0 else most[index]
        bounds += _placed(int(index), -1 if side == 0 else 1, float(edge), float(near), going[:, index], told)
        left &= ~hit
    return bounds


def _placed(
    index: int, side: int, edge: float, near: float, going: FloatArray, told: Sequence[tuple[float, float]]
) -> list[Bound]:
    """A bound between what went on (`edge`) and what did not (`near`); with both sides of a range that fits there."""
    for low, high in told:
        value = low if side < 0 else high
        if min(edge, near) <= value <= max(edge, near) and low <= going.min() and going.max() <= high:
            both = (Bound(index, -1, low), Bound(index, 1, high))
            return [bound for bound in both if math.isfinite(bound.value)]
    return [Bound(index, side, (edge + near) / 2)]


def _beyond(obs: FloatArray, bounds: Sequence[Bound]) -> BoolArray:
    """[B] whether an observation is outside the box."""
    outside = np.zeros(len(obs), dtype=bool)
    for index, side, value in bounds:
        outside |= side * obs[:, index] > side * value
    return outside


def _round_out(low: FloatArray, high: FloatArray, going: FloatArray) -> Box:
    """The box, widened to hold everything after which an episode went on."""
    least, most = going.min(axis=0), going.max(axis=0)
    return np.where(np.isfinite(low), np.minimum(low, least), low), np.where(
        np.isfinite(high), np.maximum(high, most), high
    )

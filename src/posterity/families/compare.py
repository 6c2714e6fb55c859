"""By how much tasks differ: the same start, the same actions, another task.

Every task begins from the same seed and is given the same random actions. After so many steps the observations of the
tasks have parted by their standard deviation over tasks; it is told as a share of how much that number of the
observation moves at all. One parameter is varied at a time, the others stay as in the first task.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posterity.families.base import Env, Family, FiniteFamily
from posterity.families.contract import made
from posterity.types import FiniteSpec, FloatArray, HostArray, Key, Task

MOMENTS = (1, 5, 25)  # steps after which tasks are compared
NONE, LITTLE = 1e-3, 0.05  # a difference below the first share is as good as none, below the second hard to learn


class Paths(NamedTuple):
    """What K tasks came to by the same actions. Steps after the first ending of any task are left out."""

    begin: FloatArray  # [K, O]
    obs: FloatArray  # [K, T, O]
    reward: FloatArray  # [K, T]


class Difference(NamedTuple):
    """How much tasks differ in one parameter, or in all."""

    name: str
    least: object  # the drawn values
    greatest: object
    parted: dict[int, float]  # steps -> spread of the observation over tasks, as a share of how much it moves
    rewards: tuple[float, float]  # mean over tasks of the reward of all steps together, and its deviation over tasks
    same_start: bool


def differences(family: Family, tasks: Sequence[Task]) -> list[Difference]:
    """One for each parameter, and one for all together if there are several."""
    names = list(tasks[0].factors)
    found = [
        _difference(
            name, family, [_only(name, tasks[0], task) for task in tasks], [task.factors[name] for task in tasks]
        )
        for name in names
    ]
    return found if len(names) == 1 else [*found, _difference("all of them", family, tasks, [])]


def finite_differences(family: FiniteFamily, tasks: Sequence[Task]) -> tuple[float, float]:
    """Shares of the pairs of state and action whose successor, and whose reward, is not that of the first task."""
    truths = [family.truth(task) for task in tasks]
    first, others = truths[0], truths[1:]

    def parted(one: HostArray | None, other: HostArray | None) -> HostArray:
        same = np.zeros(first.reward.shape[:2], dtype=bool)
        return same if one is None or other is None else (one != other).any(axis=-1)

    moves = [parted(first.probability, each.probability) | parted(first.successor, each.successor) for each in others]
    return float(np.mean(moves)), float(np.mean([parted(first.reward, each.reward) for each in others]))


def step_microseconds(family: Family, task: Task, steps: int = 200) -> float:
    """What a step of an environment takes."""
    env = made(family, task)
    actions = _actions(family, steps)
    env.reset(seed=0)
    began = time.perf_counter()
    for action in actions:
        met = env.step(action)
        if met[2] or met[3]:
            env.reset(seed=0)
    took = time.perf_counter() - began
    env.close()
    return took / steps * 1e6


def _difference(name: str, family: Family, tasks: Sequence[Task], drawn: Sequence[object]) -> Difference:
    paths = _paths(family, tasks)
    whole = np.concatenate([paths.begin[:, None], paths.obs], axis=1)
    scale = whole.std(axis=(0, 1))  # [O] how much each number moves
    moving = scale > 1e-12
    parted: dict[int, float] = {}
    for moment in MOMENTS:
        if moment <= paths.obs.shape[1]:
            spread = paths.obs[:, moment - 1].std(axis=0)
            parted[moment] = float((spread[moving] / scale[moving]).max(initial=0.0))
    totals = paths.reward.sum(axis=1)
    numbers = [each for each in drawn if isinstance(each, int | float)]
    ends = (min(numbers), max(numbers)) if drawn and len(numbers) == len(drawn) else ("", "")
    same = bool(np.allclose(paths.begin, paths.begin[0]))
    return Difference(name, *ends, parted, (float(totals.mean()), float(totals.std())), same)


def _only(name: str, first: Task, task: Task) -> Task:
    """The first task with one parameter of another."""
    return Task(task.index, task.name, {**first.factors, name: task.factors[name]})


def _paths(family: Family, tasks: Sequence[Task]) -> Paths:
    actions = _actions(family, max(MOMENTS))
    played = [_path(made(family, task), actions) for task in tasks]
    length = min(len(rewards) for _, _, rewards in played)
    return Paths(
        np.stack([begin for begin, _, _ in played]),
        np.stack([np.stack(obs[:length]) for _, obs, _ in played]),
        np.array([rewards[:length] for _, _, rewards in played]),
    )


def _path(env: Env, actions: Sequence[HostArray | int]) -> tuple[FloatArray, list[FloatArray], list[float]]:
    """The first observation, and what followed until the episode ended."""
    begin = _row(env.reset(seed=0)[0])
    obs: list[FloatArray] = []
    rewards: list[float] = []
    for action in actions:
        following, reward, terminated, truncated, _ = env.step(action)
        obs.append(_row(following))
        rewards.append(float(reward))
        if terminated or truncated:
            break
    env.close()
    return begin, obs, rewards


def _actions(family: Family, count: int) -> list[HostArray | int]:
    generator, spec = Key.of(0).fold("compare").generator(), family.spec
    if isinstance(spec, FiniteSpec):
        return [int(generator.integers(spec.actions)) for _ in range(count)]
    return [spec.random_action(generator) for _ in range(count)]


def _row(obs: object) -> FloatArray:
    return np.atleast_1d(np.asarray(obs, dtype=np.float64))

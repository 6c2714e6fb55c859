"""Collecting experience: an agent acts in the environments of all lanes, in lock-step.

Environments step one after the other. What of a step can be done for all of them together is done before (`prestep`):
Python threads around whole steps were slower than none (docs/speed.md). Where what acts is settled for the iteration,
lanes can be played apart (`players.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar, cast

import numpy as np

from posterity.agents.base import Keys
from posterity.errors import UserError
from posterity.families.base import Env, Prestep
from posterity.families.contract import LARGE, numbers
from posterity.types import BoolArray, FloatArray, HostArray, IntArray, Key, Transition

State = TypeVar("State")


class Collected(NamedTuple):
    """What an iteration brought, for each of L lanes."""

    rows: Transition  # [L, steps, ...]
    returns: list[list[float]]  # of the episodes that ended; of the one cut off by the iteration's end if none did
    episodes: IntArray  # [L] episodes that ended
    terminated: IntArray  # [L] those of them that terminated, such as by a fall
    reward: FloatArray  # [L] of all steps together
    success: list[float | None]  # share of those episodes in which a step succeeded; None: the family does not tell


class Acting(Protocol[State]):
    """What an agent does within an iteration."""

    def act(self, keys: Keys, state: State, obs: HostArray, first: BoolArray) -> tuple[State, HostArray]:
        """As in `Agent`."""
        ...

    def observe(self, keys: Keys, state: State, step: Transition) -> State:
        """As in `Agent`."""
        ...


def collect(
    agent: Acting[State],
    keys: Keys,
    state: State,
    envs: Sequence[Env],
    steps: int,
    prestep: Prestep | None = None,
    before_step: Callable[[int], None] | None = None,
) -> tuple[State, Collected]:
    """`steps` steps in every lane, from a fresh episode on. An episode that ends is followed by another.

    `before_step` is told the number of every step. What it raises ends the iteration.
    """
    lanes = range(len(envs))
    episode, running = [0] * len(envs), [0.0] * len(envs)
    first = np.ones(len(envs), dtype=bool)
    obs = np.stack([reset(env, key.fold("episode", 0)) for env, key in zip(envs, keys, strict=True)])
    met: list[Transition] = []
    returns: list[list[float]] = [[] for _ in lanes]
    successes = [Successes() for _ in lanes]
    for step in range(steps):
        if before_step is not None:
            before_step(step)
        state, actions = agent.act([key.fold("step", step, "act") for key in keys], state, obs, first)
        if step == 0:
            _check_actions(actions, envs)
        stepped = advance_all(envs, lanes, actions, prestep)
        row = _transition(obs, actions, stepped)
        state = agent.observe([key.fold("step", step, "observe") for key in keys], state, row)
        met.append(row)
        obs, first = np.array(row.next_obs), np.zeros(len(envs), dtype=bool)
        for lane, after in enumerate(stepped):
            running[lane] += after.reward
            successes[lane].add(after.success)
            if after.terminated or after.truncated:
                returns[lane].append(running[lane])
                successes[lane].end()
                episode[lane], running[lane] = episode[lane] + 1, 0.0
                obs[lane] = reset(envs[lane], keys[lane].fold("episode", episode[lane]))
                first[lane] = True
    rows = Transition(*(np.stack(column, axis=1) for column in zip(*met, strict=True)))
    return state, Collected(
        rows,
        [ended or [unfinished] for ended, unfinished in zip(returns, running, strict=True)],
        np.array(episode),
        np.asarray(rows.terminated).sum(axis=1),
        np.asarray(rows.reward).sum(axis=1),
        [lane.share() for lane in successes],
    )


def _transition(obs: HostArray, actions: HostArray, stepped: Sequence[Stepped]) -> Transition:
    """One step of all lanes [L, ...]."""
    reward, following, terminated, truncated, _ = zip(*stepped, strict=True)
    return Transition(
        obs, actions, np.array(reward), np.stack(following), np.array(terminated, bool), np.array(truncated, bool)
    )


def _check_actions(actions: object, envs: Sequence[Env]) -> None:
    """Whether a method acts in every lane, and in the form of the environment's actions."""
    shape, due = np.shape(np.asarray(actions)), (len(envs), *(envs[0].action_space.shape or ()))
    if shape != due:
        raise UserError(f"The method's act gave actions of shape {shape}; one for each lane is due, {due} in all")


class Successes:
    """Counts the solved episodes of a lane: those with a step that succeeded. A family need not tell."""

    def __init__(self) -> None:
        self.told, self.running = False, False
        self.ended: list[bool] = []

    def add(self, success: bool | None) -> None:
        """One step of the episode that is under way."""
        self.told = self.told or success is not None
        self.running = self.running or bool(success)

    def end(self) -> None:
        """The episode is over."""
        self.ended.append(self.running)
        self.running = False

    def share(self) -> float | None:
        """Of the episodes that ended; of the one under way if none did."""
        return float(np.mean(self.ended or [self.running])) if self.told else None


def reset(env: Env, key: Key) -> HostArray:
    """The first observation of the episode that `key` names."""
    with _asked(env, "reset"):
        obs = env.reset(seed=key.seed())[0]
    return numbers(obs, f"The environment {_name(env)}: the first observation", _shape(env, obs))


class Stepped(NamedTuple):
    """What one step gave."""

    reward: float
    next_obs: HostArray
    terminated: bool
    truncated: bool
    success: bool | None  # whether the task is solved now; None: the environment does not tell


def advance(env: Env, action: object) -> Stepped:
    """One step. An environment that knows puts `success` into its info."""
    try:
        following, reward, terminated, truncated, info = env.step(action)
        reward = float(reward)
        success = info.get("success")
        success = None if success is None else bool(success)
    except Exception as error:
        raise _failed(env, "step", error) from error
    if not math.isfinite(reward):
        raise UserError(f"The environment {_name(env)} gave reward {reward}")
    if not _ordinary(following, env):
        following = numbers(following, f"The environment {_name(env)}: an observation", _shape(env, following))
    return Stepped(reward, following, terminated, truncated, success)


def _ordinary(obs: object, env: Env) -> bool:
    """Whether an observation is what nearly all are, which is seen at once: real numbers of the right shape."""
    if not isinstance(obs, np.ndarray):
        return False
    seen = cast(HostArray, obs)
    if seen.dtype.kind != "f" or seen.shape != env.observation_space.shape:
        return False
    return bool(seen.size and seen.min() >= -LARGE and seen.max() <= LARGE)  # not where one is no number


def advance_all(
    envs: Sequence[Env], lanes: Sequence[int], actions: HostArray, prestep: Prestep | None
) -> list[Stepped]:
    """One step of each of `lanes`."""
    if prestep is not None:
        with _asked(envs[lanes[0]], "step"):
            prestep(lanes, actions)
    return [advance(envs[lane], actions[lane]) for lane in lanes]


@contextmanager
def _asked(env: Env, what: str) -> Generator[None]:
    """Whatever an environment raises ends the run in one line; the error itself stays attached."""
    try:
        yield
    except Exception as error:
        raise _failed(env, what, error) from error


def _failed(env: Env, what: str, error: Exception) -> UserError:
    return UserError(f"The environment {_name(env)} failed in {what}: {type(error).__name__}, {error}")


def _shape(env: Env, obs: object) -> tuple[int, ...]:
    """Of observations, by the environment's own account."""
    shape = env.observation_space.shape
    return np.shape(np.asarray(obs)) if shape is None else shape


def _name(env: Env) -> str:
    return type(env.unwrapped).__name__

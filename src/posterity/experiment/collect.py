"""Many learners in lock-step: lane k is the run of seed k.

The loop talks to all lanes at once: keys, observations, actions and rows are lists over lanes. An agent written for one
lane is asked once per lane (`EachLane`); one that runs all lanes in one compiled program speaks for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from posterity.agents.base import Agent, Info, Score, Strategy
from posterity.errors import UserError
from posterity.families.base import Ahead
from posterity.types import Key, Transition


class Learners(Protocol):
    """The Agent contract for L lanes together."""

    def init(self, keys: list[Key]) -> Any:
        """The state of all lanes before the first task."""
        ...

    def begin_task(self, keys: list[Key], state: Any) -> Any:
        """A new task begins in every lane."""
        ...

    def act(self, keys: list[Key], state: Any, obs: list[Any], first: list[bool]) -> tuple[Any, list[Any]]:
        """An action for every lane."""
        ...

    def observe(self, keys: list[Key], state: Any, rows: list[Transition]) -> Any:
        """One step happened in every lane."""
        ...

    def learn(self, keys: list[Key], state: Any, rows: list[Transition]) -> tuple[Any, list[Info]]:
        """An iteration ended in every lane."""
        ...

    @property
    def start(self) -> int:
        """Iterations of a task after which its score Start is taken."""
        ...

    def keep(self, keys: list[Key], state: Any) -> Any:
        """What it takes to act later as now, in every lane."""
        ...

    def player(self, own: Any, latest: Any, score: Score, strategy: Strategy) -> Any:
        """Who acts in an evaluation, in every lane."""
        ...

    def play(self, keys: list[Key], player: Any, obs: list[Any], first: list[bool]) -> tuple[Any, list[Any]]:
        """An action for every lane; nothing is learned."""
        ...


class EachLane:
    """One agent, asked once per lane. The state is the list of the lanes' states."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def init(self, keys: list[Key]) -> list[Any]:
        """[L] the states before the first task."""
        return [self.agent.init(key) for key in keys]

    def begin_task(self, keys: list[Key], state: list[Any]) -> list[Any]:
        """[L] the states at the start of a task."""
        return [self.agent.begin_task(*lane) for lane in zip(keys, state, strict=True)]

    def act(self, keys: list[Key], state: list[Any], obs: list[Any], first: list[bool]) -> tuple[list[Any], list[Any]]:
        """[L] the states after deciding, and the actions."""
        decided = [self.agent.act(*lane) for lane in zip(keys, state, obs, first, strict=True)]
        return [after for after, _ in decided], [action for _, action in decided]

    def observe(self, keys: list[Key], state: list[Any], rows: list[Transition]) -> list[Any]:
        """[L] the states after a step."""
        return [self.agent.observe(*lane) for lane in zip(keys, state, rows, strict=True)]

    def learn(self, keys: list[Key], state: list[Any], rows: list[Transition]) -> tuple[list[Any], list[Info]]:
        """The states after an iteration's learning, and what each lane has to say of it."""
        learned = [self.agent.learn(*lane) for lane in zip(keys, state, rows, strict=True)]
        return [after for after, _ in learned], [info for _, info in learned]

    @property
    def start(self) -> int:
        """That of the agent."""
        return self.agent.start

    def keep(self, keys: list[Key], state: list[Any]) -> list[Any]:
        """[L] what each lane keeps."""
        return [self.agent.keep(*lane) for lane in zip(keys, state, strict=True)]

    def player(self, own: list[Any], latest: list[Any], score: Score, strategy: Strategy) -> list[Any]:
        """[L] the players."""
        return [self.agent.player(*lane, score, strategy) for lane in zip(own, latest, strict=True)]

    def play(
        self, keys: list[Key], player: list[Any], obs: list[Any], first: list[bool]
    ) -> tuple[list[Any], list[Any]]:
        """[L] the players after deciding, and the actions."""
        decided = [self.agent.play(*lane) for lane in zip(keys, player, obs, first, strict=True)]
        return [after for after, _ in decided], [action for _, action in decided]


class Collected(NamedTuple):
    """What one lane met in one iteration."""

    rows: Transition  # [steps]
    returns: list[float]  # of the episodes that ended; of the one cut off by the iteration's end if none did
    finished: int  # episodes that ended
    solved: float | None  # share of those episodes in which a step succeeded; None: the environment does not tell


def collect(
    learners: Learners,
    keys: list[Key],
    state: Any,
    envs: Sequence[gymnasium.Env[Any, Any]],
    steps: int,
    ahead: Ahead | None = None,
) -> tuple[Any, list[Collected]]:
    """`steps` steps in every lane, from a fresh episode on. An episode that ends is followed by another.

    Environments step one after the other, and what of it can be done together is done `ahead`: Python threads around
    whole steps were slower than none (docs/speed.md).
    """
    lanes = range(len(envs))
    episode, running, first = [0] * len(envs), [0.0] * len(envs), [True] * len(envs)
    obs = [reset(env, key.fold("episode", 0)) for env, key in zip(envs, keys, strict=True)]
    met: list[list[Transition]] = [[] for _ in lanes]
    returns: list[list[float]] = [[] for _ in lanes]
    successes: list[Successes] = [Successes() for _ in lanes]
    for step in range(steps):
        state, actions = learners.act([key.fold("step", step, "act") for key in keys], state, obs, first)
        following = advance_all(envs, lanes, actions, ahead)
        rows = [Transition(seen, act, *then[:3]) for seen, act, then in zip(obs, actions, following, strict=True)]
        state = learners.observe([key.fold("step", step, "observe") for key in keys], state, rows)
        for lane in lanes:
            met[lane].append(rows[lane])
            running[lane] += rows[lane].reward
            successes[lane].add(following[lane].success)
            obs[lane], first[lane] = rows[lane].next_obs, False
            if rows[lane].terminated or following[lane].truncated:
                returns[lane].append(running[lane])
                successes[lane].end()
                episode[lane], running[lane] = episode[lane] + 1, 0.0
                obs[lane] = reset(envs[lane], keys[lane].fold("episode", episode[lane]))
                first[lane] = True
    return state, [
        Collected(
            Transition(*map(np.array, zip(*met[lane], strict=True))),
            returns[lane] or [running[lane]],
            done,
            successes[lane].share(),
        )
        for lane, done in enumerate(episode)
    ]


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


def reset(env: gymnasium.Env[Any, Any], key: Key) -> Any:
    """The first observation of the episode that `key` names."""
    with _asked(env, "reset"):
        obs = env.reset(seed=key.seed())[0]
    if not np.all(np.isfinite(obs)):
        raise UserError(f"The environment {_name(env)} began with observation {obs}")
    return obs


class Stepped(NamedTuple):
    """What one step gave."""

    reward: float
    next_obs: Any
    terminated: bool
    truncated: bool
    success: bool | None  # whether the task is solved now; None: the environment does not tell


def advance(env: gymnasium.Env[Any, Any], action: Any) -> Stepped:
    """One step. An environment that knows puts `success` into its info."""
    with _asked(env, "step"):
        following, reward, terminated, truncated, info = env.step(action)
        reward = float(reward)
        success = info.get("success")
        success = None if success is None else bool(success)
    if not (np.isfinite(reward) and np.all(np.isfinite(following))):
        raise UserError(f"The environment {_name(env)} gave reward {reward} and observation {following}")
    return Stepped(reward, following, terminated, truncated, success)


def advance_all(
    envs: Sequence[gymnasium.Env[Any, Any]], lanes: Sequence[int], actions: Sequence[Any], ahead: Ahead | None
) -> list[Stepped]:
    """One step of each of `lanes`."""
    if ahead is not None:
        with _asked(envs[lanes[0]], "step"):
            ahead(lanes, actions)
    return [advance(envs[lane], actions[lane]) for lane in lanes]


@contextmanager
def _asked(env: gymnasium.Env[Any, Any], what: str) -> Iterator[None]:
    """Whatever an environment raises ends the run in one line; the error itself stays attached."""
    try:
        yield
    except Exception as error:
        raise UserError(f"The environment {_name(env)} failed in {what}: {type(error).__name__}, {error}") from error


def _name(env: gymnasium.Env[Any, Any]) -> str:
    return type(env.unwrapped).__name__

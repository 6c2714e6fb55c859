"""Many learners in lock-step: lane k is the run of seed k.

The loop talks to all lanes at once: states, observations and actions are lists over lanes. An agent written in NumPy is
simply asked once per lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from posterity.agents.base import Agent, Info
from posterity.errors import UserError
from posterity.types import Key, Transition


class Lanes:
    """One agent, asked once per lane."""

    def __init__(self, agent: Agent, keys: Sequence[Key]) -> None:
        self.agent = agent
        self.keys = list(keys)  # [L] the root key of each lane

    def init(self) -> list[Any]:
        """[L] the states before the first task."""
        return [self.agent.init(key.fold("init")) for key in self.keys]

    def begin_task(self, task: int, states: list[Any]) -> list[Any]:
        """[L] the states at the start of task number `task`."""
        keys = [key.fold("task", task, "begin") for key in self.keys]
        return [self.agent.begin_task(key, state) for key, state in zip(keys, states, strict=True)]

    def learn(
        self, task: int, iteration: int, states: list[Any], rows: Sequence[Transition]
    ) -> tuple[list[Any], list[Info]]:
        """The states after an iteration's learning, and what each lane has to say of it."""
        keys = [key.fold("task", task, "iteration", iteration, "learn") for key in self.keys]
        learned = [self.agent.learn(k, s, r) for k, s, r in zip(keys, states, rows, strict=True)]
        return [state for state, _ in learned], [info for _, info in learned]


class Collected(NamedTuple):
    """What one lane met in one iteration."""

    rows: Transition  # [steps]
    returns: list[float]  # of the episodes that ended; of the one cut off by the iteration's end if none did
    finished: int  # episodes that ended


def collect(
    lanes: Lanes, task: int, iteration: int, states: list[Any], envs: Sequence[gymnasium.Env[Any, Any]], steps: int
) -> tuple[list[Any], list[Collected]]:
    """`steps` steps in every lane, from a fresh episode on. An episode that ends is followed by another."""
    keys = [key.fold("task", task, "iteration", iteration) for key in lanes.keys]
    episode = [0] * len(envs)
    first = [True] * len(envs)
    obs = [env.reset(seed=key.fold("episode", 0).seed())[0] for env, key in zip(envs, keys, strict=True)]
    rows: list[list[Transition]] = [[] for _ in envs]
    running = [0.0] * len(envs)
    returns: list[list[float]] = [[] for _ in envs]
    for step in range(steps):
        for lane, env in enumerate(envs):
            key = keys[lane].fold("step", step)
            states[lane], action = lanes.agent.act(key.fold("act"), states[lane], obs[lane], first[lane])
            following, reward, terminated, truncated, _ = env.step(action)
            reward = float(reward)
            if not np.isfinite(reward):
                raise UserError(f"The environment of task {task} gave the reward {reward} (iteration {iteration})")
            row = Transition(obs[lane], action, reward, following, terminated)
            states[lane] = lanes.agent.observe(key.fold("observe"), states[lane], row)
            rows[lane].append(row)
            running[lane] += reward
            obs[lane], first[lane] = following, False
            if terminated or truncated:
                returns[lane].append(running[lane])
                running[lane] = 0.0
                episode[lane] += 1
                obs[lane], first[lane] = env.reset(seed=keys[lane].fold("episode", episode[lane]).seed())[0], True
    return states, [
        Collected(Transition(*map(np.array, zip(*rows[lane], strict=True))), returns[lane] or [running[lane]], done)
        for lane, done in enumerate(episode)
    ]

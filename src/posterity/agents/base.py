"""What an agent is: pure functions of a state.

An agent is written for one lane (one seed). Its state is a NamedTuple of arrays and numbers, so that a checkpoint is
the state and nothing hides; the agent object itself holds settings only. Randomness comes from the key it is handed.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from posterity.types import Key, Transition

Info = dict[str, float | int]

Score = Literal["zero-shot", "start", "train", "back"]
SCORES: tuple[Score, ...] = ("zero-shot", "start", "train", "back")
Strategy = Literal["confidence", "blend", "task-only", "world-only"]  # whose predictions Back is planned with
STRATEGIES: tuple[Strategy, ...] = ("confidence", "blend", "task-only", "world-only")


class Agent(Protocol):
    """The contract between a learner and the lifelong loop."""

    def init(self, key: Key) -> Any:
        """The state before the first task."""
        ...

    def begin_task(self, key: Key, state: Any) -> Any:
        """A new task begins: the world posterior becomes the task's prior. The agent is not told which task."""
        ...

    def act(self, key: Key, state: Any, obs: Any, first: bool) -> tuple[Any, Any]:
        """The state after deciding, and the action. `first`: an episode begins with `obs`."""
        ...

    def observe(self, key: Key, state: Any, row: Transition) -> Any:
        """One step happened. Learners that only learn between iterations return `state`."""
        ...

    def learn(self, key: Key, state: Any, rows: Transition) -> tuple[Any, Info]:
        """An iteration ended; `rows` are its steps in order. The numbers go into its record."""
        ...

    # Evaluation: acting without learning, later

    @property
    def start(self) -> int:
        """Iterations of a task after which its score Start is taken."""
        ...

    def keep(self, key: Key, state: Any) -> Any:
        """What it takes to act later as now: a NamedTuple of arrays."""
        ...

    def player(self, own: Any, latest: Any, score: Score, strategy: Strategy) -> Any:
        """Who acts in an evaluation of a task.

        `own` was kept in that task: before its first iteration for zero-shot, after `start` iterations for start, after
        its last one for train and back. `latest` was kept at the end of the last task learned: what going back may use.
        """
        ...

    def play(self, key: Key, player: Any, obs: Any, first: bool) -> tuple[Any, Any]:
        """The player after deciding, and its action. Nothing is learned."""
        ...

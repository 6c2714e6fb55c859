"""What an agent is: pure functions of a state.

An agent is written for one lane (one seed). Its state is a NamedTuple of arrays and numbers, so that a checkpoint is
the state and nothing hides; the agent object itself holds settings only. Randomness comes from the key it is handed.
"""

from __future__ import annotations

from typing import Any, Protocol

from posterity.types import Key, Transition

Info = dict[str, float | int]


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

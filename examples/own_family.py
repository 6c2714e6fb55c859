"""A family of one's own: corridors whose exit is at the left or at the right end.

In the folder of this file:

    posterity run own_family.py:Corridor --known 5 --concentration 0.1
    posterity report runs/own_family-Corridor-blrl-001
"""

from types import MappingProxyType

import numpy as np

from posterity.families.base import FiniteFamily, Truth
from posterity.types import FiniteSpec, Key, Task


class Corridor(FiniteFamily):
    """Seven cells; one of the two ends is the exit. Which one is the hidden parameter: right in four tasks of five."""

    summary = "a corridor with the exit at one end"
    budget = MappingProxyType({"tasks": 20, "iterations": 8, "steps_per_iteration": 20})
    spec = FiniteSpec(7, 2, np.array([0.0, 1.0]), np.array([True] + 5 * [False] + [True]), max_episode_steps=12)

    def tasks(self, key: Key, count: int) -> list[Task]:
        right = key.generator().random(count) < 0.8
        return [Task(n, "right" if r else "left", {"right": bool(r)}) for n, r in enumerate(right)]

    def truth(self, task: Task) -> Truth:
        step = np.clip(np.arange(7)[:, None] + [-1, 1], 0, 6)
        exit_cell = 6 if task.factors["right"] else 0
        paid = (step == exit_cell).astype(float)
        return Truth(np.ones((7, 2, 1)), step[..., None], np.stack([1 - paid, paid], -1), np.eye(7)[3])

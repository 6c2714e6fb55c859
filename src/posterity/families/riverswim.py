"""RiverSwim (Strehl and Littman 2008) as a family: one river after another, each with a hidden current.

A swimmer on the left bank earns a little by staying there. Swimming right against the current may take it a place on,
leave it where it is or throw it back, and only at the right end it pays well. How often which happens is hidden, and
drawn for each place of each river about the classical chances. Who does not explore stays on the left for ever.

    task:   (on, stay, back) in place s  ~  Dirichlet(concentration * (0.35, 0.6, 0.05))
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from posterity.families.base import FiniteFamily, Truth
from posterity.settings import Settings, setting
from posterity.types import FiniteSpec, FloatArray, Key, Task

CURRENT = np.array([0.05, 0.6, 0.35])  # back, stay, on
LEFT, RIGHT = 0, 1
NOTHING, LITTLE, MUCH = 0, 1, 2  # reward levels


class RiverSwimSettings(Settings):
    """The length of the rivers and how much they have in common."""

    states: int = setting(6, "Places in a river.", ge=3, le=1000)
    concentration: float = setting(20.0, "How alike the currents of rivers are.", gt=0)
    small: float = setting(0.005, "Reward of staying on the left bank.", ge=0, lt=1)
    max_episode_steps: int = setting(50, "Steps after which an episode is cut off.", ge=1)


class RiverSwim(FiniteFamily):
    """Rivers that are alike."""

    summary = "RiverSwim with hidden currents: swim against one for a reward far away"
    settings_type: ClassVar[type[Settings]] = RiverSwimSettings

    def __init__(self, settings: RiverSwimSettings | None = None) -> None:
        super().__init__(settings)
        chosen = self.settings
        self.spec = FiniteSpec(
            states=chosen.states,
            actions=2,
            levels=np.array([0.0, chosen.small, 1.0]),
            terminal=np.zeros(chosen.states, dtype=bool),
            max_episode_steps=chosen.max_episode_steps,
        )

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Rivers with currents drawn about the classical one."""
        return [Task(index, f"river {index}", {"current": self._current(key, index)}) for index in range(count)]

    def _current(self, key: Key, index: int) -> list[list[float]]:
        drawn = (
            key.fold("river", index).generator().dirichlet(self.settings.concentration * CURRENT, self.settings.states)
        )
        return np.round(drawn, 4).tolist()

    def truth(self, task: Task) -> Truth:
        """Left always works; right as the current allows. At an end what would lead out of the river stays."""
        states = self.spec.states
        current: FloatArray = np.array(task.factors["current"])
        current = current / current.sum(axis=1, keepdims=True)
        probability, reward = np.zeros((states, 2, states)), np.zeros((states, 2, 3))
        for state in range(states):
            probability[state, LEFT, max(state - 1, 0)] = 1.0
            for step, chance in zip((-1, 0, 1), current[state], strict=True):
                probability[state, RIGHT, min(max(state + step, 0), states - 1)] += chance
        reward[..., NOTHING] = 1.0
        reward[0, LEFT] = np.eye(3)[LITTLE]
        reward[-1, RIGHT] = np.eye(3)[MUCH]
        return Truth(probability, None, reward, np.eye(states)[0])

    def draw(self, task: Task) -> str:
        """The chances of a stroke to the right, by place."""
        lines = [f"{'':6}{'back':>6}{'stay':>6}{'on':>6}"]
        for place, chances in enumerate(task.factors["current"]):
            lines.append(f"{place:<6}" + "".join(f"{chance:6.2f}" for chance in chances))
        return "\n".join(lines)

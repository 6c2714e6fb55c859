"""The chain (Strens 2000, after Dearden et al. 1998) as a family: one chain after another, each with its own slips.

Action 0 leads one state on and pays nothing, but 1 at the end of the chain, where it stays. Action 1 leads back to the
beginning and pays 0.2. With a hidden chance, drawn for each state of each task, an action slips: the other one happens.

    task:   slip in state s  ~  Beta(concentration * 0.2, concentration * 0.8)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from posterity.families.base import FiniteFamily, Truth
from posterity.settings import Settings, setting
from posterity.types import FiniteSpec, FloatArray, Key, Task

SLIP = 0.2


class ChainSettings(Settings):
    """The length of the chains and how much they have in common."""

    states: int = setting(5, "States of a chain.", ge=2, le=1000)
    concentration: float = setting(20.0, "How alike the chances of slipping are.", gt=0)
    max_episode_steps: int = setting(100, "Steps after which an episode is cut off.", ge=1)


class Chain(FiniteFamily):
    """Chains that are alike."""

    summary = "the classical chain with hidden chances of slipping"
    settings_type: ClassVar[type[Settings]] = ChainSettings

    def __init__(self, settings: ChainSettings | None = None) -> None:
        super().__init__(settings)
        chosen = self.settings
        self.spec = FiniteSpec(
            states=chosen.states,
            actions=2,
            levels=np.array([0.0, 0.2, 1.0]),
            terminal=np.zeros(chosen.states, dtype=bool),
            max_episode_steps=chosen.max_episode_steps,
        )

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Chains with chances of slipping drawn about the classical one."""
        return [Task(index, f"chain {index}", {"slip": self._slip(key, index)}) for index in range(count)]

    def _slip(self, key: Key, index: int) -> list[float]:
        weight = self.settings.concentration
        generator = key.fold("chain", index).generator()
        return np.round(generator.beta(weight * SLIP, weight * (1.0 - SLIP), self.spec.states), 4).tolist()

    def truth(self, task: Task) -> Truth:
        """What each action does unless it slips, and what the other one does if it slips."""
        states = self.spec.states
        slip: FloatArray = np.array(task.factors["slip"])[:, None]
        ahead, back = (
            np.eye(states)[np.minimum(np.arange(states) + 1, states - 1)],
            np.eye(states)[np.zeros(states, int)],
        )
        paid_ahead = np.eye(3)[np.where(np.arange(states) == states - 1, 2, 0)]
        paid_back = np.broadcast_to(np.eye(3)[1], (states, 3))
        # Next state and reward of a slip go together in the classical chain; here they are drawn apart.
        probability = [(1 - slip) * ahead + slip * back, (1 - slip) * back + slip * ahead]
        reward = [(1 - slip) * paid_ahead + slip * paid_back, (1 - slip) * paid_back + slip * paid_ahead]
        return Truth(np.stack(probability, axis=1), None, np.stack(reward, axis=1), np.eye(states)[0])

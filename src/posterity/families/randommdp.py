"""Random MDPs: every task's rows are drawn from one hidden Dirichlet world, so the truth is known.

    world (once):   row_{s,a} ~ Dirichlet(sparsity);  alpha_{s,a} = concentration * row_{s,a}
    task i:         p_i(. | s, a) ~ Dirichlet(alpha_{s,a}),  the same for the row of reward levels

With `kinds` there are several such worlds, and a task is first of one of them.

The family in which the paper's claim can be checked: how near the learned world posterior is to the hidden one, and
whether a nearer one makes a task quicker to learn.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from posterity.families.base import FiniteFamily, Truth
from posterity.settings import Settings, setting
from posterity.types import FiniteSpec, FloatArray, Key, Task


class RandomMDPSettings(Settings):
    """The size of the tasks and how much they have in common."""

    states: int = setting(6, "States of a task.", ge=2, le=200)
    actions: int = setting(3, "Actions of a task.", ge=1, le=50)
    levels: tuple[float, ...] = setting((0.0, 0.5, 1.0), "The rewards a step can give.", min_length=1)
    sparsity: float = setting(0.3, "Dirichlet parameter of the world's rows: small means few likely outcomes.", gt=0)
    concentration: float = setting(20.0, "How alike the tasks are: large means all near the world's rows.", gt=0)
    kinds: int = setting(1, "Kinds of tasks, each with a hidden world of its own.", ge=1, le=100)
    world: int = setting(0, "Which hidden world; the same for all seeds of a run.", ge=0)
    max_episode_steps: int = setting(20, "Steps after which an episode is cut off.", ge=1)


class RandomMDP(FiniteFamily):
    """Small MDPs that are alike, as one hidden Dirichlet says."""

    summary = "small random MDPs drawn from one hidden Dirichlet world, where the truth is known"
    settings_type: ClassVar[type[Settings]] = RandomMDPSettings

    def __init__(self, settings: RandomMDPSettings | None = None) -> None:
        super().__init__(settings)
        chosen = self.settings
        generator = Key.of(chosen.world).fold("random-mdp world").generator()
        shape = (chosen.states, chosen.actions)
        worlds = [
            (
                chosen.concentration * _rows(generator, np.full((*shape, chosen.states), chosen.sparsity)),
                chosen.concentration * _rows(generator, np.ones((*shape, len(chosen.levels)))),
            )
            for _ in range(chosen.kinds)
        ]
        self.worlds = worlds
        self.next_alpha, self.reward_alpha = worlds[0]
        self.spec = FiniteSpec(
            states=chosen.states,
            actions=chosen.actions,
            levels=np.array(chosen.levels),
            terminal=np.zeros(chosen.states, dtype=bool),
            max_episode_steps=chosen.max_episode_steps,
        )

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Tasks by number; `truth` draws the rows from the key, which is the hidden parameter."""
        tasks = [Task(index, f"task {index}", {"key": list(key.fold("task", index).path)}) for index in range(count)]
        if self.settings.kinds == 1:
            return tasks
        kinds = [int(key.fold("kind", each.index).generator().integers(self.settings.kinds)) for each in tasks]
        return [
            Task(t.index, f"{t.name}, kind {kind}", {**t.factors, "kind": kind})
            for t, kind in zip(tasks, kinds, strict=True)
        ]

    def truth(self, task: Task) -> Truth:
        """The rows of `task`, drawn from the hidden world."""
        generator = Key(tuple(task.factors["key"])).generator()
        next_alpha, reward_alpha = self.worlds[task.factors.get("kind", 0)]
        return Truth(
            probability=_rows(generator, next_alpha),
            successor=None,
            reward=_rows(generator, reward_alpha),
            start=np.full(self.spec.states, 1.0 / self.spec.states),
        )

    def draw(self, task: Task) -> str:
        """For every state and action, the mean reward and the chances of the next states."""
        truth = self.truth(task)
        lines = [f"{'':8}reward   " + " ".join(f"to {state:<3}" for state in range(self.spec.states))]
        for state, action in np.ndindex(self.spec.states, self.spec.actions):
            chances = " ".join(f"{chance:<6.2f}" for chance in truth.probability[state, action])
            lines.append(f"{state} by {action}  {truth.reward[state, action] @ self.spec.levels:<8.2f} {chances}")
        return "\n".join(lines)

    def world(self) -> tuple[FloatArray, FloatArray] | None:
        """The hidden world, if there is one for all tasks."""
        return None if self.settings.kinds > 1 else (self.next_alpha, self.reward_alpha)


def _rows(generator: np.random.Generator, alpha: FloatArray) -> FloatArray:
    """One Dirichlet draw per row. The floor keeps rows of tiny parameters from 0 / 0, and every outcome possible."""
    draws = np.maximum(generator.standard_gamma(alpha), 1e-12)
    return draws / draws.sum(axis=-1, keepdims=True)

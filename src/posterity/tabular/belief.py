"""The contract of a belief: a posterior over finite MDPs, for the world of tasks and for the present task.

A belief is a set of functions of two trees of arrays. `World` is what is believed of the family, `TaskState` what was
seen of the present task; only the belief looks into them.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from posterity.tabular.mdp import FiniteMDP
from posterity.types import BoolArray, FloatArray, IntArray, Transition

World = TypeVar("World")
TaskState = TypeVar("TaskState")


class Belief(Protocol[World, TaskState]):
    """See dirichlet.py, kinds.py and layout.py."""

    def prior(self) -> World:
        """The world posterior before any task."""
        ...

    def begin(self, world: World) -> TaskState:
        """The task posterior at the start of a task."""
        ...

    def observe(self, task: TaskState, steps: Transition) -> TaskState:
        """The task posterior after some more steps [B]."""
        ...

    def pool(self, world: World, task: TaskState, final: bool = False) -> World:
        """The world posterior that has taken in the present task so far. `final`: the task has ended."""
        ...

    def sample(
        self, generator: np.random.Generator, world: World, task: TaskState, known: BoolArray, count: int
    ) -> FiniteMDP:
        """K processes, stacked: known pairs [S, A] as the task posterior has them, others as the world's."""
        ...

    def mean(self, world: World, task: TaskState, known: BoolArray) -> FiniteMDP:
        """The process of mean rows."""
        ...

    def weight(self, world: World, task: TaskState, known: BoolArray) -> FloatArray:
        """[S, A] what the posterior of a pair is worth in observations."""
        ...

    def variance(self, world: World, task: TaskState, known: BoolArray, values: FloatArray, gamma: float) -> FloatArray:
        """[S, A] how uncertain it is what a pair pays and, discounted, the value [S] that it leads to."""
        ...


class Bound:
    """A posterior for explorers: a belief with what it is to believe."""

    def __init__(self, belief: Belief[object, object], world: object, task: object, known: BoolArray) -> None:
        self.belief, self.world, self.task, self.known = belief, world, task, known

    def sample(self, generator: np.random.Generator, count: int) -> FiniteMDP:
        """`count` processes drawn from the posterior, stacked."""
        return self.belief.sample(generator, self.world, self.task, self.known, count)

    def mean(self) -> FiniteMDP:
        """The process of the mean row of every pair."""
        return self.belief.mean(self.world, self.task, self.known)

    def weight(self) -> FloatArray:
        """[S, A] how many observations of a pair the posterior is worth."""
        return self.belief.weight(self.world, self.task, self.known)

    def variance(self, values: FloatArray, gamma: float) -> FloatArray:
        """[S, A] the variance over the posterior of r(s, a) + gamma sum_s' p(s' | s, a) values(s')."""
        return self.belief.variance(self.world, self.task, self.known, values, gamma)

    def places(self) -> tuple[FloatArray, IntArray]:
        """Of a family with a layout: the chance that a thing lies in a state [S], and the number of the thing [S]."""
        from posterity.tabular.layout import HiddenLayout, LayoutTask, LayoutWorld

        if not (isinstance(self.belief, HiddenLayout) and isinstance(self.world, LayoutWorld)):
            raise TypeError("this belief has no places")
        assert isinstance(self.task, LayoutTask)
        return self.belief.state_chances(self.world, self.task, self.known)

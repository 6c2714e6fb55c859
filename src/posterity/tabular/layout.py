"""Posterior over where things lie, in a world whose moves are known.

Variable v (one kind of thing in one room) lies in one of N states or nowhere: N + 1 categories.

    world:  theta_v ~ Dirichlet(alpha_v)        how often it lies where, over tasks
    task:   x_v | theta_v ~ Categorical(theta_v), drawn once; entering a state tells for certain whether it is there

Given the states of this task that were entered, x_v is in the set U_v of categories not yet ruled out. The exact world
posterior is then the mixture sum_{c in U} alpha_c / alpha_U Dirichlet(alpha + e_c). In its place stands the Dirichlet
of the same mean and the same total variance, which is the mixture itself when U is everything (nothing seen, nothing
learned) or one category (a count is added).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posterity.tabular.mdp import FiniteMDP
from posterity.types import BoolArray, FiniteSpec, FloatArray, Transition


class LayoutWorld(NamedTuple):
    """How often things lie where. `before` is what was believed when the present task began."""

    alpha: FloatArray  # [V, N + 1], the last category is "nowhere"
    before: FloatArray  # [V, N + 1]


class LayoutTask(NamedTuple):
    """What was seen in this task."""

    empty: BoolArray  # [S] entered, and nothing was there
    found: BoolArray  # [S] entered, and it was there


class HiddenLayout:
    """The structured belief of a family that has a `Layout`."""

    def __init__(self, spec: FiniteSpec, concentration: float) -> None:
        if spec.layout is None:
            raise ValueError("this family has no layout")
        self.spec = spec
        self.layout = spec.layout
        self.concentration = concentration
        here = np.zeros((*self.layout.move.shape, 2), dtype=np.int64)
        here[..., 0] = self.layout.move
        here[..., 1] = self.layout.found
        self.successor = here  # [S, A, 2]: on, or found

    def prior(self) -> LayoutWorld:
        """Before any task: as likely somewhere as nowhere, and anywhere alike."""
        variables, places = self.layout.where.shape
        alpha = np.full((variables, places + 1), self.concentration / places)
        alpha[:, -1] = self.concentration
        return LayoutWorld(alpha, alpha)

    def begin(self, world: LayoutWorld) -> tuple[LayoutWorld, LayoutTask]:
        """A new task: nothing seen yet."""
        nothing = np.zeros(self.spec.states, dtype=bool)
        return LayoutWorld(world.alpha, world.alpha), LayoutTask(nothing, nothing)

    def observe(self, task: LayoutTask, row: Transition) -> LayoutTask:
        """The state that the action led to is empty, or holds the thing."""
        entered = int(self.layout.move[row.obs, row.action])
        seen = np.arange(self.spec.states) == entered
        if row.next_obs == self.layout.found:
            return task._replace(found=task.found | seen)
        return task._replace(empty=task.empty | seen)

    def possible(self, task: LayoutTask) -> BoolArray:
        """[V, N + 1] the categories that what was seen leaves open."""
        found = task.found[self.layout.where]
        settled = found.any(axis=1, keepdims=True)
        somewhere = np.where(settled, found, ~task.empty[self.layout.where])
        return np.concatenate([somewhere, ~settled], axis=1)

    def pool(self, world: LayoutWorld, task: LayoutTask) -> LayoutWorld:
        """The world posterior given the present task as far as it was seen."""
        return world._replace(alpha=learn_from_possible(world.before, self.possible(task)))

    def sample(
        self, generator: np.random.Generator, world: LayoutWorld, task: LayoutTask, known: BoolArray, count: int
    ) -> FiniteMDP:
        """`count` worlds: what entering by a known pair [S, A] showed holds; the rest is drawn from the world."""
        certain = np.zeros(self.spec.states, dtype=bool)
        certain[self.layout.move[known]] = True
        possible = self.possible(LayoutTask(task.empty & certain, task.found & certain))
        # x ~ Categorical(theta) and theta ~ Dirichlet(alpha) anew for every draw: x comes as alpha, normalised
        ladder = (world.alpha * possible).cumsum(axis=-1)
        place = (ladder <= generator.random((count, len(ladder), 1)) * ladder[:, -1:]).sum(axis=-1)
        draw, variable = np.nonzero(place < self.layout.where.shape[1])
        here = np.zeros((count, self.spec.states))
        here[draw, self.layout.where[variable, place[draw, variable]]] = 1.0
        chance = here[:, self.layout.move]
        return FiniteMDP(
            np.stack([1.0 - chance, chance], axis=-1), self.successor, self.layout.reward * chance, self.spec.terminal
        )


def learn_from_possible(alpha: FloatArray, possible: BoolArray) -> FloatArray:
    """Dirichlet rows [..., M] after one draw of each that is only known to be among `possible` [..., M]."""
    total = alpha.sum(axis=-1, keepdims=True)
    weight = alpha * possible / (alpha * possible).sum(axis=-1, keepdims=True)
    mean = (alpha + weight) / (total + 1.0)
    # E[theta_c^2] of the mixture: with weight w_c the parameter is alpha_c + 1, else alpha_c
    square = (alpha * (alpha + 1.0) + 2.0 * weight * (alpha + 1.0)) / ((total + 1.0) * (total + 2.0))
    spread = (square - mean**2).sum(axis=-1, keepdims=True)
    precision = (mean * (1.0 - mean)).sum(axis=-1, keepdims=True) / spread - 1.0
    return precision * mean

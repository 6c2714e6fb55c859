"""Dirichlet posterior over the rows of a finite MDP, for one task and for the world of tasks.

A pair (s, a) has a categorical row for the next state and one for the reward level, independent given the pair:

    task:   row_i | data  ~  Dirichlet(alpha + N_i)          N_i the counts of task i           (paper, Eq. 1)
    world:  row_i         ~  Dirichlet(alpha)                for every task i                   (paper, Eq. 2)

The paper copies the world posterior into the task posterior and leaves open how tasks are pooled into the world's.
Two ways are here. `evidence` chooses the alpha under which the counts of all tasks are most probable (the Dirichlet-
multinomial or Polya likelihood), so the world posterior tends to the distribution the tasks are drawn from, as wide as
it is. `counts` adds all counts up, which is right only if all tasks are equal: it narrows without end.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.special import digamma

from posterity.errors import UserError
from posterity.tabular.mdp import FiniteMDP
from posterity.types import BoolArray, FiniteSpec, FloatArray, Transition

Pooling = Literal["evidence", "counts"]
MOST_ENTRIES = 20_000_000  # counts of all tasks together that pooling by evidence will hold and fit


class Rows(NamedTuple):
    """One array per kind of row: Dirichlet parameters, or counts."""

    next_state: FloatArray  # [..., S, A, S]
    reward: FloatArray  # [..., S, A, R]


class World(NamedTuple):
    """The distribution of tasks as far as it is known, and the counts it was learned from."""

    alpha: Rows
    history: Rows  # leading axis: C tasks (`evidence`), or 1, all tasks before the present one (`counts`)
    task: int  # the number of the present task


class TaskRows(NamedTuple):
    """The posterior of one task: Dirichlet(prior + counts)."""

    prior: Rows
    counts: Rows


class DirichletRows:
    """The unstructured belief: nothing is known of a finite MDP but its states, actions and reward levels."""

    def __init__(self, spec: FiniteSpec, tasks: int, concentration: float, pooling: Pooling) -> None:
        self.spec = spec
        self.tasks = tasks
        self.concentration = concentration
        self.pooling: Pooling = pooling
        entries = tasks * spec.states * spec.actions * spec.states
        if pooling == "evidence" and entries > MOST_ENTRIES:
            size = f"{tasks} tasks x {spec.states} x {spec.actions} x {spec.states} counts"
            raise UserError(f"Pooling by evidence would keep {size}; use fewer tasks or states, or pooling 'counts'")

    def prior(self) -> World:
        """Before any task: every row Dirichlet with all parameters equal to `concentration`."""
        states, actions, levels = self.spec.states, self.spec.actions, len(self.spec.levels)
        shapes = Rows(np.empty((states, actions, states)), np.empty((states, actions, levels)))
        alpha = Rows(*(np.full_like(shape, self.concentration) for shape in shapes))
        kept = self.tasks if self.pooling == "evidence" else 1
        return World(alpha, Rows(*(np.zeros((kept, *shape.shape)) for shape in shapes)), task=-1)

    def begin(self, world: World) -> tuple[World, TaskRows]:
        """A new task, which starts as a copy of the world posterior."""
        if world.task + 1 >= self.tasks:
            raise ValueError(f"this belief has room for {self.tasks} tasks")
        history = world.history
        if self.pooling == "counts":
            history = Rows(*(alpha[None] - self.concentration for alpha in world.alpha))
        task = TaskRows(world.alpha, Rows(*map(np.zeros_like, world.alpha)))
        return World(world.alpha, history, world.task + 1), task

    def observe(self, task: TaskRows, row: Transition) -> TaskRows:
        """The exact update: one more count."""
        level = int(np.abs(self.spec.levels - row.reward).argmin())
        if not np.isclose(self.spec.levels[level], row.reward):
            raise UserError(f"The environment paid {row.reward}, which is none of the spec's levels {self.spec.levels}")
        counts = Rows(*(array.copy() for array in task.counts))
        counts.next_state[row.obs, row.action, row.next_obs] += 1.0
        counts.reward[row.obs, row.action, level] += 1.0
        return task._replace(counts=counts)

    def pool(self, world: World, task: TaskRows) -> World:
        """The world posterior given all tasks, the present one as far as it went."""
        if self.pooling == "counts":
            pairs = zip(world.history, task.counts, strict=True)
            return world._replace(alpha=Rows(*(self.concentration + kept[0] + counts for kept, counts in pairs)))
        history = Rows(*(array.copy() for array in world.history))
        for kept, counts in zip(history, task.counts, strict=True):
            kept[world.task] = counts
        pairs = zip(history, world.alpha, strict=True)
        alpha = Rows(*(fit_dirichlet(kept[: world.task + 1], at, self.concentration) for kept, at in pairs))
        return World(alpha, history, world.task)

    def sample(
        self, generator: np.random.Generator, world: World, task: TaskRows, known: BoolArray, count: int
    ) -> FiniteMDP:
        """`count` processes: known pairs [S, A] from the task posterior, the others from the world posterior."""
        rows = [
            sample_dirichlet(generator, np.where(known[..., None], prior + counts, alpha), count)
            for prior, counts, alpha in zip(task.prior, task.counts, world.alpha, strict=True)
        ]
        return FiniteMDP(rows[0], None, rows[1] @ self.spec.levels, self.spec.terminal)


def sample_dirichlet(generator: np.random.Generator, alpha: FloatArray, count: int) -> FloatArray:
    """`count` draws [count, ..., M] from independent Dirichlet rows [..., M]. A parameter of zero: probability zero."""
    return normalised(log_gammas(generator, np.broadcast_to(alpha, (count, *alpha.shape))))


def log_gammas(generator: np.random.Generator, shapes: FloatArray) -> FloatArray:
    """Logarithms of gamma draws, which normalised are Dirichlet.

    With shapes near zero plain gammas underflow to rows of 0 / 0; the gamma of a small shape a is that of a + 1 times
    U^(1 / a), whose logarithm does not.
    """
    boost = np.full(shapes.shape, -np.inf)  # a shape of 0 is the outcome that never happens
    np.divide(generator.standard_exponential(shapes.shape), -shapes, out=boost, where=shapes > 0)
    return boost + np.log(generator.standard_gamma(shapes + 1.0))


def normalised(logs: FloatArray) -> FloatArray:
    """Probabilities proportional to the exponentials of `logs`, over the last axis."""
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def fit_dirichlet(
    counts: FloatArray, start: FloatArray, mode: float, strength: float = 1.0, tolerance: float = 1e-3
) -> FloatArray:
    """The Dirichlet from which the rows behind `counts` [C, ..., M] were most probably drawn.

    Minka's fixed point for the Polya likelihood; each step raises the posterior density. A Gamma prior with its peak at
    `mode` and the weight of `strength` keeps a row nobody visited where it began, and parameters finite.
    """
    total = counts.sum(axis=-1)
    alpha = start
    for _ in range(200):
        whole = alpha.sum(axis=-1)
        rise = (digamma(counts + alpha) - digamma(alpha)).sum(axis=0)
        fall = (digamma(total + whole) - digamma(whole)).sum(axis=0)[..., None]
        updated = (alpha * rise + strength * mode) / (fall + strength)
        settled = np.abs(updated - alpha).max() <= tolerance * alpha.max()
        alpha = updated
        if settled:
            break
    return alpha

"""Tasks of several kinds: a mixture of Dirichlet worlds, in which the kind of a task is inferred.

    kind of task i ~ Chinese restaurant process     g with weight (tasks of kind g), a new one with weight 1
    row_i | kind g ~ Dirichlet(alpha_g)             as in dirichlet.py

Given the counts N of the present task, kind g has the probability

    w_g  proportional to  weight_g  p(N | alpha_g)                                    (Dirichlet-multinomial)

and the task posterior is the mixture sum_g w_g Dirichlet(alpha_g + N). A sampled model first draws its kind. When a
task ends it is given to its most probable kind, whose parameters then learn from it by evidence. There is room for G
kinds; as long as one is empty, a task may be the first of a new kind, whose prior is the one before any task.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posterity import tree
from posterity.tabular.dirichlet import DirichletRows, Rows, TaskRows, World
from posterity.tabular.mdp import FiniteMDP, action_values
from posterity.types import BoolArray, FloatArray, Transition


class Worlds(NamedTuple):
    """One world for each of G kinds."""

    each: World  # arrays with a leading axis of kinds
    tasks: FloatArray  # [G] finished tasks of a kind


class KindsTask(NamedTuple):
    """What was seen of the present task, and what each kind makes of it."""

    prior: Rows  # [G, ...]
    counts: Rows
    before: FloatArray  # [G] log weights of the kinds before anything was seen


class DirichletKinds:
    """Believes in at most `kinds` kinds of tasks."""

    def __init__(self, rows: DirichletRows, kinds: int) -> None:
        self.rows, self.kinds = rows, kinds

    def prior(self) -> Worlds:
        """Before any task, every kind is the same."""
        return Worlds(tree.stack([self.rows.prior()] * self.kinds), np.zeros(self.kinds))

    def begin(self, worlds: Worlds) -> KindsTask:
        """A new task: kinds are as probable as they were frequent, and one that is new may come."""
        new = np.flatnonzero(worlds.tasks == 0)[:1]
        weight = worlds.tasks.copy()
        weight[new] = 1.0
        with np.errstate(divide="ignore"):  # a further empty kind is none
            before = np.log(weight)
        first = tree.lane(worlds.each.alpha, 0)
        return KindsTask(worlds.each.alpha, Rows(*map(np.zeros_like, first)), before)

    def observe(self, task: KindsTask, steps: Transition) -> KindsTask:
        """The exact update: counts belong to the task, whatever its kind."""
        counts = self.rows.observe(TaskRows(task.counts, task.counts), steps).counts
        return task._replace(counts=counts)

    def probabilities(self, task: KindsTask) -> FloatArray:
        """[G] of each kind, given what was seen."""
        logs = np.array(
            [
                at + self.rows.log_evidence(tree.lane(task.prior, kind), task.counts) if np.isfinite(at) else -np.inf
                for kind, at in enumerate(task.before)
            ]
        )
        shares = np.exp(logs - logs.max())
        return shares / shares.sum()

    def pool(self, worlds: Worlds, task: KindsTask, final: bool = False) -> Worlds:
        """A finished task teaches its most probable kind. Before that nothing is certain enough to be learned."""
        if not final:
            return worlds
        kind = int(self.probabilities(task).argmax())
        world = self.rows.pool(tree.lane(worlds.each, kind), self._of(task, kind), final=True)

        def replaced(all_kinds: FloatArray, one: FloatArray) -> FloatArray:
            changed = all_kinds.copy()
            changed[kind] = one
            return changed

        tasks = worlds.tasks.copy()
        tasks[kind] += 1.0
        return Worlds(tree.map_leaves(replaced, worlds.each, world), tasks)

    def _of(self, task: KindsTask, kind: int) -> TaskRows:
        """The task posterior if the task is of this kind."""
        return TaskRows(tree.lane(task.prior, kind), task.counts)

    def sample(
        self, generator: np.random.Generator, worlds: Worlds, task: KindsTask, known: BoolArray, count: int
    ) -> FiniteMDP:
        """`count` processes, each of a kind that is drawn first. All pairs are as the task posterior has them."""
        drawn = np.sort(generator.choice(self.kinds, size=count, p=self.probabilities(task)))
        all_known = np.ones_like(known)
        parts = [
            self.rows.sample(generator, tree.lane(worlds.each, kind), self._of(task, kind), all_known, int(number))
            for kind, number in zip(*np.unique(drawn, return_counts=True), strict=True)
        ]
        probability = np.concatenate([part.probability for part in parts])
        return parts[0]._replace(probability=probability, reward=np.concatenate([part.reward for part in parts]))

    def mean(self, worlds: Worlds, task: KindsTask, known: BoolArray) -> FiniteMDP:
        """The mean over kinds of their mean processes."""
        shares, all_known = self.probabilities(task), np.ones_like(known)
        likely = np.flatnonzero(shares > 1e-6).tolist()
        parts = [self.rows.mean(tree.lane(worlds.each, kind), self._of(task, kind), all_known) for kind in likely]
        weight = shares[likely] / shares[likely].sum()
        return parts[0]._replace(
            probability=np.einsum("g,gsam->sam", weight, np.stack([part.probability for part in parts])),
            reward=np.einsum("g,gsa->sa", weight, np.stack([part.reward for part in parts])),
        )

    def weight(self, worlds: Worlds, task: KindsTask, known: BoolArray) -> FloatArray:
        """[S, A] the mean over kinds."""
        shares = self.probabilities(task)
        whole = task.prior.next_state.sum(axis=-1) + task.counts.next_state.sum(axis=-1)
        return np.einsum("g,gsa->sa", shares, whole)

    def variance(
        self, worlds: Worlds, task: KindsTask, known: BoolArray, values: FloatArray, gamma: float
    ) -> FloatArray:
        """[S, A] the mean over kinds of their variances, and the variance over kinds of their means."""
        shares, all_known = self.probabilities(task), np.ones_like(known)
        likely = np.flatnonzero(shares > 1e-6).tolist()
        weight = shares[likely] / shares[likely].sum()
        within, means = [], []
        for kind in likely:
            bound = tree.lane(worlds.each, kind), self._of(task, kind), all_known
            within.append(self.rows.variance(*bound, values, gamma))
            means.append(action_values(self.rows.mean(*bound), values, gamma))
        middle = np.einsum("g,gsa->sa", weight, np.stack(means))
        return np.einsum("g,gsa->sa", weight, np.stack(within) + (np.stack(means) - middle) ** 2)

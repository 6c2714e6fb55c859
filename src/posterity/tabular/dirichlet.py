"""Dirichlet posterior over the rows of a finite MDP, for one task and for the world of tasks.

A pair (s, a) has a categorical row for the next state and one for the reward level, independent given the pair:

    task:   row_i | data  ~  Dirichlet(alpha + N_i)          N_i the counts of task i           (paper, Eq. 1)
    world:  row_i         ~  Dirichlet(alpha)                for every task i                   (paper, Eq. 2)

The paper copies the world posterior into the task posterior and leaves open how tasks are pooled into the world's.
Two ways are here. `evidence` chooses the alpha under which the counts of all tasks are most probable (evidence.py), so
the world posterior tends to the distribution the tasks are drawn from, as wide as it is. `counts` adds all counts up,
which is right only if all tasks are equal: it narrows without end.

Of finished tasks only tail counts are kept (tails.py), so neither memory nor time grows with the number of tasks.
Where a family says which next states a pair can have at all (`FiniteSpec.successors`), rows are over those alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.special import gammaln

from posterity.errors import UserError
from posterity.tabular import tails
from posterity.tabular.evidence import Evidence, doubt, fit_dirichlet, widened
from posterity.tabular.hyperprior import Hyperprior, learned
from posterity.tabular.mdp import FiniteMDP
from posterity.tabular.sampling import sample_dirichlet
from posterity.tabular.tails import Tails
from posterity.types import BoolArray, Budget, FiniteSpec, FloatArray, IntArray, Transition

Pooling = Literal["evidence", "counts"]
MOST_BYTES = 2_000_000_000  # of what a learner keeps


class Rows(NamedTuple):
    """One array per kind of row: Dirichlet parameters, or counts."""

    next_state: FloatArray  # [..., S, A, M]
    reward: FloatArray  # [..., S, A, R]


class Past(NamedTuple):
    """The tail counts of all finished tasks. Of `counts` the tails have one bin: the sum."""

    next_state: Tails  # [S, A, M, J]
    reward: Tails  # [S, A, R, J]
    total: Tails  # [S, A, J] of the visits to a pair


class World(NamedTuple):
    """The distribution of tasks as far as it is known, and the counts it was learned from."""

    alpha: Rows
    fitted: Rows  # the maximum that `alpha` was widened from, where the next fit begins
    doubt: Rows  # [S, A] the variance of the logarithm of its concentration
    before: Rows  # [3] the hyperprior: what is believed of a row before its tasks
    past: Past
    taken: FloatArray  # [S, A] visits of the present task that `alpha` knows of


class TaskRows(NamedTuple):
    """The posterior of one task: Dirichlet(prior + counts)."""

    prior: Rows
    counts: Rows


class DirichletRows:
    """The unstructured belief: nothing is known of a finite MDP but its states, actions and reward levels."""

    def __init__(
        self,
        spec: FiniteSpec,
        budget: Budget,
        concentration: float,
        pooling: Pooling,
        strength: float = 4.0,
        kinds: int = 1,
    ) -> None:
        self.spec, self.concentration, self.strength = spec, concentration, strength
        self.pooling: Pooling = pooling
        self.successor = spec.successors
        self.outcomes = spec.states if spec.successors is None else spec.successors.shape[2]
        steps = budget.iterations * budget.steps_per_iteration
        self.bins: IntArray = tails.edges(steps) if pooling == "evidence" else np.array([0, np.iinfo(np.int32).max])
        self.level = tails.middles(self.bins)
        self._refuse_what_does_not_fit(kinds)

    def _refuse_what_does_not_fit(self, kinds: int) -> None:
        pairs, levels = self.spec.states * self.spec.actions, len(self.spec.levels)
        numbers = pairs * (self.outcomes + levels)
        bins = len(self.level)
        size = kinds * (6 * 8 * numbers + 2 * 4 * (numbers + pairs) * bins)  # parameters, counts; tails and their copy
        if size > MOST_BYTES:
            raise UserError(
                f"A belief about {self.spec.states} states x {self.spec.actions} actions x {self.outcomes} next states "
                f"would take {size / 1e9:.1f} GB and may take {MOST_BYTES / 1e9:.0f}: "
                "use fewer states, or say which next states are possible (FiniteSpec.successors)"
            )

    def prior(self) -> World:
        """Before any task: every row Dirichlet with all parameters equal to `concentration`."""
        states, actions = self.spec.states, self.spec.actions
        shapes = [(states, actions, self.outcomes), (states, actions, len(self.spec.levels))]
        alpha = Rows(*(np.full(shape, self.concentration) for shape in shapes))
        bins = len(self.level)
        past = Past(*(np.zeros((*shape, bins), dtype=np.int32) for shape in (*shapes, (states, actions))))
        nothing = np.zeros((states, actions))
        before = Rows(*(np.array(Hyperprior.first(self._centre(rows))) for rows in alpha))
        return World(alpha, alpha, Rows(nothing, nothing), before, past, nothing)

    def _centre(self, rows: FloatArray) -> float:
        """Concentration of the prior before any task, of such rows [..., M]."""
        return self.concentration * rows.shape[-1]

    def begin(self, world: World) -> TaskRows:
        """A new task, which starts as a copy of the world posterior."""
        return TaskRows(world.alpha, Rows(*map(np.zeros_like, world.alpha)))

    def observe(self, task: TaskRows, steps: Transition) -> TaskRows:
        """The exact update: one more count for each of the steps [B]."""
        counts = Rows(*(array.copy() for array in task.counts))
        pairs = np.asarray(steps.obs), np.asarray(steps.action)
        np.add.at(counts.next_state, (*pairs, self._outcome(pairs, np.asarray(steps.next_obs))), 1.0)
        np.add.at(counts.reward, (*pairs, self._level(np.asarray(steps.reward))), 1.0)
        return task._replace(counts=counts)

    def _level(self, reward: FloatArray) -> IntArray:
        level = np.abs(self.spec.levels[:, None] - reward).argmin(axis=0)
        wrong = ~np.isclose(self.spec.levels[level], reward)
        if wrong.any():
            paid = reward[wrong][0]
            raise UserError(f"The environment paid {paid}, which is none of the spec's levels {self.spec.levels}")
        return level

    def _outcome(self, pairs: tuple[IntArray, IntArray], following: IntArray) -> IntArray:
        if self.successor is None:
            return following
        same = self.successor[pairs] == following[:, None]
        if not same.any(axis=1).all():
            step = int(np.flatnonzero(~same.any(axis=1))[0])
            where = f"state {pairs[0][step]} by action {pairs[1][step]} led to {following[step]}"
            raise UserError(f"The environment's {where}, which is none of the spec's successors")
        return same.argmax(axis=1)

    def pool(self, world: World, task: TaskRows, final: bool = False) -> World:
        """The world posterior given all tasks, the present one as far as it went. `final`: it has ended."""
        visits = task.counts.reward.sum(axis=-1)
        changed = visits != world.taken
        if changed.any():
            world = self._pooled(world, self._past(world.past, task.counts, changed), changed)
        if not final:
            return world._replace(taken=visits)
        visited = visits > 0
        past = Past(*(array.copy() for array in world.past))
        for array, part in zip(past, self._past(world.past, task.counts, visited), strict=True):
            array[visited] = part
        world = world._replace(past=past, taken=np.zeros_like(visits))
        return world if self.pooling == "counts" else world._replace(before=self._before(world))

    def _past(self, past: Past, counts: Rows, chosen: BoolArray) -> Past:
        """The tails [N, ...] of the chosen pairs with the present task among them."""
        next_state, reward = counts.next_state[chosen], counts.reward[chosen]
        parts = (next_state, reward, reward.sum(axis=-1))
        return Past(*(kept[chosen] + tails.tails_of(part, self.bins) for kept, part in zip(past, parts, strict=True)))

    def _pooled(self, world: World, past: Past, chosen: BoolArray) -> World:
        """The world with the parameters of the chosen pairs fitted anew."""
        alpha, fitted, doubts = (
            Rows(*(array.copy() for array in rows)) for rows in (world.alpha, world.fitted, world.doubt)
        )
        for into, best, variance, kept, before in zip(alpha, fitted, doubts, past[:2], world.before, strict=True):
            if self.pooling == "counts":
                into[chosen] = best[chosen] = self.concentration + kept[..., 0]
                continue
            problem = Evidence.of(kept, past.total, self.level, Hyperprior(*before))
            best[chosen] = fit_dirichlet(problem, best[chosen])
            into[chosen] = widened(problem, best[chosen], self._centre(into))
            variance[chosen] = doubt(problem, best[chosen])
        return world._replace(alpha=alpha, fitted=fitted, doubt=doubts)

    def _before(self, world: World) -> Rows:
        """[3] what all rows that were ever visited say of a row before its tasks."""
        visited = world.past.total[..., 0] > 0
        total, found = world.past.total[visited], []
        for best, variance, kept, before in zip(world.fitted, world.doubt, world.past[:2], world.before, strict=True):
            alpha = best[visited]
            draws = Evidence.of(kept[visited], total, self.level, Hyperprior(*before)).draws(alpha)
            found.append(np.array(learned(self._centre(best), self.strength, alpha, variance[visited], draws)))
        return Rows(*found)

    def log_evidence(self, alpha: Rows, counts: Rows) -> float:
        """Log probability of a task's counts under a world with these parameters (Dirichlet-multinomial)."""
        found = 0.0
        visited = counts.reward.any(axis=-1)
        for parameters, seen in zip(alpha, counts, strict=True):
            at, number = parameters[visited], seen[visited]
            found += float((gammaln(at + number) - gammaln(at)).sum())
            found -= float((gammaln((at + number).sum(axis=-1)) - gammaln(at.sum(axis=-1))).sum())
        return found

    def parameters(self, world: World, task: TaskRows, known: BoolArray) -> Rows:
        """Dirichlet parameters: of known pairs [S, A] those of the task posterior, of the others the world's."""
        rows = zip(task.prior, task.counts, world.alpha, strict=True)
        if known.all():
            return Rows(*(prior + counts for prior, counts, _ in rows))
        return Rows(*(np.where(known[..., None], prior + counts, alpha) for prior, counts, alpha in rows))

    def sample(
        self, generator: np.random.Generator, world: World, task: TaskRows, known: BoolArray, count: int
    ) -> FiniteMDP:
        """`count` processes: known pairs [S, A] from the task posterior, the others from the world posterior."""
        rows = [sample_dirichlet(generator, each, count) for each in self.parameters(world, task, known)]
        return FiniteMDP(rows[0], self.successor, rows[1] @ self.spec.levels, self.spec.terminal)

    def mean(self, world: World, task: TaskRows, known: BoolArray) -> FiniteMDP:
        """The process whose rows are the posterior's means."""
        rows = [each / each.sum(axis=-1, keepdims=True) for each in self.parameters(world, task, known)]
        return FiniteMDP(rows[0], self.successor, rows[1] @ self.spec.levels, self.spec.terminal)

    def weight(self, world: World, task: TaskRows, known: BoolArray) -> FloatArray:
        """[S, A] how many observations of a pair the posterior is worth."""
        return self.parameters(world, task, known).next_state.sum(axis=-1)

    def variance(self, world: World, task: TaskRows, known: BoolArray, values: FloatArray, gamma: float) -> FloatArray:
        """[S, A] the posterior variance of r + gamma sum_m p(m) values(successor of m)."""
        rows = self.parameters(world, task, known)
        following = np.broadcast_to(values, rows.next_state.shape) if self.successor is None else values[self.successor]
        return _variance(rows.reward, self.spec.levels) + gamma**2 * _variance(rows.next_state, following)


def _variance(alpha: FloatArray, worth: FloatArray) -> FloatArray:
    """[...] of the mean of `worth` [..., M] under a row drawn from Dirichlet(alpha) [..., M]."""
    whole = alpha.sum(axis=-1)
    mean = (alpha * worth).sum(axis=-1) / whole
    return np.maximum((alpha * worth**2).sum(axis=-1) / whole - mean**2, 0.0) / (whole + 1.0)

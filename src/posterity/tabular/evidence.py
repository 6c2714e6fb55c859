"""The Dirichlet from which the rows of many tasks were most probably drawn: pooling by evidence.

A row of every task is Dirichlet(alpha), alpha = c m: the mean m says what tasks have in common, the concentration c how
alike they are. Given the counts of all tasks (as tails, see tails.py) this maximises, row by row,

    sum_k sum_j tail_k[j] ln(alpha_k + j)  -  sum_j tail[j] ln(c + j)                 evidence (Dirichlet-multinomial)
    + strength sum_k ln m_k / M                                                       m ~ Dirichlet(1 + strength / M)
    - strength (ln c - ln c_0)^2 / (2 SPREAD^2)                                       ln c ~ Normal(ln c_0, SPREAD^2)
    - (K - 1) / 2 ln(W(c) + c_0)                                                      m has to be learned, too

W(c) = sum_i n_i (1 + c) / (n_i + c) is what the n_i counts of the tasks are worth in independent draws from m, K the
categories that were seen. The last line is the volume of what is left open of m (Laplace's approximation of integrating
it out): without it few tasks look far more alike than they are, since m is fitted to them.

The hyperprior is scale-free: it weighs the concentration by its ratio to c_0, that of the prior before any task, and
says nothing of single parameters. Its Hessian, like that of the evidence, is a diagonal and one number for all pairs of
parameters, so a Newton step costs as much as a gradient. A step that does not go up is halved; where no part of it
does, the row takes one of Minka's fixed-point steps, which always does.

The maximum says nothing of the error of m. `widened` gives the Dirichlet that also allows for the error
of m: its variance is that of a row about m plus that of m about the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posterity.tabular.tails import Tails
from posterity.types import BoolArray, FloatArray

SPREAD = 2.0  # standard deviation of ln c at strength 1: a factor of seven and a half either way
LEAST, MOST = 1e-6, 1e6  # of a parameter
ROUNDS, HALVINGS = 100, 8


class Evidence(NamedTuple):
    """What is to be maximised, for N rows at once."""

    tails: FloatArray  # [N, M, J] of each category
    total: FloatArray  # [N, J] of the row's sum
    level: FloatArray  # [J] where a bin stands
    centre: float  # c_0
    strength: float
    seen: FloatArray  # [N] (K - 1) / 2

    @classmethod
    def of(cls, tails: Tails, total: Tails, level: FloatArray, centre: float, strength: float) -> Evidence:
        """Without the bins that no task reached."""
        used = int((total > 0).any(axis=0).sum())  # tails only fall
        seen = 0.5 * np.maximum((tails[..., :1] > 0).sum(axis=(1, 2)) - 1.0, 0.0)
        parts = tails[..., :used].astype(float), total[:, :used].astype(float)
        return cls(*parts, level[:used], centre, strength, seen)

    def rows(self, chosen: BoolArray) -> Evidence:
        """Of some of the rows."""
        return self._replace(tails=self.tails[chosen], total=self.total[chosen], seen=self.seen[chosen])

    def worth(self, whole: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """[N] W(c), slope and curvature. n / (n + c) sums c / ((j + c) (j + 1 + c)) over the levels j < n."""
        low, high = 1.0 / (self.level + whole[:, None]), 1.0 / (self.level + 1.0 + whole[:, None])
        each = self.total * low * high
        first = -(each * (low + high)).sum(axis=1)
        second = 2.0 * (each * (low**2 + low * high + high**2)).sum(axis=1)
        sums, grown, faster = each.sum(axis=1), whole + whole**2, 1.0 + 2.0 * whole
        return grown * sums, faster * sums + grown * first, 2.0 * (sums + faster * first) + grown * second

    def value(self, alpha: FloatArray) -> FloatArray:
        """[N] the logarithm of the posterior density, up to a constant."""
        whole = alpha.sum(axis=1)
        found = (self.tails * np.log(alpha[..., None] + self.level)).sum(axis=(1, 2))
        found -= (self.total * np.log(whole[:, None] + self.level)).sum(axis=1)
        share = self.strength / alpha.shape[1]
        off = np.log(whole / self.centre)
        return (
            found
            + share * np.log(alpha).sum(axis=1)
            - self.strength * np.log(whole)
            - 0.5 * self.strength * (off / SPREAD) ** 2
            - self.seen * np.log(self.worth(whole)[0] + self.centre)
        )

    def slopes(self, alpha: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Gradient in two parts, rise [N, M] minus fall [N]; Hessian in two, diagonal [N, M] and common [N]."""
        whole = alpha.sum(axis=1)
        part = self.tails / (alpha[..., None] + self.level)
        sums = self.total / (whole[:, None] + self.level)
        share, off = self.strength / alpha.shape[1], np.log(whole / self.centre)
        rise = part.sum(axis=2) + share / alpha
        fall = sums.sum(axis=1) + self.strength * (1.0 + off / SPREAD**2) / whole
        worth, slope, curve = self.worth(whole)
        ratio = slope / (worth + self.centre)
        fall += self.seen * ratio
        diagonal = -(part / (alpha[..., None] + self.level)).sum(axis=2) - share / alpha**2
        common = (sums / (whole[:, None] + self.level)).sum(axis=1)
        common += self.strength * (1.0 + (off - 1.0) / SPREAD**2) / whole**2
        common += self.seen * (ratio**2 - curve / (worth + self.centre))
        return rise, fall, diagonal, common


def fit_dirichlet(problem: Evidence, start: FloatArray, tolerance: float = 1e-6) -> FloatArray:
    """[N, M] the best parameters, from `start` [N, M] on. A row is done when a step gains next to nothing."""
    alpha = start.copy()
    open_rows = np.ones(len(alpha), dtype=bool)
    value = problem.value(alpha)
    for _ in range(ROUNDS):
        if not open_rows.any():
            break
        part = problem.rows(open_rows)
        updated, reached = _step(part, alpha[open_rows], value[open_rows])
        gained = reached - value[open_rows]
        alpha[open_rows], value[open_rows] = updated, reached
        open_rows[open_rows] = gained > tolerance
    return alpha


def _step(problem: Evidence, alpha: FloatArray, value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A Newton step of every row, halved until it goes up, or else a fixed-point step; and the values there."""
    rise, fall, diagonal, common = problem.slopes(alpha)
    gradient = rise - fall[:, None]
    # (D + z 1 1')^-1 g by the Sherman-Morrison formula
    scaled, ones = gradient / diagonal, 1.0 / diagonal
    shared = common * scaled.sum(axis=1) / (1.0 + common * ones.sum(axis=1))
    newton = -(scaled - ones * shared[:, None])
    best, reached = alpha.copy(), value.copy()
    size, waiting = 1.0, np.ones(len(alpha), dtype=bool)
    for _ in range(HALVINGS):
        tried = np.clip(alpha[waiting] + size * newton[waiting], alpha[waiting] / 10.0, alpha[waiting] * 10.0)
        tried = np.clip(tried, LEAST, MOST)
        there = problem.rows(waiting).value(tried)
        better = there > value[waiting]
        place = np.flatnonzero(waiting)[better]
        best[place], reached[place] = tried[better], there[better]
        waiting[place] = False
        size /= 2.0
        if not waiting.any():
            return best, reached
    rest = np.flatnonzero(waiting)
    tried = np.clip(alpha[rest] * rise[rest] / np.maximum(fall[rest, None], 1e-300), LEAST, MOST)
    there = problem.rows(waiting).value(tried)
    better = there > value[rest]
    best[rest[better]], reached[rest[better]] = tried[better], there[better]
    return best, reached


def widened(problem: Evidence, alpha: FloatArray) -> FloatArray:
    """[N, M] the Dirichlet of the same mean that also allows for how little of the mean is known.

    n counts of a task weigh n (1 + c) / (n + c) independent draws from m. With W of them in all tasks m is off by
    m (1 - m) / (W + 1), and a row about m by m (1 - m) / (c + 1). It is no wider than the prior before any task, in
    which the error of m is counted already, unless tasks are seen to differ more.
    """
    whole = alpha.sum(axis=1)
    weight = problem.worth(whole)[0]
    wider = 1.0 / (1.0 / (whole + 1.0) + 1.0 / (weight + 1.0)) - 1.0
    return alpha * (np.maximum(wider, np.minimum(whole, problem.centre)) / whole)[:, None]

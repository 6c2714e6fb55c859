"""The Dirichlet from which the rows of many tasks were most probably drawn: pooling by evidence.

A row of every task is Dirichlet(alpha), alpha = c m: the mean m says what tasks have in common, the concentration c how
alike they are. Given the counts of all tasks (as tails, see tails.py) this maximises, row by row,

    sum_k sum_j tail_k[j] ln(alpha_k + j)  -  sum_j tail[j] ln(c + j)                 evidence (Dirichlet-multinomial)
    + e sum_k ln m_k / M                                                              m ~ Dirichlet(e / M)
    - (ln c - u)^2 / (2 t^2)                                                          ln c ~ Normal(u, t^2)
    - (K - 1) / 2 ln(W(c) + e)                                                        m has to be learned, too

W(c) = sum_i n_i (1 + c) / (n_i + c) is what the n_i counts of the tasks are worth in independent draws from m, K the
categories that were seen. The last line is the volume of what is left open of m (Laplace's approximation of integrating
it out): without it few tasks look far more alike than they are, since m is fitted to them.

What is believed of a row before its tasks, that is e, u and t, is learned from all rows together (hyperprior.py). The
Hessian is a diagonal and one number for all pairs of parameters, so a Newton step costs as much as a gradient. A step
that does not go up is halved; where no part of it does, the row takes one of Minka's fixed-point steps, which always
does.

The maximum says nothing of the error of m. `widened` gives the Dirichlet that also allows for the error
of m: its variance is that of a row about m plus that of m about the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posterity.tabular.hyperprior import Hyperprior
from posterity.tabular.tails import Tails
from posterity.types import BoolArray, FloatArray

LEAST, MOST = 1e-6, 1e6  # of a parameter
ROUNDS, HALVINGS = 100, 8


class Evidence(NamedTuple):
    """What is to be maximised, for N rows at once."""

    tails: FloatArray  # [N, M, J] of each category
    total: FloatArray  # [N, J] of the row's sum
    level: FloatArray  # [J] where a bin stands
    before: Hyperprior  # e, u and t
    seen: FloatArray  # [N] (K - 1) / 2

    @classmethod
    def of(cls, tails: Tails, total: Tails, level: FloatArray, before: Hyperprior) -> Evidence:
        """Without the bins that no task reached."""
        used = int((total > 0).any(axis=0).sum())  # tails only fall
        seen = 0.5 * np.maximum((tails[..., :1] > 0).sum(axis=(1, 2)) - 1.0, 0.0)
        parts = tails[..., :used].astype(float), total[:, :used].astype(float)
        return cls(*parts, level[:used], before, seen)

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

    def draws(self, alpha: FloatArray) -> FloatArray:
        """[N, M] the independent draws from m that the counts are worth at the maximum `alpha`, by category."""
        whole, even = alpha.sum(axis=1), self.before.evenness
        found = alpha * ((self.worth(whole)[0] + even) / whole)[:, None] - even / alpha.shape[1]
        return np.where(self.tails[..., 0] > 0, np.maximum(found, 0.0), 0.0)

    def value(self, alpha: FloatArray) -> FloatArray:
        """[N] the logarithm of the posterior density, up to a constant."""
        whole = alpha.sum(axis=1)
        found = (self.tails * np.log(alpha[..., None] + self.level)).sum(axis=(1, 2))
        found -= (self.total * np.log(whole[:, None] + self.level)).sum(axis=1)
        even, off = self.before.evenness, np.log(whole) - self.before.log_mean
        return (
            found
            + even * (np.log(alpha).mean(axis=1) - np.log(whole))
            - 0.5 * (off / self.before.log_sd) ** 2
            - self.seen * np.log(self.worth(whole)[0] + even)
        )

    def slopes(self, alpha: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Gradient in two parts, rise [N, M] minus fall [N]; Hessian in two, diagonal [N, M] and common [N]."""
        whole = alpha.sum(axis=1)
        part = self.tails / (alpha[..., None] + self.level)
        sums = self.total / (whole[:, None] + self.level)
        even, off, narrow = self.before.evenness, np.log(whole) - self.before.log_mean, self.before.log_sd**-2
        share = even / alpha.shape[1]
        rise = part.sum(axis=2) + share / alpha
        fall = sums.sum(axis=1) + (even + off * narrow) / whole
        worth, slope, curve = self.worth(whole)
        ratio = slope / (worth + even)
        fall += self.seen * ratio
        diagonal = -(part / (alpha[..., None] + self.level)).sum(axis=2) - share / alpha**2
        common = (sums / (whole[:, None] + self.level)).sum(axis=1)
        common += (even + (off - 1.0) * narrow) / whole**2
        common += self.seen * (ratio**2 - curve / (worth + even))
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


def doubt(problem: Evidence, alpha: FloatArray) -> FloatArray:
    """[N] the variance of ln c at the maximum `alpha`, by the curvature along it: at most that of the hyperprior."""
    _, _, diagonal, common = problem.slopes(alpha)
    curve = -((alpha**2 * diagonal).sum(axis=1) + common * alpha.sum(axis=1) ** 2)
    return 1.0 / np.maximum(curve, problem.before.log_sd**-2)


def widened(problem: Evidence, alpha: FloatArray, centre: float) -> FloatArray:
    """[N, M] the Dirichlet of the same mean that also allows for how little of the mean is known.

    n counts of a task weigh n (1 + c) / (n + c) independent draws from m. With W of them in all tasks m is off by
    m (1 - m) / (W + 1), and a row about m by m (1 - m) / (c + 1). It is no wider than the prior before any task, of
    concentration `centre`, in which the error of m is counted already, unless tasks are seen to differ more.
    """
    whole = alpha.sum(axis=1)
    weight = problem.worth(whole)[0]
    wider = 1.0 / (1.0 / (whole + 1.0) + 1.0 / (weight + 1.0)) - 1.0
    return alpha * (np.maximum(wider, np.minimum(whole, centre)) / whole)[:, None]

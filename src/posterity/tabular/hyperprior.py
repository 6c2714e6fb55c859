"""What is believed of a row before any task of it, learned from all rows together.

The row of a pair is Dirichlet(c m) over tasks (evidence.py). Before its own tasks are seen,

    m ~ Dirichlet(e / M)           e, the evenness: small where rows have few likely outcomes
    ln c ~ Normal(u, t^2)          u says how alike tasks are, t by how much rows differ in this

No constant is right for e, u and t in every family: a corridor has certain steps, a random MDP has not. But rows of one
family tell each other: each is fitted given e, u and t, then these given all rows that were ever visited (expectation
maximisation, with a normal approximation of each row's ln c):

    u    (strength u_0 + sum_i ln c_i) / (strength + N)
    t^2  (strength (t_0^2 + (u - u_0)^2) + sum_i (ln c_i - u)^2 + variance_i) / (strength + N)
    e    the one of a grid under which the W_i draws from each m_i are most probable (Dirichlet-multinomial)

They begin at the prior before any task: u_0 the logarithm of its concentration c_0, t_0 = 1, e = c_0. `strength` is
what this beginning is worth, in rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from posterity.types import FloatArray

GRID = np.exp(np.linspace(np.log(0.02), np.log(5.0), 24))  # of e, in units of c_0
SPREAD = 2.0  # standard deviation of ln e about ln c_0 beforehand: a factor of seven and a half either way


class Hyperprior(NamedTuple):
    """Of one kind of rows."""

    evenness: float  # e
    log_mean: float  # u
    log_sd: float  # t

    @classmethod
    def first(cls, centre: float) -> Hyperprior:
        """Before any task, with a prior of concentration `centre`."""
        return cls(centre, float(np.log(centre)), 1.0)


def learned(centre: float, strength: float, alpha: FloatArray, variance: FloatArray, draws: FloatArray) -> Hyperprior:
    """From rows with the best parameters `alpha` [N, M], the variance [N] of ln c, and the `draws` [N, M] from m."""
    logs, first = np.log(alpha.sum(axis=1)), np.log(centre)
    count = len(logs) + strength
    mean = (strength * first + logs.sum()) / count
    apart = strength * (1.0 + (mean - first) ** 2) + ((logs - mean) ** 2 + variance).sum()
    return Hyperprior(evenness(centre, draws), float(mean), float(np.sqrt(apart / count)))


def evenness(centre: float, draws: FloatArray) -> float:
    """The e under which the draws [N, M] are most probable."""
    tried, whole = GRID * centre, draws.sum(axis=1)
    share = tried / draws.shape[1]
    each = gammaln(share[:, None, None] + draws) - gammaln(share)[:, None, None]
    total = gammaln(tried)[:, None] - gammaln(tried[:, None] + whole)
    found = each.sum(axis=(1, 2)) + total.sum(axis=1) - 0.5 * (np.log(GRID) / SPREAD) ** 2
    return float(tried[int(found.argmax())])

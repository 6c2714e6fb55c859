"""Tail counts: what the counts of many tasks come to, in a space that does not grow with the number of tasks.

The evidence of a Dirichlet in the counts n_1, n_2, ... of its tasks is a sum over tails:

    sum_i [ln Gamma(alpha + n_i) - ln Gamma(alpha)]  =  sum_j tail[j] ln(alpha + j),     tail[j] = tasks with n_i > j

So it is enough to keep how many tasks had a count above j. The first levels j are kept one by one. Higher ones share
bins whose width grows with j, since ln(alpha + j) hardly changes there: a bin holds the sum of its tails and stands at
its middle. With bins a fifth as wide as their place, a term is off by less than one part in 200.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posterity.types import FloatArray, IntArray

Tails = NDArray[np.int32]  # [..., J]

EXACT = 24  # levels that have a bin of their own
GROWTH = 1.2  # of the edges of later bins


def edges(most: int) -> IntArray:
    """[J + 1] where bins begin and end, for counts up to `most`. Those for more begin with those for fewer."""
    found = list(range(min(most, EXACT) + 1))
    while found[-1] < most:
        found.append(int(np.ceil(found[-1] * GROWTH)))
    return np.array(found, dtype=np.int64)


def middles(bins: IntArray) -> FloatArray:
    """[J] the level at which a bin stands."""
    return (bins[:-1] + bins[1:] - 1) / 2.0


def tails_of(counts: FloatArray, bins: IntArray) -> Tails:
    """[..., J] the tails of one task with these counts [...]: how much of every bin lies below its count."""
    below = np.asarray(counts, dtype=np.int64)[..., None] - bins[:-1]
    return np.clip(below, 0, np.diff(bins)).astype(np.int32)

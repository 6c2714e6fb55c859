"""How soon a posterior is near the truth: the appendix's coin example and its two general equations.

    coverage   sum_N Mult(N | truth, B) Dir({P : |P - truth| <= epsilon} | prior + N)

is the posterior mass near the truth to be expected after B observations of a pair, given a prior's counts.

Departure: the paper leaves the norm open; here it is a choice, and the coin example is the norm "max".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv, expit, gammaln, xlog1py, xlogy

from posterity.errors import UserError, unknown
from posterity.tabular.radius import SEED, checked_rows
from posterity.tabular.sampling import log_gammas, normalised
from posterity.types import FloatArray

SLACK = 1e-12  # a point exactly epsilon away counts as near, whatever rounding says
PRINTED = (78, 68, 58, 49, 42, 40, 42, 48, 58, 68, 78)  # the paper's table, (0, 10) to (10, 0)


class Estimate(NamedTuple):
    """A probability and the standard error of sampling it, 0.0 where it was computed rather than sampled."""

    value: float
    standard_error: float


class CoinRow(NamedTuple):
    """Flips of a fair coin needed with this prior: as computed, and as the paper prints it (None where it does not)."""

    heads: int
    tails: int
    exact: int
    printed: int | None


def coverage(
    prior: ArrayLike,
    truth: ArrayLike,
    observations: int,
    epsilon: float,
    *,
    norm: str = "max",
    samples: int = 100_000,
    generator: Generator | None = None,
) -> Estimate:
    """The expected posterior mass within `epsilon` of `truth` after so many observations: the world model's equation.

    Exact for two outcomes, by Monte Carlo for more. The paper leaves the norm open: "max" is the largest difference of
    a probability, which for two outcomes is exactly the coin example, and "l1" the sum of them, as in section 4.1. A
    prior of (0, b) holds the first outcome impossible until it is seen.
    """
    counts, chances = checked_rows(prior, truth, vector=True)
    width = _checked_width(counts, observations, epsilon, norm, samples)
    if counts.size == 2:
        return Estimate(_coin_coverage(counts, chances[0], observations, width), 0.0)
    draw = generator or np.random.default_rng(SEED)
    return _sampled(draw, counts, np.tile(chances, (samples, 1)), observations, epsilon, norm=norm)


def task_coverage(
    prior: ArrayLike,
    true_prior: ArrayLike,
    observations: int,
    epsilon: float,
    *,
    norm: str = "max",
    samples: int = 100_000,
    generator: Generator | None = None,
) -> Estimate:
    """`coverage` averaged over tasks, whose truths come from Dir(true_prior): the task posterior's equation.

    Quadrature for two outcomes, refined until it moves by less than 1e-9 (else its last move is the error reported);
    Monte Carlo for more.
    """
    counts, true_counts = checked_rows(prior, true_prior, vector=True, chances=False)
    width = _checked_width(counts, observations, epsilon, norm, samples)
    if counts.size != 2:
        draw = generator or np.random.default_rng(SEED)
        chances = normalised(log_gammas(draw, np.tile(true_counts, (samples, 1))))
        return _sampled(draw, counts, chances, observations, epsilon, norm=norm)
    if not true_counts.all():  # the true prior is a point mass
        return Estimate(_coin_coverage(counts, float(true_counts[0] > 0), observations, width), 0.0)
    return _integrated(counts, true_counts, observations, width)


def smallest_sample(
    prior: ArrayLike, truth: ArrayLike, epsilon: float, delta: float, *, norm: str = "max", limit: int = 10_000
) -> int:
    """The fewest observations after which `coverage` is at least 1 - delta, for two outcomes.

    Coverage need not rise with every observation, so every number up to the answer is tried.
    """
    counts, chances = checked_rows(prior, truth, vector=True)
    if counts.size != 2:
        raise UserError(f"The smallest sample is computed for two outcomes, not {counts.size}.")
    if not (epsilon > 0.0 and 0.0 < delta < 1.0):
        raise UserError(f"epsilon is {epsilon:g} and delta {delta:g}; need epsilon above 0 and delta between 0 and 1.")
    first = 0 if counts.any() else 1  # a prior of (0, 0) is no distribution before the first observation
    width, reached = _checked_width(counts, first, epsilon, norm), 0.0
    for observations in range(first, limit + 1):
        reached = _coin_coverage(counts, chances[0], observations, width)
        if reached >= 1.0 - delta:
            return observations
    raise UserError(f"Coverage is {reached:.4f} after {limit} observations, below {1.0 - delta:g}; raise the limit.")


def coin_table(total: int = 10, epsilon: float = 0.1, delta: float = 0.3) -> list[CoinRow]:
    """The coin example: flips of a fair coin needed with each prior (heads, tails) whose counts sum to `total`."""
    if total < 0:
        raise UserError(f"total is {total}; it must be 0 or more.")
    printed = PRINTED if (total, epsilon, delta) == (10, 0.1, 0.3) else [None] * (total + 1)
    return [
        CoinRow(heads, total - heads, smallest_sample((heads, total - heads), (0.5, 0.5), epsilon, delta), said)
        for heads, said in enumerate(printed)
    ]


def _coin_coverage(counts: FloatArray, truth: float, observations: int, width: float) -> float:
    """`coverage` for two outcomes: the posterior mass of first probabilities within `width` of `truth`."""
    # Bernstein's inequality: all but 1e-16 of the heads lie in this window, as wide as the root of `observations`.
    mean, reach = observations * truth, 12.5 + math.sqrt(12.5**2 + 75.0 * observations * truth * (1.0 - truth))
    heads = np.arange(max(0, math.floor(mean - reach)), min(observations, math.ceil(mean + reach)) + 1, dtype=float)
    tails = observations - heads
    logs = gammaln(observations + 1.0) - gammaln(heads + 1.0) - gammaln(tails + 1.0)
    weights = np.exp(logs + xlogy(heads, truth) + xlog1py(tails, -truth))
    first, second = counts[0] + heads, counts[1] + tails
    proper = (first > 0) & (second > 0)  # Beta(0, b) is a point mass at 0, Beta(a, 0) one at 1
    a, b = np.where(proper, first, 1.0), np.where(proper, second, 1.0)
    mass = betainc(a, b, min(truth + width, 1.0)) - betainc(a, b, max(truth - width, 0.0))
    point = np.where(first > 0, 1.0 - truth, truth) <= width + SLACK
    return float(np.where(proper, mass, point) @ weights / weights.sum())


def _integrated(counts: FloatArray, true_counts: FloatArray, observations: int, width: float) -> Estimate:
    """`task_coverage` for two outcomes: the integral over quantiles of the true prior, by the double-exponential rule.

    Coverage has a kink, under improper priors a jump, where `width` begins to reach past 0 or 1, so Gauss-Jacobi over
    the whole range converges slowly. The range is cut there instead, and this rule forgives what happens at an end.
    """
    kinks = betainc(true_counts[0], true_counts[1], np.clip([width, 1.0 - width], 0.0, 1.0))
    cuts = np.unique([0.0, *kinks, 1.0])
    value, move = math.inf, math.inf
    for step in (0.1, 0.05, 0.025):
        times = np.arange(-3.2, 3.2 + step / 2, step)
        places = expit(np.pi * np.sinh(times))
        weights = np.cosh(times) * places * (1.0 - places)
        truths = betaincinv(true_counts[0], true_counts[1], cuts[:-1, None] + np.diff(cuts)[:, None] * places)
        values = [[_coin_coverage(counts, p, observations, width) for p in piece] for piece in truths.tolist()]
        value, previous = float(np.diff(cuts) @ np.array(values) @ weights / weights.sum()), value
        if (move := abs(value - previous)) < 1e-9:
            return Estimate(value, 0.0)
    return Estimate(value, move)


def _sampled(
    draw: Generator, counts: FloatArray, chances: FloatArray, observations: int, epsilon: float, *, norm: str
) -> Estimate:
    """The share of posterior draws near the truth, unbiased: one data set for each truth in `chances` [samples, M]."""
    samples = len(chances)
    misses = np.abs(normalised(log_gammas(draw, counts + draw.multinomial(observations, chances))) - chances)
    near = int(np.sum((misses.max(-1) if norm == "max" else misses.sum(-1)) <= epsilon + SLACK))
    smooth = (near + 0.5) / (samples + 1.0)  # so that a share of 0 or 1 does not pass for an exact one
    return Estimate(near / samples, math.sqrt(smooth * (1.0 - smooth) / samples))


def _checked_width(counts: FloatArray, observations: int, epsilon: float, norm: str, samples: int = 2) -> float:
    """How far off the first of two probabilities may be: the second is off by as much, which "l1" adds."""
    if norm not in ("max", "l1"):
        raise unknown("norm", norm, ("max", "l1"))
    if not (observations >= 0 and epsilon >= 0.0 and samples >= 2):
        given = f"observations, epsilon, samples are {observations}, {epsilon:g}, {samples}"
        raise UserError(f"{given}; need >= 0, >= 0, >= 2.")
    if observations == 0 and not counts.any():
        raise UserError("A prior whose counts are all 0 is no distribution before the first observation.")
    return epsilon if norm == "max" else 0.5 * epsilon

"""The paper's theory of what a prior is worth, as numbers: section 4.1 and the appendix's coin example.

A Dirichlet belief about the M outcomes of one state-action pair has counts `prior`; the outcomes really come with
probabilities `truth`. Three questions are answered:

    coverage        how much posterior mass lies near the truth after B observations (the appendix's last equations)
                    sum_N Mult(N | truth, B) Dir({P : |P - truth| <= epsilon} | prior + N)
    radius          how far the prior is from the truth (Proposition 4.2)
                    d = inf {d : d >= -ln pi(KL(truth || P) <= d)},   P ~ pi = Dir(prior)
    concentration   how many observations a pair needs (Lemma 4.3), and a task steps (Proposition 4.4), at that radius

Why sampling the radius is cheap: Dir(prior) times exp(-c KL(truth || P)) is Dir(prior + c truth), so the importance
weight of a draw pulled towards the truth depends on its KL alone. And d >= r(c) / (1 + c), r(c) = -ln E_pi exp(-c KL),
by Chernoff's bound (at c = n the appendix's bound on the resolvability r(n) / n); the c that makes most of it pulls the
mean KL to that bound, just where draws are wanted.

Departures: the paper leaves the norm of coverage open, here it is a choice. It states only orders; the constants its
proof implies are in `concentration_bound`. docs/theory.md says where the paper's statements do not fit together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv, betaln, expit, gammaln, xlog1py, xlogy

from posterity.errors import UserError, unknown
from posterity.types import BoolArray, FloatArray

SEED = 2022  # of the generator used where none is given: the same question gets the same answer
SLACK = 1e-12  # a point exactly epsilon away counts as near, whatever rounding says
BLOCK = 1 << 18  # draws held at once; more would only miss the cache
PULLS = np.concatenate([[0.0], 2.0 ** np.arange(-4, 14)])  # the c among which the best is taken
PRIOR_SHARE = 0.25  # of the draws that come from the prior itself, so that no weight exceeds 1 / PRIOR_SHARE
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


class StepBound(NamedTuple):
    """Proposition 4.4 with every hidden constant one. `concentration` is None where Lemma 4.3 says nothing."""

    epsilon0: float  # epsilon (1 - gamma)^2, the accuracy of a pair's outcome probabilities
    delta0: float  # delta / (S A), the chance of failure left to one pair
    models: int  # K = S^2 A / delta ln(S A / delta), models sampled
    rho0: float  # delta / (S^2 A^2 K), the posterior mass left far from the truth
    concentration: float | None  # observations of one pair
    steps: float  # S^2 A^2 d / (delta epsilon^3 (1 - gamma)^6), steps that are not near-optimal


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
    counts, chances = _rows(prior, truth, vector=True)
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
    counts, true_counts = _rows(prior, true_prior, vector=True, chances=False)
    width = _checked_width(counts, observations, epsilon, norm, samples)
    if counts.size != 2:
        draw = generator or np.random.default_rng(SEED)
        chances = _normalised(_log_gammas(draw, np.tile(true_counts, (samples, 1))))
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
    counts, chances = _rows(prior, truth, vector=True)
    if counts.size != 2:
        raise UserError(f"The smallest sample is computed for two outcomes, not {counts.size}.")
    _check_bound(0.0, epsilon, delta, 0.5)
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


def prior_mass_radius(
    prior: ArrayLike, truth: ArrayLike, *, samples: int = 2000, generator: Generator | None = None
) -> FloatArray:
    """The prior-mass radius d of Proposition 4.2, for rows of Dirichlet counts and of probabilities, [..., M] -> [...].

    Exact for two outcomes. For more it is sampled: at 2000 samples the standard deviation was at most 0.03 for radii
    from 0.01 to 11. Infinite where the prior rules out an outcome that occurs.
    """
    counts, chances = _rows(prior, truth)
    if counts.shape[-1] == 2:
        return _coin_radius(counts, chances)
    return joint_radius([(counts, chances)], samples=samples, generator=generator)


def joint_radius(
    rows: Sequence[tuple[ArrayLike, ArrayLike]], *, samples: int = 2000, generator: Generator | None = None
) -> FloatArray:
    """The radius of outcomes made of independent parts, whose KLs add: a (prior, truth) of [..., M] for each part.

    The next state and the reward of a pair are two such parts. M may differ between parts, the leading axes may not.
    """
    parts = [_rows(*row) for row in rows]
    leading = {counts.shape[:-1] for counts, _ in parts}
    if len(leading) != 1 or samples < 2:
        raise UserError(f"Leading axes are {sorted(leading)} and samples {samples}; need one for all, and 2 or more.")
    flat = [(counts.reshape(-1, counts.shape[-1]), chances.reshape(-1, counts.shape[-1])) for counts, chances in parts]
    impossible = np.any([((counts == 0) & (chances > 0)).any(-1) for counts, chances in flat], axis=0)
    flat = [(np.where(impossible[:, None], 1.0, counts), chances) for counts, chances in flat]
    draw = generator or np.random.default_rng(SEED)
    size = max(1, BLOCK // (samples * max(counts.shape[-1] for counts, _ in flat)))
    radii = np.full(impossible.size, np.inf)
    for start in range(0, radii.size, size):
        block = slice(start, start + size)
        radii[block] = _sampled_radius(draw, [(counts[block], chances[block]) for counts, chances in flat], samples)
    return np.where(impossible, np.inf, radii).reshape(leading.pop())


def resolvability(prior: ArrayLike, truth: ArrayLike, observations: float) -> FloatArray:
    """-1/n ln E_pi exp(-n KL(truth || P)) in closed form, [..., M] -> [...]; by the appendix at most (1 + 1/n) d."""
    counts, chances = _rows(prior, truth)
    if not observations > 0:
        raise UserError(f"observations is {observations}; it must be above 0.")
    impossible = ((counts == 0) & (chances > 0)).any(-1)
    pulls = np.full((*counts.shape[:-1], 1), float(observations))
    logs = _log_pulled(np.where(impossible[..., None], 1.0, counts), chances, pulls)[..., 0]
    return np.where(impossible, np.inf, -logs / observations)


def concentration_order(radius: float, epsilon: float, delta: float, rho: float) -> float:
    """Lemma 4.3 with its hidden constant one: (d + ln 1/rho) / (epsilon^2 delta - d).

    An order, not a number to plan with. It says nothing unless d < epsilon^2 delta, which is rare at useful values.
    """
    _check_bound(radius, epsilon, delta, rho)
    if radius >= epsilon**2 * delta:
        raise UserError(f"Lemma 4.3 needs radius < epsilon^2 delta; here {radius:g} >= {epsilon**2 * delta:g}.")
    return (radius - math.log(rho)) / (epsilon**2 * delta - radius)


def concentration_bound(
    radius: float, epsilon: float, delta: float, rho: float, *, eta: float = 2.0, upper: float = 0.0
) -> int:
    """The observations of a pair that Proposition 4.2, constants and all, says are enough: Lemma 4.3 made explicit.

    With probability 1 - delta, all but `rho` of the posterior is then within `epsilon` in L1. It is the least n for
    which some h >= 0 has 1 / (1 + e^(n h)) <= rho and (2 e + (4 eta - 2) h) / (delta / 4) <= epsilon^2 / 2, where
    e = (1 + 1/n) eta d + (eta - 1/2) upper (the paper's own rho is 1/2). Assumes that the posterior is consistent, its
    critical upper-bracketing radius o(1); `upper` is that radius, a number the caller gives. At eta = 2 and upper = 0
    it needs d < epsilon^2 delta / 32.
    """
    _check_bound(radius, epsilon, delta, rho)
    if not (eta >= 1.0 and upper >= 0.0):
        raise UserError(f"eta is {eta:g} and upper {upper:g}; eta must be at least 1 and upper at least 0.")
    allowed, used = epsilon**2 * delta / 16.0, eta * radius + (eta - 0.5) * upper
    if used >= allowed:
        needs = "eta radius + (eta - 1/2) upper < epsilon^2 delta / 16"
        raise UserError(f"Proposition 4.2 needs {needs}; here {used:g} >= {allowed:g}.")
    exponent = max(0.0, math.log((1.0 - rho) / rho))  # n h, the least that leaves no more than rho
    return max(1, math.ceil((eta * radius + (2.0 * eta - 1.0) * exponent) / (allowed - used)))


def step_bound(states: int, actions: int, radius: float, *, epsilon: float, delta: float, gamma: float) -> StepBound:
    """Proposition 4.4: how many steps of a task are not near-optimal, in order of size, with probability 1 - 4 delta.

    Constants are one and logarithms left out, as the paper's O~ has it, so only ratios of `steps` mean something.
    """
    if not (states >= 1 and actions >= 1 and 0.0 <= gamma < 1.0):
        raise UserError(f"states, actions, gamma are {states}, {actions}, {gamma:g}; need >= 1, >= 1, and in [0, 1).")
    _check_bound(radius, epsilon, delta, 0.5)
    pairs = states * actions
    epsilon0, delta0 = epsilon * (1.0 - gamma) ** 2, delta / pairs
    models = math.ceil(states * pairs / delta * math.log(pairs / delta))
    rho0 = delta / (pairs**2 * models)
    holds = radius < epsilon0**2 * delta0
    concentration = concentration_order(radius, epsilon0, delta0, rho0) if holds else None
    steps = pairs**2 * radius / (delta * epsilon**3 * (1.0 - gamma) ** 6)
    return StepBound(epsilon0, delta0, models, rho0, concentration, steps)


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
    misses = np.abs(_normalised(_log_gammas(draw, counts + draw.multinomial(observations, chances))) - chances)
    near = int(np.sum((misses.max(-1) if norm == "max" else misses.sum(-1)) <= epsilon + SLACK))
    smooth = (near + 0.5) / (samples + 1.0)  # so that a share of 0 or 1 does not pass for an exact one
    return Estimate(near / samples, math.sqrt(smooth * (1.0 - smooth) / samples))


def _log_gammas(draw: Generator, shapes: FloatArray) -> FloatArray:
    """Logarithms of gamma draws, which normalised are Dirichlet. G(a) = G(a + 1) U^(1/a) keeps small shapes from 0."""
    boost = np.full(shapes.shape, -np.inf)  # a shape of 0 is the outcome that never happens
    np.divide(draw.standard_exponential(shapes.shape), -shapes, out=boost, where=shapes > 0)
    return boost + np.log(draw.standard_gamma(shapes + 1.0))


def _normalised(logs: FloatArray) -> FloatArray:
    """Probabilities proportional to the exponentials of `logs`, over the last axis."""
    shares = np.exp(logs - logs.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def _log_pulled(counts: FloatArray, chances: FloatArray, pulls: FloatArray) -> FloatArray:
    """ln E_pi exp(-c KL(truth || P)), a ratio of Dirichlet normalisers, for pulls c: [..., M], [..., C] -> [..., C]."""
    shapes = np.where(counts > 0, counts, 1.0)  # an outcome with no count has no chance either, and cancels
    total = counts.sum(-1)[..., None]
    pulled = gammaln(shapes[..., None, :] + pulls[..., None] * chances[..., None, :]).sum(-1) - gammaln(total + pulls)
    plain = gammaln(shapes).sum(-1)[..., None] - gammaln(total)
    return pulled - plain - pulls * xlogy(chances, chances).sum(-1)[..., None]


def _sampled_radius(draw: Generator, parts: list[tuple[FloatArray, FloatArray]], samples: int) -> FloatArray:
    """`joint_radius` of rows [N, M] without impossible outcomes, by importance sampling."""
    pulls = np.broadcast_to(PULLS, (len(parts[0][0]), PULLS.size))
    logs = np.sum([_log_pulled(counts, chances, pulls) for counts, chances in parts], axis=0)
    best = np.argmax(-logs / (1.0 + PULLS), axis=-1)[:, None]
    pull, log_pulled = PULLS[best], np.take_along_axis(logs, best, -1)
    plain = max(1, round(PRIOR_SHARE * samples))
    pull_of = np.where(np.arange(samples) < plain, 0.0, pull)  # [N, samples]
    divergence = np.zeros(pull_of.shape)
    for counts, chances in parts:
        gammas = _log_gammas(draw, counts[:, None, :] + pull_of[..., None] * chances[:, None, :])
        peak = gammas.max(-1)
        divergence += peak + np.log(np.exp(gammas - peak[..., None]).sum(-1)) + xlogy(chances, chances).sum(-1)[:, None]
        gammas[np.isneginf(gammas)] = 0.0  # its chance is 0: nothing to add
        divergence -= np.einsum("nsm,nm->ns", gammas, chances)
    divergence = np.sort(np.maximum(divergence, 0.0), axis=-1)
    share = plain / samples
    weights = np.exp(-np.logaddexp(math.log(share), math.log(1.0 - share) - pull * divergence - log_pulled)) / samples
    below = np.cumsum(weights, axis=-1)
    # Both are unbiased for the mass up to a draw; the one that sums the smaller side errs less.
    mass = np.where(below < 0.5, below, 1.0 - (below[:, -1:] - below))
    return np.maximum(divergence, -np.log(np.maximum(mass, 1e-300))).min(-1) + 0.0  # no negative zero


def _coin_radius(counts: FloatArray, chances: FloatArray) -> FloatArray:
    """`prior_mass_radius` for two outcomes: bisection on the Beta mass of the interval in which KL <= d.

    In x = logit(P) the KL is softplus(x) - truth x - entropy, convex, so Newton from outside finds both ends.
    """
    truth, first, second = chances[..., 0], counts[..., 0], counts[..., 1]
    proper = (first > 0) & (second > 0)
    a, b = np.where(proper, first, 1.0), np.where(proper, second, 1.0)
    inner = np.where((truth > 0) & (truth < 1), truth, 0.5)
    entropy = -xlogy(inner, inner) - xlog1py(1.0 - inner, -inner)

    def enough(radius: FloatArray) -> BoolArray:
        ends = np.stack([-(radius + entropy) / inner, (radius + entropy) / (1.0 - inner)])
        for _ in range(40):
            excess = np.logaddexp(0.0, ends) - inner * ends - entropy - radius
            ends = ends - np.where(excess > 0, excess, 0.0) / np.where(excess > 0, expit(ends) - inner, 1.0)
        certain = radius + np.log(-np.expm1(-radius))  # the end where only one outcome occurs: KL = -ln of its P
        low = np.where(truth == 0, -np.inf, np.where(truth == 1, -certain, ends[0]))
        high = np.where(truth == 1, np.inf, np.where(truth == 0, certain, ends[1]))
        below = _beta_below(a, b, low)
        lower_side = _beta_below(a, b, high) - below
        upper_side = _beta_below(b, a, -low) - _beta_below(b, a, -high)  # the accurate one if most lies below
        return np.where(below > 0.5, upper_side, lower_side) >= np.exp(-radius)

    low, high = np.full(truth.shape, 1e-14), np.ones(truth.shape)
    while not (done := enough(high)).all():
        high = np.where(done, high, 2.0 * high)
    for _ in range(50):
        middle = 0.5 * (low + high)
        met = enough(middle)
        low, high = np.where(met, low, middle), np.where(met, middle, high)
    impossible = ((counts == 0) & (chances > 0)).any(-1)
    return np.where(impossible, np.inf, np.where(proper, high, 0.0))


def _beta_below(a: FloatArray, b: FloatArray, end: FloatArray) -> FloatArray:
    """The mass of Beta(a, b) below P = expit(end). Small counts leave some where P, or 1 - P, is too small to write."""

    def lower(a: FloatArray, b: FloatArray, end: FloatArray) -> FloatArray:
        leading = np.exp(a * np.minimum(end, -600.0) - np.log(a) - betaln(a, b))
        return np.where(end < -600.0, leading, betainc(a, b, expit(end)))

    return np.where(end > 10.0, 1.0 - lower(b, a, -end), lower(a, b, end))


def _rows(
    prior: ArrayLike, truth: ArrayLike, *, vector: bool = False, chances: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Both as arrays of one shape [..., M], checked. The second is probabilities, or counts if not `chances`."""
    counts, second = np.asarray(prior, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if counts.shape != second.shape or not counts.shape or not counts.shape[-1] or (vector and counts.ndim > 1):
        raise UserError(f"Shapes are {counts.shape} and {second.shape}; both must be the same, one entry an outcome.")
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise UserError("A prior's counts must be finite and 0 or more.")
    if not (np.isfinite(second).all() and (second >= 0).all() and second.any(-1).all()):
        raise UserError("The truth must be finite, 0 or more, and not all 0.")
    off = np.abs(second.sum(-1) - 1.0).max(initial=0.0)
    if chances and off > 1e-6:
        raise UserError(f"True probabilities must sum to 1; they are off by {off:g}.")
    return counts, second / second.sum(-1, keepdims=True) if chances else second


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


def _check_bound(radius: float, epsilon: float, delta: float, rho: float) -> None:
    if not (radius >= 0.0 and epsilon > 0.0):
        raise UserError(f"radius is {radius:g} and epsilon {epsilon:g}; radius must be 0 or more, epsilon above 0.")
    if not (0.0 < delta < 1.0 and 0.0 < rho < 1.0):
        raise UserError(f"delta is {delta:g} and rho {rho:g}; both must be between 0 and 1.")

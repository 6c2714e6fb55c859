"""How far a prior is from the truth: the prior-mass radius of Proposition 4.2.

    d = inf {d : d >= -ln pi(KL(truth || P) <= d)},   P ~ pi = Dir(prior)

A Dirichlet belief about the M outcomes of one state-action pair has counts `prior`; the outcomes really come with
probabilities `truth`.

Why sampling it is cheap: Dir(prior) times exp(-c KL(truth || P)) is Dir(prior + c truth), so the importance weight of a
draw pulled towards the truth depends on its KL alone. And d >= r(c) / (1 + c), r(c) = -ln E_pi exp(-c KL) (Chernoff's
bound; at c = n the appendix's bound on the resolvability r(n) / n); the c that makes most of it pulls the mean KL to
that bound, just where draws are wanted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln, expit, gammaln, xlog1py, xlogy

from posterity.errors import UserError
from posterity.tabular.sampling import log_gammas
from posterity.types import BoolArray, FloatArray

SEED = 2022  # of the generator used where none is given: the same question gets the same answer
BLOCK = 1 << 18  # draws held at once; more would only miss the cache
PULLS = np.concatenate([[0.0], 2.0 ** np.arange(-4, 14)])  # the c among which the best is taken
LEAST = 1e-12  # counts below this are beyond double precision's logarithms of gammas
PRIOR_SHARE = 0.25  # of the draws that come from the prior itself, so that no weight exceeds 1 / PRIOR_SHARE


def prior_mass_radius(
    prior: ArrayLike, truth: ArrayLike, *, samples: int = 2000, generator: Generator | None = None
) -> FloatArray:
    """The prior-mass radius d of Proposition 4.2, for rows of Dirichlet counts and of probabilities, [..., M] -> [...].

    Exact for two outcomes. For more it is sampled: at 2000 samples the standard deviation was at most 0.03 for radii
    from 0.01 to 11. Infinite where the prior rules out an outcome that occurs.
    """
    counts, chances = checked_rows(prior, truth)
    if counts.shape[-1] == 2:
        return _coin_radius(counts, chances)
    return joint_radius([(prior, truth)], samples=samples, generator=generator)


def joint_radius(
    rows: Sequence[tuple[ArrayLike, ArrayLike]], *, samples: int = 2000, generator: Generator | None = None
) -> FloatArray:
    """The radius of outcomes made of independent parts, whose KLs add: a (prior, truth) of [..., M] for each part.

    The next state and the reward of a pair are two such parts. M may differ between parts, the leading axes may not.
    """
    parts = [checked_rows(*row) for row in rows]
    leading = {counts.shape[:-1] for counts, _ in parts}
    if samples < 2:
        raise UserError(f"samples is {samples}; it must be 2 or more.")
    if len(leading) != 1:
        raise UserError(f"Leading axes are {sorted(leading)}; they must be the same for all parts.")
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
    counts, chances = checked_rows(prior, truth)
    if not observations > 0:
        raise UserError(f"observations is {observations}; it must be above 0.")
    impossible = ((counts == 0) & (chances > 0)).any(-1)
    pulls = np.full((*counts.shape[:-1], 1), float(observations))
    logs = _log_pulled(np.where(impossible[..., None], 1.0, counts), chances, pulls)[..., 0]
    return np.where(impossible, np.inf, -logs / observations)


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
        gammas = log_gammas(draw, counts[:, None, :] + pull_of[..., None] * chances[:, None, :])
        peak = gammas.max(-1)
        divergence += peak + np.log(np.exp(gammas - peak[..., None]).sum(-1)) + xlogy(chances, chances).sum(-1)[:, None]
        gammas[np.isneginf(gammas)] = 0.0  # its chance is 0: nothing to add
        divergence -= np.einsum("nsm,nm->ns", gammas, chances)
    divergence = np.sort(np.maximum(divergence, 0.0), axis=-1)
    share = plain / samples
    weights = np.exp(-np.logaddexp(math.log(share), math.log(1.0 - share) - pull * divergence - log_pulled)) / samples
    mass = np.clip(np.cumsum(weights, axis=-1), 1e-300, 1.0)  # unbiased for the prior's mass up to each draw
    return np.maximum(divergence, -np.log(mass)).min(-1) + 0.0  # no negative zero


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
        return _beta_below(a, b, high) - _beta_below(a, b, low) >= np.exp(-radius)

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


def checked_rows(
    prior: ArrayLike, truth: ArrayLike, *, vector: bool = False, chances: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Both as arrays of one shape [..., M], checked. The second is probabilities, or counts if not `chances`."""
    counts, second = np.asarray(prior, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if counts.shape != second.shape or not counts.shape or not counts.shape[-1] or (vector and counts.ndim > 1):
        raise UserError(f"Shapes are {counts.shape} and {second.shape}; both must be the same, one entry an outcome.")
    if not (np.isfinite(counts).all() and ((counts == 0) | (counts >= LEAST)).all()):
        raise UserError(f"A prior's counts must be finite, and 0 or at least {LEAST:g}.")
    if not (np.isfinite(second).all() and (second >= 0).all() and second.any(-1).all()):
        raise UserError("The truth must be finite, 0 or more, and not all 0.")
    off = np.abs(second.sum(-1) - 1.0).max(initial=0.0)
    if chances and off > 1e-6:
        raise UserError(f"True probabilities must sum to 1; they are off by {off:g}.")
    return counts, second / second.sum(-1, keepdims=True) if chances else second

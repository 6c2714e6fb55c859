"""What a prior is worth, in observations and steps: Lemma 4.3 and Proposition 4.4.

    observations of a pair   O((d + ln 1/rho) / (epsilon^2 delta - d))                   Lemma 4.3
    steps of a task          O~(S^2 A^2 d / (delta epsilon^3 (1 - gamma)^6))             Proposition 4.4

d is the prior-mass radius (radius.py). The paper states only orders; the constants its proof implies are in
`concentration_bound`. docs/theory.md says where the paper's statements do not fit together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from posterity.errors import UserError


class StepBound(NamedTuple):
    """Proposition 4.4 with every hidden constant one. `concentration` is None where Lemma 4.3 says nothing."""

    epsilon0: float  # epsilon (1 - gamma)^2, the accuracy of a pair's outcome probabilities
    delta0: float  # delta / (S A), the chance of failure left to one pair
    models: int  # K = S^2 A / delta ln(S A / delta), models sampled
    rho0: float  # delta / (S^2 A^2 K), the posterior mass left far from the truth
    concentration: float | None  # observations of one pair
    steps: float  # S^2 A^2 d / (delta epsilon^3 (1 - gamma)^6), steps that are not near-optimal


def concentration_order(radius: float, epsilon: float, delta: float, rho: float) -> float:
    """Lemma 4.3 with its hidden constant one: (d + ln 1/rho) / (epsilon^2 delta - d).

    An order, not a number to plan with. It says nothing unless d < epsilon^2 delta, which is rare at useful values.
    """
    check(radius, epsilon, delta, rho)
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
    check(radius, epsilon, delta, rho)
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
    check(radius, epsilon, delta, 0.5)
    pairs = states * actions
    epsilon0, delta0 = epsilon * (1.0 - gamma) ** 2, delta / pairs
    models = math.ceil(states * pairs / delta * math.log(pairs / delta))
    rho0 = delta / (pairs**2 * models)
    holds = radius < epsilon0**2 * delta0
    concentration = concentration_order(radius, epsilon0, delta0, rho0) if holds else None
    steps = pairs**2 * radius / (delta * epsilon**3 * (1.0 - gamma) ** 6)
    return StepBound(epsilon0, delta0, models, rho0, concentration, steps)


def check(radius: float, epsilon: float, delta: float, rho: float) -> None:
    """Refuses numbers that no bound is about."""
    if not (0.0 <= radius < math.inf and 1e-9 <= epsilon < math.inf):
        raise UserError(
            f"radius is {radius:g} and epsilon {epsilon:g}; need finite ones, radius >= 0, epsilon >= 1e-9."
        )
    if not (0.0 < delta < 1.0 and 0.0 < rho < 1.0):
        raise UserError(f"delta is {delta:g} and rho {rho:g}; both must be between 0 and 1.")

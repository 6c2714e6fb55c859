"""Lemma 4.3 and Propositions 4.2 and 4.4 against the paper's inequalities."""

from __future__ import annotations

import math

import pytest

from posterity.errors import UserError
from posterity.tabular import theory
from posterity.tabular.coin import coverage
from posterity.tabular.radius import prior_mass_radius


def proposition_holds(n, radius, epsilon, delta, rho, eta, upper):
    """Proposition 4.2 at n, with the least h that leaves no more than rho far away."""
    h = max(0.0, math.log((1 - rho) / rho)) / n
    radius_n = (1 + 1 / n) * eta * radius + (eta - 0.5) * upper
    return (2 * radius_n + (4 * eta - 2) * h) / (delta / 4) <= epsilon**2 / 2


@pytest.mark.parametrize("rho", [0.5, 0.1, 1e-6])
@pytest.mark.parametrize(("eta", "upper"), [(2.0, 0.0), (2.0, 1e-4), (1.5, 1e-4), (1.0, 0.0)])
def test_concentration_bound_is_the_least_n_of_proposition_four_two(rho, eta, upper):
    query = (5e-4, 0.5, 0.1, rho)
    n = theory.concentration_bound(*query, eta=eta, upper=upper)
    assert proposition_holds(n, *query, eta, upper)
    assert n == 1 or not proposition_holds(n - 1, *query, eta, upper)


def test_concentration_order_is_the_lemma():
    """(0.01 + ln 100) / (0.25 x 0.2 - 0.01)."""
    assert theory.concentration_order(0.01, 0.5, 0.2, 0.01) == pytest.approx((0.01 + math.log(100)) / 0.04)


def test_where_the_bound_applies_the_prior_is_already_near():
    """Pinsker: KL <= d puts a draw within sqrt(2 d) in L1, so before any data that much is covered: e^-d at least."""
    for prior in ((3, 3), (50, 50), (5000, 5000)):
        radius = float(prior_mass_radius(prior, (0.5, 0.5)))
        covered = coverage(prior, (0.5, 0.5), 0, math.sqrt(2 * radius), norm="l1").value
        assert covered >= math.exp(-radius)


def test_step_bound_is_proposition_four_four():
    bound = theory.step_bound(4, 2, 1e-5, epsilon=0.5, delta=0.1, gamma=0.5)
    models = math.ceil(4**2 * 2 / 0.1 * math.log(8 / 0.1))
    assert bound[:3] == (0.125, 0.0125, models)
    assert bound.rho0 == pytest.approx(0.1 / (64 * models))
    assert bound.concentration == pytest.approx(theory.concentration_order(1e-5, 0.125, 0.0125, bound.rho0))
    assert bound.steps == pytest.approx(64 * 1e-5 / (0.1 * 0.5**3 * 0.5**6))
    assert theory.step_bound(4, 2, 0.1, epsilon=0.5, delta=0.1, gamma=0.5).concentration is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: theory.concentration_order(0.1, 0.5, 0.2, 0.1), r"0\.1 >= 0\.05"),
        (lambda: theory.concentration_order(math.nan, 0.5, 0.2, 0.1), "radius is nan"),
        (lambda: theory.concentration_bound(0.01, 0.5, 0.2, 0.1), r"0\.02 >= 0\.003125"),
        (lambda: theory.concentration_bound(0.0, 0.5, 0.2, 0.1, eta=0.5), "eta"),
        (lambda: theory.concentration_bound(0.0, 0.5, 1.0, 0.1), "between 0 and 1"),
        (lambda: theory.step_bound(0, 2, 0.1, epsilon=0.5, delta=0.1, gamma=0.9), "states"),
        (lambda: theory.step_bound(2, 2, 0.1, epsilon=0.5, delta=0.1, gamma=1.0), "gamma"),
    ],
)
def test_a_question_outside_the_domain_is_refused_in_one_line(call, says):
    with pytest.raises(UserError, match=says) as refused:
        call()
    assert "\n" not in str(refused.value)

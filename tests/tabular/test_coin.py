"""The coin and the appendix's equations against brute force. Seeds are fixed; tolerances say where from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.tabular import coin


def simulated_coin(prior, truths, observations, epsilon, draw):
    """Brute force: flip, draw from the posterior, look. Improper posteriors are the point masses they tend to."""
    heads = draw.binomial(observations, truths)
    a, b = prior[0] + heads, prior[1] + observations - heads
    beta = draw.beta(np.maximum(a, 1e-9), np.maximum(b, 1e-9))
    guess = np.where(a == 0, 0.0, np.where(b == 0, 1.0, beta))
    near = np.abs(guess - truths) <= epsilon
    return near.mean(), math.sqrt(near.mean() * (1 - near.mean()) / near.size)


def test_coin_table_is_exact_and_beside_the_printed_one():
    """The paper prints one more than the exact value everywhere but at (7, 3)."""
    rows = coin.coin_table()
    assert [(row.heads, row.tails) for row in rows] == [(heads, 10 - heads) for heads in range(11)]
    assert [row.exact for row in rows] == [77, 67, 57, 48, 41, 39, 41, 48, 57, 67, 77]
    assert [row.printed - row.exact for row in rows if row.printed is not None] == [1] * 7 + [0] + [1] * 3
    assert [row.printed for row in coin.coin_table(total=4, epsilon=0.2)] == [None] * 5


@pytest.mark.parametrize("prior", [(0, 10), (0.05, 0.05), (3, 7), (2, 0)])
@pytest.mark.parametrize("truth", [0.5, 0.07])
def test_exact_coverage_is_what_simulation_finds(prior, truth):
    exact = coin.coverage(prior, (truth, 1 - truth), 25, 0.1)
    found, error = simulated_coin(prior, np.full(200_000, truth), 25, 0.1, np.random.default_rng(3))
    assert exact.standard_error == 0.0
    assert abs(exact.value - found) < 4 * error


def test_smallest_sample_is_the_first_that_covers():
    """Every smaller number falls short, so the answer needs no assumption that coverage rises."""
    fewest = coin.smallest_sample((1, 4), (0.3, 0.7), 0.15, 0.2)
    reached = [coin.coverage((1, 4), (0.3, 0.7), count, 0.15).value for count in range(fewest + 1)]
    assert reached[-1] >= 0.8 > max(reached[:-1])
    assert coin.smallest_sample((500, 500), (0.5, 0.5), 0.1, 0.3) == 0


def test_a_prior_with_no_counts_starts_at_the_first_observation():
    """Beta(0, 1) and Beta(1, 0) are point masses at 0 and 1: one flip of a coin that always lands so is enough."""
    assert coin.smallest_sample((0, 0), (1.0, 0.0), 0.1, 0.3) == 1
    with pytest.raises(UserError, match="all 0"):
        coin.coverage((0, 0), (0.5, 0.5), 0, 0.1)


def test_improper_priors_are_point_masses():
    """Before any data (0, b) is all at P = (0, 1): near a truth within epsilon, the edge included, and no other."""
    assert coin.coverage((0, 10), (0.1, 0.9), 0, 0.1).value == 1.0
    assert coin.coverage((0, 10), (0.11, 0.89), 0, 0.1).value == 0.0
    assert coin.coverage((10, 0), (0.95, 0.05), 0, 0.1).value == 1.0
    assert coin.coverage((0, 10, 0), (0.1, 0.9, 0.0), 0, 0.1).value == 1.0  # and so it is where it is sampled


def test_l1_of_two_outcomes_counts_each_difference_twice():
    wide = coin.coverage((2, 3), (0.4, 0.6), 12, 0.3, norm="l1")
    assert wide.value == pytest.approx(coin.coverage((2, 3), (0.4, 0.6), 12, 0.15).value, abs=1e-14)


@pytest.mark.parametrize("norm", ["max", "l1"])
def test_sampled_coverage_is_the_exact_one_when_the_third_outcome_cannot_happen(norm):
    """With a third outcome of no count and no chance, three outcomes are the coin, but sampled."""
    exact = coin.coverage((2, 5), (0.3, 0.7), 20, 0.12, norm=norm)
    sampled = coin.coverage((2, 5, 0), (0.3, 0.7, 0.0), 20, 0.12, norm=norm)
    assert 0.0 < sampled.standard_error < 0.002
    assert abs(sampled.value - exact.value) < 4 * sampled.standard_error
    task_exact = coin.task_coverage((2, 5), (1, 2), 20, 0.12, norm=norm)
    task_sampled = coin.task_coverage((2, 5, 0), (1, 2, 0), 20, 0.12, norm=norm)
    assert abs(task_sampled.value - task_exact.value) < 4 * task_sampled.standard_error


def test_sampled_coverage_agrees_with_simulation_for_three_outcomes():
    """The largest difference, by NumPy's own Dirichlet."""
    prior, truth, draw = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), np.random.default_rng(5)
    seen = draw.multinomial(15, truth, size=20_000)
    near = np.array([np.abs(draw.dirichlet(prior + counts) - truth).max() <= 0.15 for counts in seen])
    sampled = coin.coverage(prior, truth, 15, 0.15)
    error = math.hypot(sampled.standard_error, near.std() / math.sqrt(near.size))
    assert abs(sampled.value - near.mean()) < 4 * error


def test_a_sampled_share_of_one_still_has_an_error():
    assert coin.coverage((1, 1, 1), (0.2, 0.3, 0.5), 5, 2.0).standard_error > 0.0


@pytest.mark.parametrize("prior", [(0, 10), (0.05, 0.05), (3, 7)])
@pytest.mark.parametrize("true_prior", [(5, 5), (0.05, 0.1), (30, 2)])
def test_task_equation_is_what_simulation_finds(prior, true_prior):
    draw = np.random.default_rng(7)
    found, error = simulated_coin(prior, draw.beta(*true_prior, size=200_000), 20, 0.1, draw)
    integral = coin.task_coverage(prior, true_prior, 20, 0.1)
    assert integral.standard_error == 0.0
    assert abs(integral.value - found) < 4 * error


def test_task_equation_tends_to_the_world_equation_as_tasks_become_one():
    """The gap is of the order of the true prior's variance, 0.21 / concentration."""
    world = coin.coverage((1, 6), (0.3, 0.7), 30, 0.1).value
    gaps = [abs(coin.task_coverage((1, 6), (0.3 * c, 0.7 * c), 30, 0.1).value - world) for c in (1e2, 1e4, 1e6)]
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]
    assert gaps[2] < 1e-5
    assert coin.task_coverage((1, 6), (0, 3), 30, 0.1) == coin.coverage((1, 6), (0.0, 1.0), 30, 0.1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: coin.coverage((1, 1), (0.5, 0.25, 0.25), 5, 0.1), "Shapes"),
        (lambda: coin.coverage((1, 1), (0.5, 0.6), 5, 0.1), "sum to 1"),
        (lambda: coin.coverage((1, -1), (0.5, 0.5), 5, 0.1), "counts"),
        (lambda: coin.coverage((1, 1), (0.5, 0.5), 5, 0.1, norm="l2"), "Known: l1, max"),
        (lambda: coin.coverage((1, 1), (0.5, 0.5), -1, 0.1), ">= 0"),
        (lambda: coin.coverage((1, 1, 1), (0.5, 0.3, 0.2), 5, 0.1, samples=1), ">= 2"),
        (lambda: coin.task_coverage((1, 1), (0, 0), 5, 0.1), "not all 0"),
        (lambda: coin.smallest_sample((1, 1, 1), (0.5, 0.3, 0.2), 0.1, 0.3), "two outcomes"),
        (lambda: coin.smallest_sample((1, 1), (0.5, 0.5), 0.01, 0.1, limit=20), "after 20 observations"),
        (lambda: coin.coin_table(total=-1), "total"),
    ],
)
def test_a_question_outside_the_domain_is_refused_in_one_line(call, says):
    with pytest.raises(UserError, match=says) as refused:
        call()
    assert "\n" not in str(refused.value)

"""The prior-mass radius against its definition, closed forms and sampling. Seeds are fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.tabular.radius import joint_radius, prior_mass_radius, resolvability

TRUTH = np.array([0.5, 0.2, 0.1, 0.1, 0.04, 0.03, 0.02, 0.01])


def divergence(truth, draws):
    """KL(truth || draw), with 0 ln 0 = 0."""
    seen = truth > 0
    return (truth[seen] * (np.log(truth[seen]) - np.log(draws[..., seen]))).sum(-1)


def test_radius_of_a_uniform_coin_has_a_closed_form():
    """A sure outcome: 1 - e^-d = e^-d. A fair coin: KL = -ln(4 P (1 - P)) / 2, so sqrt(1 - e^-2d) = e^-d."""
    found = prior_mass_radius([[1, 1], [1, 1], [1, 1]], [[1, 0], [0, 1], [0.5, 0.5]])
    np.testing.assert_allclose(found, [math.log(2), math.log(2), math.log(2) / 2], atol=1e-12)


@pytest.mark.parametrize(("prior", "truth"), [((1, 9), 0.5), ((0.05, 0.05), 0.3), ((100, 1), 0.01), ((40, 60), 0.4)])
def test_exact_radius_solves_its_own_definition(prior, truth):
    """At d the mass of KL <= d is e^-d. 400,000 draws; the count is binomial."""
    radius = float(prior_mass_radius(prior, (truth, 1 - truth)))
    heads = np.random.default_rng(11).beta(*prior, size=400_000)
    draws = np.clip(np.stack([heads, 1 - heads], -1), 1e-300, 1.0)
    mass = (divergence(np.array([truth, 1 - truth]), draws) <= radius).mean()
    target = math.exp(-radius)
    assert abs(mass - target) < 4 * math.sqrt(target * (1 - target) / 400_000)


@pytest.mark.parametrize("scale", [0.05, 1.0, 100.0])
def test_sampled_radius_solves_its_own_definition(scale):
    """Eight outcomes, the prior's mean the truth reversed. 40,000 samples leave the radius within 0.02."""
    prior = scale * 8 * TRUTH[::-1]
    radius = float(prior_mass_radius(prior, TRUTH, samples=40_000))
    draws = np.maximum(np.random.default_rng(13).dirichlet(prior, size=400_000), 1e-300)
    kl = divergence(TRUTH, draws)
    assert (kl <= radius - 0.02).mean() < math.exp(-(radius - 0.02))
    assert (kl <= radius + 0.02).mean() > math.exp(-(radius + 0.02))


def test_sampled_radius_agrees_with_the_exact_one():
    """Four standard deviations at 2000 samples, 0.03 each at most; small counts, and mass too near 0 for a float."""
    prior = [(1, 1), (1, 9), (0.05, 0.05), (100, 1), (1e4, 1e4), (1e-3, 1e-3), (3, 1e-4), (2, 2), (0, 3), (0, 3)]
    truth = [(1, 0), (0.5, 0.5), (0.3, 0.7), (0.01, 0.99), (0.4, 0.6), (0.999, 0.001), (0.999, 0.001), (0, 1), (0, 1)]
    truth.append((0.1, 0.9))
    exact = prior_mass_radius(prior, truth)
    np.testing.assert_allclose(joint_radius([(prior, truth)]), exact, atol=0.12)
    assert exact[-2:].tolist() == [0.0, math.inf]


def test_only_the_mass_on_a_sure_outcome_matters():
    """KL = -ln P_k, and P_k is Beta(prior_k, the rest): the coin's exact radius, to 4 deviations of 0.02."""
    prior = np.array([0.05, 2.0, 0.0, 1.0, 0.3])
    sure = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    exact = prior_mass_radius((1.0, 2.35), (1, 0))
    assert abs(prior_mass_radius(prior, sure) - exact) < 0.08


def test_radius_says_how_near_the_prior_is():
    """It falls as a prior gathers round the truth, and rises as one gathers elsewhere."""
    towards = prior_mass_radius([TRUTH * scale for scale in (1, 10, 100, 1000)], [TRUTH] * 4)
    assert (np.diff(towards) < -0.01).all()
    assert towards[-1] < 0.02
    away = prior_mass_radius([TRUTH[::-1] * 100, TRUTH * 100], [TRUTH, TRUTH])
    assert away[0] > away[1] + 1.0


def test_radius_is_never_below_the_resolvability_bound():
    """The appendix: r_n <= (1 + 1/n) d for every n, the closed form on the left. Slack for sampling: 4 x 0.03."""
    prior = np.random.default_rng(17).gamma(0.7, size=(30, 8)) * 3 + 0.01
    truth = np.random.default_rng(19).dirichlet(np.full(8, 0.5), size=30)
    radius = prior_mass_radius(prior, truth)
    best = np.max([resolvability(prior, truth, n) / (1 + 1 / n) for n in (0.5, 1, 2, 4, 8, 16, 64)], axis=0)
    assert (radius > best - 0.12).all()
    assert (best > radius / 3).all()  # a bound worth the name


def test_resolvability_is_its_expectation():
    """-1/n ln E exp(-n KL), by 200,000 draws."""
    draws = np.random.default_rng(23).dirichlet([1.0, 2.0, 0.5], size=200_000)
    values = np.exp(-3 * divergence(np.array([0.2, 0.5, 0.3]), draws))
    error = values.std() / math.sqrt(values.size) / values.mean() / 3
    found = resolvability((1, 2, 0.5), (0.2, 0.5, 0.3), 3)
    assert abs(found + math.log(values.mean()) / 3) < 4 * error


def test_joint_radius_of_one_part_is_the_radius():
    prior, truth = np.full((2, 3, 8), 0.5), np.tile(TRUTH, (2, 3, 1))
    single = prior_mass_radius(prior, truth)
    assert single.shape == (2, 3)
    np.testing.assert_array_equal(joint_radius([(prior, truth)]), single)


def test_joint_radius_solves_its_own_definition():
    """A next state of three and a reward of two outcomes: their KLs add. 0.03 is 4 deviations at 40,000 samples."""
    parts = [((0.2, 1.0, 3.0), (0.6, 0.3, 0.1)), ((1.0, 5.0), (0.7, 0.3))]
    radius = float(joint_radius(parts, samples=40_000))
    draw = np.random.default_rng(29)
    kl = np.sum([divergence(np.array(truth), draw.dirichlet(prior, size=400_000)) for prior, truth in parts], axis=0)
    assert (kl <= radius - 0.03).mean() < math.exp(-(radius - 0.03))
    assert (kl <= radius + 0.03).mean() > math.exp(-(radius + 0.03))


def test_a_known_part_adds_nothing():
    """A part the prior is sure and right about has KL 0, and the joint radius is the other part's."""
    other = ((0.2, 1.0, 3.0), (0.6, 0.3, 0.1))
    joint = joint_radius([other, ((0.0, 1.0), (0.0, 1.0))], samples=40_000)
    assert abs(joint - joint_radius([other], samples=40_000)) < 0.03
    assert joint_radius([other, ((0.0, 1.0), (0.5, 0.5))]) == math.inf


def test_radius_survives_tiny_counts_and_zeros():
    """Counts of 0.05 and less draw probabilities below any float; outcomes without count and chance are no outcomes."""
    prior = np.array([[0.05] * 8, [1e-3] * 8, [0.05, 0.05, 0, 0, 0, 0, 0, 0], [1e6] * 8, [0.0] * 8])
    truth = np.array([TRUTH, TRUTH[::-1], [0.5, 0.5, 0, 0, 0, 0, 0, 0], TRUTH, TRUTH])
    found = prior_mass_radius(prior, truth)
    assert np.isfinite(found[:4]).all()
    assert (found[:4] > 0).all()
    assert found[4] == math.inf
    assert abs(found[2] - prior_mass_radius((0.05, 0.05), (0.5, 0.5))) < 0.12


def test_radius_is_the_same_for_the_same_generator():
    query = (np.full(8, 0.5), TRUTH)
    fixed = [float(prior_mass_radius(*query, generator=np.random.default_rng(seed))) for seed in (1, 1, 2)]
    assert fixed[0] == fixed[1] != fixed[2]
    assert prior_mass_radius(*query) == prior_mass_radius(*query)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: prior_mass_radius((1, math.nan), (0.5, 0.5)), "finite"),
        (lambda: joint_radius([(np.ones((2, 3)), np.eye(3)[:2]), ((1, 1), (0.5, 0.5))]), "Leading axes"),
        (lambda: joint_radius([]), "Leading axes"),
        (lambda: resolvability((1, 1), (0.5, 0.5), 0), "above 0"),
    ],
)
def test_a_question_outside_the_domain_is_refused_in_one_line(call, says):
    with pytest.raises(UserError, match=says) as refused:
        call()
    assert "\n" not in str(refused.value)

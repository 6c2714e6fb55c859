"""What rows tell each other: learned evenness and likeness against worlds with known answers."""

import numpy as np
import pytest

from posterity.tabular.dirichlet import DirichletRows, Rows, TaskRows, World
from posterity.tabular.hyperprior import GRID, SPREAD, Hyperprior, evenness, learned
from posterity.types import Budget, FiniteSpec, FloatArray


def test_without_rows_it_is_what_was_believed_before_any_task():
    found = learned(3.0, 4.0, np.ones((0, 3)), np.ones(0), np.ones((0, 3)))
    assert found.log_mean == pytest.approx(np.log(3.0))
    assert found.log_sd == pytest.approx(1.0)
    assert found.evenness == pytest.approx(3.0, rel=0.15)  # the nearest of the grid


def test_the_beginning_is_worth_as_many_rows_as_the_strength_says():
    """Four rows of concentration 3 e^2 that are certain of it, and a strength of four: half of the way."""
    found = learned(3.0, 4.0, np.full((4, 3), np.exp(2.0)), np.zeros(4), np.zeros((4, 3)))
    assert found.log_mean == pytest.approx(np.log(3.0) + 1.0)
    assert found.log_sd == pytest.approx(np.sqrt((4.0 * (1.0 + 1.0) + 4.0 * 1.0) / 8.0))


def test_the_evenness_is_the_one_under_which_the_draws_are_most_probable():
    """By brute force: the probability of the draws one after the other, as of an urn."""
    draws = np.array([[5, 0, 0], [3, 1, 0], [0, 0, 2]])

    def urn(even: float) -> float:
        found = -0.5 * (np.log(even / 3.0) / SPREAD) ** 2
        for row in draws:
            seen = np.zeros(3)
            for category in np.repeat(np.arange(3), row):
                found += np.log((even / 3.0 + seen[category]) / (even + seen.sum()))
                seen[category] += 1
        return found

    assert evenness(3.0, draws.astype(float)) == max(GRID * 3.0, key=urn)


def world_of(rows: DirichletRows, tasks: list[Rows]) -> World:
    world = rows.prior()
    for counts in tasks:
        world = rows.pool(world, TaskRows(world.alpha, counts), final=True)
    return world


def drawn(generator: np.random.Generator, alpha: FloatArray, visits: int) -> FloatArray:
    """[..., M] the counts of one task whose rows come from Dirichlet(alpha) [..., M]."""
    gammas = generator.standard_gamma(alpha)
    return generator.multinomial(visits, gammas / gammas.sum(axis=-1, keepdims=True)).astype(float)


@pytest.mark.parametrize("alike", [1.0, 20.0])
def test_how_alike_tasks_are_and_how_even_rows_is_found_from_few_tasks(alike: float):
    """Eight tasks of a random world with 24 pairs, in which the prior says 6: within a factor of 1.6."""
    generator = np.random.default_rng(3)
    spec = FiniteSpec(6, 4, np.array([0.0, 1.0]), np.zeros(6, dtype=bool), 10)
    rows = DirichletRows(spec, Budget(8, 1, 800), 1.0, "evidence")
    means = np.maximum(generator.dirichlet(np.full(6, 0.3), (6, 4)), 1e-9), generator.dirichlet(np.ones(2), (6, 4))
    tasks = [Rows(*(drawn(generator, alike * mean, 30) for mean in means)) for _ in range(8)]
    found = Hyperprior(*world_of(rows, tasks).before.next_state)
    assert abs(found.log_mean - np.log(alike)) < np.log(1.6)
    assert 1.8 / 1.6 < found.evenness < 1.8 * 1.6


def test_certain_steps_become_certain_and_what_differs_between_tasks_stays_open():
    """As in the corridor of examples/own_family.py: steps are certain, and a reward is paid in four tasks of five."""
    spec = FiniteSpec(7, 2, np.array([0.0, 1.0]), np.zeros(7, dtype=bool), 10)
    rows = DirichletRows(spec, Budget(10, 1, 200), 0.1, "evidence")
    following = np.clip(np.arange(7)[:, None] + [-1, 1], 0, 6)
    tasks = []
    for number in range(10):
        reward = np.zeros((7, 2, 2))
        reward[..., 0] = 10.0
        reward[5, 1] = [0.0, 10.0] if number % 5 else [10.0, 0.0]
        tasks.append(Rows(10.0 * np.eye(7)[following], reward))
    alpha = world_of(rows, tasks).alpha
    mean = alpha.next_state / alpha.next_state.sum(axis=-1, keepdims=True)
    assert np.take_along_axis(mean, following[..., None], axis=2).min() > 0.97
    assert alpha.reward[5, 1] / alpha.reward[5, 1].sum() == pytest.approx([0.2, 0.8], abs=0.06)
    assert alpha.reward[5, 1].sum() < 0.3  # one look settles it


def test_the_first_hyperprior_is_centred_on_the_prior_of_a_row():
    assert Hyperprior.first(6.0) == (6.0, np.log(6.0), 1.0)

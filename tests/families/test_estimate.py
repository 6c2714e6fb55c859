"""What random play tells of an end that an environment does not explain."""

import numpy as np
import pytest

from posterity.families.estimate import alive_box
from posterity.types import Transition


def played(obs: np.ndarray, ended: np.ndarray) -> Transition:
    nothing = np.zeros(len(obs))
    return Transition(obs, nothing, nothing, obs, ended, np.zeros(len(obs), dtype=bool))


def test_a_box_that_ends_episodes_is_found():
    obs = np.random.default_rng(0).normal(size=(4000, 3))
    found = alive_box(played(obs, (obs[:, 1] < -1.0) | (obs[:, 2] > 1.5)), [])
    assert found.alive is not None
    np.testing.assert_allclose(found.alive[0], [-np.inf, -1.0, -np.inf], atol=0.01)
    np.testing.assert_allclose(found.alive[1], [np.inf, np.inf, 1.5], atol=0.02)


def test_a_number_that_the_environment_has_is_taken_exactly_with_its_other_side():
    obs = np.random.default_rng(0).normal(size=(4000, 2))
    found = alive_box(played(obs, obs[:, 0] < -0.7), [(-0.7, 9.0)])
    assert found.alive is not None
    assert (found.alive[0][0], found.alive[1][0]) == (-0.7, 9.0)


def test_an_end_that_no_box_explains_is_said_so():
    """It ends outside a circle: most of the corners are beyond no bound."""
    obs = np.random.default_rng(0).uniform(-1, 1, size=(4000, 2))
    found = alive_box(played(obs, (obs**2).sum(axis=1) > 1.0), [])
    assert found.alive is None
    assert "no box of observations explains" in found.note


def test_an_end_by_chance_has_no_box():
    generator = np.random.default_rng(0)
    found = alive_box(played(generator.normal(size=(3000, 50)), generator.random(3000) < 0.05), [])
    assert found.alive is None


@pytest.mark.parametrize(("terminations", "says"), [(0, ""), (3, "too few")])
def test_few_terminations_tell_nothing(terminations: int, says: str):
    obs = np.random.default_rng(0).normal(size=(100, 2))
    found = alive_box(played(obs, np.arange(100) < terminations), [])
    assert found.alive is None
    assert says in found.note

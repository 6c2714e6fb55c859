"""Search over discrete actions: known optima, few sequences, and scores that are not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.planning import categorical
from posterity.planning.cem import Plan, PlannerSettings
from posterity.planning.search import make_search
from posterity.types import Spec

SETTINGS = PlannerSettings(horizon=8, candidates=200, elites=20, cem_iterations=6)
BEST = jnp.array([2, 0, 1, 1, 2, 0, 0, 1])
KEY = jax.random.key(0)


def right(key: jax.Array, candidates: jax.Array) -> jax.Array:
    """[N] how many actions are those of the best sequence."""
    return (candidates * jax.nn.one_hot(BEST, 3)[None]).sum(axis=(1, 2))


def test_the_best_sequence_is_found():
    plan = categorical.search(KEY, right, categorical.start(8, 3), SETTINGS)
    np.testing.assert_array_equal(plan.mean.argmax(axis=-1), BEST)
    np.testing.assert_allclose(plan.mean.sum(axis=-1), 1.0, rtol=1e-5)


def test_where_sequences_are_few_the_best_of_all_is_found_however_deep_it_lies():
    """One sequence of 2^7 earns, and no other is any better for being near it."""
    needle = jnp.array([1, 0, 0, 1, 1, 0, 1])

    def score(key: jax.Array, candidates: jax.Array) -> jax.Array:
        assert candidates.shape == (128, 7, 2)
        return (candidates.argmax(axis=-1) == needle[None]).all(axis=1).astype(jnp.float32)

    settings = SETTINGS.model_copy(update={"candidates": 128})
    plan = categorical.search(KEY, score, categorical.start(7, 2), settings)
    np.testing.assert_array_equal(plan.mean, jax.nn.one_hot(needle, 2))
    assert not categorical.enumerable(7, 2, 127)


@pytest.mark.parametrize("horizon", [3, 8], ids=["all sequences", "drawn ones"])
def test_a_sequence_without_a_finite_score_never_wins(horizon: int):
    """Everything that begins with action 0 would earn infinitely much, or nothing that is a number."""

    def score(key: jax.Array, candidates: jax.Array) -> jax.Array:
        return jnp.where(candidates[:, 0, 0] > 0, jnp.inf, candidates[:, :, 1].sum(axis=1))

    plan = categorical.search(KEY, score, categorical.start(horizon, 3), SETTINGS)
    assert plan.mean[0].argmax() == 1
    begin = categorical.start(horizon, 3)
    same = categorical.search(KEY, lambda _, candidates: jnp.full(len(candidates), jnp.nan), begin, SETTINGS)
    np.testing.assert_allclose(same.mean, begin.mean, rtol=1e-6)


def test_the_next_search_begins_with_the_plan_one_step_on_and_holds_nothing_for_certain():
    search = make_search(Spec.discrete(3, 2, 10), SETTINGS.model_copy(update={"horizon": 3}))
    plan = Plan(jnp.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), jnp.zeros((3, 2)))
    np.testing.assert_allclose(search.shifted(plan).mean, [[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_array_equal(search.chosen(search.shifted(plan).mean)[:2], [[1, 0], [0, 1]])

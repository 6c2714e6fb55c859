"""A learned termination: a known boundary, its calibration, and what does not count."""

import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import normaliser, replay, termination

UNITS = normaliser.identity(2, 1)


def memory(ends_beyond: float, rows: int = 400) -> replay.Replay:
    """Two tasks; an episode ends where the first number of the observation is above `ends_beyond`."""
    empty = replay.empty(2, rows, 2, 1, terminations=True)
    places = jnp.asarray(np.random.default_rng(0).uniform(-2, 2, (2, rows, 2)), jnp.float32)
    over = (places[..., 0] > ends_beyond).astype(jnp.float32)
    return empty._replace(next_obs=places, terminated=over, filled=jnp.array([rows, 0], jnp.int32))


def fitted(kept: replay.Replay, steps: int = 500) -> tuple[termination.TerminationTraining, jax.Array]:
    fresh = termination.init(jax.random.key(1), 2)
    return jax.jit(termination.fit, static_argnums=5)(
        jax.random.key(2), fresh, UNITS, kept, jnp.array([True, True]), steps
    )


def test_a_boundary_is_learned_from_few_ends():
    learned, right = fitted(memory(1.8))  # 5 % of the steps
    assert right > 0.95
    asked = jnp.array([[-1.0, 0.5], [1.2, -1.0], [1.98, 0.0], [1.98, 1.5]])
    told = termination.probability(learned.layers, UNITS, asked)
    assert (told[:2] < 0.05).all()
    assert (told[2:] > 0.8).all()


def test_it_is_as_sure_as_ends_are_frequent():
    """Where ends are chance, one step in ten, half of every batch being ends does not make them likelier."""
    kept = memory(3.0)
    chance = jnp.asarray(np.random.default_rng(1).random((2, 400)) < 0.1, jnp.float32)
    learned, _ = fitted(kept._replace(terminated=chance), steps=60)
    told = termination.probability(learned.layers, UNITS, kept.next_obs[0])
    assert abs(float(told.mean()) - 0.1) < 0.04


def test_where_nothing_has_ended_nothing_is_thought_to_end():
    learned, _ = fitted(memory(3.0), steps=50)
    assert termination.probability(learned.layers, UNITS, memory(3.0).next_obs).max() < 0.02


def test_rows_that_are_not_there_do_not_count():
    """The second task is full of ends in places where none is, but no row of it was filled in."""
    kept = memory(1.8)
    assert kept.terminated is not None
    lie = kept._replace(terminated=kept.terminated.at[1].set(1.0))
    same, other = fitted(kept, steps=5), fitted(lie, steps=5)
    jax.tree.map(np.testing.assert_array_equal, same, other)

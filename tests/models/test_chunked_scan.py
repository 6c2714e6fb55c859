"""A chunked scan changes when rows are drawn, not which."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import chunked_scan


def draw(key: jax.Array) -> jax.Array:
    return jax.random.normal(key, (3,))


def step(total: jax.Array, rows: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    total = 0.5 * total + rows.sum()
    return total, (total, rows)


@pytest.mark.parametrize("count", [1, 7, 50, 53, 120])
def test_it_is_a_scan_over_what_is_drawn(count: int):
    keys = jax.random.split(jax.random.key(3), count)
    last, (totals, rows) = jax.jit(lambda k: chunked_scan.scan(step, jnp.float32(1.0), draw, k))(keys)
    plain_last, (plain_totals, plain_rows) = jax.lax.scan(lambda now, key: step(now, draw(key)), jnp.float32(1.0), keys)
    np.testing.assert_allclose(rows, plain_rows, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(totals, plain_totals, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, plain_last, rtol=1e-5, atol=1e-6)


def test_no_more_is_drawn_at_once_than_has_room():
    assert [chunked_scan.chunk(count) for count in (0, 1, 49, 50, 53, 120, 2000)] == [1, 1, 49, 50, 1, 40, 50]


def test_nothing_to_do_leaves_the_start():
    last, (totals, _) = chunked_scan.scan(step, jnp.float32(2.0), draw, jax.random.split(jax.random.key(0), 0))
    assert float(last) == 2.0
    assert totals.shape == (0,)

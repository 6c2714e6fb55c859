"""Noise whose neighbouring values are alike: its deviation, its bound and its spectrum."""

import jax
import numpy as np
import pytest

from posterity.planning import noise

SHAPE = (4000, 20, 2)


def drawn(beta: float) -> np.ndarray:
    return np.asarray(noise.coloured(jax.random.key(0), SHAPE, beta))


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.5])
def test_no_value_leaves_two_deviations_and_every_step_is_as_wide(beta: float):
    """A normal that is cut at two deviations has 0.88, one whose values are moved there 0.96."""
    values = drawn(beta)
    assert np.abs(values).max() <= noise.BOUND
    np.testing.assert_allclose(values.std(axis=0), 0.88 if beta == 0.0 else 0.96, atol=0.03)
    np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=5 / np.sqrt(len(values)))


def test_white_noise_is_that_of_the_method():
    np.testing.assert_array_equal(drawn(0.0), jax.random.truncated_normal(jax.random.key(0), -2.0, 2.0, SHAPE))


def test_the_redder_the_noise_the_farther_it_gets():
    """The sum over 20 steps: white noise gets some 4 deviations far, noise that is the same in all steps 20."""
    far = [drawn(beta).sum(axis=1).std() for beta in (0.0, 1.0, 2.0, 6.0)]
    assert far == sorted(far)
    assert far[0] < 4.5
    assert far[2] > 10.0


@pytest.mark.parametrize("length", [20, 19])
def test_power_falls_with_frequency_as_it_is_told(length: int):
    """Before values are cut: here they are too small to be."""
    values = np.asarray(noise.coloured(jax.random.key(1), (20_000, length, 1), 2.0))[..., 0]
    power = (np.abs(np.fft.rfft(values, axis=1)) ** 2).mean(axis=0)
    ratio = power[2] / power[4]
    assert 3.0 < ratio < 4.6, "(4 / 2)^2, and a little less since values are cut"

"""Noise to explore with: normal in every step, alike in steps that follow each other, and remembered by nobody."""

from __future__ import annotations

import numpy as np
import pytest

from posterity.models.noise import RATES, normals, random_actions
from posterity.types import Key, Spec

SPEC = Spec(3, np.array([-1.0, 0.0]), np.array([1.0, 2.0]), max_episode_steps=10, alive=None)


def _keys(steps: int, seed: int = 3) -> list[Key]:
    return [Key.of(seed).fold("iteration", 5, "step", step, "act") for step in range(steps)]


def test_white_noise_is_normal_and_each_key_has_its_own():
    """Mean, variance and tails of 20,000, within five standard errors; neighbouring keys are not correlated."""
    drawn = normals(_keys(5000), 4)
    count = drawn.size
    assert abs(drawn.mean()) < 5 / count**0.5
    assert abs(drawn.var() - 1.0) < 5 * (2 / count) ** 0.5
    assert abs((np.abs(drawn) > 1.96).mean() - 0.05) < 5 * (0.05 * 0.95 / count) ** 0.5
    assert abs((drawn[1:] * drawn[:-1]).mean()) < 5 / count**0.5
    np.testing.assert_array_equal(drawn[:2], normals(_keys(2), 4))


def test_pink_noise_is_a_standard_normal_in_every_step():
    """Over 4,000 seeds, at the first step of an iteration and at a later one, within five standard errors."""
    for step in (0, 77):
        keys = [_keys(step + 1, seed)[-1] for seed in range(4000)]
        drawn = normals(keys, 2, "pink")
        assert abs(drawn.mean()) < 5 / drawn.size**0.5
        assert abs(drawn.var() - 1.0) < 5 * (2 / drawn.size) ** 0.5


def test_steps_of_pink_noise_are_alike_by_the_white_noises_that_they_share():
    """A white noise that is held for m steps is shared by 1 - d / m of all pairs that are d steps apart."""
    drawn = np.stack([normals(_keys(256 + 32, seed), 1, "pink")[:, 0] for seed in range(600)])
    for power in (0, 2, 5):
        apart = 2**power
        expected = np.mean([max(0.0, 1.0 - apart / 2**rate) for rate in range(RATES)])
        found = np.mean(drawn[:, apart : apart + 256] * drawn[:, :256])  # whole stretches of all rates
        assert abs(found - expected) < 0.03  # 600 series of about two independent stretches of the slowest rate


def test_pink_noise_of_a_step_is_the_same_whatever_was_drawn_before():
    np.testing.assert_array_equal(normals(_keys(50), 3, "pink")[49:], normals(_keys(50)[49:], 3, "pink"))


def test_iterations_have_pink_noise_of_their_own():
    one, other = (normals([Key.of(0).fold("iteration", i, "step", 9, "act")], 4, "pink") for i in (1, 2))
    assert (one != other).all()


@pytest.mark.parametrize("noise", ["white", "pink"])
def test_random_actions_are_uniform_within_their_bounds(noise):
    """Quarters of the range are equally frequent over 4,000 seeds, within five standard errors."""
    actions = random_actions([_keys(8, seed)[-1] for seed in range(4000)], SPEC, noise)
    share = (actions - SPEC.low) / (SPEC.high - SPEC.low)
    assert (share >= 0).all()
    assert (share <= 1).all()
    counts = np.stack([np.histogram(share[:, a], bins=4, range=(0, 1))[0] for a in range(2)]) / 4000
    assert np.abs(counts - 0.25).max() < 5 * (0.25 * 0.75 / 4000) ** 0.5

"""What the GPU kernels share: cheap normals, and when there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.kernels import common


def normals(
    particles: int = 4, rows: int = 64, steps: int = 32, columns: int = 16, words: tuple[int, int] = (1, 2)
) -> np.ndarray:
    """[particles, steps, rows, columns] as the kernel draws them."""
    counter = jnp.arange(rows * columns).reshape(1, rows, columns)
    step = jnp.arange(steps)[:, None, None] * (rows * columns)

    def draw(particle: jax.Array) -> jax.Array:
        seeds = common.seeds(jnp.int32(words[0]), jnp.int32(words[1]), particle)
        return common.noise(jnp.float32(2.0 * np.log(2.0)), counter + step, seeds)

    return np.asarray(jax.vmap(draw)(jnp.arange(particles)))


def test_noise_is_normal():
    noise = normals().ravel()
    size = noise.size
    assert abs(noise.mean()) < 4.0 / np.sqrt(size)
    assert abs(noise.var() - 1.0) < 4.0 * np.sqrt(2.0 / size)
    assert abs((noise**3).mean()) < 4.0 * np.sqrt(15.0 / size)
    assert abs((noise**4).mean() - 3.0) < 4.0 * np.sqrt(96.0 / size)
    for limit, share in [(1.0, 0.31731), (2.0, 0.04550), (3.0, 0.0026998)]:
        assert abs((np.abs(noise) > limit).mean() - share) < 4.0 * np.sqrt(share / size)


def test_noise_is_independent_between_particles_steps_candidates_columns_and_seeds():
    noise = normals()
    limit = 4.5 / np.sqrt(noise.size / 2)
    for axis in range(4):
        for lag in (1, 2):
            ahead = np.take(noise, range(lag, noise.shape[axis]), axis)
            behind = np.take(noise, range(noise.shape[axis] - lag), axis)
            assert abs((ahead * behind).mean()) < limit
            assert abs(((ahead**2 - 1.0) * (behind**2 - 1.0)).mean()) < 2.0 * limit
    for words in [(1, 3), (2, 1)]:  # keys beside each other, and swapped
        assert abs((noise * normals(words=words)).mean()) < limit


def test_the_sine_is_one():
    at = np.linspace(-1.0, 1.0, 1001, dtype=np.float32)
    np.testing.assert_allclose(common._sine(jnp.asarray(at)), np.sin(np.pi / 2.0 * at), atol=2e-6)


def test_noise_of_no_variance_is_none():
    counter = jnp.arange(1000)
    drawn = common.noise(jnp.float32(0.0), counter, common.seeds(jnp.int32(1), jnp.int32(2), 0))
    np.testing.assert_array_equal(drawn, 0.0)


def test_a_size_is_padded_to_a_power_of_two_that_a_product_takes():
    assert [common.padded(size) for size in (1, 15, 16, 17, 100, 128, 129)] == [16, 16, 16, 32, 128, 128, 256]


@pytest.mark.parametrize(
    ("mode", "gpu", "reason"),
    [
        ("off", True, "kernels are off"),
        ("off", False, "kernels are off"),
        ("auto", False, "there is no NVIDIA GPU"),
        ("auto", True, ""),
        ("on", False, ""),
        ("on", True, ""),
    ],
)
def test_kernels_are_used_on_a_gpu_or_where_one_insists(
    mode: common.Mode, gpu: bool, reason: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(common, "nvidia", lambda: gpu)
    assert common.fallback_reason(mode) == reason

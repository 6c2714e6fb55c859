"""The one network: its layers by hand, in NumPy and in JAX, and how it starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import mlp
from posterity.models.mlp import Layer

LAYERS = (
    Layer(np.array([[1.0, -1.0], [0.5, 2.0]]), np.array([0.0, 1.0])),
    Layer(np.array([[2.0], [-1.0]]), np.array([0.25])),
)
INPUTS = np.array([[1.0, 2.0], [-3.0, 0.0]])  # hidden layers: (2, 4) and (-3, 4), then (2, 4) and (0, 4)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def test_outputs_are_those_worked_out_by_hand_in_numpy_and_in_jax():
    numpy = mlp.apply(LAYERS, INPUTS, relu)
    assert isinstance(numpy, np.ndarray)
    np.testing.assert_array_equal(numpy, [[2 * 2 - 4 + 0.25], [-4 + 0.25]])
    jax_layers = jax.tree.map(jnp.asarray, LAYERS)
    np.testing.assert_allclose(mlp.apply(jax_layers, jnp.asarray(INPUTS), jax.nn.relu), numpy)


def test_networks_side_by_side_give_what_each_gives_alone():
    other = tuple(Layer(-layer.weight, layer.bias + 1) for layer in LAYERS)
    both = tuple(Layer(*map(np.stack, zip(*pair, strict=True))) for pair in zip(LAYERS, other, strict=True))
    together = mlp.apply(both, np.stack([INPUTS, 2 * INPUTS]), relu)
    np.testing.assert_allclose(together[0], mlp.apply(LAYERS, INPUTS, relu))
    np.testing.assert_allclose(together[1], mlp.apply(other, 2 * INPUTS, relu))


def test_a_vector_is_taken_across_all_rows_whatever_their_rank():
    for rows in (np.ones(3), np.ones((5, 3)), np.ones((2, 5, 3))):
        np.testing.assert_array_equal(rows + mlp.across(jnp.arange(3), rows), rows + np.arange(3))
    each = np.array([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(mlp.across(each, np.ones((2, 5, 3))), each[:, None])


def test_a_normalised_layer_has_mean_0_and_mean_square_1_however_large_its_inputs():
    x = mlp.layer_norm(jnp.array([[1.0, 2.0, 6.0], [100.0, 200.0, 600.0]]))
    np.testing.assert_allclose(x.mean(axis=-1), 0.0, atol=1e-6)
    np.testing.assert_allclose((x**2).mean(axis=-1), 1.0, rtol=1e-5)
    layers = jax.tree.map(jnp.asarray, LAYERS)
    small, large = (mlp.apply(layers, scale * jnp.array([3.0, 1.0]), jnp.tanh, normalise=True) for scale in (1e3, 1e6))
    np.testing.assert_allclose(small, large, rtol=1e-2)


@pytest.mark.parametrize(("init", "square"), [(mlp.init, 1.0), (mlp.init_uniform, 1 / 3)])
def test_a_new_network_has_weights_in_proportion_to_its_fan_in(init, square: float):
    """Mean squares of weights to 5 %: ten standard errors of 16,000 or more of them."""
    layers = init(jax.random.key(0), (64, 256, 64))
    assert [(layer.weight.shape, layer.bias.shape) for layer in layers] == [((64, 256), (256,)), ((256, 64), (64,))]
    for layer in layers:
        fan_in = layer.weight.shape[0]
        assert float((layer.weight**2).mean()) * fan_in == pytest.approx(square, rel=0.05)
        bound = 1 / np.sqrt(fan_in) if init is mlp.init_uniform else 0.0
        assert float(jnp.abs(layer.bias).max()) <= bound
    if init is mlp.init_uniform:
        assert float(jnp.abs(layers[0].weight).max()) <= 1 / np.sqrt(64)
        assert float(jnp.abs(layers[0].bias).max()) > 0.0

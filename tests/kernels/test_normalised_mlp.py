"""The kernels of networks with normalised hidden layers against the plain network, for many networks at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.kernels import layout
from posterity.kernels import normalised_mlp as fused
from posterity.models import mlp
from posterity.models.mlp import Layers

LANES, NETWORKS, ROWS = 2, 2, 40  # rows that do not fill their last block


class Problem:
    """Networks with biases, and inputs of two batches."""

    def __init__(self, hidden: tuple[int, ...], inputs: int, outputs: int) -> None:
        keys = jax.random.split(jax.random.key(0), (LANES, NETWORKS))
        plain: Layers = jax.vmap(jax.vmap(lambda k: mlp.init(k, (inputs, *hidden, outputs))))(keys)
        self.networks = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(jax.random.key(1), leaf.shape), plain)
        self.layout = layout.layout_of(jax.tree.map(lambda leaf: leaf[0, 0], plain), branches=1)
        self.sheets = self.packed(self.networks)
        self.x = jax.random.normal(jax.random.key(2), (LANES, 2, ROWS, inputs))
        self.weight = jnp.cos(jnp.arange(outputs, dtype=jnp.float32)).reshape(1, 1, 1, -1)

    def packed(self, networks: Layers) -> jax.Array:
        return jax.vmap(jax.vmap(lambda one: layout.pack(one, self.layout)))(networks)

    def plain_loss(self, networks: Layers, x: jax.Array) -> jax.Array:
        told = jax.vmap(lambda one: mlp.apply(one, x, jax.nn.relu, normalise=True))(networks)
        return (told**2 * self.weight).mean()

    def fused_loss(self, sheets: jax.Array, x: jax.Array) -> jax.Array:
        apply = fused.make_apply(self.layout, interpret=True)
        return (jax.vmap(lambda one: apply(one, x))(sheets) ** 2 * self.weight).mean()


@pytest.mark.parametrize(
    ("hidden", "inputs", "outputs"), [((128, 128), 14, 1), ((16, 16, 16), 5, 3)], ids=["a critic", "three layers"]
)
def test_values_and_gradients_are_those_of_the_plain_network(hidden: tuple[int, ...], inputs: int, outputs: int):
    """Float32 with sums in another order: to 1e-5 of the largest."""
    problem = Problem(hidden, inputs, outputs)
    found = jax.jit(jax.vmap(jax.value_and_grad(problem.fused_loss, (0, 1))))(problem.sheets, problem.x)
    value, (of_networks, of_x) = jax.vmap(jax.value_and_grad(problem.plain_loss, (0, 1)))(problem.networks, problem.x)
    expected = value, (problem.packed(of_networks), of_x)
    for told, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(told, wanted, atol=1e-5 * float(jnp.abs(wanted).max()))


@pytest.mark.parametrize("argument", [0, 1], ids=["weights", "inputs"])
def test_only_the_gradient_that_is_asked_for_is_computed(argument: int):
    """It is the same one, and the kernel has one output for it."""
    problem = Problem((16, 16), 5, 3)
    both = jax.vmap(jax.grad(problem.fused_loss, (0, 1)))(problem.sheets, problem.x)
    alone = jax.vmap(jax.grad(problem.fused_loss, argument))
    np.testing.assert_allclose(alone(problem.sheets, problem.x), both[argument], rtol=1e-6)
    text = str(jax.make_jaxpr(alone)(problem.sheets, problem.x))
    by_block, by_row = f"float32[2,2,3,{problem.layout.rows},16]", "float32[2,2,96,16]"
    [outputs] = [line for line in text.rsplit("network_backward", maxsplit=1)[-1].split("\n") if "out_avals" in line]
    assert (by_block in outputs, by_row in outputs) == (argument == 0, argument == 1)


def test_a_squared_error_and_its_gradient_are_those_of_the_plain_network():
    problem = Problem((32, 32), 5, 1)
    targets = jax.random.normal(jax.random.key(3), (LANES, ROWS))

    def plain(networks: Layers, x: jax.Array, target: jax.Array) -> jax.Array:
        told = jax.vmap(lambda one: mlp.apply(one, x, jax.nn.relu, normalise=True)[..., 0])(networks)
        return ((told - target[None]) ** 2).mean(axis=1).sum()

    def by_kernel(sheets: jax.Array, x: jax.Array, target: jax.Array) -> jax.Array:
        error = fused.make_error(problem.layout, interpret=True)
        return jax.vmap(lambda one: error(one, x, target))(sheets).sum()

    x = problem.x[:, 0]
    value, gradient = jax.vmap(jax.value_and_grad(plain))(problem.networks, x, targets)
    told, found = jax.jit(jax.vmap(jax.value_and_grad(by_kernel)))(problem.sheets, x, targets)
    np.testing.assert_allclose(told, value, rtol=1e-5)
    np.testing.assert_allclose(found, problem.packed(gradient), atol=1e-5 * float(jnp.abs(found).max()))


def test_what_the_kernels_cannot_do_they_say():
    def reason(hidden: tuple[int, ...], inputs: int = 14, outputs: int = 6) -> str:
        return fused.fallback_reason("on", hidden, inputs, outputs, exact=False)

    assert reason((128, 128)) == ""
    assert "not 256" in reason((256, 256))
    assert "hidden layers of one size" in reason((64, 32))
    assert "not 200" in reason((200, 200))
    assert "no room for 200 inputs" in reason((64, 64), inputs=200)
    assert fused.fallback_reason("off", (64, 64), 14, 6, exact=False) == "kernels are off"
    assert fused.fallback_reason("auto", (64, 64), 14, 6, exact=False) == "there is no NVIDIA GPU"

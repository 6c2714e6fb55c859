"""All batching: one lane's function, run for all lanes."""

import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents.lanes import compiled, each_lane, full, repeated
from posterity.models.mlp import across
from posterity.types import Array, Key

KEYS = [Key.of(0), Key.of(1), Key.of(2)]
DRAW = np.random.default_rng(0)


class Pair(NamedTuple):
    weight: Array  # [3, 2]
    bias: Array  # [2]


def affine(pair: Pair, x: Array, factor: float) -> tuple[Array, Array]:
    """Runs on NumPy and on JAX arrays."""
    y = factor * (x @ pair.weight + across(pair.bias, x))
    return y, (y**2).sum()


def pairs() -> Pair:
    return Pair(DRAW.normal(size=(3, 3, 2)).astype(np.float32), DRAW.normal(size=(3, 2)).astype(np.float32))


def bits(array: Array) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint32)


def drawn(key: jax.Array, x: jax.Array) -> jax.Array:
    return x + jax.random.normal(key, x.shape)


def test_a_compiled_program_is_a_loop_over_lanes():
    """A lane with its own key, its own row of every array, and nothing of the others."""
    x = DRAW.normal(size=(3, 4)).astype(np.float32)
    together = compiled(drawn)(KEYS, x)
    for lane, key in enumerate(KEYS):
        one = drawn(jax.random.wrap_key_data(jnp.asarray(key.words(2))), jnp.asarray(x[lane]))
        np.testing.assert_allclose(together[lane], one, rtol=1e-6)
    assert len({float(value) for value in together[:, 0] - x[:, 0]}) == 3, "every lane draws its own"


def test_each_lane_in_turn_is_the_compiled_program():
    args = (pairs(), DRAW.normal(size=(3, 5, 3)).astype(np.float32), 0.5)
    in_turn = each_lane(lambda _, *one: affine(*one), KEYS, *args)
    for one, other in zip(in_turn, compiled(affine)(*args), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_each_lane_in_turn_has_its_own_key():
    draws = each_lane(lambda key: key.generator().normal(size=2), KEYS)
    np.testing.assert_array_equal(draws, [key.generator().normal(size=2) for key in KEYS])


def test_each_lane_in_turn_copies_nothing_that_no_lane_changed():
    pair = pairs()

    def changed_in_lane_1(key: Key, one: Pair, number: int) -> tuple[Pair, int]:
        return (one._replace(bias=one.bias + 1) if key == KEYS[1] else one), number

    after, number = each_lane(changed_in_lane_1, KEYS, pair, 7)
    assert after.weight is pair.weight
    assert number == 7
    np.testing.assert_array_equal(after.bias, pair.bias + np.array([[0], [1], [0]], np.float32))


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, -3e7, np.pi], [0.0, -0.0, 1e-40], [np.inf, np.nan, 1.0]], np.float32),
        np.array([[1, -2], [2**31 - 1, -(2**31)], [0, 7]], np.int32),
        np.array([[0, 2**32 - 1], [1, 2], [3, 4]], np.uint32),
        np.array([[True, False], [False, False], [True, True]]),
        np.array([True, False, True]),
        np.arange(24, dtype=np.float32).reshape(3, 2, 4)[:, :, ::2],
        np.zeros((3, 0), np.float32),
    ],
    ids=["float", "int", "uint", "bool", "one a lane", "not contiguous", "empty"],
)
def test_what_is_packed_comes_out_as_it_went_in(array: np.ndarray):
    """To the bit, beside a key and another array in the same row of words."""
    beside = np.full((3, 2), -0.5, np.float32)
    data, same, other = compiled(lambda key, x, y: (jax.random.key_data(key), x, y))(KEYS, array, beside)
    np.testing.assert_array_equal(data, np.stack([key.words(2) for key in KEYS]))
    assert same.dtype == array.dtype
    assert same.shape == array.shape
    if array.dtype == np.bool_:
        np.testing.assert_array_equal(same, array)
    else:
        np.testing.assert_array_equal(bits(same), bits(array))
    np.testing.assert_array_equal(other, beside)


@pytest.mark.parametrize(("wide", "single"), [(np.float64, np.float32), (np.int64, np.int32), (np.uint8, np.uint32)])
def test_numbers_of_other_widths_are_carried_in_32_bits(wide: type, single: type):
    array = np.array([[1, 2], [3, 4], [5, 6]], wide)
    out = compiled(lambda x: x)(array)
    assert out.dtype == single
    np.testing.assert_array_equal(out, array)


def test_a_program_is_traced_once():
    """Other keys, arrays, trees and plain numbers of the same kinds are the same program; other shapes are not."""
    program = compiled(
        lambda key, pair, x, factor, number: (drawn(key, jnp.asarray(affine(pair, x, factor)[0])), number)
    )
    for number in range(3):
        x = DRAW.normal(size=(3, 3)).astype(np.float32)
        out, same = program([key.fold(number) for key in KEYS], pairs(), x, 0.1 * number, number)
        assert out.shape == (3, 2)
        np.testing.assert_array_equal(same, [number] * 3)
    program(KEYS, pairs(), np.zeros((3, 3), np.float32), jnp.float32(0.5), jnp.int32(1))
    assert program.traces == 1, "a plain number has a dtype: a weakly typed one would be another program"
    program(KEYS, pairs(), np.zeros((3, 2, 3), np.float32), 0.0, 0)
    assert program.traces == 2


@pytest.mark.parametrize(("setting", "name"), [("f32", "float32"), ("tf32", "tensorfloat32")])
def test_matrix_products_have_the_precision_a_program_is_given(setting: str, name: str):
    seen: list[str | None] = []

    def recorded(x: jax.Array) -> jax.Array:
        seen.append(jax.config.jax_default_matmul_precision)  # pyright: ignore[reportAttributeAccessIssue]
        return x

    before = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    compiled(recorded, setting)(np.zeros(3))
    assert seen == [name]
    assert jax.config.jax_default_matmul_precision == before  # pyright: ignore[reportAttributeAccessIssue]


def test_a_program_of_trees_alone_needs_no_keys():
    pair = pairs()
    doubled = compiled(lambda tree: jax.tree.map(lambda leaf: 2 * leaf.sum(), tree))(pair)
    np.testing.assert_allclose(doubled.bias, 2 * pair.bias.sum(axis=1), rtol=1e-6)
    assert doubled.weight.shape == (3,)


def test_a_program_gets_nothing_where_there_is_nothing():
    np.testing.assert_array_equal(compiled(lambda empty, x: x if empty == () else -x)((), np.arange(3)), np.arange(3))


def test_what_is_donated_is_used_up_and_nothing_else_is():
    first, second = jnp.zeros((3, 4)), jnp.ones((3, 4))
    program = compiled(lambda key, a, b: (a + 1, b.sum()), donate=(1,))
    result, _ = program(KEYS, first, second)
    np.testing.assert_array_equal(result, np.ones((3, 4)))
    assert first.is_deleted()
    assert not second.is_deleted()


def test_a_call_with_everything_sent_already_is_the_call():
    program = compiled(drawn)
    x = DRAW.normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_array_equal(program.on_device(KEYS, x)(), program(KEYS, x))
    assert program.traces == 1


def test_what_is_repeated_is_the_same_in_every_lane():
    tree = repeated({"a": jnp.arange(3)}, 2)
    np.testing.assert_array_equal(tree["a"], [[0, 1, 2], [0, 1, 2]])
    half = full(3, 0.5)
    np.testing.assert_array_equal(half, np.full(3, 0.5, np.float32))
    assert full(3, 0.5) is half, "it is sent to the device once"


ON_TWO_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from posterity.agents.lanes import compiled, repeated
from posterity.types import Key

def walk(key, state, x, factor):
    return {"sum": state["sum"] + factor * x + jax.random.normal(key, x.shape)}, jnp.sin(x).sum()

program = compiled(walk, donate=[1])
for lanes in (4, 3):
    state, traces = repeated({"sum": jnp.zeros(5)}, lanes), program.traces
    for step in range(3):
        keys = [Key.of(10 * lane + step) for lane in range(lanes)]
        state, _ = program(keys, state, np.arange(lanes * 5, dtype=np.float32).reshape(lanes, 5), 0.5)
    sums = state["sum"]
    print(lanes, len(sums.sharding.device_set), program.traces - traces, np.asarray(sums).tobytes().hex())
"""


def test_lanes_that_divide_evenly_among_devices_are_shared_out_and_come_to_the_same():
    def told(devices: int) -> list[list[str]]:
        flags = f"--xla_force_host_platform_device_count={devices}"
        environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-c", ON_TWO_DEVICES], env=environment, capture_output=True, text=True, check=True
        )
        return [line.split() for line in done.stdout.splitlines()]

    (four, three), (four_alone, three_alone) = told(2), told(1)
    assert four[:2] == ["4", "2"]
    assert three[:2] == ["3", "1"]
    assert int(four[2]) <= 2, "traced again once the state lies on both devices, and never after"
    assert four[3] == four_alone[3]
    assert three[3] == three_alone[3]

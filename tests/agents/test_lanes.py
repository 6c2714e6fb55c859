import jax
import numpy as np

from posterity.agents import packed
from posterity.types import Key

KEYS = [Key.of(0), Key.of(1)]


def test_what_is_packed_comes_out_as_it_went_in():
    """To the bit: an observation is carried as the bits of its floats."""
    obs = [np.array([0.1, -3e7, np.pi], np.float32), np.array([0.0, -0.0, 1e-20], np.float32)]
    first = [True, False]
    sent = packed.met(KEYS, obs, first)
    assert sent.dtype == np.uint32
    for lane, key in enumerate(KEYS):
        keys, seen, begins = packed.unpacked(jax.numpy.asarray(sent[lane]))
        np.testing.assert_array_equal(np.asarray(seen).view(np.uint32), obs[lane].view(np.uint32))
        assert bool(begins) == first[lane]
        expected = jax.random.split(jax.random.wrap_key_data(jax.numpy.asarray(key.words(2))))
        np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(expected))


def test_every_lane_has_a_key_of_its_own():
    data = packed.key_data(KEYS)
    assert data.shape == (2, 2)
    assert (data[0] != data[1]).any()


def test_what_is_repeated_is_the_same_in_every_lane():
    tree = packed.repeated({"a": jax.numpy.arange(3)}, 2)
    np.testing.assert_array_equal(tree["a"], [[0, 1, 2], [0, 1, 2]])

"""What all lanes are told, in as few arrays as it takes: what is sent to a GPU is sent once."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posterity.types import Key


def key_data(keys: list[Key]) -> np.ndarray:
    """[L, 2] the keys as JAX takes them."""
    return np.stack([key.words(2) for key in keys])


def met(keys: list[Key], obs: list[Any], first: list[bool]) -> np.ndarray:
    """[L, 2 + O + 1] all that a plan is told, in one array."""
    packed = np.empty((len(keys), 3 + len(obs[0])), np.uint32)
    for row, key, seen, begins in zip(packed, keys, obs, first, strict=True):
        row[:2], row[-1] = key.words(2), begins
        row[2:-1].view(np.float32)[:] = seen
    return packed


def unpacked(packed: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of one lane of `met`: two keys, the observation, and whether an episode begins with it."""
    keys = jax.random.split(jax.random.wrap_key_data(packed[:2]))
    return keys, jax.lax.bitcast_convert_type(packed[2:-1], jnp.float32), packed[-1] > 0


def repeated(tree: Any, lanes: int) -> Any:
    """The same for every lane."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], lanes, axis=0), tree)


@cache
def full(lanes: int, value: float) -> jax.Array:
    """[L] the same number, sent to the device once."""
    return jnp.full(lanes, value, jnp.float32)

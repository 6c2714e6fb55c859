"""A scan whose random rows are drawn for many steps at once.

To draw a batch takes a dozen small programs (bits, places, gathers), and a GPU waits for programs more than it works on
them. Drawn for fifty steps together they are as many programs for all fifty, and the rows are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax

AHEAD = 50  # steps at most; what is drawn has to be kept until it is used

Carry = TypeVar("Carry")
Drawn = TypeVar("Drawn")
Told = TypeVar("Told")


def scan(
    step: Callable[[Carry, Drawn], tuple[Carry, Told]],
    start: Carry,
    draw: Callable[[jax.Array], Drawn],
    keys: jax.Array,
) -> tuple[Carry, Told]:
    """`jax.lax.scan` of `step` over `draw` of each of the keys [steps, ...]."""
    count = keys.shape[0]
    together = chunk(count)

    def some(now: Carry, few: jax.Array) -> tuple[Carry, Told]:
        return jax.lax.scan(step, now, jax.vmap(draw)(few))

    last, told = jax.lax.scan(some, start, keys.reshape(count // together, together, *keys.shape[1:]))
    return last, jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), told)


def chunk(count: int) -> int:
    """The most steps, up to `AHEAD`, that divide `count` evenly."""
    return max((size for size in range(1, min(count, AHEAD) + 1) if count % size == 0), default=1)

"""What the GPU kernels here share: where they run, cheap normals, and single instructions of the chip.

A normal comes of one hash of (key, place): twenty bits give a Rayleigh radius, twelve the sine of a uniform angle. Its
tails end at 5.4 deviations. The hash is cheap, not cryptographic.
"""

from __future__ import annotations

import math
import warnings
from types import ModuleType
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

Mode = Literal["auto", "on", "off"]
Ref: TypeAlias = Any  # a Pallas reference: memory of the chip that is read and written like an array
LOG2E = math.log2(math.e)
TWO_LN_2 = 2.0 * math.log(2.0)


def nvidia() -> bool:
    """Whether programs run on an NVIDIA GPU."""
    return jax.default_backend() == "gpu" and "nvidia" in jax.devices()[0].device_kind.lower()


def capability() -> tuple[int, int]:
    """The compute capability of the card that programs run on; 9.0 if it does not tell."""
    major, minor = str(getattr(jax.devices()[0], "compute_capability", "9.0")).split(".")
    return int(major), int(minor)


def fallback_reason(mode: Mode) -> str:
    """Why no kernel is used, whatever it computes; empty if one may be. `on` without a GPU interprets it, slowly."""
    if mode == "off":
        return "kernels are off"
    return "there is no NVIDIA GPU" if mode == "auto" and not nvidia() else ""


def triton() -> ModuleType:
    """The Triton side of Pallas. JAX 0.11 says that it will go one day; until then it is what there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from jax.experimental.pallas import triton

        return triton


def padded(size: int) -> int:
    """The next power of two, 16 or more: what a product on the chip takes."""
    return max(16, 1 << (size - 1).bit_length())


def mixed(x: jax.Array, key: jax.Array | int) -> jax.Array:
    """A hash of 32 bits with a key put in half way. Shifts and products make every bit depend on every bit."""
    x = (x ^ lax.shift_right_logical(x, 16)) * 0x2C1B3C6D
    x = x + key
    x = (x ^ lax.shift_right_logical(x, 15)) * 0x297A2D39
    return x ^ lax.shift_right_logical(x, 16)


def seeds(first: jax.Array, second: jax.Array, stream: jax.Array | int) -> tuple[jax.Array, jax.Array]:
    """Two words for a stream: where its counter begins, and the key of its hash."""
    begin = mixed(first + stream * 0x1E3779B1, second)
    return begin, mixed(second ^ begin, first + stream)


def noise(
    variance: jax.Array | float, counter: jax.Array, words: tuple[jax.Array, jax.Array], asm: bool = False
) -> jax.Array:
    """Normals of a variance that is given times 2 ln 2: radius sqrt(-variance log2 u) times the sine of an angle."""
    begin, key = words
    bits = mixed(counter + begin, key)
    uniform = lax.shift_right_logical(bits, 12).astype(jnp.float32) * 2.0**-20 + 2.0**-21
    squared = -variance * log2(uniform, asm)
    radius = squared * lax.rsqrt(squared + 1e-30)  # zero where the variance is
    angle = (bits & 0xFFF).astype(jnp.float32) * 2.0**-11 - (1.0 - 2.0**-12)  # in quarter turns, in (-1, 1)
    return radius * _sine(angle)


def _sine(quarters: jax.Array) -> jax.Array:
    """sin(pi/2 x) on [-1, 1], within 2e-6."""
    square = quarters * quarters
    series = square * 0.00015148419 - 0.00467376557
    series = series * square + 0.07968967928
    series = series * square - 0.64596371106
    return quarters * (series * square + 1.57079631847)


def exp2(x: jax.Array, asm: bool) -> jax.Array:
    """2 to the x, on the chip as one instruction."""
    return _instruction("ex2.approx.ftz.f32", x) if asm else lax.exp2(x)


def log2(x: jax.Array, asm: bool) -> jax.Array:
    """The logarithm to base 2, on the chip as one instruction."""
    return _instruction("lg2.approx.ftz.f32", x) if asm else lax.log(x) * LOG2E


def _instruction(name: str, x: jax.Array) -> jax.Array:
    """One instruction of the chip on every element."""
    [result] = triton().elementwise_inline_asm(
        f"{name} $0, $1;",
        args=[x],
        constraints="=f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(x.shape, x.dtype)],
    )
    return result

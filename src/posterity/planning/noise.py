"""Noise whose neighbouring values are alike, for action sequences that go somewhere.

White noise walks about sqrt(T) steps in T: it hardly finds a reward that is T steps away. In coloured noise the power
at frequency f falls as f^-beta, so that beta 2 makes long movements in one direction likely (iCEM, Pinneri et al.
2020).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

BOUND = 2.0  # deviations that no value leaves


def coloured(key: jax.Array, shape: tuple[int, ...], beta: float) -> jax.Array:
    """Noise [..., T, A] of deviation 1, cut at two. Along T its power at frequency f is as f^-beta; 0: white.

    Frequency 0, the mean over T, has the power of the lowest other one.
    """
    if beta == 0.0:
        return jax.random.truncated_normal(key, -BOUND, BOUND, shape)
    steps = shape[-2]
    frequency = np.fft.rfftfreq(steps)
    power = np.maximum(frequency, 1.0 / steps) ** -beta
    waves = np.cos(2 * np.pi * np.outer(np.arange(steps), frequency))  # [T, F]
    others = np.sin(2 * np.pi * np.outer(np.arange(steps), frequency))
    basis = np.concatenate([waves, others], axis=1) * np.sqrt(np.tile(power, 2))
    basis /= np.sqrt((basis**2).sum(axis=1, keepdims=True))  # every step has deviation 1
    drawn = jax.random.normal(key, (*shape[:-2], basis.shape[1], shape[-1]))
    return jnp.clip(
        jnp.matmul(jnp.float32(basis).reshape(*(1 for _ in shape[:-2]), *basis.shape), drawn), -BOUND, BOUND
    )

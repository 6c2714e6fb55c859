"""What an actor explores with, in NumPy: normals that follow from the key of a step alone.

White noise is drawn anew in every step. Where actions move something a little, as those of a robot arm do, most of it
cancels out. Steps of pink noise are alike for a while, so it gets somewhere (Eberhard et al. 2023, "Pink noise is all
you need"). Ours is the sum of white noises, each held twice as long as the one before (Voss; Gardner 1978):

    pink_t = 1 / sqrt(R) sum_r white_r(floor(t / 2^r)),        r = 0 ... R - 1

In every step it is a standard normal too. Nothing is remembered from step to step, so a resumed run has the same noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from posterity.settings import setting
from posterity.types import HostArray, Key, Spec

Noise = Literal["white", "pink"]
RATES = 8  # white noises in pink noise; the slowest is held for 128 steps


def noise_setting() -> Noise:
    """The setting of a method whose actor can act alone."""
    return setting(
        "white",
        "Noise an actor that acts alone explores with: white (new in every step) or pink (alike for some steps).",
    )


def normals(keys: Sequence[Key], count: int, noise: Noise = "white") -> HostArray:
    """[L, count] standard normals, by the path of each key: a hash, which is far quicker than a generator."""
    if noise == "white":
        return _hashed([key.path for key in keys], count)
    paths: list[tuple[int, ...]] = []
    for key in keys:
        place, step = key.step()
        paths += [place.fold("pink", rate, step >> rate).path for rate in range(RATES)]
    parts = _hashed(paths, count).reshape(len(keys), RATES, count)
    return (parts.sum(axis=1) / np.sqrt(RATES)).astype(np.float32)


def random_actions(keys: Sequence[Key], spec: Spec, noise: Noise) -> HostArray:
    """[L, A] actions uniform within their bounds, before anything is known."""
    if noise == "white":
        return np.stack([spec.random_action(key.generator()) for key in keys])
    from scipy.special import ndtr

    low, high = np.asarray(spec.low), np.asarray(spec.high)
    return low + (high - low) * ndtr(normals(keys, len(low), noise))


def _hashed(paths: Sequence[tuple[int, ...]], count: int) -> HostArray:
    """[paths, count] standard normals."""
    from scipy.special import ndtri  # who asks for the likeliest action only needs NumPy alone

    digests = [hashlib.shake_128(repr(path).encode()).digest(4 * count) for path in paths]
    words = np.frombuffer(b"".join(digests), dtype="<u4").reshape(len(paths), count)
    return ndtri((words + 0.5) / 2.0**32).astype(np.float32)

"""An actor that acts by itself does so on the host, in NumPy.

For one small network a GPU is mostly waiting, and a compiled call costs more than what it computes. What does not
depend on the observation is done once, when an actor is first seen: the normaliser goes into the first layer, and
hidden layers give outputs whose mean over units is zero, which is the first half of normalising them.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import ndtri

from posterity.agents.base import Keys
from posterity.models.actor_critic import LOG_STD
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.types import FloatArray, HostArray, Spec

Affine = tuple[HostArray, HostArray]  # weights [L, inputs, outputs], biases [L, 1, outputs]


class _Seen(NamedTuple):
    """The actor that acted last, and what it is on the host."""

    actor: Layers
    normaliser: Normaliser
    layers: list[Affine]


class HostActor:
    """Actions of an actor, for all lanes."""

    def __init__(self, spec: Spec) -> None:
        self.low, self.half = np.float32(spec.low), np.float32(0.5 * (np.asarray(spec.high) - np.asarray(spec.low)))
        self._seen: _Seen | None = None

    def act(self, keys: Keys, obs: HostArray, actor: Layers, normaliser: Normaliser, explores: bool) -> HostArray:
        """[L, A] draws of the policy for observations [L, O] if it explores, else its likeliest actions."""
        if self._seen is None or self._seen.actor is not actor or self._seen.normaliser is not normaliser:
            self._seen = _Seen(actor, normaliser, _on_the_host(actor, normaliser))
        outputs = _applied(self._seen.layers, obs)
        size = outputs.shape[1] // 2
        raw = outputs[:, :size]
        if explores:
            low, high = LOG_STD
            log_std = low + 0.5 * (high - low) * (1.0 + np.tanh(outputs[:, size:]))
            raw = raw + np.exp(log_std) * normals(keys, size)
        return self.low + self.half * (1.0 + np.tanh(raw))


def normals(keys: Keys, count: int) -> HostArray:
    """[L, count] standard normals, by each key alone: a hash of its path, which is far quicker than a generator."""
    digests = [hashlib.shake_128(repr(key.path).encode()).digest(4 * count) for key in keys]
    words = np.frombuffer(b"".join(digests), dtype="<u4").reshape(len(keys), count)
    return ndtri((words + 0.5) / 2.0**32).astype(np.float32)


def _on_the_host(actor: Layers, normaliser: Normaliser) -> list[Affine]:
    """The layers in float32, ready for raw observations, with hidden outputs of mean zero."""
    layers = [(_doubles(layer.weight), _doubles(layer.bias)[:, None]) for layer in actor]
    weight, bias = layers[0]
    size = weight.shape[1]
    centre, scale = (_doubles(part)[:, :size] for part in (normaliser.input_mean, normaliser.input_scale))
    layers[0] = weight / scale[:, :, None], bias - (centre / scale)[:, None] @ weight
    hidden = [(weight - weight.mean(-1, keepdims=True), bias - bias.mean(-1, keepdims=True)) for weight, bias in layers]
    return [(weight.astype(np.float32), bias.astype(np.float32)) for weight, bias in (*hidden[:-1], layers[-1])]


def _doubles(part: jax.Array) -> FloatArray:
    return np.asarray(part).astype(np.float64)


def _applied(layers: list[Affine], obs: HostArray) -> HostArray:
    """[L, 2 A] what the actor's network says: `actor_critic.py` has the same for learning."""
    x = obs.astype(np.float32)[:, None]
    *hidden, (last, last_bias) = layers
    for weight, bias in hidden:
        x = x @ weight + bias
        square = x @ x.swapaxes(1, 2) / np.float32(x.shape[2])
        x = np.maximum(x, 0.0) / np.sqrt(square + np.float32(1e-6))
    return (x @ last + last_bias)[:, 0]

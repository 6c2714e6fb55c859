"""An actor that acts by itself does so on the host, in NumPy (`models/plain_actor.py`).

For one small network a GPU is mostly waiting, and a compiled call costs more than what it computes.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import ndtri

from posterity.agents.base import Keys
from posterity.models import plain_actor
from posterity.models.actor_critic import LOG_STD
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.models.plain_actor import Affine, Range
from posterity.types import HostArray, Spec


class _Seen(NamedTuple):
    """The actor that acted last, and what it is on the host."""

    actor: Layers
    normaliser: Normaliser
    latents: jax.Array | None
    layers: tuple[Affine, ...]  # weights [L, inputs, outputs], biases [L, 1, outputs]


class HostActor:
    """Actions of an actor, for all lanes."""

    def __init__(self, spec: Spec) -> None:
        self.range = Range.of(spec)
        self._seen: _Seen | None = None

    def act(
        self,
        keys: Keys,
        obs: HostArray,
        actor: Layers,
        normaliser: Normaliser,
        explores: bool,
        latents: jax.Array | None = None,
    ) -> HostArray:
        """[L, A] draws of the policy for observations [L, O] if it explores, else its likeliest actions.

        `latents` [L, E, M, Z]: hypotheses about the task, for an actor that is told them.
        """
        seen = self._seen
        if seen is None or not (seen.actor is actor and seen.normaliser is normaliser and seen.latents is latents):
            layers = _on_the_host(actor, normaliser, latents)
            self._seen = seen = _Seen(actor, normaliser, latents, layers)
        outputs = plain_actor.outputs(seen.layers, obs[:, None])[:, 0]
        size = outputs.shape[1] // 2
        raw = outputs[:, :size]
        if explores:
            low, high = LOG_STD
            log_std = low + 0.5 * (high - low) * (1.0 + np.tanh(outputs[:, size:]))
            raw = raw + np.exp(log_std) * normals(keys, size)
        return self.range.squashed(raw)


def normals(keys: Keys, count: int) -> HostArray:
    """[L, count] standard normals, by each key alone: a hash of its path, which is far quicker than a generator."""
    digests = [hashlib.shake_128(repr(key.path).encode()).digest(4 * count) for key in keys]
    words = np.frombuffer(b"".join(digests), dtype="<u4").reshape(len(keys), count)
    return ndtri((words + 0.5) / 2.0**32).astype(np.float32)


def _on_the_host(actor: Layers, normaliser: Normaliser, latents: jax.Array | None) -> tuple[Affine, ...]:
    """The layers, ready for raw observations."""
    layers = [Affine(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in actor]
    if latents is not None:
        layers = plain_actor.in_task(layers, np.asarray(latents))
    return plain_actor.folded(layers, np.asarray(normaliser.input_mean), np.asarray(normaliser.input_scale))

"""An actor that acts by itself does so on the host, in NumPy (`models/plain_actor.py`).

For one small network a GPU is mostly waiting, and a compiled call costs more than what it computes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from posterity.agents.base import Keys
from posterity.models import noise, plain_actor
from posterity.models.mlp import Layers
from posterity.models.noise import Noise
from posterity.models.normaliser import Normaliser
from posterity.models.plain_actor import Affine, PlainActor, Range
from posterity.types import HostArray, Spec


class _Seen(NamedTuple):
    """The actor that acted last, and what it is on the host."""

    actor: Layers
    normaliser: Normaliser
    latents: jax.Array | None
    plain: PlainActor


class HostActor:
    """Actions of an actor, for all lanes."""

    def __init__(self, spec: Spec, noise: Noise = "white") -> None:
        self.spec, self.range = spec, Range.of(spec)
        self.noise: Noise = noise
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
        """[L, A] draws of the policy for observations [L, O] if it explores, else its likeliest actions."""
        plain = self.plain(actor, normaliser, latents)
        return plain.act(keys, obs) if explores else plain.likeliest(obs)

    def random(self, keys: Keys) -> HostArray:
        """[L, A] random actions, before there is an actor that knows anything."""
        return noise.random_actions(keys, self.spec, self.noise)

    def plain(self, actor: Layers, normaliser: Normaliser, latents: jax.Array | None = None) -> PlainActor:
        """The actor of every lane on the host. It is fetched anew only when it has changed.

        `latents` [L, E, M, Z]: hypotheses about the task, for an actor that is told them.
        """
        seen = self._seen
        if seen is None or not (seen.actor is actor and seen.normaliser is normaliser and seen.latents is latents):
            plain = PlainActor(_on_the_host(actor, normaliser, latents), self.range, self.noise)
            self._seen = seen = _Seen(actor, normaliser, latents, plain)
        return seen.plain


def _on_the_host(actor: Layers, normaliser: Normaliser, latents: jax.Array | None) -> tuple[Affine, ...]:
    """The layers, ready for raw observations."""
    layers = [Affine(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in actor]
    if latents is not None:
        layers = plain_actor.in_task(layers, np.asarray(latents))
    return plain_actor.folded(layers, np.asarray(normaliser.input_mean), np.asarray(normaliser.input_scale))

"""An actor that acts by itself does so on the host: for one small network, a GPU is mostly waiting."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from posterity.agents import lanes
from posterity.agents.base import Keys
from posterity.models import actor_critic
from posterity.models.actor_critic import ActionBox
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.types import HostArray, Spec


class HostActor:
    """Actions of an actor, for all lanes."""

    def __init__(self, spec: Spec) -> None:
        self.low, self.high = spec.low, spec.high
        self._programs = {
            explores: lanes.compiled(partial(self._act, explores), "f32", spread=False) for explores in (True, False)
        }
        try:
            self._host = jax.devices("cpu")[0]
        except RuntimeError:  # JAX is told to know of no CPU
            self._host = jax.devices()[0]
        self._there: tuple[Layers, Normaliser] | None = None  # what was last sent to the host
        self._sent: tuple[Layers, Normaliser] | None = None  # and what it is there

    def act(self, keys: Keys, obs: HostArray, actor: Layers, normaliser: Normaliser, explores: bool) -> HostArray:
        """[L, A] draws of the policy for observations [L, O] if it explores, else its likeliest actions."""
        if self._there is None or self._there[0] is not actor or self._there[1] is not normaliser:
            self._there, self._sent = (actor, normaliser), jax.device_put((actor, normaliser), self._host)
        assert self._sent is not None
        return lanes.to_host(self._programs[explores](keys, obs, *self._sent))

    def _act(self, explores: bool, key: jax.Array, obs: jax.Array, actor: Layers, normaliser: Normaliser) -> jax.Array:
        what = actor, normaliser, obs, ActionBox(jnp.float32(self.low), jnp.float32(self.high))
        return actor_critic.sample_action(key, *what)[0] if explores else actor_critic.mean_action(*what)

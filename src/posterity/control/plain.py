"""Acting with a policy on NumPy alone: no JAX on the machine.

    policy = posterity.PlainPolicy.load("machine.posterity")
    action = policy.act(obs)

For every file in which one small network acts (`network.py`): of actor-critic, of vblrl whose actor acts alone, of the
policy gradients, and what `posterity export --policy` wrote. It acts and no more. Planning and learning need JAX, and
`Controller`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np

from posterity.control.machine import Machine, read_machine
from posterity.control.network import Network, network_of
from posterity.errors import UserError
from posterity.models import plain_actor
from posterity.models.plain_actor import Range
from posterity.types import HostArray, Spec


class PlainPolicy:
    """The likeliest action of a network. Made by `load`."""

    def __init__(self, network: Network) -> None:
        self.network, self.range = network, Range.of(network.spec)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a machine file in which a network acts, of a whole learner or of a policy only."""
        return cls.of(read_machine(Path(path)), str(path))

    @classmethod
    def of(cls, machine: Machine, source: str) -> Self:
        """From a machine file that was read."""
        network = network_of(machine, source)
        if network is None:
            raise UserError(f"{source} is for '{machine.header.method}', which plans and has no policy: use Controller")
        return cls(network)

    @property
    def spec(self) -> Spec:
        """The spaces it acts in. A known reward or termination is left out."""
        return self.network.spec

    def act(self, obs: object) -> HostArray:
        """[A] the action for an observation [O]."""
        x = np.asarray(obs, np.float32)
        if x.shape != (self.spec.obs_dim,) or not np.isfinite(x).all():
            raise UserError(f"The observation is {obs}; this machine's has {self.spec.obs_dim} finite numbers")
        action = self._actor(x) if self.network.kind == "actor" else self._gaussian(x)
        return np.clip(action, self.spec.low, self.spec.high).astype(np.float32)

    def _actor(self, x: HostArray) -> HostArray:
        told = plain_actor.outputs(self.network.layers, x[None])[0]
        return self.range.squashed(told[: len(self.range.low)])

    def _gaussian(self, x: HostArray) -> HostArray:
        *hidden, (weight, bias) = self.network.layers
        for inner, shift in hidden:
            x = np.tanh(x @ inner + shift)
        return self.range.low + self.range.half + self.range.half * (x @ weight + bias)

"""Acting with a policy on NumPy alone: no JAX on the machine.

    policy = posterity.PlainPolicy.load("machine.posterity")
    action = policy.act(obs)

For the policy gradients (npg, ewc, lpg-ftw): their policy is a small network, and its weights are in the machine file.
It acts and no more. Planning and learning need JAX, and `Controller`.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np

from posterity.control.machine import decoded, read_machine
from posterity.errors import UserError
from posterity.types import HostArray, Spec

WEIGHTS = "state.policy.theta"  # [1, d] layer after layer, in each the weights [inputs, outputs], then the biases
Layer = tuple[HostArray, HostArray]  # weights [inputs, outputs], biases [outputs]


class PlainPolicy:
    """The mean action of a Gaussian policy with layers of tanh."""

    def __init__(self, spec: Spec, layers: list[Layer]) -> None:
        self.spec, self.layers = spec, layers

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a machine file of a method that has a policy."""
        source, machine = str(path), read_machine(Path(path))
        spec, weights = decoded(machine.header.spec, source), machine.arrays.get(WEIGHTS)
        if weights is None:
            raise UserError(f"{source} is for '{machine.header.method}', which plans and has no policy: use Controller")
        hidden = machine.header.agent.get("hidden", ())
        if not isinstance(hidden, list | tuple) or not all(isinstance(units, int) and units > 0 for units in hidden):
            raise UserError(f"{source}: the hidden layers of its policy are {hidden}")
        return cls(spec, _layers(weights, (spec.obs_dim, *hidden, len(spec.low)), source))

    def act(self, obs: object) -> HostArray:
        """[A] the action for an observation [O]."""
        x = np.asarray(obs, np.float32)
        if x.shape != (self.spec.obs_dim,) or not np.isfinite(x).all():
            raise UserError(f"The observation is {obs}; this machine's has {self.spec.obs_dim} finite numbers")
        *hidden, (weight, bias) = self.layers
        for inner, shift in hidden:
            x = np.tanh(x @ inner + shift)
        low, high = self.spec.low, self.spec.high
        return np.clip((low + high) / 2 + (high - low) / 2 * (x @ weight + bias), low, high).astype(np.float32)


def _layers(weights: HostArray, sizes: tuple[int, ...], source: str) -> list[Layer]:
    """The layers of a policy from its flat weights [1, d]."""
    wanted = sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))
    if weights.shape != (1, wanted) or weights.dtype.kind != "f":
        raise UserError(f"{source} holds {weights.size} weights of a policy where its header promises {wanted}")
    layers: list[Layer] = []
    left = weights[0]
    for inputs, outputs in pairwise(sizes):
        weight, bias, left = np.split(left, [inputs * outputs, (inputs + 1) * outputs])
        layers.append((weight.reshape(inputs, outputs), bias))
    return layers

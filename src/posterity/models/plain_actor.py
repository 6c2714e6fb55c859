"""What the actor of `actor_critic.py` says, in NumPy: to act without a compiled call, or where there is no JAX.

    y = x W + b,    x <- relu(y - mean(y)) / sqrt(mean((y - mean(y))^2) + 1e-6)    for every hidden layer
    action = low + half (1 + tanh(m)),    (m, log deviation) = x W + b             for the last

What does not depend on the observation is done once (`folded`): the normaliser goes into the first layer, and hidden
layers give outputs y whose mean over units is zero already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posterity.models.noise import Noise, normals
from posterity.types import HostArray, Key, Spec

LOG_STD = (-5.0, 2.0)  # bounds of the log deviation, before the squashing


class Affine(NamedTuple):
    """An affine map in NumPy. Leading axes hold several at once."""

    weight: HostArray  # [..., inputs, outputs]
    bias: HostArray  # [..., outputs]; of a folded actor [..., 1, outputs]


class Range(NamedTuple):
    """The range of actions."""

    low: HostArray  # [A]
    half: HostArray  # [A] of its width

    @classmethod
    def of(cls, spec: Spec) -> Range:
        """In float32."""
        low, high = np.asarray(spec.low), np.asarray(spec.high)
        return cls(low.astype(np.float32), (0.5 * (high - low)).astype(np.float32))

    def squashed(self, raw: HostArray) -> HostArray:
        """From all numbers [..., A] to the range of actions."""
        return self.low + self.half * (1.0 + np.tanh(raw))


def in_task(actor: Sequence[Affine], latents: HostArray) -> list[Affine]:
    """The actor of a task of which there are hypotheses [..., E, M, Z]: it is told the mean of the first member's."""
    context = latents[..., 0, :, :].mean(axis=-2)
    (weight, bias), *rest = actor
    own, given = np.split(weight, [weight.shape[-2] - context.shape[-1]], axis=-2)
    return [Affine(own, bias + (context[..., None, :] @ given)[..., 0, :]), *rest]


def folded(actor: Sequence[Affine], input_mean: HostArray, input_scale: HostArray) -> tuple[Affine, ...]:
    """The layers in float32, ready for raw observations, with hidden outputs of mean zero.

    `input_mean` and `input_scale` [..., O + A] are the normaliser's.
    """
    layers = [(np.asarray(w).astype(np.float64), np.asarray(b).astype(np.float64)[..., None, :]) for w, b in actor]
    weight, bias = layers[0]
    size = weight.shape[-2]
    centre, scale = (np.asarray(part).astype(np.float64)[..., :size] for part in (input_mean, input_scale))
    layers[0] = weight / scale[..., :, None], bias - (centre / scale)[..., None, :] @ weight
    hidden = [(weight - weight.mean(-1, keepdims=True), bias - bias.mean(-1, keepdims=True)) for weight, bias in layers]
    ready = (*hidden[:-1], layers[-1])
    return tuple(Affine(weight.astype(np.float32), bias.astype(np.float32)) for weight, bias in ready)


def outputs(layers: Sequence[Affine], obs: HostArray) -> HostArray:
    """[..., 1, 2 A] what a folded actor says of observations [..., 1, O]; means, then what makes the deviations."""
    x = obs.astype(np.float32)
    *hidden, (last, last_bias) = layers
    for weight, bias in hidden:
        x = x @ weight + bias
        square = x @ x.swapaxes(-1, -2) / np.float32(x.shape[-1])
        x = np.maximum(x, 0.0) / np.sqrt(square + np.float32(1e-6))
    return x @ last + last_bias


class PlainActor(NamedTuple):
    """Folded actors of L lanes, one each. What it does for a lane does not depend on the others, to the bit."""

    layers: tuple[Affine, ...]  # weights [L, inputs, outputs], biases [L, 1, outputs]
    range: Range
    noise: Noise = "white"  # that it explores with

    def act(self, keys: Sequence[Key], obs: HostArray) -> HostArray:
        """[L, A] draws of the policy for observations [L, O]."""
        told = outputs(self.layers, obs[:, None])[:, 0]
        size = told.shape[1] // 2
        low, high = LOG_STD
        log_std = low + 0.5 * (high - low) * (1.0 + np.tanh(told[:, size:]))
        return self.range.squashed(told[:, :size] + np.exp(log_std) * normals(keys, size, self.noise))

    def likeliest(self, obs: HostArray) -> HostArray:
        """[L, A] the likeliest actions for observations [L, O]."""
        told = outputs(self.layers, obs[:, None])[:, 0]
        return self.range.squashed(told[:, : told.shape[1] // 2])

    def lane(self, lane: int) -> PlainActor:
        """The actor of one lane alone."""
        one = slice(lane, lane + 1)
        return self._replace(layers=tuple(Affine(weight[one], bias[one]) for weight, bias in self.layers))

"""What acts in a machine file, where that is one small network: found in a whole learner, or written alone. No JAX.

The header's `policy` names the kind of a file that holds nothing else:

    actor       of actor-critic, and of vblrl whose actor acts alone (`models/plain_actor.py`)
    gaussian    the mean of the policy gradients (npg, ewc, lpg-ftw): layers of tanh, actions in units of half the range

Its arrays are the layers, ready for raw observations: state.0.weight [inputs, outputs], state.0.bias [outputs], and so
on. No code of the method is needed to read them, so none is imported.

Of a learner with a guard the actor that the guard lets play is taken, be it the learning one or the best of the task:
it acted last, and the score Train is played with it. The learning one is worse while the other plays. A task that was
not met yet (`--task new`) begins with the learning actor, in a run as in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from posterity import tree
from posterity.control.machine import FUNCTION, Machine, PolicyKind, decoded
from posterity.errors import UserError
from posterity.models import plain_actor
from posterity.models.plain_actor import Affine
from posterity.types import HostArray, Spec

PLAYING = "state.guard.playing"  # [1, ...] in actor-critic and vblrl; there only if an actor acts alone
LEARNED = ("state.training.actor_optimiser.count", "state.actor.actor_optimiser.count")  # [1] steps on that actor
LATENTS = "state.latents"  # [1, E, M, Z] in vblrl; there only if tasks have a latent
THETA = "state.policy.theta"  # [1, d] layer after layer, in each the weights [inputs, outputs], then the biases
Arrays = Mapping[str, HostArray]


class Network(NamedTuple):
    """What acts."""

    kind: PolicyKind
    spec: Spec
    layers: tuple[Affine, ...]  # weights [inputs, outputs], biases [outputs], for raw observations


def network_of(machine: Machine, source: str) -> Network | None:
    """What acts in a file; None: more than a network does, since it plans."""
    kind, arrays = _kind(machine), machine.arrays
    if kind is None:
        return None
    spec = decoded(_without_functions(machine), source)
    try:
        if machine.header.policy is not None:
            layers = _layers(arrays, "state")
            if set(arrays) != {name for name, _ in tree.leaves(layers)}:
                raise ValueError("there are other arrays too")
        elif kind == "actor":
            layers = _playing(machine, spec)
        else:
            layers = _unflattened(machine, spec)
        _check(kind, spec, layers)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise UserError(f"{source} holds no policy such as its header promises: {error}") from error
    if any(not arrays[name].all() for name in LEARNED if name in arrays):
        raise UserError(
            f"{source}: its actor has learned nothing yet, because '{machine.header.method}' begins every task with a "
            "new one. Export it with --task latest, after an iteration of that task"
        )
    return Network(kind, spec, layers)


def policy_only(machine: Machine, source: str) -> Machine:
    """The file of a whole learner without all that does not act."""
    network = network_of(machine, source)
    if network is None:
        raise UserError(
            f"{source} is of '{machine.header.method}', which acts by planning with all it knows, and has no policy "
            "to export alone; leave out --policy"
        )
    changes = {"policy": network.kind, "spec": _without_functions(machine), "calibration": None}
    arrays = {name: np.asarray(leaf) for name, leaf in tree.leaves(network.layers)}
    return Machine(machine.header.model_copy(update=changes), arrays)


def _kind(machine: Machine) -> PolicyKind | None:
    if machine.header.policy is not None:
        return machine.header.policy
    if f"{PLAYING}.0.weight" in machine.arrays:
        return "actor"
    return "gaussian" if THETA in machine.arrays else None


def _without_functions(machine: Machine) -> dict[str, object]:
    """The spaces. A known reward or termination is for planning and learning, and does not act."""
    return {name: None if value == FUNCTION else value for name, value in machine.header.spec.items()}


def _layers(arrays: Arrays, place: str) -> tuple[Affine, ...]:
    """The layers that are named place.0, place.1 and so on."""
    layers: list[Affine] = []
    while (weight := arrays.get(f"{place}.{len(layers)}.weight")) is not None:
        layers.append(Affine(weight, arrays[f"{place}.{len(layers)}.bias"]))
    return tuple(layers)


def _playing(machine: Machine, spec: Spec) -> tuple[Affine, ...]:
    """The actor that the guard lets play, with the normaliser in its first layer."""
    units = [machine.arrays[f"state.normaliser.{part}"] for part in ("input_mean", "input_scale")]
    if any(part.shape != (1, spec.obs_dim + len(spec.low)) for part in units) or not (units[1] > 0).all():
        raise ValueError("its normaliser is of other spaces")
    actor = [Affine(weight[0], bias[0]) for weight, bias in _layers(machine.arrays, PLAYING)]
    if LATENTS in machine.arrays:  # an actor that is told which task it is: what is believed by now
        actor = plain_actor.in_task(actor, machine.arrays[LATENTS][0])
    _check("actor", spec, actor)
    with np.errstate(all="ignore"):  # what becomes infinite is told by the check of the layers
        folded = plain_actor.folded(actor, *(part[0] for part in units))
    return tuple(Affine(weight, bias[0]) for weight, bias in folded)


def _unflattened(machine: Machine, spec: Spec) -> tuple[Affine, ...]:
    """The layers of a Gaussian policy from its flat weights."""
    hidden, theta = machine.header.agent.get("hidden", ()), machine.arrays[THETA]
    if not isinstance(hidden, list | tuple) or not all(isinstance(units, int) and units > 0 for units in hidden):
        raise ValueError(f"its hidden layers are {hidden}")
    sizes = list(pairwise((spec.obs_dim, *hidden, len(spec.low))))
    wanted = sum((inputs + 1) * outputs for inputs, outputs in sizes)
    if theta.shape != (1, wanted):
        raise ValueError(f"{theta.size} weights, and {wanted} are promised")
    layers: list[Affine] = []
    left = theta[0]
    for inputs, outputs in sizes:
        weight, bias, left = np.split(left, [inputs * outputs, (inputs + 1) * outputs])
        layers.append(Affine(weight.reshape(inputs, outputs), bias))
    return tuple(layers)


def _check(kind: PolicyKind, spec: Spec, layers: tuple[Affine, ...] | list[Affine]) -> None:
    """Layers lead from observations to actions, and all numbers are finite."""
    if spec.actions:
        raise ValueError("its actions are discrete")
    size, last = spec.obs_dim, len(spec.low) * (2 if kind == "actor" else 1)
    for weight, bias in layers:
        if weight.ndim != 2 or weight.shape[0] != size or bias.shape != weight.shape[1:]:
            raise ValueError(f"a layer has weights {weight.shape} and biases {bias.shape} for {size} inputs")
        if not all(part.dtype == np.float32 and np.isfinite(part).all() for part in (weight, bias)):
            raise ValueError("a weight is no finite number of 32 bits")
        size = weight.shape[1]
    if not layers or size != last:
        raise ValueError(f"its {len(layers)} layers end in {size} outputs, and {last} are promised")

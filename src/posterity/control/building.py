"""From a machine file to a learner that can act, and back.

A state is read into the shape of one that the agent makes afresh. So a file with other arrays than its header promises
is told apart. Memory can grow: a state with room for fewer tasks or transitions is laid into a fresh one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias, TypeVar, cast

import numpy as np
from pydantic import ValidationError

from posterity import tree
from posterity.agents import METHODS
from posterity.agents import method as find_method
from posterity.agents.base import Agent
from posterity.control.finite import promised
from posterity.control.machine import MOST_BYTES, Machine, budget_of
from posterity.errors import UserError
from posterity.settings import Settings
from posterity.types import Budget, FiniteSpec, HostArray, Key, Spec

Tree = TypeVar("Tree")
AnySpec: TypeAlias = Spec | FiniteSpec
AnyAgent = Agent[object, object]  # what is loaded by name: its state is a tree, and no more is known


def build(machine: Machine, spec: AnySpec, source: str, trust: bool) -> AnyAgent:
    """The agent that a header describes. Only posterity's own methods are imported, unless the file is trusted."""
    header = machine.header
    if header.method not in METHODS and not trust:
        raise UserError(
            f"{source} is for the method {header.method!r}, which is not posterity's own; "
            "loading it would run that code. If you trust the file: trust=True"
        )
    method = find_method(header.method)
    if method.finite != isinstance(spec, FiniteSpec):
        kinds = ("finite MDPs", "real observations")
        learns, holds = kinds if method.finite else kinds[::-1]
        raise UserError(f"{source} is for '{header.method}', a method for {learns}, and the file is about {holds}")
    _within_reason(machine, spec, source)
    try:
        settings = method.settings_type().model_validate(header.agent)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{source}: setting {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return method.build(spec, settings, budget_of(header))


def rebuilt(method: str, spec: AnySpec, settings: Settings, budget: Budget) -> AnyAgent:
    """The agent of a method with a memory of another size."""
    return find_method(method).build(spec, settings, budget)


def _within_reason(machine: Machine, spec: AnySpec, source: str) -> None:
    """Refuses sizes that the arrays of the file do not bear out, before anything is laid out in memory."""
    tasks, iterations, steps = machine.header.budget
    rows = tasks * iterations * steps
    size = sum(array.size for array in machine.arrays.values())
    if isinstance(spec, FiniteSpec):
        if promised(spec, machine.header.agent) > size:
            raise UserError(f"{source}: its header promises more than the file holds")
        return
    weights = max((sum(a * b for a, b in pairwise(each)) for each in _layers(machine.header.agent)), default=0)
    if rows * (2 * spec.obs_dim + len(spec.low) + 1) * 4 > MOST_BYTES or weights > size:
        raise UserError(f"{source}: its header promises more than the file holds")


def _layers(settings: Mapping[str, object]) -> Iterator[list[int]]:
    """Every list of layer sizes among the settings."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _layers(value)
        elif name == "hidden" and isinstance(value, list):
            yield [int(each) for each in value if isinstance(each, int)]


def fresh_state(agent: AnyAgent, seed: int) -> object:
    """A state of one lane that knows nothing: the shape to read a file into."""
    return agent.init([Key.of(seed).fold("init")])


def state_of(agent: AnyAgent, machine: Machine, source: str) -> object:
    """The state that a file holds. What it does not fit is seen before anything is compiled for it."""
    import jax

    shapes = jax.eval_shape(lambda: fresh_state(agent, machine.header.seed))
    if {name: np.shape(cast(HostArray, leaf)) for name, leaf in tree.leaves(shapes)} != {
        name: array.shape for name, array in machine.arrays.items()
    }:
        raise _of_another(source)
    template = fresh_state(agent, machine.header.seed)
    wanted = {name: _kind(leaf) for name, leaf in tree.leaves(template)}
    if wanted != {name: _kind(array) for name, array in machine.arrays.items()}:
        raise _of_another(source)
    return on_device(template, tree.filled(template, machine.arrays))


def _of_another(source: str) -> UserError:
    return UserError(f"{source} holds the state of another method, size or version than its header says")


def _kind(leaf: object) -> tuple[tuple[int, ...], str]:
    array = np.asarray(leaf)
    return array.shape, array.dtype.name


def on_device(like: Tree, state: Tree) -> Tree:
    """Arrays of the library that those of `like` are of. JAX arrays are new ones, so that they may be donated."""
    import jax
    import jax.numpy as jnp

    def leaf(old: object, new: object) -> object:
        return jnp.array(new) if isinstance(old, jax.Array) else new

    return tree.map_leaves(leaf, like, state)


def laid(template: Tree, state: Tree) -> Tree:
    """`template`, a fresh state, with what `state` has laid into it: an axis may be longer, or cut where unused."""

    def leaf(fresh: object, old: object) -> object:
        if tree.is_number(fresh):
            return old
        whole, part = np.array(fresh), np.asarray(old)
        if whole.shape == part.shape:
            return part
        both = tuple(slice(min(pair)) for pair in zip(whole.shape, part.shape, strict=True))
        whole[both] = part[both]
        return whole

    return on_device(template, tree.map_leaves(leaf, template, state))


def named(state: object) -> dict[str, HostArray]:
    """A state as named arrays."""
    return {name: np.asarray(leaf) for name, leaf in tree.leaves(state)}

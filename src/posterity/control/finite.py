"""The specification of a finite family as JSON, in the header of a machine file, and back with every number checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from posterity.errors import UserError
from posterity.types import FiniteSpec, FloatArray, HostArray, IntArray, Layout, Record

MOST = 1_000_000  # states or actions: more is an error in the file


def is_finite(fields: Mapping[str, object]) -> bool:
    """Whether the specification of a header is that of a finite family."""
    return "states" in fields


def encoded_finite(spec: FiniteSpec) -> Record:
    """A specification as plain JSON values."""
    layout = spec.layout
    return {
        "states": spec.states,
        "actions": spec.actions,
        "levels": np.asarray(spec.levels, float).tolist(),
        "terminal": np.flatnonzero(spec.terminal).tolist(),
        "max_episode_steps": spec.max_episode_steps,
        "successors": None if spec.successors is None else np.asarray(spec.successors).tolist(),
        "layout": None
        if layout is None
        else {
            "move": layout.move.tolist(),
            "where": layout.where.tolist(),
            "reward": float(layout.reward),
            "found": int(layout.found),
        },
    }


def decoded_finite(fields: Mapping[str, object], source: str) -> FiniteSpec:
    """A specification from JSON, or in one line why it is refused."""
    try:
        return _decoded(fields)
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise UserError(f"{source}: its finite MDPs are wrong: {error}") from error


def promised(spec: FiniteSpec, settings: Mapping[str, object]) -> int:
    """How many numbers the state of a learner of such MDPs has at least."""
    pairs = spec.states * spec.actions
    if spec.layout is not None and settings.get("structure", True):
        return pairs
    outcomes = spec.states if spec.successors is None else spec.successors.shape[2]
    return pairs * outcomes * _count("kinds", settings.get("kinds", 1))


def _decoded(fields: Mapping[str, object]) -> FiniteSpec:
    states, actions = (_count(name, fields[name]) for name in ("states", "actions"))
    if states * actions > MOST:
        raise ValueError(f"there are {states} states x {actions} actions")
    terminal = np.zeros(states, bool)
    terminal[_states("terminal", fields["terminal"], states, 1)] = True
    successors, layout = fields["successors"], fields["layout"]
    return FiniteSpec(
        states,
        actions,
        _levels(fields["levels"]),
        terminal,
        _count("max_episode_steps", fields["max_episode_steps"]),
        None if layout is None else _layout(cast("Mapping[str, object]", layout), (states, actions)),
        None
        if successors is None
        else _shaped("successors", _states("successors", successors, states, 3), states, actions),
    )


def _layout(fields: Mapping[str, object], pairs: tuple[int, int]) -> Layout:
    states = pairs[0]
    reward = float(cast(float, fields["reward"]))
    found = int(_states("found", [fields["found"]], states, 1)[0])
    if not np.isfinite(reward):
        raise ValueError(f"the layout's reward is {reward}")
    move = _shaped("move", _states("move", fields["move"], states, 2), *pairs)
    return Layout(move, _states("where", fields["where"], states, 2), reward, found)


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise ValueError(f"{name} is {value}")
    return value


def _levels(value: object) -> FloatArray:
    levels = np.asarray(value, float)
    if levels.ndim != 1 or not levels.size or not np.isfinite(levels).all():
        raise ValueError("the levels of the reward are no list of finite numbers")
    return levels


def _states(name: str, value: object, states: int, axes: int) -> IntArray:
    """An array of so many axes whose entries are states."""
    array: HostArray = np.asarray(value if value != [] else np.zeros(0, np.int64))
    if (
        array.ndim != axes
        or array.dtype.kind not in "iu"
        or (array.size and not 0 <= array.min() <= array.max() < states)
    ):
        raise ValueError(f"{name} are no states")
    return array.astype(np.int64)


def _shaped(name: str, array: IntArray, states: int, actions: int) -> IntArray:
    if array.shape[:2] != (states, actions):
        raise ValueError(f"{name} has shape {array.shape}")
    return array

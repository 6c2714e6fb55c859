"""What a name in the `vary` of `Family.from_gymnasium` stands for, and how a drawn value gets into an environment.

A name is looked up in this order, and a prefix leaves no doubt:

    gravity, mass:torso, ...    a MuJoCo model, by a factor (mutators.py)
    action_gain, action_gain:0  what the agent does, or one number of it, times a factor
    argument:g, or g            an argument that the environment's constructor names
    attribute:m, or m           an attribute that the environment has; what was derived from it stays as it was
    anything                    with a function: {"pole": (distribution, function of environment and value)}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.wrappers import TransformAction

from posterity.errors import UserError, did_you_mean
from posterity.families.base import Env
from posterity.families.distributions import Distribution, distribution
from posterity.families.mutators import MUTATORS, mujoco_model, mutate
from posterity.plugins import kind, said
from posterity.types import Facts

Factory = Callable[..., Env]
Change = Callable[
    [Env, object], Env | None
]  # of an environment by a drawn value; a new environment may wrap the old one


class Part(NamedTuple):
    """One thing that varies."""

    name: str
    drawn: Distribution
    argument: str  # of the constructor; empty: the value is applied afterwards
    change: Change
    factor: bool  # the value is a factor on what was


class Registered:
    """Makes an environment by its id."""

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    def __call__(self, max_episode_steps: int | None = None, **arguments: object) -> Env:
        """The environment with these arguments."""
        return gymnasium.make(self.env_id, max_episode_steps, disable_env_checker=True, **arguments)

    def constructor(self) -> Callable[..., object]:
        """What makes it, whose arguments have names."""
        entry = gymnasium.spec(self.env_id).entry_point
        return load_env_creator(entry) if isinstance(entry, str) else entry or self


def read_part(name: str, given: object, factory: Factory, probe: Env) -> Part:
    """What a name in `vary` stands for."""
    if isinstance(given, tuple) and len(given) == 2 and callable(given[1]):
        return Part(name, distribution(name, given[0]), "", cast(Change, given[1]), factor=False)
    drawn = distribution(name, given)
    word, _, target = name.partition(":")
    if word in MUTATORS and mujoco_model(probe) is not None:
        mutate(made(factory, name, {}), word, target, 1.0)  # a wrong target is said now
        return Part(name, drawn, "", lambda env, value: mutate(env, word, target, value), factor=True)
    if word == "action_gain":
        _gained(probe, target, 1.0)  # likewise
        return Part(name, drawn, "", lambda env, value: _gained(env, target, value), factor=True)
    arguments, attributes = _arguments(factory), set(dir(probe.unwrapped))
    if (word == "argument" and target) or name in arguments:
        return Part(name, drawn, target or name, lambda env, value: None, factor=False)
    if (word == "attribute" and target in attributes) or name in attributes:
        return Part(name, drawn, "", lambda env, value: setattr(env.unwrapped, target or name, value), factor=False)
    known = ["action_gain", *(MUTATORS if mujoco_model(probe) is not None else ()), *arguments]
    near = did_you_mean(target or name, [*known, *(each for each in attributes if not each.startswith("_"))])
    raise UserError(
        f"vary: nothing is called '{name}' here.{near} There is: {', '.join(known)}, and every attribute of the "
        "environment; for all else give (distribution, function of environment and value)"
    )


def _gained(env: Env, target: str, value: object) -> Env:
    """The environment behind a motor that does more, less or the opposite."""
    space = env.action_space
    if not isinstance(space, spaces.Box):
        raise UserError(f"vary: 'action_gain' is for real actions, and these are {space}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"vary: 'action_gain' drew {value}; expected a number")
    gain = np.ones(space.shape, dtype=space.dtype)
    if target and not (target.isdigit() and int(target) < gain.size):
        raise UserError(f"vary: 'action_gain:{target}': actions have the indices 0 to {gain.size - 1}")
    gain[int(target) if target else slice(None)] = value
    return TransformAction(env, lambda action: action * gain, space)


def _arguments(factory: Factory) -> list[str]:
    """The arguments that the constructor of an environment names."""
    constructor = factory.constructor() if isinstance(factory, Registered) else factory
    try:
        found = inspect.signature(constructor).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]


def made(factory: Factory, title: str, arguments: Facts) -> Env:
    """An environment, or one line that says why there is none."""
    try:
        env = factory(**arguments)
    except Exception as error:
        given = f" with {', '.join(f'{name}={value}' for name, value in arguments.items())}" if arguments else ""
        raise UserError(f"{title} cannot be made{given}: {said(error)}") from error
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{title} made {kind(env)}; expected a Gymnasium environment")
    return env

"""What a run is: a family, a method, a budget and their settings, resolved from a preset and the user's changes.

The settings of a run depend on its family (`env`) and its method (`agent`), so the class of its configuration is made
from the two names. A resolved configuration is written into the run folder and is all that `resume` needs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any

import tomli_w
import tyro
from pydantic import ValidationError, create_model

from posterity.agents import method as find_method
from posterity.errors import UserError, unknown
from posterity.families import FAMILIES, family_type
from posterity.settings import Settings, setting

PRESETS = ("quick", "paper", "best")  # every family has these; its file may have more


class RunConfig(Settings):
    """One run. `agent` and `env` are of the classes that the method and the family name."""

    family: tyro.conf.Positional[str] = setting("item-search", "The family of tasks: `posterity families`.")
    method: str = setting("blrl", "The learner: `posterity methods`. Unless said: blrl or, if not finite, vblrl.")
    preset: str = setting(
        "quick", "Where the other settings start from: quick, paper, best; `posterity presets` has all."
    )
    tasks: int = setting(10, "Tasks in the stream.", ge=1)
    iterations: int = setting(10, "Iterations per task.", ge=1)
    steps: int = setting(20, "Environment steps per iteration.", ge=1)
    seeds: int = setting(1, "Independent learners (lanes), with seeds seed, seed + 1, ...", ge=1, le=1000)
    seed: int = setting(0, "The first seed; it decides everything that is random.", ge=0)
    probe: bool = setting(False, "Measure against the true task: prior-mass radius and value lost, in the records.")
    keep: bool = setting(True, "Put aside what `posterity evaluate` needs at the beginning and the end of each task.")
    save_every: float = setting(10.0, "Seconds between checkpoints.", ge=0)
    agent: Annotated[Settings, tyro.conf.arg(name="")]
    env: Settings


@cache
def config_type(family: str, method: str) -> type[RunConfig]:
    """The class of configurations of this family and method."""
    kind, learner = family_type(family), find_method(method)
    if kind.finite != learner.finite:
        wanted = "finite families" if learner.finite else "families with real observations and actions"
        raise UserError(f"Method '{method}' runs on {wanted}, and '{family}' is not one")
    env, agent = kind.settings_type, learner.settings_type()
    fields: dict[str, Any] = {"agent": (Annotated[agent, tyro.conf.arg(name="")], agent()), "env": (env, env())}
    return create_model("RunConfig", __base__=RunConfig, **fields)


def default_method(family: str) -> str:
    """The paper's learner for this kind of family."""
    return "blrl" if family_type(family).finite else "vblrl"


def resolve(family: str, method: str | None, preset: str, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration that a preset gives for a family and a method, with `changes` on top."""
    method = method or default_method(family)
    config = config_type(family, method)
    presets = preset_table(family)
    if preset not in presets:
        raise unknown("preset", preset, presets)
    table = presets[preset]
    own = {key: value for key, value in table.items() if key != "methods"}
    if find_method(method).settings != find_method(default_method(family)).settings:
        own.pop("agent", None)  # a preset's `agent` is the default method's; others have a table below `methods`
    values = _merged(own, table.get("methods", {}).get(method, {}), changes or {})
    return checked(config, {**values, "family": family, "method": method, "preset": preset})


def checked(config: type[RunConfig], values: Mapping[str, Any]) -> RunConfig:
    """`values` as a configuration, or the first thing that is wrong with them in one line."""
    try:
        return config.model_validate(values)
    except ValidationError as error:
        raise invalid(error) from error


def invalid(error: ValidationError) -> UserError:
    """The first complaint of a validation error, as one line."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return UserError(f"Unknown setting '{where}'")
    if first["type"] == "value_error":  # settings that do not go together
        return UserError(f"Setting{f' {where!r}' if where else 's'}: {first['msg'].removeprefix('Value error, ')}")
    return UserError(f"Setting '{where}': {first['msg'][0].lower()}{first['msg'][1:]}, not {first['input']!r}")


@cache
def preset_table(family: str) -> dict[str, Any]:
    """The presets of a family, from its TOML file; those of a family of one's own from its class.

    A preset with a `base` is that one with some settings changed.
    """
    if family not in FAMILIES:
        return {preset: dict(family_type(family).budget) for preset in PRESETS}
    text = resources.files("posterity.experiment").joinpath(f"presets/{family}.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    for name, table in tables.items():  # a base stands before what is built on it
        base = table.pop("base", None)
        tables[name] = _merged(tables[base], table) if base else table
    return tables


def to_toml(config: RunConfig) -> str:
    """The resolved configuration, every setting written out."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def from_toml(text: str, source: str) -> RunConfig:
    """A configuration read back. `source` names it in errors."""
    try:
        values = tomllib.loads(text)
        config = config_type(values["family"], values["method"])
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise UserError(f"{source} is not the configuration of a run: {error}") from error
    return checked(config, values)


def _merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Later tables win, key by key, also inside tables."""
    merged: dict[str, Any] = {}
    for table in tables:
        for key, value in table.items():
            below = merged.get(key)
            merged[key] = _merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged

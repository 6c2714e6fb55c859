"""What a run is: a family, a method, a budget and their settings, resolved from a preset and the user's changes.

The settings of a run depend on its family (`env`) and its method (`agent`), so the class of its configuration is made
from the two names. A resolved configuration is written into the run folder and is all that `resume` needs.

Presets are TOML tables. One rule saves writing things twice: a table with `base = NAME` is the table NAME beside it
with some settings changed. It holds for the presets of a file, for the methods of a preset, and for whole files, whose
base is a file in presets/bases/. What stands under `methods` at the top of a file is part of all its presets.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Literal, cast

import tomli_w
from pydantic import ValidationError, create_model

from posterity.agents import METHODS
from posterity.agents import method as find_method
from posterity.errors import UserError, did_you_mean, unknown
from posterity.experiment.sizes import paper_sizes, quick_sizes
from posterity.families import FAMILIES, family_name, family_type, find_family, make_family
from posterity.families.base import Family
from posterity.families.contract import checked_spec
from posterity.families.lookup import default_settings
from posterity.plugins import said
from posterity.settings import Settings, argument, setting
from posterity.types import Facts, Record

PRESETS = ("quick", "paper", "best")  # every family has these; its file may have more
Place = tuple[int | str, ...]  # of a setting: the names that lead to it


class RunConfig(Settings):
    """One run. `agent` and `env` are of the classes that the method and the family name."""

    family: str = argument(..., "The family of tasks to learn; one of your own as FILE.py:NAME or module:NAME.")
    method: str = setting("blrl", "The learner, or FILE.py:Class for one of your own; `posterity methods` lists them.")
    preset: str = setting(
        "quick", "The settings to start from: quick (minutes), paper, best; `posterity presets` lists them."
    )
    tasks: int = setting(10, "Tasks to learn, one after the other.", ge=1)
    iterations: int = setting(10, "Iterations per task. After each one the agent learns.", ge=1)
    steps_per_iteration: int = setting(20, "Environment steps in an iteration.", ge=1)
    seeds: int = setting(1, "Learners to run side by side, each with a seed of its own.", ge=1, le=1000)
    seed: int = setting(0, "Seed of the first learner; the next ones have the seeds after it.", ge=0)
    boundaries: Literal["told", "detect"] = setting(
        "told", "Whether the learner is told that a task begins, or has to detect it (vblrl, one seed)."
    )
    measure_truth: bool = setting(
        False, "Compare what is believed with the true task, and record it (finite families only)."
    )
    snapshots: bool = setting(
        True, "Save the agent at the beginning and the end of each task; `posterity evaluate` needs it."
    )
    save_every: float = setting(10.0, "Seconds between checkpoints, from which `posterity resume` goes on.", ge=0)
    agent: Settings
    env: Settings


def config_type(family: str, method: str) -> type[RunConfig]:
    """The class of configurations of this family and method."""
    kind, learner = family_type(family), find_method(method)
    if kind.finite != learner.finite:
        wanted = "finite families" if learner.finite else "families with real observations and actions"
        hint = "" if learner.finite or method in METHODS else "; a method for finite MDPs says so: finite = True"
        raise UserError(f"Method '{method}' runs on {wanted}, and '{family}' is not one{hint}")
    return _config_type(learner.settings_type(), default_settings(family))


_TYPES: dict[tuple[type[Settings], type[Settings], str], type[RunConfig]] = {}


def _config_type(agent: type[Settings], env: Settings) -> type[RunConfig]:
    """One class for the same settings; not one for a name, since a file of one's own may change meanwhile."""
    key = (agent, type(env), env.model_dump_json())
    if key not in _TYPES:
        fields: Record = {"agent": (agent, agent()), "env": (type(env), env)}
        _TYPES[key] = create_model("RunConfig", __base__=RunConfig, **fields)
    return _TYPES[key]


def default_method(family: str) -> str:
    """The paper's learner for this kind of family."""
    return "blrl" if family_type(family).finite else "vblrl"


def resolve(
    family: str | Family | type[Family], method: str | None, preset: str, changes: Facts | None = None
) -> RunConfig:
    """The configuration that a preset gives for a family and a method, with `changes` on top."""
    family = family_name(family)
    method = method or default_method(family)
    config = config_type(family, method)
    values = merged(preset_values(family, method, preset), changes or {})
    return checked(config, {**values, "family": family, "method": method, "preset": preset})


def preset_values(family: str, method: str, preset: str) -> Record:
    """What a preset sets for a method.

    Its `agent`, and what is measured of it, are the default method's; others have a table below `methods`.
    """
    presets = preset_table(family)
    if preset not in presets:
        raise unknown("preset", preset, presets)
    values = dict(presets[preset])
    methods = values.pop("methods", {})
    if find_method(method).agent != find_method(default_method(family)).agent:
        for own in ("agent", "measure_truth"):
            values.pop(own, None)
    return merged(values, methods.get(method, {}))


def checked(config: type[RunConfig], values: Facts, named: Callable[[Place], str] | None = None) -> RunConfig:
    """`values` as a configuration, or the first thing that is wrong with them in one line."""
    try:
        return config.model_validate(values)
    except ValidationError as error:
        raise invalid(error, named, config) from error


def invalid(
    error: ValidationError, named: Callable[[Place], str] | None = None, config: type[RunConfig] | None = None
) -> UserError:
    """The first complaint of a validation error, as one line. `named` says how to write the name of a setting."""
    first = error.errors()[0]
    name = named(first["loc"]) if named else f"Setting '{'.'.join(map(str, first['loc']))}'"
    if first["type"] == "missing":
        return UserError(f"{name} is needed")
    if first["type"] == "extra_forbidden":
        return UserError(f"Unknown setting '{'.'.join(map(str, first['loc']))}'.{_elsewhere(first['loc'], config)}")
    if first["type"] == "value_error":  # settings that do not go together
        said = first["msg"].removeprefix("Value error, ")
        return UserError(f"{name}: {said}" if first["loc"] and name else said)
    return UserError(f"{name}: {first['msg'][0].lower()}{first['msg'][1:]}, not {first['input']}")


def _elsewhere(place: Place, config: type[RunConfig] | None) -> str:
    """Where a setting that is unknown at `place` might belong, with a space before it."""
    if config is None:
        return ""
    below = {
        part: kind.model_fields
        for part in ("agent", "env")
        if isinstance(kind := config.model_fields[part].annotation, type) and issubclass(kind, Settings)
    }
    for part, fields in below.items():
        if len(place) == 1 and place[0] in fields:
            return f" It is one of the {part}'s: {part}={{'{place[0]}': ...}}"
    known = below.get(str(place[0]), config.model_fields) if len(place) == 2 else config.model_fields
    return did_you_mean(str(place[-1]), known)


def preset_table(family: str) -> Record:
    """The presets of a family, from its TOML file; those of a family of one's own from its sizes and its `budget`."""
    if family in FAMILIES:
        return _file_presets(family)
    found = find_family(family)
    spec = checked_spec(make_family(family))
    sizes = {preset: quick_sizes(spec) if preset == "quick" else paper_sizes(spec) for preset in PRESETS}
    return {preset: merged(sizes[preset], found.budget) for preset in PRESETS}


@cache
def _file_presets(family: str) -> Record:
    file = _read(family)
    if "base" in file:
        file = merged(_read(f"bases/{file.pop('base')}"), file)
    shared = {"methods": file.pop("methods", {})}
    presets = {name: table if "base" in table else merged(shared, table) for name, table in file.items()}
    for table in presets.values():
        table["methods"] = _with_bases(table.get("methods", {}))
    return _with_bases(presets)


def _read(name: str) -> Record:
    place = resources.files("posterity.experiment").joinpath(f"presets/{name}.toml")
    return tomllib.loads(place.read_text(encoding="utf-8"))


def _with_bases(tables: Facts) -> Record:
    """The tables, each with a `base` as that one with its changes. A base stands before what is built on it."""
    whole: Record = {}
    for name, table in tables.items():
        changes = dict(table)
        base = changes.pop("base", None)
        whole[name] = merged(whole[base], changes) if base else changes
    return whole


def to_toml(config: RunConfig) -> str:
    """The resolved configuration, every setting written out."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def names_of(text: str, source: str) -> tuple[str, str]:
    """The family and the method that a configuration names. No code is loaded. `source` names it in errors."""
    try:
        values = tomllib.loads(text)
        names = values["family"], values["method"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise UserError(f"{source} is not the configuration of a run: {said(error)}") from error
    if not all(isinstance(name, str) for name in names):
        raise UserError(f"{source} is not the configuration of a run: family and method are names")
    return names


def from_toml(text: str, source: str) -> RunConfig:
    """A configuration read back. `source` names it in errors."""
    return checked(config_type(*names_of(text, source)), tomllib.loads(text))


def merged(*tables: Facts) -> Record:
    """Later tables win, key by key, also inside tables."""
    result: Record = {}
    for table in tables:
        for key, value in table.items():
            below = result.get(key)
            both = isinstance(value, Mapping) and isinstance(below, Mapping)
            result[key] = merged(cast(Facts, below), cast(Facts, value)) if both else value
    return result

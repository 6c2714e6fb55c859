"""`posterity families | methods | presets`: what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from posterity.agents import METHODS
from posterity.commands.arguments import Terminal, parse, terminal
from posterity.errors import UserError, unknown
from posterity.experiment.config import default_method, preset_table
from posterity.families import FAMILIES, family_type
from posterity.families.base import Family
from posterity.types import FiniteSpec, Key

BUDGET = ("tasks", "iterations", "steps")
AMOUNT = " x ".join(BUDGET)


@dataclass(frozen=True)
class FamiliesArgs:
    """The families of tasks."""

    show: str | None = None
    """Draw tasks of this family."""
    tasks: int = 1
    """How many tasks to draw."""
    seed: int = 0
    """Whose stream to draw from."""
    json: bool = False
    """Machine-readable."""


@dataclass(frozen=True)
class ListArgs:
    """Lists what there is."""

    json: bool = False
    """Machine-readable."""


@dataclass(frozen=True)
class PresetsArgs:
    """The presets of all families, or all that those of one family say."""

    family: tyro.conf.Positional[str] = ""
    """Whose settings to show."""
    json: bool = False
    """Machine-readable."""


def families(args: Sequence[str]) -> int:
    """Lists the families, or draws tasks of one."""
    asked: FamiliesArgs = parse(FamiliesArgs, args, "families")
    if asked.tasks < 1 or asked.seed < 0:
        raise UserError(f"tasks is {asked.tasks} and seed {asked.seed}; need 1 or more, and 0 or more")
    if asked.show is not None:
        draw_tasks(asked.show, asked.seed, asked.tasks, terminal())
        return 0
    facts = []
    for name in FAMILIES:
        kind = family_type(name)
        budget = preset_table(name)["paper"]
        facts.append({"name": name, "summary": kind.summary, **_size(kind)} | {part: budget[part] for part in BUDGET})
    if not asked.json:  # narrow enough for a terminal
        facts = [
            {
                "name": fact["name"],
                "what": fact["summary"],
                "sees, does": f"{fact['observation']}, {fact['action']}",
                "budget": " x ".join(str(fact[part]) for part in BUDGET),
            }
            for fact in facts
        ]
    _show(facts, asked.json)
    return 0


def _size(kind: type[Family]) -> dict[str, str]:
    """How large observations and actions are, if what the family needs is installed."""
    try:
        spec = kind().spec
    except UserError as error:
        return {"observation": str(error), "action": ""}
    if isinstance(spec, FiniteSpec):
        return {"observation": f"{spec.states} states", "action": f"1 of {spec.actions}"}
    return {"observation": f"{spec.obs_dim} reals", "action": f"{len(spec.low)} reals"}


def draw_tasks(name: str, seed: int, tasks: int, console: Console) -> None:
    """Pictures of the first tasks of a family's stream."""
    family = family_type(name)()
    for task in family.tasks(Key.of(seed).fold("stream"), tasks):
        console.print(f"{name}, seed {seed}, task {task.index + 1}")
        console.print(family.draw(task) + "\n", markup=False)


def methods(args: Sequence[str]) -> int:
    """Lists the methods."""
    asked: ListArgs = parse(ListArgs, args, "methods")
    _show([{"name": name, "summary": method.summary} for name, method in METHODS.items()], asked.json)
    return 0


def presets(args: Sequence[str]) -> int:
    """Lists the presets of every family; of one family also what they set, for its own method and for others."""
    asked: PresetsArgs = parse(PresetsArgs, args, "presets")
    if asked.family and asked.family not in FAMILIES:
        raise unknown("family", asked.family, FAMILIES)
    facts = [fact for family in ([asked.family] if asked.family else FAMILIES) for fact in _presets(family)]
    if asked.json:
        _show(facts, as_json=True)
    elif asked.family:
        console = terminal()
        for fact in facts:
            size = ", ".join(f"{fact[part]} {part}" for part in BUDGET)
            console.print(f"{fact['preset']}, {fact['method']}: {size}")
            console.print("".join(f"    {flag}\n" for flag in _flags(fact["other settings"])), markup=False)
    else:
        _show(_overview(facts), as_json=False)
        terminal().print("What they set: posterity presets FAMILY")
    return 0


def _presets(family: str) -> list[dict[str, Any]]:
    """A line for every preset and method it has settings for."""
    facts = []
    for preset, settings in preset_table(family).items():
        table = dict(settings)
        others = table.pop("methods", {})
        own = {name: value for name, value in table.items() if name != "agent"}
        for method, given in {default_method(family): table, **{name: own | others[name] for name in others}}.items():
            other = {name: value for name, value in given.items() if name not in BUDGET}
            facts.append(
                {"family": family, "preset": preset, "method": method}
                | {part: given[part] for part in BUDGET}
                | {"other settings": other}
            )
    return facts


def _overview(facts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for every preset: its budget, and which methods have settings of their own in it."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for fact in facts:
        budget = " x ".join(str(fact[part]) for part in BUDGET)
        place = (fact["family"], fact["preset"])
        line = lines.setdefault(place, {"family": place[0], "preset": place[1], AMOUNT: budget, "settings for": ""})
        line["settings for"] += f"{', ' if line['settings for'] else ''}{fact['method']}"
    return list(lines.values())


def _flags(table: dict[str, Any], before: str = "") -> list[str]:
    """Nested settings as the flags that would set them."""
    flags: list[str] = []
    for name, value in table.items():
        flag = f"{before}{name}".replace("_", "-")
        if isinstance(value, dict):
            flags += _flags(value, "" if name == "agent" else f"{before}{name}.")
        elif isinstance(value, bool):
            *inside, last = flag.rsplit(".", 1)
            flags.append("--" + ".".join([*inside, last if value else f"no-{last}"]))
        else:
            flags.append(f"--{flag} {' '.join(map(str, value)) if isinstance(value, list) else value}")
    return flags


def _show(facts: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(list(facts), indent=1))
        return
    table = Table()
    for name, value in facts[0].items():
        number = isinstance(value, int | float)
        table.add_column(
            name, justify="right" if number else "left", no_wrap=name in ("name", "family", "preset", "budget")
        )
    for fact in facts:
        table.add_row(*(str(value) for value in fact.values()))
    Terminal().print(table)

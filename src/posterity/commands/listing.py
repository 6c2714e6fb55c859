"""`posterity families | methods | presets`: what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from posterity.agents import METHODS
from posterity.commands.arguments import Terminal, parse, terminal
from posterity.errors import UserError
from posterity.experiment.config import default_method, preset_table
from posterity.families import FAMILIES, family_type
from posterity.families.base import Family
from posterity.types import FiniteSpec, Key

BUDGET = ("tasks", "iterations", "steps")


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
    """Lists the presets of every family, and what other methods than its own change in them."""
    asked: ListArgs = parse(ListArgs, args, "presets")
    facts = []
    for family in FAMILIES:
        for preset, settings in preset_table(family).items():
            table = dict(settings)
            others = table.pop("methods", {})
            own = {name: value for name, value in table.items() if name != "agent"}
            for method, given in {
                default_method(family): table,
                **{name: own | others[name] for name in others},
            }.items():
                other = {name: value for name, value in given.items() if name not in BUDGET}
                facts.append(
                    {"family": family, "preset": preset, "method": method}
                    | {part: given[part] for part in BUDGET}
                    | {"other settings": other if asked.json else _flat(other)}
                )
    _show(facts, asked.json)
    return 0


def _flat(table: dict[str, Any], before: str = "") -> str:
    """Nested settings as the flags that would set them."""
    parts = [
        _flat(value, "" if name == "agent" else f"{before}{name}.")
        if isinstance(value, dict)
        else f"{before}{name} {value}"
        for name, value in table.items()
    ]
    return ", ".join(parts)


def _show(facts: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(list(facts), indent=1))
        return
    table = Table()
    for name, value in facts[0].items():
        number = isinstance(value, int | float)
        table.add_column(name, justify="right" if number else "left", no_wrap=name in ("name", "family", "budget"))
    for fact in facts:
        table.add_row(*(str(value) for value in fact.values()))
    Terminal().print(table)

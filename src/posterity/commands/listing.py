"""`posterity families | methods | presets`: what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from posterity.agents import METHODS
from posterity.commands.arguments import Terminal, parse, terminal
from posterity.errors import UserError
from posterity.experiment.config import RunConfig, default_method, preset_table, preset_values
from posterity.families import FAMILIES, family_name, family_type, make_family
from posterity.families.base import Family
from posterity.settings import Settings, argument, setting
from posterity.types import FiniteSpec, Key, Record

BUDGET = ("tasks", "iterations", "steps_per_iteration")
AMOUNT = " x ".join(BUDGET)


class FamiliesArgs(Settings):
    """The families of tasks."""

    show: str | None = setting(None, "Draw tasks of this family instead of listing all.")
    check: str | None = setting(
        None,
        "Check this family, one of your own as FILE.py:NAME: what varies, by how much tasks differ, what is wrong.",
    )
    tasks: int = setting(1, "How many tasks to draw, or to compare.", ge=1)
    seed: int = setting(0, "Seed of the stream to draw from.", ge=0)
    as_json: bool = setting(False, "Print JSON, for programs.", alias="json")


class ListArgs(Settings):
    """Lists what there is."""

    as_json: bool = setting(False, "Print JSON, for programs.", alias="json")


class PresetsArgs(Settings):
    """The presets of all families, or all that those of one family say."""

    family: str = argument("", "The family whose settings to show; one of your own as FILE.py:NAME or module:NAME.")
    as_json: bool = setting(False, "Print JSON, for programs.", alias="json")


def families(args: Sequence[str]) -> int:
    """Lists the families, or draws tasks of one."""
    asked = parse(FamiliesArgs, args, "families")
    if asked.check is not None:
        from posterity.commands.checking import check_family

        return check_family(asked.check, asked.seed, asked.tasks, Terminal(highlight=False))
    if asked.show is not None:
        draw_tasks(asked.show, asked.seed, asked.tasks, terminal())
        return 0
    facts = []
    for name in FAMILIES:
        kind = family_type(name)
        budget = preset_table(name)["paper"]
        facts.append({"name": name, "summary": kind.summary, **_size(kind)} | {part: budget[part] for part in BUDGET})
    if not asked.as_json:  # narrow enough for a terminal
        facts = [
            {
                "name": fact["name"],
                "what": fact["summary"],
                "sees, does": f"{fact['observation']}, {fact['action']}",
                "budget": " x ".join(str(fact[part]) for part in BUDGET),
            }
            for fact in facts
        ]
    _show(facts, asked.as_json)
    return 0


def _size(kind: type[Family]) -> dict[str, str]:
    """How large observations and actions are, if what the family needs is installed."""
    try:
        spec = kind().spec
    except UserError as error:
        return {"observation": str(error), "action": ""}
    if isinstance(spec, FiniteSpec):
        return {"observation": f"{spec.states} states", "action": f"1 of {spec.actions}"}
    action = f"1 of {spec.actions}" if spec.actions else f"{len(spec.low)} reals"
    return {"observation": f"{spec.obs_dim} reals", "action": action}


def draw_tasks(name: str, seed: int, tasks: int, console: Console) -> None:
    """Pictures of the first tasks of a family's stream."""
    family = make_family(family_name(name))
    for task in family.tasks(Key.of(seed).fold("stream"), tasks):
        console.print(f"{name}, seed {seed}, task {task.index + 1}")
        console.print(family.draw(task) + "\n", markup=False)


def methods(args: Sequence[str]) -> int:
    """Lists the methods."""
    asked = parse(ListArgs, args, "methods")
    facts = [
        {"name": name, "families": "finite" if method.finite else "real", "summary": method.summary}
        for name, method in METHODS.items()
    ]
    _show(facts, asked.as_json)
    return 0


def presets(args: Sequence[str]) -> int:
    """Lists the presets of every family; of one family also what they set, for its own method and for others."""
    asked = parse(PresetsArgs, args, "presets")
    facts = [fact for family in ([asked.family] if asked.family else FAMILIES) for fact in _presets(family)]
    if asked.as_json:
        _show(facts, as_json=True)
    elif asked.family:
        console = terminal()
        for fact in facts:
            size = ", ".join(f"{fact[part]} {part.replace('_', ' ')}" for part in BUDGET)
            console.print(f"{fact['preset']}, {fact['method']}: {size}")
            console.print("".join(f"    {flag}\n" for flag in _flags(fact["other settings"])), markup=False)
    else:
        _show(_overview(facts), as_json=False)
        terminal().print("What they set: posterity presets FAMILY")
    return 0


def _presets(family: str) -> list[Record]:
    """A line for every preset and method it has settings for."""
    facts = []
    family = family_name(family)
    for preset, table in preset_table(family).items():
        for method in (default_method(family), *table.get("methods", {})):
            given = preset_values(family, method, preset)
            budget = {part: given.pop(part, RunConfig.model_fields[part].default) for part in BUDGET}
            facts.append({"family": family, "preset": preset, "method": method, **budget, "other settings": given})
    return facts


def _overview(facts: Sequence[Record]) -> list[Record]:
    """A line for every preset: its budget, and which methods have settings of their own in it."""
    lines: dict[tuple[str, str], Record] = {}
    for fact in facts:
        budget = " x ".join(str(fact[part]) for part in BUDGET)
        place = (fact["family"], fact["preset"])
        line = lines.setdefault(place, {"family": place[0], "preset": place[1], AMOUNT: budget, "settings for": ""})
        line["settings for"] += f"{', ' if line['settings for'] else ''}{fact['method']}"
    return list(lines.values())


def _flags(table: Record, before: str = "") -> list[str]:
    """Nested settings as the flags that would set them."""
    flags: list[str] = []
    for name, value in table.items():
        flag = f"{before}{name}".replace("_", "-")
        if isinstance(value, dict):
            flags += _flags(value, "" if name == "agent" else f"{before}{name}.")
        elif isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag} {' '.join(map(str, value)) if isinstance(value, list | tuple) else value}")
    return flags


def _show(facts: Sequence[Record], as_json: bool) -> None:
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

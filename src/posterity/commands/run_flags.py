"""The flags of `posterity run`: which there are depends on the family and the method, so these are read first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from posterity.commands.arguments import TRUST, Flag, Group, flags_of, option
from posterity.errors import UserError
from posterity.experiment.config import RunConfig, resolve
from posterity.experiment.tracking import Tool
from posterity.settings import Settings, setting

TRACK = "Curves in other tools too: tensorboard, wandb, trackio. All stay on this computer unless you tell the tool."
START_HERE = "what people change first"
FIRST = (
    "family",
    "method",
    "preset",
    "tasks",
    "iterations",
    "steps-per-iteration",
    "seeds",
    "seed",
    "out",
    "time-limit",
    "from",
    "planner.horizon",
)
GENERAL = (
    "Learns a stream of tasks. The other settings depend on the family and the method, and the defaults on the preset. "
    "See them with: posterity run FAMILY [--method METHOD] [--preset PRESET] --help"
)


class RunArgs(Settings):
    """Where to and how long to run."""

    out: Path | None = setting(None, "Folder of the run; if not given, the next free one in runs/.")
    time_limit: str | None = setting(None, "Stop cleanly after this long: 90s, 25m, 1.5h.")
    source: Path | None = setting(
        None,
        "Begin with what another run has learned: its folder. Settings and method are then that run's.",
        alias="from",
    )
    trust: bool = setting(False, f"With --from: {TRUST[0].lower()}{TRUST[1:]}")
    track: tuple[Tool, ...] = setting((), TRACK)


def common_flags() -> list[Flag]:
    """The flags that every run has."""
    return [*flags_of(RunConfig), *flags_of(RunArgs)]


def family_first(args: Sequence[str]) -> list[str]:
    """The arguments with the family in front; none at all, if help is asked for before a family.

    Before the family only flags that every run has can be read, since the family decides which others there are.
    """
    takes_value: dict[str, bool] = {}
    for flag in common_flags():
        takes_value[f"--{flag.name}"] = not flag.boolean
        if flag.boolean:
            takes_value[f"--no-{flag.name}"] = False
    index = 0
    while index < len(args) and args[index].startswith("-"):
        word, equals, _ = args[index].partition("=")
        if word in ("-h", "--help"):
            return []
        if word not in takes_value:
            raise UserError(f"Write the family before '{word}': posterity run FAMILY {word} ...")
        index += 2 if takes_value[word] and not equals else 1
    if index >= len(args):
        raise UserError("Which family? For example: posterity run item-search. All of them: posterity families")
    return [args[index], *args[:index], *args[index + 1 :]]


def starting_point(args: Sequence[str]) -> RunConfig:
    """The configuration before any other flag is read. `args` begin with the family."""
    if source := option(args, "--from"):
        from posterity.experiment.source import open_source, starting_config

        opened = open_source(Path(source), "--trust" in args)
        return starting_config(opened, args[0], option(args, "--method"), option(args, "--preset"))
    preset = option(args, "--preset") or RunConfig.model_fields["preset"].default
    return resolve(args[0], option(args, "--method"), preset)


def general_groups() -> list[Group]:
    """The flags that can be told without a family. Their defaults cannot."""
    flags = [flag._replace(default=None) for flag in common_flags()]
    return [
        Group(START_HERE, "", [flag for flag in flags if flag.name in FIRST]),
        Group("run", "", [flag for flag in flags if flag.name not in FIRST]),
    ]


def run_groups(config: RunConfig) -> list[Group]:
    """The flags of a run: those that people change first, then the others by what they are about."""
    agent, method = type(config.agent), f"method {config.method}"
    about = {START_HERE: "", "run": "", method: _about(agent)}
    about |= {name: _about(field.annotation) for name, field in agent.model_fields.items()}
    about["environment"] = _about(type(config.env))
    groups: dict[str, list[Flag]] = {title: [] for title in about}
    names: set[str] = set()
    for flag in [*flags_of(type(config), config), *flags_of(RunArgs)]:
        if flag.name in names:
            raise UserError(f"Method '{config.method}' and the run both have a setting '{flag.name}': rename its own")
        names.add(flag.name)
        if flag.name in FIRST:
            title = START_HERE
        elif flag.place[0] == "agent":
            title = flag.place[1] if len(flag.place) > 2 else method
        else:
            title = "environment" if flag.place[0] == "env" else "run"
        groups[title].append(flag)
    groups[START_HERE].sort(key=lambda flag: FIRST.index(flag.name))
    return [Group(title, about[title], flags) for title, flags in groups.items() if flags]


def _about(kind: object) -> str:
    """What a class of settings is about, in the words of its docstring."""
    return (kind.__doc__ or "").strip() if isinstance(kind, type) and issubclass(kind, Settings) else ""

"""Command-line arguments to checked settings, with every complaint in one line.

Every field of a `Settings` model is a flag: `planner.horizon` is `--planner.horizon 20`, a tuple is
`--network.hidden 64 64`, a boolean is `--normalise` or `--no-normalise`. argparse only tells flags from words and
writes the help; what a word means is the business of pydantic, which checks presets and configuration files too.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from rich.console import Console

from posterity.errors import UserError, did_you_mean, printable
from posterity.experiment.config import Place, invalid
from posterity.settings import Settings
from posterity.types import Record

Form = TypeVar("Form", bound=Settings)
TRUST = "Let a run that was not begun here by you execute the code that it names as its family or method."
METAVARS: dict[object, str] = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
WIDTH, COLUMN = 100, 30  # of help: its greatest width, and where the help lines begin


class Flag(NamedTuple):
    """One setting on the command line."""

    place: tuple[str, ...]  # the names that lead to it in the settings
    field: FieldInfo
    default: object  # what the help says it is, if it is not given; None: nothing to say

    @property
    def name(self) -> str:
        """As it is typed, without dashes. The settings of an agent are named without `agent`."""
        return spelled(self.place)

    @property
    def positional(self) -> bool:
        """Whether it is a plain word."""
        return isinstance(self.field.json_schema_extra, dict) and "positional" in self.field.json_schema_extra

    @property
    def boolean(self) -> bool:
        """Whether it stands alone: `--name` or `--no-name`."""
        return self.field.annotation is bool


class Group(NamedTuple):
    """Flags under one title of the help."""

    title: str
    about: str
    flags: Sequence[Flag]


def parse(form: type[Form], args: Sequence[str], command: str) -> Form:
    """The arguments as a `form`, whose fields are the options. `--help` prints and leaves."""
    flags = list(flags_of(form))
    values = read([Group("options", "", flags)], args, command, (form.__doc__ or "").strip())
    try:
        return form.model_validate(values)
    except ValidationError as error:
        raise invalid(error, lambda place: shown(place, flags)) from error


def flags_of(kind: type[Settings], values: Settings | None = None, place: tuple[str, ...] = ()) -> Iterator[Flag]:
    """A flag for every field of `kind` and of the settings nested in it. `values`: the defaults, if not its own."""
    given = {} if values is None else dict(values)
    for name, field in kind.model_fields.items():
        inner, here = field.annotation, (*place, field.alias or name)
        if isinstance(inner, type) and issubclass(inner, Settings):
            yield from flags_of(inner, given.get(name), here)
        else:
            yield Flag(here, field, given.get(name, None if field.is_required() else field.default))


def read(groups: Sequence[Group], args: Sequence[str], command: str, about: str) -> Record:
    """The settings that `args` give, nested as in the settings, as words still."""
    flags = [flag for group in groups for flag in group.flags]
    needed = [flag.name.upper() for flag in flags if flag.positional and flag.field.is_required()]
    see = f"See: {' '.join(['posterity', command, *needed])} --help"
    if "-h" in args or "--help" in args:
        print(help_page(groups, command, about))
        raise SystemExit(0)
    parsed, left = _parser(groups, command, about, words=False).parse_known_args(list(args))
    stray = next((word.partition("=")[0] for word in left if word.startswith("-")), None)
    if stray is not None:
        near = did_you_mean(stray, [f"--{flag.name}" for flag in flags if not flag.positional])
        raise UserError(f"Unknown option '{stray}'.{near} {see}")
    values: Record = {}
    for place, value in vars(parsed).items():
        *tables, name = place.split("/")
        table = values
        for part in tables:
            table = table.setdefault(part, {})
        table[name] = value
    for flag in flags:
        if flag.positional and left:
            values[flag.place[0]] = left.copy() if _is_tuple(flag) else left[0]
            left = [] if _is_tuple(flag) else left[1:]
    if left:
        raise UserError(f"Unexpected argument '{left[0]}'. {see}")
    return values


def help_page(groups: Sequence[Group], command: str, about: str) -> str:
    """What `--help` prints."""
    return _parser(groups, command, about, words=True).format_help().rstrip()


def spelled(place: Place) -> str:
    """A place in the settings as it is typed, without dashes."""
    names = [name for name in place if isinstance(name, str)]  # numbers are places in a tuple
    return ".".join(names[1:] if names[:1] == ["agent"] else names).replace("_", "-")


def shown(place: Place, flags: Sequence[Flag]) -> str:
    """How a complaint names a place in the settings."""
    for flag in flags:
        if flag.name == spelled(place):
            return flag.name.upper() if flag.positional else f"--{flag.name}"
    return spelled(place)


def option(args: Sequence[str], name: str) -> str | None:
    """What `--name` is given among raw arguments, before they are parsed."""
    found = [arg.partition("=")[2] for arg in args if arg.startswith(f"{name}=")]
    found += [value for arg, value in pairwise(args) if arg == name]
    if len(found) > 1:
        raise UserError(f"{name} is given {len(found)} times")
    return found[0] if found else None


def seconds(text: str | None) -> float | None:
    """A duration: 90, 90s, 25m, 1.5h."""
    if text is None:
        return None
    units: dict[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        value = float(number) * unit
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise UserError(f"'{text}' is not a time. Write seconds, minutes or hours: 90s, 25m, 1.5h")
    return value


def span(text: str) -> tuple[int, int | None]:
    """A range of tasks counted from 1: 51-300, 51-, 7."""
    first, dash, last = text.partition("-")
    try:
        low = int(first)
        high = (int(last) if last else None) if dash else low
    except ValueError:
        low, high = 0, None
    if low < 1 or (high is not None and high < low):
        raise UserError(f"'{text}' is not a range of tasks. Write for example 51-300, or 51- for all from 51 on")
    return low, high


def typed(command: str, args: Sequence[str]) -> str:
    """The command as it was typed, for the record."""
    return shlex.join(["posterity", command, *args])


class Terminal(Console):
    """Where commands write, as it is: names are no markup. A reader that leaves, as `head` does, silences it."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Text without what could steer a terminal: names in a run folder may be anybody's."""
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **options)

    def on_broken_pipe(self) -> None:
        """Writes nowhere from now on."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def terminal() -> Console:
    """For lines, which are not wrapped."""
    return Terminal(highlight=False, soft_wrap=True, markup=False)


class _Formatter(argparse.HelpFormatter):
    """Breaks no line at a hyphen: `item-search` is one word."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    """Complains by an exception, and takes every negative number for a value."""

    def __init__(self, command: str, usage: str, about: str) -> None:
        def formatter(prog: str) -> argparse.HelpFormatter:
            width = min(WIDTH, shutil.get_terminal_size().columns)
            return _Formatter(prog, max_help_position=COLUMN, width=width)

        given = {"argument_default": argparse.SUPPRESS, "formatter_class": formatter}
        super().__init__(command, usage, about, add_help=False, allow_abbrev=False, **given)
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf|nan)")  # argparse's own stumbles over -1e-5

    def error(self, message: str) -> NoReturn:
        """One line instead of the usage."""
        raise UserError(message.removeprefix("argument "))


def _parser(groups: Sequence[Group], command: str, about: str, words: bool) -> _Parser:
    """For help with the plain words; for parsing without, since argparse leaves over what is no flag, in order."""
    plain = [flag for group in groups for flag in group.flags if flag.positional]
    usage = " ".join(["posterity", command, *(_word(flag) for flag in plain), "[options]"])
    parser = _Parser(command, usage.replace("%", "%%"), about)
    if words and plain:
        arguments = parser.add_argument_group("arguments")
        for flag in plain:
            arguments.add_argument(flag.name.upper(), help=_help(flag))
    for group in groups:
        section = parser.add_argument_group(group.title, group.about or None)
        for flag in group.flags:
            if not flag.positional:
                section.add_argument(f"--{flag.name}", dest="/".join(flag.place), help=_help(flag), **_kind(flag))
    return parser


def _kind(flag: Flag) -> Record:
    """How many words a flag takes, and what they are called."""
    if flag.boolean:
        return {"action": argparse.BooleanOptionalAction}
    if _is_tuple(flag):
        return {"nargs": "*", "metavar": _metavar(get_args(flag.field.annotation)[0])}
    return {"metavar": _metavar(flag.field.annotation)}


def _metavar(annotation: object) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    if isinstance(annotation, UnionType) or get_origin(annotation) is Annotated:  # X | None, or X with bounds
        return _metavar(get_args(annotation)[0])
    return METAVARS.get(annotation, "TEXT")


def _is_tuple(flag: Flag) -> bool:
    return get_origin(flag.field.annotation) is tuple


def _word(flag: Flag) -> str:
    """A plain word in the usage."""
    name = flag.name.upper()
    return f"{name} [{name} ...]" if _is_tuple(flag) else name if flag.field.is_required() else f"[{name}]"


def _help(flag: Flag) -> str:
    """The help line, with the default in brackets where there is one to speak of."""
    line, default = flag.field.description or "", flag.default
    if isinstance(default, bool):
        line += " [yes]" if default else " [no]"
    elif isinstance(default, tuple):
        line += f" [{' '.join(map(str, default)) or 'none'}]"
    elif default is not None and not flag.positional:
        line += f" [{default}]"
    return line.replace("%", "%%")

"""Command-line arguments to typed values, with every complaint in one line."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import tyro
from pydantic import ValidationError
from rich.console import Console

from posterity.errors import UserError, unknown
from posterity.experiment.config import invalid


def parse(form: Any, args: Sequence[str], command: str, default: Any = None) -> Any:
    """The arguments as a `form`, a class whose fields are the options. `--help` prints and leaves."""
    given = {} if default is None else {"default": default}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            value, left = tyro.cli(
                form, prog=f"posterity {command}", args=list(args), return_unknown_args=True, **given
            )
    except SystemExit as leaving:
        if leaving.code in (0, None):
            raise
        raise UserError(_first_sentence(complaint.getvalue())) from None
    except ValidationError as error:
        raise invalid(error) from error
    if left:
        stray = left[0].partition("=")[0]
        if stray.startswith("-"):
            raise unknown("option", stray, _options(form, given))
        raise UserError(f"Unexpected argument '{stray}'. See: posterity {command} --help")
    return value


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
    """Where commands write. A reader that leaves, as `head` does, silences it; the work goes on."""

    def on_broken_pipe(self) -> None:
        """Writes nowhere from now on."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def terminal() -> Console:
    """For lines, which are not wrapped."""
    return Terminal(highlight=False, soft_wrap=True)


def _options(form: Any, given: dict[str, Any]) -> set[str]:
    """The flags that the help of `form` names."""
    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        tyro.cli(form, args=["--help"], **given)
    return set(re.findall(r"(?<![\w-])--[a-z][\w.-]*", page.getvalue()))


def _first_sentence(box: str) -> str:
    """What tyro's framed message says above its first rule."""
    lines = [line.strip(" │") for line in box.splitlines()[1:] if not line.startswith("╰")]
    until = next((index for index, line in enumerate(lines) if re.fullmatch("─+", line)), len(lines))
    said = " ".join(lines[:until])
    inner = re.search(r"config\.(\S+): \d+ validation errors? for \w+ (\S+) (.*?) \[type=\w+, input_value=(.*?),", said)
    together = re.search(r"validation errors? for \w+ Value error, (.*?) \[type=", said)
    if together is not None:  # settings that do not go together
        return f"Settings: {together.group(1)}"
    if inner is not None:  # pydantic's complaint about a nested setting
        table, name, why, value = inner.groups()
        return f"Setting '{table}.{name}': {why[0].lower()}{why[1:]}, not {value}"
    return said or "These arguments cannot be read"

"""Settings: frozen, checked, and each with a line of help.

Whatever a run or a command can be told is a field of a `Settings` model. The command line makes a flag of each field,
presets are TOML tables of the same names, and a name that is not a field is refused.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Base of all settings: immutable; unknown names, NaN and infinity are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NoSettings(Settings):
    """A family or a method that has nothing to set."""


def setting(default: Any, help_line: str, **bounds: Any) -> Any:
    """A field with its default (`...` if there is none), its help line and its bounds (`ge`, `gt`, `le`, `lt`)."""
    return Field(default, description=help_line, **bounds)


def argument(default: Any, help_line: str) -> Any:
    """A field that stands on the command line as a plain word, without a flag."""
    return Field(default, description=help_line, json_schema_extra={"positional": True})

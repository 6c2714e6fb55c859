"""Classes by name: `module:Class`, imported only when it is asked for.

Families and methods of one's own are named so on the command line. Their module may lie in the present folder.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from abc import ABC
from pathlib import Path
from typing import TypeVar

from posterity.errors import UserError

Base = TypeVar("Base", bound=ABC)


def load_class(what: str, path: str, base: type[Base]) -> type[Base]:
    """The subclass of `base` that `path` names. `what` begins the sentence that says why it cannot be had."""
    module, _, attribute = path.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever a module of the user's own does while it is imported
        said = " ".join(f"{type(error).__name__}, {error}".split())
        raise UserError(f"{what} cannot be loaded: {said}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(f"{what} is not a subclass of {base.__module__}.{base.__name__}")
    if inspect.isabstract(found):
        lacking = sorted(vars(found)["__abstractmethods__"])
        raise UserError(f"{what} is not whole: it lacks {', '.join(lacking)}")
    return found

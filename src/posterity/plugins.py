"""Classes and objects by name, loaded only when they are asked for.

    module:Class        from an installed package or the present folder
    path/file.py:name   from a file, wherever it lies

Families and methods of one's own are named so on the command line.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from abc import ABC
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from posterity.errors import UserError, did_you_mean

Base = TypeVar("Base", bound=ABC)
_FILES: dict[Path, tuple[str, ModuleType]] = {}  # what was loaded from a file, with the digest of its text


def load_class(what: str, path: str, base: type[Base]) -> type[Base]:
    """The subclass of `base` that `path` names. `what` begins the sentence that says why it cannot be had."""
    found = load(what, path, base)
    if not isinstance(found, type):
        raise UserError(f"{what} is an object, not a subclass of {base.__module__}.{base.__name__}")
    return found


def load(what: str, path: str, base: type[Base]) -> type[Base] | Base:
    """The subclass or the instance of `base` that `path` names."""
    place, _, name = path.rpartition(":")
    module = _module(what, place)
    if name not in vars(module):
        there = [each for each, value in vars(module).items() if _is_a(value, base) and not _imported(value, module)]
        lists = f"It has: {', '.join(there)}" if there else f"Nothing in it is a {base.__name__}"
        raise UserError(f"{what} cannot be loaded: {place} has no '{name}'.{did_you_mean(name, there)} {lists}")
    found = vars(module)[name]
    if not _is_a(found, base):
        raise UserError(
            f"{what} is not a subclass of {base.__module__}.{base.__name__}, nor an object of one, but {kind(found)}"
        )
    if inspect.isabstract(found):
        lacking = sorted(vars(found)["__abstractmethods__"])
        raise UserError(f"{what} is not whole: it lacks {', '.join(lacking)}")
    return found


def kind(value: object) -> str:
    """What a value is, for a sentence that says what is wrong with it."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def said(error: BaseException) -> str:
    """What was raised, in one line."""
    words = " ".join(str(error).split())
    return words if isinstance(error, UserError) else f"{type(error).__name__}, {words}"


@contextmanager
def failing(what: str) -> Generator[None]:
    """Whatever what is the user's own raises becomes one line that begins with `what`; the error stays attached."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{what}: {said(error)}") from error


def _module(what: str, place: str) -> ModuleType:
    """The module of this name, or of this file."""
    if not place.endswith(".py") and ("/" in place or place.startswith(".")):
        raise UserError(
            f"{what} cannot be loaded: {place} is no module. A file is named with its ending: {place}.py:NAME"
        )
    if not place.endswith(".py") and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return _from_file(Path(place).resolve()) if place.endswith(".py") else importlib.import_module(place)
    except FileNotFoundError as error:
        raise UserError(f"{what} cannot be loaded: there is no file {error.filename}") from error
    except ModuleNotFoundError as error:
        if error.name != place.partition(".")[0]:
            raise UserError(f"{what} cannot be loaded: {said(error)}") from error
        raise UserError(
            f"{what} cannot be loaded: there is no module '{place}' in {Path.cwd()} or among the installed packages. "
            f"From another folder name the file: path/to/{place.replace('.', '/')}.py:NAME"
        ) from error
    except (Exception, SystemExit) as error:  # whatever a module of the user's own does while it is imported
        raise UserError(f"{what} cannot be loaded: {said(error)}") from error


def _from_file(file: Path) -> ModuleType:
    """What a file defines; loaded again only if its text has changed. What lies beside it can be imported by it."""
    now = digest(file)
    if file in _FILES and _FILES[file][0] == now:
        return _FILES[file][1]
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _FILES[file] = now, module
    return module


def _is_a(value: object, base: type[Base]) -> bool:
    return isinstance(value, base) or (isinstance(value, type) and issubclass(value, base))


def _imported(value: object, module: ModuleType) -> bool:
    """Whether a class only was imported into a module."""
    return isinstance(value, type) and value.__module__ != module.__name__

"""What a sweep is: families x methods x seeds, as a table of cells, each of which is one ordinary run.

    families = ["item-search", "random-mdp"]
    methods = ["blrl", "boss", { method = "blrl", name = "psrl", settings = { agent = { explorer = "psrl" } } }]
    seeds = 4
    settings = { tasks = 20 }

A sweep is told in a TOML file, by flags, or by the name of a file that lies in this package.
"""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, NamedTuple

import tomli_w
from pydantic import ValidationError

from posterity.errors import UserError, unknown
from posterity.experiment.config import RunConfig, invalid, merged, resolve
from posterity.families import family_name, family_type
from posterity.families.lookup import origin
from posterity.settings import Settings, setting
from posterity.types import Facts, Record

BackVariant = Literal["auto", "confidence", "blend", "task-only", "world-only"]
RESERVED = ("family", "method", "preset", "seed", "seeds")  # what `settings` may not have: the sweep has it itself


class Arm(Settings):
    """One method of a sweep, where it is to have another preset than the sweep's or settings of its own."""

    method: str = setting(..., "The learner.")
    name: str = setting("", "What the table calls it; if not given, the method, and the preset where it has its own.")
    preset: str | None = setting(None, "The preset; if not given, the sweep's.")
    settings: Record = setting({}, "Settings of a run: tasks, iterations, agent, env and so on.")

    @property
    def called(self) -> str:
        """Its name in the table and among the folders."""
        return self.name or slug(self.method) + (f"-{self.preset}" if self.preset else "")


class Sweep(Settings):
    """What is to be run. Who runs it, and where, is not part of it."""

    families: tuple[str, ...] = setting(..., "The families of tasks.", min_length=1)
    methods: tuple[str | Arm, ...] = setting((), "The learners; if none is named, each family's default.")
    preset: str = setting("quick", "The settings to start from.")
    seeds: int = setting(1, "Seeds of every family and method.", ge=1, le=10_000)
    seed: int = setting(0, "The first of them.", ge=0)
    lanes: int = setting(0, "Seeds of one cell, learned side by side; 0: one for finite families, else all.", ge=0)
    evaluate: bool = setting(False, "Evaluate every cell when it is done.")
    episodes: int = setting(3, "Episodes of each task and score in the evaluation.", ge=1)
    back_variants: tuple[BackVariant, ...] = setting(
        ("auto",), "How the evaluation plays Back, of methods that have several ways.", min_length=1
    )
    back_every: int = setting(0, "Play Back after every so many tasks too; 0: only after the last task.", ge=0)
    settings: Record = setting({}, "Settings of every run: tasks, iterations, agent, env and so on.")
    home: str = setting("", "Folder from which methods of one's own (FILE.py:Class) are found; noted by the command.")
    origins: dict[str, str] = setting({}, "The files of families of one's own; noted by the command.")

    @property
    def arms(self) -> list[Arm]:
        """The methods, each with what it has of its own."""
        return [arm if isinstance(arm, Arm) else Arm(method=arm) for arm in self.methods]


class Cell(NamedTuple):
    """One run of a sweep."""

    name: str  # FAMILY/METHOD/SEEDS, and its folder below cells/
    config: RunConfig

    @property
    def group(self) -> str:
        """What it shares with the cells of other seeds."""
        return group_of(self.name)


def group_of(name: str) -> str:
    """Family and method of the cell `name`."""
    return name.rpartition("/")[0]


def groups_of(sweep: Sweep) -> list[str]:
    """FAMILY/METHOD of all cells, in the order in which the sweep names families and methods."""
    families = [slug(family_name(family)) for family in sweep.families]
    return [f"{family}/{arm.called}" for family in families for arm in sweep.arms]


def cells_of(sweep: Sweep) -> list[Cell]:
    """All cells: the first seeds of every family and method come first, so that a part of the sweep tells something."""
    arms, names = sweep.arms or [None], [arm.called for arm in sweep.arms]
    if len({*names}) < len(names) or len({*sweep.families}) < len(sweep.families):
        twice = next(name for name in [*names, *sweep.families] if [*names, *sweep.families].count(name) > 1)
        raise UserError(f"'{twice}' is there twice. Give one of them another name: {{ method = ..., name = ... }}")
    end, found = sweep.seed + sweep.seeds, list[Cell]()
    for family in sweep.families:
        lanes = sweep.lanes or (1 if family_type(family).finite else sweep.seeds)
        firsts = range(sweep.seed, end, lanes)
        found += [_cell(sweep, family, arm, first, min(lanes, end - first)) for arm in arms for first in firsts]
    return sorted(found, key=lambda cell: cell.config.seed)


def _cell(sweep: Sweep, family: str, arm: Arm | None, first: int, seeds: int) -> Cell:
    changes = merged(sweep.settings, arm.settings if arm else {})
    for name in RESERVED:
        if name in changes:
            raise UserError(f"'{name}' does not belong into settings: it is the sweep's own, one level above")
    preset = arm.preset if arm and arm.preset else sweep.preset
    try:
        config = resolve(family, arm and arm.method, preset, {**changes, "seed": first, "seeds": seeds})
    except UserError as error:
        raise UserError(f"{family} {arm.called if arm else ''}: {error}".replace(" :", ":")) from error
    if sweep.evaluate and not config.snapshots:
        raise UserError(
            f"{config.family}, preset {preset}, saves no snapshots to evaluate: set settings.snapshots = true"
        )
    which = f"seed-{first}" if seeds == 1 else f"seeds-{first}-{first + seeds - 1}"
    return Cell(f"{slug(config.family)}/{arm.called if arm else slug(config.method)}/{which}", config)


def located(sweep: Sweep) -> Sweep:
    """The sweep with the places of families and methods of one's own, which its workers have to find."""
    names = [family_name(family) for family in sweep.families]
    origins = {name: found["family_file"] for name in names if (found := origin(name))}
    own = origins or any(":" in arm.method for arm in sweep.arms)
    return sweep.model_copy(update={"home": str(Path.cwd()) if own else "", "origins": origins})


def slug(name: str) -> str:
    """A name as part of a path: `my_family.py:grid` is my_family-grid."""
    return re.sub(r"(\.py)?:|[^\w.-]+", "-", name).strip("-.")


def packaged() -> list[str]:
    """The sweeps that lie in this package."""
    return sorted(file.name.removesuffix(".toml") for file in _files().iterdir() if file.name.endswith(".toml"))


def read_sweep(word: str) -> Record:
    """The table in the file `word`, or in the packaged file of that name, not checked yet."""
    if word in packaged():
        return tomllib.loads((_files() / f"{word}.toml").read_text(encoding="utf-8"))
    if not word.endswith(".toml") and ("/" in word or Path(word).exists()):
        raise UserError(f"{word} holds no sweep (no sweep.toml)")
    if not word.endswith(".toml"):
        raise UserError(
            f"{unknown('sweep', word, packaged())}; or FILE.toml, the folder of a sweep, status, stop, cell, publish"
        )
    try:
        return tomllib.loads(Path(word).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"There is no file {word}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{word} is not TOML: {error}") from error


def checked_sweep(values: Facts, source: str = "") -> Sweep:
    """A table as a sweep, or the first thing that is wrong with it in one line. `source` names it in errors."""
    try:
        return Sweep.model_validate(values)
    except ValidationError as error:
        said = str(invalid(error))
        if error.errors()[0]["type"] == "extra_forbidden" and len(error.errors()[0]["loc"]) == 1:
            known = ", ".join(Sweep.model_fields)
            said += f" A sweep has: {known}. Settings of the runs belong into the table `settings`"
        raise UserError(f"{source}: {said}" if source else said) from error


def to_toml(sweep: Sweep) -> str:
    """The sweep as a file that can be read back."""
    return tomli_w.dumps(sweep.model_dump(mode="json", exclude_none=True))


def _files() -> Traversable:
    return resources.files("posterity.experiment.sweep").joinpath("files")

"""Where a run begins that goes on from another: `posterity run FAMILY --from RUN`.

The new run has a folder, tasks and records of its own. Its agent begins as the other's was when it last saved. So the
method, its settings and the number of lanes are the other run's. The family may be another one with the same spec.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity import tree
from posterity.errors import UserError
from posterity.experiment.checkpoint import Position
from posterity.experiment.config import RunConfig, checked, config_type, default_method, preset_table, preset_values
from posterity.experiment.folder import RunFolder, read_config, with_tasks
from posterity.experiment.run import build, check, load_state
from posterity.families import family_type
from posterity.types import FiniteSpec, Key, Spec

MAY_DIFFER = ("max_episode_steps", "alive", "min_scale")  # between the specs of two families


class Source(NamedTuple):
    """A run to begin from."""

    folder: RunFolder
    config: RunConfig
    position: Position

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.folder.path


def open_source(path: Path, trusted: bool = False) -> Source:
    """The run in folder `path`, if it can be begun from. `trusted`: code that it names may be executed."""
    config, folder = read_config(path, trusted=trusted), RunFolder(path)
    if not folder.checkpoint.exists():
        raise UserError(f"{path} has no checkpoint to begin from")
    position = folder.position()
    folder.check_config(position)
    if position.met == 0:
        raise UserError(f"{path} has learned nothing yet; there is nothing to begin from")
    return Source(folder, config, position)


def starting_config(source: Source, family: str, method: str | None, preset: str | None) -> RunConfig:
    """What a run of `family` that begins from `source` is set to, before any other setting is changed.

    Seeds are the ones after the source's: with the same seeds a family would give the same tasks once more.
    """
    old = source.config
    if method not in (None, old.method):
        raise UserError(
            f"{source.path} is a run of {old.method}, and only {old.method} can go on from it, not {method}"
        )
    if preset not in (None, old.preset):
        raise UserError(f"--from takes the settings of {source.path}; leave --preset out")
    values = {**old.model_dump(), "family": family, "seed": old.seed + old.seeds}
    if family != old.family:
        known = old.preset if old.preset in preset_table(family) else "quick"
        values["env"] = preset_values(family, default_method(family), known).get("env", {})
    return checked(config_type(family, old.method), values)


def checked_source(path: Path, config: RunConfig, trusted: bool = False) -> Source:
    """The run in folder `path`. Refused, in one line, if a run of `config` cannot begin from it."""
    source = open_source(path, trusted)
    old = source.config
    if config.method != old.method or config.agent.model_dump() != old.agent.model_dump():
        raise UserError(
            f"--from goes on with the learner of {source.path}: the settings of {old.method} stay as they are"
        )
    if config.seeds != old.seeds:
        raise UserError(f"{source.path} has {old.seeds} learners, so --seeds is {old.seeds} too")
    for name in ("iterations", "steps_per_iteration"):
        had, has = old.model_dump()[name], config.model_dump()[name]
        if has < had:
            raise UserError(f"--{name.replace('_', '-')} is {has}, and cannot be less than in {source.path}, {had}")
    other, own = (family_type(each.family)(each.env).spec for each in (old, config))
    if difference := _difference(other, own):
        raise UserError(f"{config.family} and {old.family} have different specs: they differ in {difference}")
    return source


def check_more_tasks(path: Path, tasks: int, trusted: bool = False) -> None:
    """Refuses a number of tasks that the run in folder `path` cannot go on to, before anything is changed."""
    config = with_tasks(read_config(path, trusted=trusted), tasks, path)
    check(config, RunFolder(path).position().earlier)


def begin_from(source: Source, config: RunConfig) -> Callable[[RunFolder], None]:
    """What saves the source's state as the first checkpoint of a new run."""

    def begin(folder: RunFolder) -> None:
        _, agent = build(config, source.position.met)
        fresh = agent.init([Key.of(config.seed + lane).fold("init") for lane in range(config.seeds)])
        state, _ = load_state(source.folder, agent, fresh, grow=True)
        folder.save(state, Position(tasks=config.tasks, earlier=source.position.met), agent.task_memory)
        folder.describe({"from": str(source.path), "tasks_before": str(source.position.met)})

    return begin


def _difference(one: Spec | FiniteSpec, other: Spec | FiniteSpec) -> str:
    """The first field in which two specs differ; empty if they are the same."""
    if type(one) is not type(other):
        return "kind"
    for name, part in one._asdict().items():
        mine, theirs = (dict(tree.leaves(each)) for each in (part, other._asdict()[name]))
        same = mine.keys() == theirs.keys() and all(
            np.array_equal(np.asarray(leaf), np.asarray(theirs[place])) for place, leaf in mine.items()
        )
        if not same and name not in MAY_DIFFER:
            return name
    return ""

"""`posterity families --check`: what a family of one's own is, how much its tasks differ, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from posterity.experiment.config import resolve
from posterity.families import FAMILIES, compare, contract, family_name, make_family
from posterity.families.base import Family, FiniteFamily
from posterity.families.compare import Difference
from posterity.families.estimate import box_words
from posterity.families.lookup import origin
from posterity.types import FiniteSpec, Key, Spec, Task

FEWEST = 8  # tasks to compare


def check_family(typed: str, seed: int, count: int, console: Console) -> int:
    """Prints all there is to say. Exit code 1 if the family can be run but will teach nothing; faults are errors."""
    name = family_name(typed)
    family = make_family(name)
    file = origin(name)
    console.print(f"{name}" + (f", {file['family_file']}" if file else ""), markup=False)
    spec = contract.checked_spec(family)
    console.print(_spec_words(spec), markup=False)
    tasks = max(count, FEWEST)
    notes = contract.check(family, tasks, seed)
    stream = family.tasks(Key.of(seed).fold("stream"), tasks)
    odd, wrong = _compared(family, stream, console)
    took = compare.step_microseconds(family, stream[0])
    console.print(f"A step of the environment takes {took:.0f} microseconds.")
    if name not in FAMILIES and not family.finite:
        config = resolve(name, None, "quick")
        size = f"{config.tasks} tasks x {config.iterations} iterations x {config.steps_per_iteration} steps"
        console.print(f"Preset quick: {size}. Its settings: posterity presets {typed}", markup=False)
    for note in [*notes, *odd]:
        console.print(f"Note: {note}", markup=False)
    for fault in wrong:
        console.print(f"Wrong: {fault}", markup=False)
    if not wrong:
        console.print(f"Nothing is wrong. Learn it with: posterity run {typed}", markup=False)
    return 1 if wrong else 0


def _compared(family: Family, tasks: Sequence[Task], console: Console) -> tuple[list[str], list[str]]:
    """Prints by how much tasks differ; what is odd about it, and what is wrong."""
    if isinstance(family, FiniteFamily):
        moves, rewards = compare.finite_differences(family, tasks)
        console.print(
            f"\nAgainst the first task, {moves:.0%} of the pairs of state and action lead elsewhere in others,"
        )
        console.print(f"and {rewards:.0%} have another reward.")
        return [], [] if moves or rewards else ["all tasks are the same"]
    found = compare.differences(family, tasks)
    console.print(
        f"\nThe same start and the same random actions in {len(tasks)} tasks. After so many steps observations"
    )
    console.print("differ between tasks by this share of how much they move at all:")
    console.print(_table(found, family.drawn_from()))
    return _odd(found), _faults(found)


def _spec_words(spec: Spec | FiniteSpec) -> str:
    """What all tasks have in common."""
    if isinstance(spec, FiniteSpec):
        return f"{spec.states} states, {spec.actions} actions, episodes of at most {spec.max_episode_steps} steps"
    many = "s" if len(spec.low) > 1 else ""
    bounds = np.unique(np.stack([spec.low, spec.high]), axis=1)
    ranges = ", ".join(f"[{low:g}, {high:g}]" for low, high in bounds.T)
    actions = f"{spec.actions} discrete actions" if spec.actions else f"{len(spec.low)} action{many} in {ranges}"
    words = f"{spec.obs_dim} observations, {actions}, episodes of at most {spec.max_episode_steps} steps"
    return f"{words}; {_end_words(spec)}"


def _end_words(spec: Spec) -> str:
    """When episodes end, as far as plans know."""
    if spec.terminated is not None:
        return "when they end before is known (terminated=)"
    if spec.learn_termination:
        return "when they end before is learned"
    return (
        f"as far as plans know, they end {'never before' if spec.alive is None else f'outside {box_words(spec.alive)}'}"
    )


def _table(found: list[Difference], drawn: dict[str, str]) -> Table:
    table = Table()
    moments = [moment for moment in compare.MOMENTS if all(moment in each.parted for each in found)]
    table.add_column("varies", overflow="fold")  # a narrow terminal breaks words, never numbers
    table.add_column("drawn from", overflow="fold")
    table.add_column("drawn", no_wrap=True)
    for moment in moments:
        table.add_column(f"{moment} step{'s' * (moment > 1)}", justify="right")
    table.add_column("reward", justify="right", no_wrap=True)
    for each in found:
        ends = "" if each.least == "" else f"{each.least:.3g} to {each.greatest:.3g}"
        parted = [f"{each.parted[moment]:.0%}" if each.parted[moment] >= 0.005 else "-" for moment in moments]
        table.add_row(
            each.name, drawn.get(each.name, ""), ends, *parted, f"{each.rewards[0]:.3g} ± {each.rewards[1]:.2g}"
        )
    return table


def _odd(found: list[Difference]) -> list[str]:
    """What will be hard to learn."""
    return [
        f"tasks that differ in '{each.name}' differ by less than {compare.LITTLE:.0%}; try a wider distribution"
        for each in found
        if compare.NONE <= max(each.parted.values(), default=0.0) < compare.LITTLE
    ]


def _faults(found: list[Difference]) -> list[str]:
    """What can be run but makes no sense."""
    faults: list[str] = []
    for each in found:
        if max(each.parted.values(), default=0.0) < compare.NONE and each.rewards[1] < compare.NONE:
            faults.append(f"tasks that differ in '{each.name}' are the same: it changes nothing")
        if not each.same_start:
            faults.append(f"the same seed begins elsewhere in tasks that differ in '{each.name}'")
    return faults

"""`posterity bench SUBJECT`: how fast this machine is, and what the doubt of a model is worth."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from posterity.commands.arguments import Terminal, parse
from posterity.errors import UserError, unknown
from posterity.experiment import bench as measure
from posterity.experiment.config import RunConfig, resolve
from posterity.experiment.folder import session
from posterity.settings import Settings, setting
from posterity.types import Record


class BenchArgs(Settings):
    """Times plans, gradient steps, environment steps or the whole loop of a family at a preset's sizes."""

    family: str = setting("pendulum-gravity", "The family whose sizes to measure; one of your own as FILE.py:NAME.")
    preset: str = setting("quick", "The settings that give the sizes: quick, paper or best.")
    lanes: tuple[Annotated[int, Field(ge=1)], ...] = setting(
        (1,), "Learners side by side; several numbers are measured one after the other.", min_length=1
    )
    iterations: int = setting(5, "Iterations to measure, for `bench run`.", ge=1)
    machine: Path | None = setting(None, "A file that `posterity export` wrote, for `bench control`.")
    steps: int = setting(500, "Actions at each rate, for `bench control`.", ge=10)
    episodes: int = setting(5, "Episodes with each budget, for `bench control`.", ge=1)
    as_json: bool = setting(False, "Print JSON, for programs.", alias="json")


SUBJECTS = {
    "planner": "milliseconds an action: plain, fused and backward, and TFLOP/s beside those of one large product",
    "fit": "microseconds a gradient step",
    "env": "environment steps a second, and microseconds for a step of all lanes",
    "control": "latency of a controller at 50 and 100 Hz, and its return against its budget of time",
    "uncertainty": "error, coverage and doubt of each kind of posterior: with data, out of distribution, in a new task",
    "run": "seconds an iteration of the whole loop, and what a whole run would take",
}


def bench(args: Sequence[str]) -> int:
    """One of the subjects."""
    if not args or args[0] in ("-h", "--help"):
        print("usage: posterity bench SUBJECT [options]    posterity bench SUBJECT --help\n")
        print("\n".join(f"  {name:<11} {what}" for name, what in SUBJECTS.items()))
        return 0
    subject = args[0]
    if subject not in SUBJECTS:
        raise unknown("subject", subject, SUBJECTS)
    asked = parse(BenchArgs, args[1:], f"bench {subject}")
    facts: list[Record] = []
    for lanes in asked.lanes:
        facts += [_rounded(each) for each in _measure(subject, asked, lanes)]
    place = {"subject": subject, **_place(asked)}
    if asked.as_json:
        record = session("posterity bench " + " ".join(args))
        print(json.dumps({**place, "measured": facts, "session": record}, indent=1))
    else:
        print(", ".join(place.values()))
        if subject == "uncertainty":
            _show_doubt(facts)
            return 0
        for each in facts:
            print("\n" + "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in each.items()))
    return 0


def _place(asked: BenchArgs) -> dict[str, str]:
    """Whose sizes these are: a file's own family and method, or the family and preset that were asked for."""
    if asked.machine is None:
        return {"family": asked.family, "preset": asked.preset}
    from posterity.control.machine import read_machine

    header = read_machine(asked.machine).header
    return {"family": header.family, "method": header.method}


def _measure(subject: str, asked: BenchArgs, lanes: int) -> list[Record]:
    if subject == "control":
        return _control(asked)
    if subject == "run":
        return measure.bench_run(resolve(asked.family, None, asked.preset, {"seeds": lanes}), asked.iterations)
    config = resolve(asked.family, None, asked.preset, {"tasks": 1, "iterations": 2, "seeds": lanes})
    if subject == "uncertainty":
        from posterity.experiment.uncertainty import bench_uncertainty

        return bench_uncertainty(config)
    subjects: dict[str, Callable[[RunConfig], list[Record]]] = {
        "planner": measure.bench_planner,
        "fit": measure.bench_fit,
        "env": measure.bench_env,
    }
    return subjects[subject](config)


def _show_doubt(facts: list[Record]) -> None:
    from posterity.report.doubt import sheet

    terminal = Terminal()
    terminal.print(sheet(facts).terminal(terminal.width))


def _control(asked: BenchArgs) -> list[Record]:
    if asked.machine is None:
        raise UserError("Which machine? For example: posterity bench control --machine machine.posterity")
    from posterity.control.bench import bench_control
    from posterity.control.controller import Controller

    with Controller.load(asked.machine) as controller:
        controller.warm_up()
        return bench_control(controller, asked.steps, asked.episodes)


def _rounded(facts: Record) -> Record:
    return {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in facts.items()}

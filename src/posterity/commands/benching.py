"""`posterity bench planner | fit | env`: how fast this machine is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from posterity.commands.arguments import parse
from posterity.errors import unknown
from posterity.experiment import bench as measure
from posterity.experiment.config import RunConfig, resolve
from posterity.experiment.record import session


@dataclass(frozen=True)
class BenchArgs:
    """Times plans, gradient steps or environment steps of a family at a preset's sizes."""

    family: str = "pendulum-gravity"
    """Whose sizes."""
    preset: str = "quick"
    """quick, paper or best."""
    lanes: int = 1
    """Learners in lock-step."""
    json: bool = False
    """Machine-readable."""


SUBJECTS: dict[str, tuple[Callable[[RunConfig], dict[str, Any]], str]] = {
    "planner": (measure.bench_planner, "milliseconds an action"),
    "fit": (measure.bench_fit, "microseconds a gradient step"),
    "env": (measure.bench_env, "environment steps a second"),
}


def bench(args: Sequence[str]) -> int:
    """One of the three."""
    if not args or args[0] in ("-h", "--help"):
        print("usage: posterity bench SUBJECT [options]    posterity bench SUBJECT --help\n")
        print("\n".join(f"  {name:<8} {what}" for name, (_, what) in SUBJECTS.items()))
        return 0
    if args[0] not in SUBJECTS:
        raise unknown("subject", args[0], SUBJECTS)
    asked: BenchArgs = parse(BenchArgs, args[1:], f"bench {args[0]}")
    config = resolve(asked.family, None, asked.preset, {"tasks": 1, "iterations": 2, "seeds": asked.lanes})
    facts = {"subject": args[0], "family": asked.family, "preset": asked.preset, **SUBJECTS[args[0]][0](config)}
    facts = {name: round(value, 3) if isinstance(value, float) else value for name, value in facts.items()}
    if asked.json:
        print(json.dumps(facts | {"session": session("posterity bench " + " ".join(args))}, indent=1))
    else:
        print("\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()))
    return 0

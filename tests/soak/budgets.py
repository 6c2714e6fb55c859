"""How a command that a page prints is made small enough to be tried. The rule that printed.py goes by.

    run        no setting is above its ceiling below, whether a preset or the page sets it; a time limit is a second, so
               that there is something to resume; nothing else is changed
    resume     at most three tasks
    evaluate   one episode; films of a run have tasks 1 and 2, those of a machine file one task
    report     of a small run: all of its tasks, where the page asks for later ones
    sweep      one seed, two tasks of two iterations, one worker; of one for the paper one cell, that of a
             policy gradient where it has one; another is not evaluated
    theory     transfer with two tasks and two seeds
    bench      one lane of a pendulum whose sizes are the ceilings (`FAMILY`), one iteration, ten steps at each rate
    serve      at any free port

A program of results/ or tests/ gets the fewest cases that it takes.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from posterity.commands.run_flags import family_first, run_groups, starting_point
from posterity.experiment.sweep.plan import Arm, packaged, read_sweep

TASKS = 2  # of a run
CEILINGS = {
    "tasks": TASKS,
    "iterations": 2,
    "steps-per-iteration": 20,
    "seeds": 1,
    "env.max-episode-steps": 20,
    "planner.horizon": 4,
    "planner.candidates": 8,
    "planner.elites": 2,
    "planner.cem-iterations": 1,
    "planner.particles": 2,
    "learner.gradient-steps": 3,
    "learner.world-batch-size": 8,
    "learner.task-batch-size": 16,
    "value.gradient-steps": 3,
    "value.epochs": 1,
    "policy.updates-per-step": 1,
    "updates-per-step": 1,
    "task-min-transitions": 20,
    "world-iterations": 1,
    "members": 2,
    "latent.size": 2,
    "latent.transitions": 16,
    "network.hidden": 8,
    "value.hidden": 8,
    "hidden": 8,
}
FAMILY = """
import posterity

planner = {"horizon": 4, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2}
agent = {"planner": planner, "learner": {"gradient_steps": 3}, "network": {"hidden": (8, 8)}}
budget = {"tasks": 2, "iterations": 2, "steps_per_iteration": 20, "agent": agent}
vary = {"g": posterity.uniform(5, 15)}
family = posterity.Family.from_gymnasium("Pendulum-v1", vary=vary, max_episode_steps=20, budget=budget)
"""
PROGRAMS = {  # a program, and what it is told instead
    "results/scaling/long_stream.py": ["vblrl", "12"],
    "tests/soak/fuzz.py": ["--cases", "8"],
    "tests/soak/kills.py": ["--kills", "1", "--methods", "blrl"],
}


def tiny(words: Sequence[str]) -> list[str]:
    """The words after `posterity`, with a small budget. Called in the folder that the command is for."""
    rule = RULES.get(words[0])
    return list(words) if rule is None or "--help" in words else rule(list(words))


def given(words: Sequence[str], name: str) -> list[str]:
    """The values of `--name`; none, if it is not there."""
    for place, word in enumerate(words):
        if word == f"--{name}":
            values: list[str] = []
            for each in words[place + 1 :]:
                if each.startswith("--"):
                    break
                values.append(each)
            return values
        if word.startswith(f"--{name}="):
            return [word.partition("=")[2]]
    return []


def put(words: list[str], name: str, *values: str) -> list[str]:
    """The words with other values for `--name`. Plain words come before all flags."""
    if f"--{name}" in words:
        place = words.index(f"--{name}") + 1
        return [*words[:place], *values, *words[place + len(given(words, name)) :]]
    left = [word for word in words if not word.startswith(f"--{name}=")]
    return [*left, f"--{name}", *values]


def _run(words: list[str]) -> list[str]:
    args = family_first(words[1:])
    if not args:
        return words
    for flag in (flag for group in run_groups(starting_point(args)) for flag in group.flags):
        if flag.name not in CEILINGS:
            continue
        preset = flag.default if isinstance(flag.default, tuple) else [flag.default]
        values = [int(str(each)) for each in given(args, flag.name) or preset]
        own = flag.name == "env.max-episode-steps" and values == [0]  # the environment's own
        small = [CEILINGS[flag.name] if own else min(value, CEILINGS[flag.name]) for value in values]
        if small != values:
            args = put(args, flag.name, *map(str, small))
            if flag.name == "seeds" and (first := given(args, "seed")):  # other runs have the seeds before it
                args = put(args, "seed", str(int(first[0]) * small[0] // values[0]))
    if given(args, "time-limit"):
        args = put(args, "time-limit", "1s")
    return ["run", *args]


def _resume(words: list[str]) -> list[str]:
    return put(words, "tasks", str(TASKS + 1)) if given(words, "tasks") else words


def _evaluate(words: list[str]) -> list[str]:
    if "--video" not in words:
        words = put(words, "episodes", "1")
    if tasks := given(words, "tasks"):
        run = Path(words[1]).is_dir()
        words = put(words, "tasks", *([str(min(int(task), TASKS)) for task in tasks] if run else tasks[:1]))
    return words


def _report(words: list[str]) -> list[str]:
    asked = given(words, "tasks")
    late = asked and int(re.split("-", asked[0])[0]) > TASKS
    return put(words, "tasks", "1-") if late and words[1].startswith("runs/") else words


def _sweep(words: list[str]) -> list[str]:
    if words[1] in ("status", "stop", "cell", "publish"):
        return words
    words = put(words, "workers", "1")
    if Path(words[1]).is_dir():  # which has its settings
        return words
    for name, value in {"seeds": 1, "tasks": TASKS, "iterations": 2}.items():
        words = put(words, name, str(value))
    if words[1] in packaged():
        values = read_sweep(words[1])
        names = [each if isinstance(each, str) else Arm.model_validate(each).called for each in values["methods"]]
        light = next((name for name in ("npg", "lpg-ftw") if name in names), "")
        cell = {"families": values["families"][0], "methods": light or names[0], "preset": "quick"}
        for name, text in {**cell, "steps-per-iteration": "40", "episodes": "1"}.items():
            words = put(words, name, text)
        words += [] if light else ["--no-evaluate"]  # whole episodes of a planner take minutes
    return words


def _theory(words: list[str]) -> list[str]:
    return put(put(words, "tasks", "2"), "seeds", "2") if words[1] == "transfer" else words


def _bench(words: list[str]) -> list[str]:
    if words[1] == "control":
        return [*words, "--steps", "10", "--episodes", "1"]
    for name, value in {"family": "small.py:family", "preset": "quick", "lanes": "1", "iterations": "1"}.items():
        words = put(words, name, value)
    return words


def _demo(words: list[str]) -> list[str]:
    return [*words, "--tasks", "2", "--seeds", "1", "--goals", "0", "--pendulums", "0"]


def _serve(words: list[str]) -> list[str]:
    return put(words, "port", "0")


RULES: dict[str, Callable[[list[str]], list[str]]] = {
    "run": _run,
    "resume": _resume,
    "evaluate": _evaluate,
    "report": _report,
    "sweep": _sweep,
    "theory": _theory,
    "bench": _bench,
    "demo": _demo,
    "serve": _serve,
}

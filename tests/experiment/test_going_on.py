"""Going on: a run that is given more tasks, and a run that begins with what another has learned."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import posterity
from posterity.agents import METHODS
from posterity.cli import main
from posterity.errors import UserError
from posterity.experiment.config import resolve
from posterity.experiment.folder import RunFolder
from posterity.experiment.source import begin_from, open_source, starting_config

GRADIENT = {"hidden": [4], "value": {"hidden": [8], "batch_size": 4}, "damping": 0.1}
# The same as in the other tests of short runs on the pendulum, so that what is compiled is compiled once.
PLANNED = {
    "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
    "learner": {"gradient_steps": 3, "task_batch_size": 8, "world_batch_size": 4},
    "network": {"hidden": [8, 8]},
    "task_min_transitions": 8,
    "world_iterations": 1,
}
AGENT: dict[str, dict[str, Any]] = {
    "vblrl": PLANNED,
    "hip-mdp": {**PLANNED, "latent": {"size": 2, "transitions": 8}},
    "actor-critic": {"updates_per_step": 1, "hidden": (8,), "transfer": True, "noise": "pink", "trial_iterations": 2},
    "npg": GRADIENT,
    "ewc": GRADIENT,
    "lpg-ftw": GRADIENT | {"columns": 2},
}
SAME_ROOM = ("single-task", "pooled")  # their state, and so the room in it, is vblrl's
FINITE: dict[str, Any] = {"iterations": 2, "seeds": 2}


def settings(method: str) -> tuple[str, dict[str, Any]]:
    """A family for a method, and a short run of it."""
    if METHODS[method].finite:
        return "random-mdp", {**FINITE, "snapshots": True}
    budget = {"iterations": 2, "steps_per_iteration": 8, "seeds": 2, "env": {"max_episode_steps": 8}}
    return "pendulum-gravity", {**budget, "agent": AGENT[method]}


def records(path: Path) -> list[dict[str, Any]]:
    """All records without the clock."""
    lines = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall_seconds"} for line in lines]


def snapshots(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (path / "checkpoints").glob("task-*")}


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a run of a method with five tasks, made when it is first asked for. Room for tasks is what programs
    are compiled for, so that the runs here have three or five wherever it does not matter."""

    @cache
    def run(method: str) -> Path:
        family, changes = settings(method)
        path = tmp_path_factory.mktemp(method) / "five"
        posterity.run(family, method=method, out=path, tasks=5, **changes)
        return path

    return run


@pytest.mark.parametrize("method", [name for name in METHODS if name not in SAME_ROOM])
def test_three_tasks_and_then_two_more_are_the_records_of_five(
    method: str, five: Callable[[str], Path], tmp_path: Path
):
    """Exactly, snapshots and the memory of tasks included: room for more tasks changes no number."""
    family, changes = settings(method)
    whole = five(method)
    posterity.run(family, method=method, out=tmp_path / "run", tasks=3, **changes)
    three = records(tmp_path / "run")
    run = posterity.resume(tmp_path / "run", tasks=5)
    assert run.returns.shape[1] == 5
    assert records(tmp_path / "run")[: len(three)] == three
    assert records(tmp_path / "run") == records(whole)
    if method != "hip-mdp":
        assert snapshots(tmp_path / "run") == snapshots(whole)
    else:  # its first snapshots have a place for the latents of three tasks: what is played with them is the same
        one, other = (posterity.evaluate(path, scores=("back",), episodes=1) for path in (tmp_path / "run", whole))
        assert {name: str(score) for name, score in one.items()} == {name: str(score) for name, score in other.items()}


def test_a_run_stopped_in_a_task_can_be_given_more_tasks(iterate, five: Callable[[str], Path], tmp_path: Path):
    family, changes = settings("vblrl")
    config = resolve(family, "vblrl", "quick", {**changes, "tasks": 3})
    folder = RunFolder.create(tmp_path / "run", config, "test")
    assert iterate(config, folder, 3).reason == "enough"
    folder.close()
    posterity.resume(tmp_path / "run", tasks=5)
    assert records(tmp_path / "run") == records(five("vblrl"))


def test_the_folder_says_how_many_tasks_there_are_now_and_by_which_command(tmp_path: Path):
    posterity.run("item-search", out=tmp_path / "run", tasks=2, **FINITE)
    assert main(["resume", str(tmp_path / "run"), "--tasks", "3"]) == 0
    assert "tasks = 3\n" in (tmp_path / "run" / "config.toml").read_text()
    sessions = json.loads((tmp_path / "run" / "versions.json").read_text())["sessions"]
    assert sessions[-1]["command"] == f"posterity resume {tmp_path / 'run'} --tasks 3"


def test_a_finished_run_says_how_to_meet_more(tmp_path: Path, capfd):
    posterity.run("item-search", out=tmp_path / "run", tasks=2, **FINITE)
    before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir() if file.is_file()}
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert f"posterity resume {tmp_path / 'run'} --tasks 3" in capfd.readouterr().out
    assert {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir() if file.is_file()} == before


def test_tasks_that_a_run_cannot_have_are_refused_and_nothing_is_changed(tmp_path: Path):
    posterity.run("random-mdp", out=tmp_path / "run", tasks=3, **FINITE)
    before = (tmp_path / "run" / "config.toml").read_bytes()
    with pytest.raises(UserError, match="can add to them, not take away"):
        posterity.resume(tmp_path / "run", tasks=2)
    assert (tmp_path / "run" / "config.toml").read_bytes() == before
    assert posterity.resume(tmp_path / "run", tasks=3).returns.shape[1] == 3


def test_a_run_killed_right_after_it_was_given_tasks_goes_on_to_them(tmp_path: Path):
    posterity.run("random-mdp", out=tmp_path / "whole", tasks=4, **FINITE)
    posterity.run("random-mdp", out=tmp_path / "run", tasks=2, **FINITE)
    folder, config = RunFolder.reopen(tmp_path / "run", "test", tasks=4)
    assert config.tasks == 4
    folder.close()  # before anything else
    posterity.resume(tmp_path / "run")
    assert records(tmp_path / "run") == records(tmp_path / "whole")


# From another run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vblrl", "lpg-ftw", "blrl"])
def test_a_run_begins_with_what_another_has_learned_and_can_be_resumed(iterate, method: str, tmp_path: Path):
    """Its tasks are new ones, counted from the first. It can be made again, and given more tasks.

    The other was stopped after its first task, with room for three as in other tests here.
    """
    family, changes = settings(method)
    config = resolve(family, method, "quick", {**changes, "tasks": 3})
    folder = RunFolder.create(tmp_path / "first", config, "test")
    iterate(config, folder, 2)
    folder.close()
    posterity.run(family, source=tmp_path / "first", out=tmp_path / "second", tasks=2)
    lines = records(tmp_path / "second")
    assert {line["task"] for line in lines[1:]} == {0, 1}
    assert {line["seed"] for line in lines[1:]} == {2, 3}
    assert (
        main(["run", family, "--from", str(tmp_path / "first"), "--tasks", "2", "--out", str(tmp_path / "third")]) == 0
    )
    assert records(tmp_path / "third") == lines
    third = posterity.resume(tmp_path / "third", tasks=4)
    assert records(tmp_path / "third")[: len(lines)] == lines
    assert np.isfinite(third.returns).all()


@pytest.mark.parametrize("method", ["blrl", "ewc"])
def test_the_first_checkpoint_is_the_other_runs_state_with_room_for_more_tasks(method: str, tmp_path: Path):
    family, changes = settings(method)
    posterity.run(family, method=method, out=tmp_path / "first", tasks=2, **changes)
    source = open_source(tmp_path / "first")
    config = starting_config(source, family, None, None)
    RunFolder.create(tmp_path / "second", config, "test", begin_from(source, config)).close()
    kept, new = (load_file(tmp_path / name / "checkpoints" / "state.safetensors") for name in ("first", "second"))
    assert kept.keys() == new.keys()
    for name, array in kept.items():
        np.testing.assert_array_equal(new[name][tuple(slice(size) for size in array.shape)], array, err_msg=name)
    position = RunFolder(tmp_path / "second").position()
    assert (position.task, position.earlier, position.tasks) == (0, 2, 2)


@pytest.mark.parametrize(("method", "iterations"), [("vblrl", 2), ("actor-critic", 3)])
def test_a_run_stopped_in_a_task_can_be_begun_from(iterate, method: str, iterations: int, tmp_path: Path):
    """Also by one with longer tasks."""
    family, changes = settings(method)
    config = resolve(family, method, "quick", {**changes, "tasks": 3})
    folder = RunFolder.create(tmp_path / "run", config, "test")
    iterate(config, folder, 3)
    folder.close()
    posterity.run(family, source=tmp_path / "run", out=tmp_path / "next", tasks=3, iterations=iterations)
    names = {file.name for file in (tmp_path / "next" / "checkpoints").iterdir()}
    assert {"earlier-0000-rows.safetensors", "earlier-0001-rows.safetensors", "task-0000-rows.safetensors"} <= names
    last = json.loads((tmp_path / "next" / "versions.json").read_text())["sessions"][-1]
    assert last["from"] == str(tmp_path / "run")
    assert last["tasks_before"] == "2"


def test_another_family_with_the_same_spec_can_be_gone_on_to_and_others_cannot(tmp_path: Path):
    changes = {"tasks": 1, "iterations": 1, "steps_per_iteration": 6, "agent": GRADIENT}
    posterity.run("hopper-gravity", method="npg", out=tmp_path / "run", **changes)
    other = posterity.run("hopper-bodyparts", source=tmp_path / "run", out=tmp_path / "other", tasks=1)
    assert other.family == "hopper-bodyparts"
    with pytest.raises(UserError, match="different specs: they differ in obs_dim"):
        posterity.run("cheetah-gravity", source=tmp_path / "run", out=tmp_path / "none", tasks=1)
    assert not (tmp_path / "none").exists()


def test_what_the_learner_cannot_change_is_refused_in_one_line(tmp_path: Path, capfd):
    posterity.run("random-mdp", out=tmp_path / "run", tasks=2, **FINITE)
    wrong = {
        "--method boss": "only blrl can go on from it",
        "--preset paper": "leave --preset out",
        "--seeds 3": "so --seeds is 2 too",
        "--models 7": "the settings of blrl stay as they are",
        "--iterations 1": "cannot be less than in",
    }
    for flags, said in wrong.items():
        words = ["run", "random-mdp", "--from", str(tmp_path / "run"), "--out", str(tmp_path / "new"), *flags.split()]
        assert main(words) == 2
        error = capfd.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
        assert not (tmp_path / "new").exists()

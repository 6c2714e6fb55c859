"""A run folder: what is in it from the beginning, and when it can be gone on with. No agent is needed for that."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment import session as session_module
from posterity.experiment.checkpoint import Position
from posterity.experiment.config import RunConfig, resolve
from posterity.experiment.folder import RunFolder, read_config
from posterity.experiment.records import HEADER, read_records, read_run, read_sessions
from posterity.experiment.session import session


class State(NamedTuple):
    """A state of two lanes."""

    weights: np.ndarray


STATE = State(np.zeros(2))


@pytest.fixture
def config() -> RunConfig:
    return resolve("item-search", "blrl", "quick", {"tasks": 2, "iterations": 2, "seeds": 2})


@pytest.fixture
def run(tmp_path: Path, config: RunConfig) -> Iterator[RunFolder]:
    made = RunFolder.create(tmp_path / "run", config, "posterity run item-search")
    yield made
    made.close()


def iterate(run: RunFolder, iteration: int) -> None:
    """One iteration of both seeds in the first task."""
    for seed in (0, 1):
        place = {"seed": seed, "task": 0, "iteration": iteration, "steps": 20}
        run.write("iteration", **place, **{"return": 1 / 3, "episodes": 1}, wall_seconds=1.0)


def test_the_header_is_there_before_anything_else(run: RunFolder):
    assert (run.path / "records.jsonl").read_bytes() == HEADER
    assert not run.checkpoint.exists()
    run.save(STATE, Position(), "")
    assert run.position().records == len(HEADER)


def test_what_is_written_can_be_read(run: RunFolder):
    for seed in (0, 1):
        run.write("task", seed=seed, task=0, name="first", factors={"place": 0.12345678901})
    iterate(run, 0)
    task, _, *iterations = read_records(run.path)
    assert task["factors"] == {"place": 0.12345678901}
    assert [line["return"] for line in iterations] == [0.333333, 0.333333]
    assert read_run(run.path).returns[0, 0, 0] == 0.333333


def test_lines_after_the_checkpoint_are_cut_off(run: RunFolder):
    iterate(run, 0)
    run.save(STATE, Position(0, 1), "")
    before = run.records.read_bytes()
    iterate(run, 1)
    run.close()
    again, _ = RunFolder.reopen(run.path, "posterity resume")
    assert run.records.read_bytes() == before
    iterate(again, 1)
    again.close()
    assert len(read_records(run.path)) == 4
    assert [each["command"] for each in read_sessions(run.path)] == ["posterity run item-search", "posterity resume"]


@pytest.mark.parametrize("left", [HEADER, HEADER[:7], b""])
def test_a_run_that_was_killed_before_its_first_checkpoint_can_be_gone_on_with(run: RunFolder, left: bytes):
    run.close()
    run.records.write_bytes(left)
    again, _ = RunFolder.reopen(run.path, "test")
    again.close()
    assert run.records.read_bytes() == HEADER


def test_without_its_checkpoint_a_run_with_records_is_left_alone(run: RunFolder):
    iterate(run, 0)
    run.close()
    before = run.records.read_bytes()
    with pytest.raises(UserError, match="has records but no checkpoint"):
        RunFolder.reopen(run.path, "test")
    assert run.records.read_bytes() == before


def test_records_shorter_than_the_checkpoint_says_are_refused_and_left_as_they_are(run: RunFolder):
    iterate(run, 0)
    run.save(STATE, Position(0, 1), "")
    run.close()
    run.records.write_bytes(HEADER)
    for again in (lambda path: RunFolder.reopen(path, "test"), read_run):
        with pytest.raises(UserError, match="was cut"):
            again(run.path)
    assert run.records.read_bytes() == HEADER


def test_a_folder_of_another_record_format_is_refused_before_its_settings_are_read(run: RunFolder):
    run.close()
    (run.path / "config.toml").write_text('family = "item-search"\nmethod = "blrl"\nsteps = 20\n')  # as version 0.1
    run.records.write_text('{"kind": "task", "seed": 0, "task": 0}\n')
    before = {file.name: file.read_bytes() for file in run.path.iterdir() if file.is_file()}
    for again in (lambda path: RunFolder.reopen(path, "test"), read_config, read_run):
        with pytest.raises(UserError, match=r"is in record format 1 \(posterity 0.1\)") as refused:
            again(run.path)
        assert "\n" not in str(refused.value)
    assert {file.name: file.read_bytes() for file in run.path.iterdir() if file.is_file()} == before


def test_a_folder_in_use_is_refused(run: RunFolder):
    with pytest.raises(UserError, match="in use by another process"):
        RunFolder.reopen(run.path, "test")


def test_a_configuration_changed_by_hand_is_not_gone_on_with(run: RunFolder):
    run.save(STATE, Position(), "")
    run.close()
    path = run.path / "config.toml"
    path.write_text(path.read_text().replace("models = 5", "models = 7"))
    with pytest.raises(UserError, match="was changed since the checkpoint"):
        RunFolder.reopen(run.path, "test")


def test_a_finished_run_is_left_as_it_is(run: RunFolder):
    run.save(STATE, Position(2, 0), "")
    run.close()
    again, _ = RunFolder.reopen(run.path, "test")
    assert again.position().task == 2
    assert len(read_sessions(run.path)) == 1


def test_a_folder_that_holds_something_is_not_written_into(run: RunFolder, config: RunConfig, tmp_path: Path):
    run.close()
    with pytest.raises(UserError, match="is in the way"):
        RunFolder.create(run.path, config, "test")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(UserError, match="is in the way"):
        RunFolder.create(tmp_path / "mine", config, "test")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_snapshots_lie_beside_the_checkpoint_by_task_and_moment(run: RunFolder):
    run.write_snapshot(3, "start", State(np.array([1.0, 2.0])))
    path = run.snapshot_path(3, "start")
    assert path == run.path / "checkpoints" / "task-0003-start.safetensors"
    np.testing.assert_array_equal(checkpoint.load_tree(path, STATE).weights, [1.0, 2.0])
    assert not run.snapshot_path(3, "end").exists()


def test_what_an_agent_tells_of_its_engine_goes_on_record(run: RunFolder):
    run.describe({"device": "a card"})
    [only] = read_sessions(run.path)
    assert (only["device"], only["command"]) == ("a card", "posterity run item-search")
    assert {"started", "posterity", "python", "numpy", "scipy", "processor", "cores"} <= only.keys()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which a module of ours lies as this code does in its own."""
    module = tmp_path / "code" / "package" / "experiment" / "folder.py"
    module.parent.mkdir(parents=True)
    module.write_text("first = 1\n")
    git(tmp_path / "code", "init", "-q")
    git(tmp_path / "code", "add", ".")
    git(tmp_path / "code", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    monkeypatch.setattr(session_module, "__file__", str(module))
    return tmp_path / "code"


def git(place: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True).stdout.strip()


def test_a_session_names_the_commit_of_the_code_and_whether_it_was_changed(checkout: Path):
    commit = git(checkout, "rev-parse", "HEAD")
    assert session("test")["commit"] == commit
    (checkout / "notes.txt").write_text("beside the code\n")
    assert session("test")["commit"] == commit
    (checkout / "package" / "experiment" / "folder.py").write_text("first = 2\n")
    assert session("test")["commit"] == f"{commit}+"


def test_code_that_is_in_no_checkout_of_its_own_names_no_commit(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (checkout / "installed" / "package").mkdir(parents=True)
    for place in (checkout / "installed" / "package" / "folder.py", tmp_path / "folder.py"):
        place.write_text("")
        monkeypatch.setattr(session_module, "__file__", str(place))
        assert "commit" not in session("test"), "what is installed inside another checkout is not that checkout's"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(session_module, "__file__", str(checkout / "package" / "experiment" / "folder.py"))
    assert "commit" not in session("test"), "a machine without git"


def test_versions_json_is_whole_json(run: RunFolder):
    assert list(json.loads((run.path / "versions.json").read_text())) == ["sessions"]

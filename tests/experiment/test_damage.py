"""Damage is found before it does harm: in checkpoints, snapshots, records and folders that have lost a file."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posterity
from posterity.cli import main
from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment.checkpoint import Position
from posterity.experiment.config import resolve
from posterity.experiment.evaluate import Plan, evaluate
from posterity.experiment.folder import RunFolder
from posterity.report.join import join

SMALL: dict[str, Any] = {"tasks": 3, "iterations": 3, "seeds": 2, "snapshots": True}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has met two of three tasks."""
    path = tmp_path_factory.mktemp("runs") / "run"
    posterity.run("random-mdp", out=path, **{**SMALL, "tasks": 2})
    folder, _ = RunFolder.reopen(path, "test", tasks=3)
    folder.close()
    return path


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def flip(path: Path, place: int) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << (place % 8)
    path.write_bytes(bytes(content))


def look(path: Path) -> None:
    """At the place, and at the state: of whichever shape, damage is said first."""
    checkpoint.read_position(path)
    checkpoint.read(path, {"other": np.zeros(1)})


def test_no_flipped_bit_of_a_checkpoint_is_loaded(run: Path):
    """Wherever it is: in the numbers, in their names, in the place or in a checksum."""
    path = run / "checkpoints" / "state.safetensors"
    content = path.read_bytes()
    for place in [*range(0, 400, 7), *range(400, len(content), len(content) // 150)]:
        flip(path, place)
        with pytest.raises(UserError, match=r"state\.safetensors") as refused:
            look(path)
        said = str(refused.value)
        assert "another method" not in said, "damage is called so"
        assert len(said.splitlines()) == 1
        path.write_bytes(content)


def test_a_damaged_state_ends_resume_in_one_line_and_changes_nothing(run: Path, capfd):
    flip(run / "checkpoints" / "state.safetensors", (run / "checkpoints" / "state.safetensors").stat().st_size - 9)
    before = files(run)
    assert main(["resume", str(run)]) == 2
    error = capfd.readouterr().err
    assert "state.safetensors is damaged" in error
    assert len(error.splitlines()) == 1
    assert "What was saved is whole" not in error
    assert files(run) == before


def test_a_damaged_snapshot_is_named_and_not_played(run: Path):
    flip(run / "checkpoints" / "task-0001-end.safetensors", -5)
    with pytest.raises(UserError, match=r"task-0001-end\.safetensors is damaged"):
        evaluate(run, Plan(episodes=1), lambda *_: None)


def test_a_damaged_place_is_refused(run: Path):
    path = run / "checkpoints" / "state.safetensors"
    content = path.read_bytes()
    assert content.count(b"wall") == 1
    path.write_bytes(content.replace(b"wall", b"well"))
    with pytest.raises(UserError, match=r"state\.safetensors is damaged: its place in the run"):
        posterity.resume(run)


@pytest.mark.parametrize(
    ("garbage", "said"),
    [(b"\xff\xfe garbage", "line 5, is not a record"), (b"[1, 2]", "line 5, is not a record"), (b"{}", "line 5")],
)
def test_a_garbage_line_is_refused_with_its_number(run: Path, garbage: bytes, said: str):
    lines = (run / "records.jsonl").read_bytes().split(b"\n")
    lines[4] = garbage.ljust(len(lines[4]))
    (run / "records.jsonl").write_bytes(b"\n".join(lines))
    before = files(run)
    with pytest.raises(UserError, match=said):
        posterity.resume(run)
    assert files(run) == before


def test_a_changed_number_in_the_records_is_refused(run: Path):
    lines = (run / "records.jsonl").read_bytes()
    (run / "records.jsonl").write_bytes(lines.replace(b'"episodes": 1', b'"episodes": 2', 1))
    with pytest.raises(UserError, match=r"records\.jsonl was changed since the checkpoint"):
        posterity.resume(run)


@pytest.mark.parametrize("lost", ["config.toml", "config.toml and records", "config.toml and checkpoints"])
def test_a_run_into_a_folder_that_lost_its_configuration_is_refused_and_nothing_is_touched(run: Path, lost: str, capfd):
    (run / "config.toml").unlink()
    if "records" in lost:
        (run / "records.jsonl").unlink()
    if "checkpoints" in lost:
        shutil.rmtree(run / "checkpoints")
    before = files(run)
    assert main(["run", "random-mdp", "--tasks", "1", "--iterations", "1", "--seed", "5", "--out", str(run)]) == 2
    error = capfd.readouterr().err
    assert "records or checkpoints but no config.toml" in error
    assert len(error.splitlines()) == 1
    assert files(run) == before


def test_what_a_run_left_before_it_had_a_configuration_is_taken_over(tmp_path: Path):
    config = resolve("item-search", "blrl", "quick", {"tasks": 1, "iterations": 1})
    RunFolder.create(tmp_path / "run", config, "test").close()
    (tmp_path / "run" / "config.toml").unlink()
    RunFolder.create(tmp_path / "run", config, "test").close()
    assert posterity.resume(tmp_path / "run").returns.shape == (1, 1, 1)


def test_files_with_the_same_content_are_the_same_bytes(tmp_path: Path):
    """So a resumed run's files can be compared with an unbroken one's."""
    state = {"weights": np.arange(6.0), "flags": np.array([True, False]), "number": 3}
    for name in "ab":
        checkpoint.save(tmp_path / name, state, Position(1, 2, 3))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_changed_digit_of_scores_or_of_records_without_a_checkpoint_is_found(run: Path):
    evaluate(run, Plan(episodes=1, scores=("train",)), lambda *_: None)
    shutil.rmtree(run / "checkpoints")
    before = posterity.read(run)
    for name in ("records.jsonl", "evaluation/train.jsonl"):
        content = (run / name).read_bytes()
        place = content.rindex(b'"return": ') + len(b'"return": ')
        digit = content[place : place + 1]
        (run / name).write_bytes(content[:place] + (b"1" if digit != b"1" else b"2") + content[place + 1 :])
        with pytest.raises(UserError, match="was changed since it was written"):
            posterity.read(run)
        (run / name).write_bytes(content)
    assert np.array_equal(posterity.read(run).returns, before.returns, equal_nan=True)


def test_a_report_of_other_settings_than_the_checkpoints_is_refused(run: Path):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("steps_per_iteration = ", "steps_per_iteration = 1"))
    with pytest.raises(UserError, match="was changed since the checkpoint"):
        posterity.read(run)


def test_compressed_records_that_were_cut_are_refused_in_one_line(run: Path, tmp_path: Path):
    published = tmp_path / "published"
    join([run], published, compact=True)
    packed = published / "records.jsonl.xz"
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UserError, match="holds no readable run"):
        posterity.read(published)


def test_a_list_in_the_place_of_a_seed_ends_resume_in_one_line(run: Path):
    records = run / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"seed": 0', b'"seed":[]', 1))
    with pytest.raises(UserError, match="is not a record of this run"):
        RunFolder.reopen(run, "test", tasks=3)

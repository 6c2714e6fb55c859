from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment.checkpoint import Position


class Inner(NamedTuple):
    array: np.ndarray
    flag: bool


class State(NamedTuple):
    inner: Inner
    number: int
    parts: list
    table: dict


def state(scale: float = 1.0) -> State:
    inner = Inner(np.arange(6.0).reshape(2, 3).T * scale, True)
    return State(inner, 7, [np.array(True), np.zeros((0, 2))], {"x": np.array(3.5)})


def test_what_is_loaded_is_what_was_saved(tmp_path: Path):
    position = Position(3, 4, 500, 1.25)
    checkpoint.save(tmp_path / "state", state(), position)
    loaded, place = checkpoint.load(tmp_path / "state", state(0.0))
    assert place == position == checkpoint.read_position(tmp_path / "state")
    np.testing.assert_array_equal(loaded.inner.array, state().inner.array)
    assert loaded.inner.flag is True
    assert loaded.number == 7
    assert isinstance(loaded.number, int)
    assert loaded.parts[1].shape == (0, 2)
    assert loaded.table["x"] == 3.5


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "state"
    checkpoint.save(path, state(), Position(1))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(path, state(2.0), Position(2))
    assert checkpoint.read_position(path).task == 1
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_a_state_of_another_shape_is_told_apart(tmp_path: Path):
    checkpoint.save(tmp_path / "state", state(), Position())
    with pytest.raises(UserError, match="another method, size or version"):
        checkpoint.load(tmp_path / "state", {"other": np.zeros(3)})
    wider = state()._replace(parts=[np.array(True), np.zeros((1, 2))])
    with pytest.raises(UserError, match="another method, size or version"):
        checkpoint.load(tmp_path / "state", wider)


@pytest.mark.parametrize("keep", [0, 5, 100])
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path: Path, keep: int):
    path = tmp_path / "state"
    checkpoint.save(path, state(), Position())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="Cannot read the checkpoint"):
        checkpoint.load(path, state())
    with pytest.raises(UserError, match="Cannot read the checkpoint"):
        checkpoint.read_position(path)


def test_the_place_after_the_last_iteration_is_the_next_task():
    place = Position(2, 8).after(10, wall=1.0)
    assert (place.task, place.iteration) == (2, 9)
    place = place.after(10, wall=2.0)
    assert (place.task, place.iteration, place.wall) == (3, 0, 2.0)


class Memory(NamedTuple):
    rows: np.ndarray  # [L, K, C]
    filled: np.ndarray  # [L, K]


def remembering(tasks: int) -> dict:
    """Two lanes of three tasks, of which the first `tasks` hold something."""
    rows = np.arange(24.0).reshape(2, 3, 4) * (np.arange(3) < tasks)[None, :, None]
    return {"memory": Memory(rows, np.full((2, 3), 4) * (np.arange(3) < tasks)), "number": 5}


def test_a_finished_tasks_rows_are_written_once_and_come_back(tmp_path: Path):
    path = tmp_path / "state.safetensors"
    written = {}
    for place, tasks in (((0, 1), 1), ((1, 0), 1), ((1, 1), 2), ((2, 3), 3), ((3, 0), 3)):
        checkpoint.save(path, remembering(tasks), Position(*place), "memory")
        loaded, position = checkpoint.load(path, remembering(0), "memory")
        assert position[:2] == place
        np.testing.assert_array_equal(loaded["memory"].rows, remembering(tasks)["memory"].rows)
        np.testing.assert_array_equal(loaded["memory"].filled, remembering(tasks)["memory"].filled)
        for file in tmp_path.glob("*-rows.safetensors"):
            assert written.setdefault(file.name, file.stat().st_mtime_ns) == file.stat().st_mtime_ns
    assert sorted(written) == [f"task-000{task}-rows.safetensors" for task in range(3)]


def test_a_lost_file_of_a_finished_task_is_named(tmp_path: Path):
    path = tmp_path / "state.safetensors"
    checkpoint.save(path, remembering(2), Position(1), "memory")
    (tmp_path / "task-0000-rows.safetensors").unlink()
    with pytest.raises(UserError, match="task-0000-rows"):
        checkpoint.load(path, remembering(0), "memory")


def test_a_tree_by_itself_comes_back(tmp_path: Path):
    checkpoint.save_tree(tmp_path / "tree", state())
    got = checkpoint.load_tree(tmp_path / "tree", state(0.0))
    np.testing.assert_array_equal(got.inner.array, state().inner.array)

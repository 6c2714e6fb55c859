import importlib
import json
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import posterity
from posterity.cli import main
from posterity.experiment import tracking
from posterity.experiment.config import resolve
from posterity.experiment.folder import RunFolder

TINY = ["random-mdp", "--tasks", "2", "--iterations", "3", "--seeds", "2"]


def points(folder: Path, seed: int, name: str) -> list[tuple[int, float]]:
    """The (step, value) of a curve in the event files, read without the package that wrote them."""
    Event: Any = vars(importlib.import_module("tensorboardX.proto.event_pb2"))["Event"]  # noqa: N806
    found = []
    for file in sorted((folder / "tensorboard" / f"seed-{seed}").glob("events*")):
        data, place = file.read_bytes(), 0
        while place < len(data):
            (size,) = struct.unpack_from("<Q", data, place)
            event = Event.FromString(data[place + 12 : place + 12 + size])
            found += [(event.step, value.simple_value) for value in event.summary.value if value.tag == name]
            place += 16 + size
    return found


def recorded(folder: Path, seed: int) -> list[Any]:
    run = posterity.read(folder)
    returns = run.returns[list(run.seeds).index(seed)].ravel()
    steps = resolve("random-mdp", None, "quick").steps_per_iteration
    return [((number + 1) * steps, pytest.approx(value, rel=1e-5)) for number, value in enumerate(returns)]


def test_curves_of_a_run_that_was_stopped_and_resumed_are_its_records_and_no_point_is_there_twice(
    tmp_path: Path, iterate
):
    pytest.importorskip("tensorboardX")
    out = tmp_path / "run"
    config = resolve("random-mdp", None, "quick", {"tasks": 2, "iterations": 3, "seeds": 2})
    folder = RunFolder.create(out, config, "none")
    iterate(config, folder, 2)  # in a session that was not tracked
    folder.close()
    assert main(["resume", str(out), "--track", "tensorboard", "--time-limit", "0s"]) == 0
    assert points(out, 1, "return") == recorded(out, 1)[:2]
    assert main(["resume", str(out)]) == 0, "it goes on tracking without being told again"
    assert points(out, 0, "return") == recorded(out, 0)
    assert points(out, 1, "return") == recorded(out, 1)
    assert points(out, 1, "task")[-1][1] == 2


class Curves:
    """Stands in for Weights & Biases and Trackio."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.points: dict[str, list[int]] = {}
        self.finished = 0
        self.axes: list[tuple[str, str]] = []

    def init(self, **facts: Any) -> Any:
        self.begun.append(facts)
        rows = self.points.setdefault(facts["name"], [])

        def finish() -> None:
            self.finished += 1

        def define_metric(name: str, step_metric: str) -> None:
            self.axes.append((name, step_metric))

        def log(values: dict[str, float], step: int) -> None:
            assert values["environment_steps"] > 0
            rows.append(step)

        return types.SimpleNamespace(log=log, finish=finish, define_metric=define_metric)


@pytest.fixture(params=["wandb", "trackio"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Curves]]:
    curves = Curves()
    monkeypatch.setitem(sys.modules, request.param, curves)  # pyright: ignore[reportArgumentType]
    for name in tracking.QUIET:
        monkeypatch.delenv(name, raising=False)
    yield request.param, curves
    for name in tracking.QUIET:
        monkeypatch.delenv(name, raising=False)


def test_a_resumed_run_goes_on_in_the_same_curves_elsewhere_and_nothing_is_sent(tmp_path: Path, tool, monkeypatch):
    name, curves = tool
    out = tmp_path / "run"
    assert main(["run", *TINY, "--out", str(out), "--track", name]) == 0
    assert main(["resume", str(out), "--tasks", "3"]) == 0
    assert len(curves.points) == 2, "one for each seed"
    assert all(steps == list(range(9)) for steps in curves.points.values())
    assert curves.finished == 4
    assert all(each["resume"] == "allow" and each["project"] == "posterity" for each in curves.begun)
    assert tracking.os.environ["WANDB_MODE"] == "offline"
    assert curves.axes == ([("*", "environment_steps")] * 4 if name == "wandb" else [])


def test_points_that_a_killed_session_had_tracked_are_not_tracked_again(tmp_path: Path, tool, iterate):
    name, curves = tool
    out = tmp_path / "run"
    config = resolve("random-mdp", None, "quick", {"tasks": 1, "iterations": 3, "seeds": 1})
    folder = RunFolder.create(out, config, "none")
    iterate(config, folder, 1)
    folder.close()
    kept = {"tools": [name], name: {"names": {"0": "mine"}, "iteration": 1}}
    (out / tracking.KEPT).write_text(json.dumps(kept))  # two iterations were tracked, one of them was not saved
    assert main(["resume", str(out)]) == 0
    assert curves.points == {"mine": [2]}


def test_a_tool_that_is_not_there_is_one_line_before_anything_is_written(tmp_path: Path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["run", *TINY, "--out", str(tmp_path / "run"), "--track", "wandb"]) == 2
    assert capfd.readouterr().err == "posterity: --track wandb needs a package: pip install 'posterity[wandb]'\n"
    assert not (tmp_path / "run").exists()
    assert main(["run", *TINY, "--track", "tensorbord"]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "trackio" in err

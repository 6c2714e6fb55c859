"""Evaluation apart from training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posterity
from posterity.errors import UserError
from posterity.experiment.config import resolve
from posterity.experiment.evaluate import Plan, evaluate
from posterity.experiment.progress import Quiet
from posterity.experiment.record import RunFolder
from posterity.experiment.run import lifelong
from posterity.report import scores
from posterity.report.metrics import read_run

AGENT = {
    "planner": {"horizon": 4, "candidates": 12, "elites": 3, "rounds": 2, "particles": 2},
    "learner": {"world_steps": 4, "task_steps": 4, "task_rows": 8, "world_rows": 4, "world_tasks": 2},
    "network": {"hidden": [8, 8]},
    "task_minimum": 20,
    "world_iterations": 1,
}
SMALL: dict[str, Any] = {"tasks": 2, "iterations": 2, "steps": 20, "seeds": 2, "agent": AGENT, "env": {"steps": 12}}


def quiet(*_: object) -> None:
    """Says nothing."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    posterity.run("pendulum-gravity", out=path, **SMALL)
    return path


def test_every_score_has_every_task_seed_and_episode(run: Path):
    lines = evaluate(run, Plan(episodes=2), quiet)
    for score in ("zero-shot", "start", "train", "back"):
        places = {(line["seed"], line["task"], line["episode"]) for line in lines if line["score"] == score}
        assert len(places) == 2 * 2 * 2
    assert all(line["steps"] == 12 for line in lines)
    assert all(("world_reward" in line) == (line["score"] == "back") for line in lines)
    written = [json.loads(line) for line in (run / "evaluation" / "train.jsonl").read_text().splitlines()]
    assert written == [line for line in lines if line["score"] == "train"]


def test_it_gives_the_same_numbers_again_in_parts_and_with_more_episodes(run: Path):
    """To float tolerance: a batched product may round in another order."""
    whole = evaluate(run, Plan(scores=("train",), episodes=1), quiet)
    parts = evaluate(run, Plan(scores=("train",), episodes=2, lanes=3), quiet)
    first = [line for line in parts if line["episode"] == 0]
    np.testing.assert_allclose([line["return"] for line in whole], [line["return"] for line in first], rtol=1e-3)


def test_strategies_stand_side_by_side_and_task_only_is_the_frozen_task_model(run: Path):
    evaluate(run, Plan(scores=("back",), episodes=1), quiet)
    evaluate(run, Plan(scores=("back",), strategy="task-only", episodes=1), quiet)
    found = scores.intervals(read_run(run))
    assert {"back-confidence", "back-task-only"} <= set(found)
    assert scores.read_scores(read_run(run), "back-world-only") is None


def test_going_back_after_every_task_is_over_the_tasks_before(run: Path):
    lines = evaluate(run, Plan(scores=("back",), episodes=1, every=1), quiet)
    assert sorted((line["after"], line["task"]) for line in lines if line["seed"] == 0) == [(1, 0), (2, 0), (2, 1)]
    returns = scores.read_scores(read_run(run), "back-confidence")
    assert returns is not None
    last = [line["return"] for line in lines if line["after"] == 2 and line["task"] == 0]
    np.testing.assert_allclose(returns.returns[:, 0], last)


def test_the_library_gives_each_score_with_its_interval(run: Path):
    found = posterity.evaluate(run, scores=("train",), episodes=1)
    assert found["train"].over == "seeds"
    assert found["train"].low <= found["train"].mean <= found["train"].high


def test_of_a_run_in_progress_only_finished_tasks_are_evaluated(tmp_path: Path):
    config = resolve("item-search", "blrl", "quick", {"tasks": 3, "iterations": 2, "keep": True})
    folder = RunFolder.create(tmp_path / "run", config, "test")
    lifelong(config, folder, Quiet(), lambda: "enough")
    with pytest.raises(UserError, match="no finished task"):
        evaluate(tmp_path / "run", Plan(), quiet)
    lifelong(config, folder, Quiet(), lambda: "enough")
    folder.close()
    lines = evaluate(tmp_path / "run", Plan(episodes=2), quiet)
    assert {line["task"] for line in lines} == {0}
    assert {line["score"] for line in lines} == {"zero-shot", "start", "train", "back"}


def test_a_run_that_kept_nothing_says_so(tmp_path: Path):
    posterity.run("item-search", out=tmp_path / "run", tasks=1, iterations=1)
    with pytest.raises(UserError, match="--keep"):
        evaluate(tmp_path / "run", Plan(), quiet)

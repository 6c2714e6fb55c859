"""Evaluation apart from training."""

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import pytest

import posterity
from posterity.errors import UserError
from posterity.experiment.config import resolve
from posterity.experiment.evaluate import Plan, evaluate
from posterity.experiment.folder import RunFolder
from posterity.experiment.progress import Quiet
from posterity.experiment.run import lifelong
from posterity.families.mujoco import Bodies, HopperGravity
from posterity.families.pendulum import PendulumGravity, PendulumSettings
from posterity.report import scores
from posterity.report.metrics import read_run
from posterity.types import Key

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


def test_a_run_that_is_set_to_blend_does_so_unless_told_otherwise(run: Path, tmp_path: Path):
    shutil.copytree(run, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "evaluation", ignore_errors=True)
    config = (tmp_path / "copy" / "config.toml").read_text()
    assert 'strategy = "confidence"' in config
    (tmp_path / "copy" / "config.toml").write_text(config.replace('strategy = "confidence"', 'strategy = "blend"'))
    found = posterity.evaluate(tmp_path / "copy", scores=("back",), episodes=1)
    assert set(found) == {"back-blend"}
    lines = evaluate(tmp_path / "copy", Plan(scores=("back",), strategy="confidence", episodes=1), quiet)
    assert {line["strategy"] for line in lines} == {"confidence"}
    assert {path.stem for path in (tmp_path / "copy" / "evaluation").iterdir()} == {"back-blend", "back-confidence"}


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


class Seen(gymnasium.Wrapper):
    """Writes down how every episode began."""

    began: ClassVar[list[tuple[float, ...]]] = []

    def reset(self, **options: Any):
        obs, info = super().reset(**options)
        self.began.append(tuple(obs))
        return obs, info


class Witness:
    """An agent that keeps where it was, and tells who played with what."""

    together = True
    start = 1
    played: ClassVar[list[tuple[Any, ...]]] = []
    keys: ClassVar[list[tuple[int, ...]]] = []

    def __init__(self, *_: Any) -> None:
        self.place = (0, 0)

    def init(self, keys: list[Key]) -> Any:
        return Place(np.array([key.path[0] for key in keys]), np.full(len(keys), -1), np.zeros(len(keys), int))

    def begin_task(self, keys: list[Key], state: Any) -> Any:
        return state._replace(task=state.task + 1, iteration=state.iteration * 0)

    def act(self, keys: list[Key], state: Any, obs: list[Any], first: list[bool]) -> Any:
        return state, [np.zeros(1, np.float32) for _ in keys]

    def observe(self, keys: list[Key], state: Any, rows: Any) -> Any:
        return state

    def learn(self, keys: list[Key], state: Any, rows: Any) -> Any:
        return state._replace(iteration=state.iteration + 1), [{} for _ in keys]

    def keep(self, keys: list[Key], state: Any) -> Any:
        return state

    def player(self, own: Any, latest: Any, score: str, strategy: str) -> Any:
        for lane in range(len(own.lane)):
            mine, now = (tuple(int(part[lane]) for part in kept) for kept in (own, latest))
            self.played.append((score, mine, now if score == "back" else None))
        return own

    def play(self, keys: list[Key], player: Any, obs: list[Any], first: list[bool]) -> Any:
        self.keys.extend(key.path for key in keys)
        return player, [np.zeros(1, np.float32) for _ in keys]


class Place(NamedTuple):
    lane: Any
    task: Any
    iteration: Any


def test_each_score_is_played_with_what_was_kept_at_its_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Kept is (seed, task, iterations done); two seeds, three tasks of four iterations."""
    family = PendulumGravity(PendulumSettings(steps=3))
    make = family.make
    monkeypatch.setattr(family, "make", lambda task: Seen(make(task)))
    for module in ("run", "evaluate"):
        monkeypatch.setattr(f"posterity.experiment.{module}.build", lambda config: (family, Witness()))
    posterity.run("pendulum-gravity", out=tmp_path / "run", tasks=3, iterations=4, steps=3, seeds=2, seed=5)
    for told in (Witness.played, Witness.keys, Seen.began):
        told.clear()
    evaluate(tmp_path / "run", Plan(episodes=2, every=2), quiet)
    places = [(seed, task) for seed in (5, 6) for task in (0, 1, 2)]
    expected = {("zero-shot", (*place, 0), None) for place in places}
    expected |= {("start", (*place, 1), None) for place in places} | {("train", (*place, 4), None) for place in places}
    expected |= {("back", (*place, 4), (place[0], 2, 4)) for place in places}
    expected |= {("back", (*place, 4), (place[0], 1, 4)) for place in places if place[1] < 2}
    assert set(Witness.played) == expected
    assert len(set(Witness.keys)) == len(Witness.keys) == 3 * len(Seen.began), "every decision has a key of its own"
    assert len(set(Seen.began)) == 2 * 3 * 2, "seed, task and episode decide how it begins, not the score"


def caption(path: Path) -> str:
    """What is said below the table of scores."""
    table = scores.table([read_run(path)])
    assert table is not None
    return str(table.caption)


class Mover(Witness):
    """Acts at random, and keeps the same."""

    def act(self, keys: list[Key], state: Any, obs: list[Any], first: list[bool]) -> Any:
        return state, [key.generator().uniform(-1, 1, 3) for key in keys]

    def play(self, keys: list[Key], player: Any, obs: list[Any], first: list[bool]) -> Any:
        return self.act(keys, player, obs, first)


def test_a_run_and_its_scores_are_the_same_with_physics_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Five lanes of a run; in the evaluation twenty, then fewer, in groups no larger than there are threads."""
    groups: list[int] = []
    hand = Bodies._hand
    monkeypatch.setattr(Bodies, "_hand", lambda self, envs, *rest: (groups.append(len(envs)), hand(self, envs, *rest)))
    for module in ("run", "evaluate"):
        monkeypatch.setattr(f"posterity.experiment.{module}.build", lambda config: (HopperGravity(), Mover()))
    records, lines = [], []
    for cores in (1, 6):
        monkeypatch.setattr("posterity.families.mujoco._cores", lambda cores=cores: cores)
        run = tmp_path / f"{cores}"
        posterity.run("hopper-gravity", out=run, tasks=2, iterations=1, steps=30, seeds=5)
        records.append(
            [{**line, "wall": 0} for line in map(json.loads, (run / "records.jsonl").read_text().splitlines())]
        )
        lines.append(evaluate(run, Plan(scores=("train",), episodes=2), quiet))
        assert max(groups, default=0) == cores - 1
    assert records[0] == records[1]
    assert lines[0] == lines[1]


def test_scores_of_a_run_that_went_on_are_marked(tmp_path: Path):
    config = resolve("item-search", "blrl", "quick", {"tasks": 2, "iterations": 1, "keep": True})
    folder = RunFolder.create(tmp_path / "run", config, "test")
    lifelong(config, folder, Quiet(), lambda: "enough")
    folder.close()
    evaluate(tmp_path / "run", Plan(scores=("train", "back"), episodes=1), quiet)
    assert "before the run went on" not in caption(tmp_path / "run")
    posterity.resume(tmp_path / "run")
    assert "before the run went on: back-confidence of run, train of run" in caption(tmp_path / "run")
    assert set(posterity.evaluate(tmp_path / "run", scores=("train",))) == {"train"}
    assert "train of run" not in caption(tmp_path / "run")


def test_what_cannot_be_played_is_said_before_anything_is(run: Path, tmp_path: Path):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"backward": "conf"}, "Unknown strategy 'conf'"),
        ({"scores": ("bogus",)}, "Unknown score 'bogus'"),
        ({"scores": ()}, "Which scores"),
        ({"episodes": 0}, "1 or more"),
    ]
    for options, said in wrong:
        with pytest.raises(UserError, match=said):
            posterity.evaluate(run, **options)
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / "checkpoints" / "task-0001-end.safetensors").unlink()
    with pytest.raises(UserError, match="lacks task-0001-end"):
        evaluate(tmp_path / "copy", Plan(), quiet)
    shutil.rmtree(tmp_path / "copy" / "checkpoints")
    with pytest.raises(UserError, match="no checkpoints to play from"):
        evaluate(tmp_path / "copy", Plan(), quiet)


def test_a_method_without_strategies_refuses_one(tmp_path: Path):
    posterity.run("item-search", out=tmp_path / "run", tasks=1, iterations=1, keep=True)
    with pytest.raises(UserError, match="one way of going back"):
        evaluate(tmp_path / "run", Plan(strategy="task-only"), quiet)


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

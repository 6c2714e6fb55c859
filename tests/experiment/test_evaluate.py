"""Evaluation apart from training."""

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import pytest

import posterity
from posterity import tree
from posterity.agents.base import Agent, Info, Keys, Policy, Score
from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment.config import resolve
from posterity.experiment.evaluate import Evaluator, Line, Plan, evaluate
from posterity.experiment.folder import RunFolder, read_config
from posterity.experiment.records import encode, read_run
from posterity.experiment.run import Stopped
from posterity.families.base import Family
from posterity.families.mujoco import HopperGravity
from posterity.families.mujoco_threads import BatchedPhysics
from posterity.families.pendulum import PendulumGravity, PendulumSettings
from posterity.report import scores
from posterity.types import BoolArray, HostArray, Transition

AGENT = {  # as in the other tests of short runs on the pendulum, so that what is compiled is compiled once
    "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
    "learner": {"gradient_steps": 3, "task_batch_size": 8, "world_batch_size": 4},
    "network": {"hidden": [8, 8]},
    "task_min_transitions": 8,
    "world_iterations": 1,
}
BUDGET: dict[str, Any] = {"tasks": 2, "iterations": 2, "steps_per_iteration": 8, "seeds": 2}


def quiet(*_: object) -> None: ...


def returns(lines: list[Line]) -> list[float]:
    return [float(line["return"]) for line in lines]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    posterity.run("pendulum-gravity", out=path, agent=AGENT, env={"max_episode_steps": 8}, **BUDGET)
    return path


def test_every_score_has_every_task_seed_and_episode(run: Path):
    lines = evaluate(run, Plan(episodes=2, lanes=4), quiet)
    for score in ("zero-shot", "start", "train", "back"):
        places = {(line["seed"], line["task"], line["episode"]) for line in lines if line["score"] == score}
        assert len(places) == 2 * 2 * 2
    assert all(line["steps"] == 8 for line in lines)
    assert all(("world_reward" in line) == (line["score"] == "back") for line in lines)
    written = [json.loads(line) for line in (run / "evaluation" / "train.jsonl").read_text().splitlines()]
    assert written == [json.loads(encode(line)) for line in lines if line["score"] == "train"]


def test_it_gives_the_same_numbers_again_in_parts_and_with_more_episodes(run: Path):
    """To float tolerance: a batched product may round in another order."""
    whole = evaluate(run, Plan(scores=("train",), episodes=1), quiet)
    parts = evaluate(run, Plan(scores=("train",), episodes=2, lanes=3), quiet)
    first = [line for line in parts if line["episode"] == 0]
    np.testing.assert_allclose(returns(whole), returns(first), rtol=1e-3)


def test_variants_of_going_back_stand_side_by_side(run: Path):
    evaluate(run, Plan(scores=("back",), episodes=1), quiet)
    evaluate(run, Plan(scores=("back",), back_variant="task-only", episodes=1), quiet)
    assert {"back-confidence", "back-task-only"} <= set(scores.intervals(read_run(run)))
    assert "back-world-only" not in read_run(run).scores


def test_going_back_by_the_task_alone_is_acting_as_when_the_task_ended(run: Path):
    """Whatever the world model has become since; by the world alone that matters."""
    evaluator = Evaluator(read_config(run), RunFolder(run), Plan())
    own, latest = (
        checkpoint.load_tree(evaluator.folder.snapshot_path(task, "end"), evaluator.template) for task in (0, 1)
    )
    spoiled = tree.map_leaves(lambda leaf: leaf if leaf.dtype == bool else -leaf, latest)

    def acts(score: Score, variant: str, today: object) -> HostArray:
        policy = evaluator.agent.policy(own, today, score, variant)
        return policy.act(evaluator.keys, np.ones((2, 3)), np.ones(2, dtype=bool))

    np.testing.assert_array_equal(acts("back", "task-only", spoiled), acts("train", "", own))
    assert (acts("back", "world-only", spoiled) != acts("back", "world-only", latest)).any()


def test_a_run_that_is_set_to_blend_does_so_unless_told_otherwise(run: Path):
    config = read_config(run)
    agent = {**config.agent.model_dump(), "backward": {"variant": "blend"}}
    blending = type(config).model_validate({**config.model_dump(), "agent": agent})
    assert Evaluator(config, RunFolder(run), Plan()).variant == "confidence"
    assert Evaluator(blending, RunFolder(run), Plan()).variant == "blend"
    assert Evaluator(blending, RunFolder(run), Plan(back_variant="confidence")).variant == "confidence"


def test_settings_that_are_not_the_runs_are_refused_and_scores_stay(run: Path, tmp_path: Path):
    """A changed seed would overwrite scores by those of tasks the run never met."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    config = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(config.replace("seed = 0", "seed = 7"))
    with pytest.raises(UserError, match=r"config\.toml was changed since the checkpoint"):
        evaluate(copy, Plan(), quiet)


def test_an_episode_that_never_ends_is_left_after_the_most_steps_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    family = PendulumGravity(PendulumSettings(max_episode_steps=3))
    make = family.make
    monkeypatch.setattr(family, "make", lambda task: make(task).unwrapped)
    use(monkeypatch, family, Witness())
    posterity.run("pendulum-gravity", out=tmp_path / "run", tasks=1, iterations=1, steps_per_iteration=3)
    lines = evaluate(tmp_path / "run", Plan(scores=("train",), episodes=2), quiet)
    assert [line["steps"] for line in lines] == [3, 3]


def test_a_time_limit_ends_an_evaluation_and_scores_that_are_whole_are_written(run: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "evaluation", ignore_errors=True)
    played: list[str] = []
    with pytest.raises(Stopped, match="time limit"):
        evaluate(
            copy,
            Plan(scores=("train", "back"), episodes=1),
            lambda score, *_: played.append(score),
            lambda: "time limit" if played else "",
        )
    assert {path.stem for path in (copy / "evaluation").glob("*.jsonl")} == {"train"}


def test_going_back_after_every_task_is_over_the_tasks_before(run: Path):
    lines = evaluate(run, Plan(scores=("back",), episodes=2, back_every=1, lanes=4), quiet)
    first = [(line["after"], line["task"]) for line in lines if line["seed"] == line["episode"] == 0]
    assert first == [(1, 0), (2, 0), (2, 1)]
    last = np.reshape(returns([line for line in lines if line["after"] == 2 and line["task"] == 0]), (2, 2)).mean(
        axis=1
    )
    read = read_run(run).scores["back-confidence"].returns[:, 0]
    np.testing.assert_allclose(read, last, rtol=1e-5)  # records have six digits


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


class Place(NamedTuple):
    """[L] the seed, the task, and iterations done in it."""

    lane: HostArray
    task: HostArray
    iteration: HostArray


class Still(Policy):
    """A policy that does nothing, and tells the witness of the keys it was given."""

    def __init__(self, keys: list[tuple[int, ...]]) -> None:
        self.keys = keys

    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        self.keys.extend(key.path for key in keys)
        return np.zeros((len(keys), 1), np.float32)

    def facts(self) -> Info:
        return {}


class Witness(Agent[Place, Place]):
    """An agent whose snapshots say where it was, and which writes down who played with what."""

    def __init__(self) -> None:
        self.played: list[tuple[Score, tuple[int, ...], tuple[int, ...] | None]] = []
        self.keys: list[tuple[int, ...]] = []

    def init(self, keys: Keys) -> Place:
        return Place(np.array([key.path[0] for key in keys]), np.full(len(keys), -1), np.zeros(len(keys), int))

    def begin_task(self, keys: Keys, state: Place) -> Place:
        return state._replace(task=state.task + 1, iteration=state.iteration * 0)

    def act(self, keys: Keys, state: Place, obs: HostArray, first: BoolArray) -> tuple[Place, HostArray]:
        return state, np.zeros((len(keys), 1), np.float32)

    def update(self, keys: Keys, state: Place, rows: Transition) -> tuple[Place, Info]:
        return state._replace(iteration=state.iteration + 1), {}

    def snapshot(self, keys: Keys, state: Place) -> Place:
        return state

    def policy(self, own: Place, latest: Place, score: Score, variant: str) -> Policy:
        for mine, now in zip(zip(*own, strict=True), zip(*latest, strict=True), strict=True):
            self.played.append((score, tuple(map(int, mine)), tuple(map(int, now)) if score == "back" else None))
        return Still(self.keys)


def use(monkeypatch: pytest.MonkeyPatch, family: Family, agent: Witness) -> None:
    """Runs and evaluations are of this family and this agent from now on."""
    for module in ("run", "evaluate"):
        monkeypatch.setattr(f"posterity.experiment.{module}.build", lambda *_: (family, agent))


def test_each_score_is_played_with_the_snapshot_of_its_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Snapshots are (seed, task, iterations done); two seeds, three tasks of four iterations."""
    family, agent = PendulumGravity(PendulumSettings(max_episode_steps=3)), Witness()
    monkeypatch.setattr(family, "make", lambda task, make=family.make: Seen(make(task)))
    use(monkeypatch, family, agent)
    budget: dict[str, Any] = {"tasks": 3, "iterations": 4, "steps_per_iteration": 3, "seeds": 2, "seed": 5}
    posterity.run("pendulum-gravity", out=tmp_path / "run", **budget)
    Seen.began.clear()
    evaluate(tmp_path / "run", Plan(episodes=2, back_every=2), quiet)
    places = [(seed, task) for seed in (5, 6) for task in (0, 1, 2)]
    forward = (("zero-shot", 0), ("start", 1), ("train", 4))
    expected = {(score, (*place, done), None) for place in places for score, done in forward}
    expected |= {("back", (*place, 4), (place[0], 2, 4)) for place in places}
    expected |= {("back", (*place, 4), (place[0], 1, 4)) for place in places if place[1] < 2}
    assert set(agent.played) == expected
    assert len(set(agent.keys)) == len(agent.keys) == 3 * len(Seen.began), "every decision has a key of its own"
    assert len(set(Seen.began)) == 2 * 3 * 2, "seed, task and episode decide how it begins, not the score"


class Dice(Policy):
    """A policy that acts at random."""

    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        return np.stack([key.generator().uniform(-1, 1, 3) for key in keys])

    def facts(self) -> Info:
        return {}


class Mover(Witness):
    """Acts at random, in a run and after it."""

    def act(self, keys: Keys, state: Place, obs: HostArray, first: BoolArray) -> tuple[Place, HostArray]:
        return state, Dice().act(keys, obs, first)

    def policy(self, own: Place, latest: Place, score: Score, variant: str) -> Policy:
        return Dice()


def test_a_run_and_its_scores_are_the_same_with_batched_physics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Five lanes of a run; in the evaluation twenty, then fewer, in groups no larger than there are threads."""
    groups: list[int] = []
    hand = BatchedPhysics._hand

    def counted(self: BatchedPhysics, envs: list[Any], actions: list[Any]) -> None:
        groups.append(len(envs))
        hand(self, envs, actions)

    monkeypatch.setattr(BatchedPhysics, "_hand", counted)
    use(monkeypatch, HopperGravity(), Mover())
    records: list[list[dict[str, Any]]] = []
    lines: list[list[Line]] = []
    for cores in (1, 6):
        monkeypatch.setattr("posterity.families.mujoco._cores", lambda cores=cores: cores)
        run = tmp_path / f"{cores}"
        posterity.run("hopper-gravity", out=run, tasks=2, iterations=1, steps_per_iteration=30, seeds=5)
        written = map(json.loads, (run / "records.jsonl").read_text().splitlines())
        records.append([{**line, "wall_seconds": 0} for line in written])
        lines.append(evaluate(run, Plan(scores=("train",), episodes=2), quiet))
        assert max(groups, default=0) == cores - 1
    assert records[0] == records[1]
    assert lines[0] == lines[1]


def notes(path: Path) -> str:
    """What is said below the table of scores."""
    sheet = scores.sheet([read_run(path)])
    assert sheet is not None
    return "; ".join(sheet.notes)


def test_scores_of_a_run_that_went_on_are_marked(iterate, tmp_path: Path):
    config = resolve("item-search", "blrl", "quick", {"tasks": 2, "iterations": 1, "snapshots": True})
    folder = RunFolder.create(tmp_path / "run", config, "test")
    iterate(config, folder)
    folder.close()
    evaluate(tmp_path / "run", Plan(scores=("train", "back"), episodes=1), quiet)
    assert "before the run went on" not in notes(tmp_path / "run")
    posterity.resume(tmp_path / "run")
    assert "before the run went on: Back of run, Train of run" in notes(tmp_path / "run")
    assert set(posterity.evaluate(tmp_path / "run", scores=("train",))) == {"train"}
    assert "Train of run" not in notes(tmp_path / "run")


def test_what_cannot_be_played_is_said_before_anything_is(run: Path, tmp_path: Path):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"back_variant": "conf"}, "Unknown variant 'conf'"),
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


def test_a_method_with_one_way_of_going_back_refuses_a_variant(tmp_path: Path):
    posterity.run("item-search", out=tmp_path / "run", tasks=1, iterations=1, snapshots=True)
    with pytest.raises(UserError, match="one way of going back"):
        evaluate(tmp_path / "run", Plan(back_variant="task-only"), quiet)


def test_of_a_run_in_progress_only_finished_tasks_are_evaluated(iterate, tmp_path: Path):
    config = resolve("item-search", "blrl", "quick", {"tasks": 3, "iterations": 2, "snapshots": True})
    iterate(config, folder := RunFolder.create(tmp_path / "run", config, "test"))
    with pytest.raises(UserError, match="no finished task"):
        evaluate(tmp_path / "run", Plan(), quiet)
    iterate(config, folder)
    folder.close()
    lines = evaluate(tmp_path / "run", Plan(episodes=2), quiet)
    assert {line["task"] for line in lines} == {0}
    assert {line["score"] for line in lines} == {"zero-shot", "start", "train", "back"}


def test_a_run_without_snapshots_says_so(tmp_path: Path):
    posterity.run("item-search", out=tmp_path / "run", tasks=1, iterations=1)
    with pytest.raises(UserError, match="--snapshots"):
        evaluate(tmp_path / "run", Plan(), quiet)

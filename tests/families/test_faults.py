"""A family that breaks the contract is refused before a run: one line that says what is wrong and what is expected."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import posterity
from posterity.cli import main
from posterity.errors import UserError
from posterity.families.base import Family, FiniteFamily, Truth
from posterity.families.contract import check
from posterity.types import FiniteSpec, Key, Spec, Task

LOW, HIGH = np.array([-1.0]), np.array([1.0])


class Point(gymnasium.Env[Any, Any]):
    """A point on a line; parts of it can be put wrong."""

    def __init__(self, **wrong: Any) -> None:
        self.wrong = wrong
        self.observation_space = wrong.get("observation_space", spaces.Box(-np.inf, np.inf, (2,)))
        self.action_space = wrong.get("action_space", spaces.Box(-1, 1, (1,)))
        self.place = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0.0
        return self.wrong.get("reset", (np.zeros(2), {}))

    def step(self, action: Any) -> Any:
        if "raises" in self.wrong:
            raise self.wrong["raises"]
        self.place += float(action[0])
        obs = self.wrong.get("obs", np.array([self.place, 1.0]))
        return self.wrong.get("step", (obs, self.wrong.get("reward", -abs(self.place)), False, False, {}))

    def close(self) -> None:
        if "close" in self.wrong:
            raise self.wrong["close"]


class Points(Family):
    """All there has to be."""

    spec: Any = Spec(2, LOW, HIGH, 20, None)
    wrong: dict[str, Any] = {}  # noqa: RUF012

    def tasks(self, key: Key, count: int) -> list[Task]:
        return [Task(index, f"task {index}", {"x": float(index)}) for index in range(count)]

    def make(self, task: Task) -> Any:
        return Point(**self.wrong)


def with_spec(**changes: Any) -> type[Family]:
    return type("Mine", (Points,), {"spec": Points.spec._replace(**changes)})


def with_env(**wrong: Any) -> type[Family]:
    return type("Mine", (Points,), {"wrong": wrong})


def with_method(**methods: Any) -> type[Family]:
    return type("Mine", (Points,), methods)


def raising(*_: Any) -> Any:
    raise ValueError("first line\nsecond line")


def tasks_with(**facts: Any) -> Any:
    return lambda self, key, count: [Task(index, "", facts) for index in range(count)]


BOX = (np.array([-np.inf, 5.0]), np.array([np.inf, 6.0]))
FAULTS = {
    "a spec of another kind": (with_method(spec=None), "spec is None; expected a posterity.types.Spec"),
    "a float as a bound": (with_spec(low=-1.0), r"spec.low is -1.0; expected an array"),
    "bounds the wrong way round": (with_spec(low=HIGH, high=LOW), "expected low below high"),
    "bounds without end": (with_spec(high=np.array([np.inf])), "expected finite bounds"),
    "two actions for one": (with_spec(low=-np.ones(2), high=np.ones(2)), r"actions have shape \(1,\), but spec.low"),
    "bounds beyond the environment's": (with_spec(high=np.array([5.0])), "spec allows actions from"),
    "a wrong obs_dim": (with_spec(obs_dim=3), r"shape \(2,\), but spec.obs_dim is 3"),
    "an obs_dim that is no number": (with_spec(obs_dim="2"), "obs_dim is '2'; expected a whole number"),
    "episodes of no steps": (with_spec(max_episode_steps=0), "max_episode_steps is 0"),
    "an absurd alive box": (with_spec(alive=BOX), r"spec.alive says .* but it went on"),
    "an alive box of another size": (with_spec(alive=(np.zeros(5), np.ones(5))), r"two arrays \(low, high\)"),
    "an alive box the wrong way round": (with_spec(alive=(np.ones(2), np.zeros(2))), "expected low below high"),
    "too few tasks": (with_method(tasks=lambda self, key, count: [Task(0, "", {})]), "gave 1 tasks where 3 were asked"),
    "tasks that raise": (with_method(tasks=raising), "tasks failed: ValueError, first line second line"),
    "tasks that are none": (with_method(tasks=lambda self, key, count: None), "expected a list"),
    "a factor of bytes": (with_method(tasks=tasks_with(x=b"1")), "expected plain numbers"),
    "a factor that is a set": (with_method(tasks=tasks_with(x={1})), "expected plain numbers"),
    "a factor that is NaN": (with_method(tasks=tasks_with(x=float("nan"))), "expected plain numbers"),
    "indices that do not count": (
        with_method(tasks=lambda self, key, count: [Task(7, "", {})] * count),
        "gave task 0 the index 7",
    ),
    "a stream that is not prefix-stable": (
        with_method(tasks=lambda self, key, count: [Task(index, "", {"x": count}) for index in range(count)]),
        "does not begin with that of 1",
    ),
    "make that raises": (with_method(make=raising), "make failed for task 0 .*: ValueError, first line second line"),
    "make that gives nothing": (with_method(make=lambda self, task: None), "make gave None for task 0"),
    "an observation of another length": (with_env(obs=np.zeros(3)), r"an observation has the shape \(3,\); expected"),
    "a first observation of another length": (with_env(reset=(np.zeros(3), {})), "the first observation has the shape"),
    "a text for an observation": (with_env(obs="here"), "an observation is a value of type str"),
    "no observation": (with_env(obs=None), "an observation is None"),
    "an endless observation": (with_env(obs=np.array([np.inf, 0.0])), "expected finite numbers"),
    "a huge observation": (with_env(obs=np.array([1e20, 0.0])), "expected finite numbers below"),
    "the old reset": (with_env(reset=np.zeros(2)), r"reset gave .*; expected \(obs, info\)"),
    "the old step": (with_env(step=(np.zeros(2), 0.0, False, {})), r"step gave 4 values; expected \(obs, reward"),
    "a reward that is a text": (with_env(reward="much"), "a reward is"),
    "a reward that is NaN": (with_env(reward=float("nan")), "a reward is nan"),
    "a step that raises": (with_env(raises=KeyError("x")), "failed in step: KeyError"),
    "a close that raises": (with_env(close=OSError("no")), "closing the environment of task 0 failed: OSError, no"),
    "discrete actions": (with_env(action_space=spaces.Discrete(3)), "3 discrete actions, but spec has real ones"),
}


@pytest.mark.parametrize(("kind", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_one_line_and_nothing_is_written(kind: type[Family], says: str, tmp_path: Path):
    with pytest.raises(UserError, match=says) as refused:
        posterity.run(kind, method="npg", tasks=3, iterations=1, steps_per_iteration=5, out=tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_family_without_a_spec_is_told_to_have_one():
    class Bare(Family):
        tasks = Points.tasks
        make = Points.make

    with pytest.raises(UserError, match="Bare has no spec: set it to a"):
        check(Bare(), 2, 0)


def test_a_family_that_keeps_the_contract_has_nothing_to_be_told():
    assert check(Points(), 3, 0) == []


def test_an_end_that_plans_do_not_know_is_noted():
    ending = with_env(step=(np.zeros(2), 0.0, True, False, {}))
    assert check(ending(), 2, 0) == [
        "episodes terminate, but spec says nothing of it: plans go on past the end of an episode"
    ]


class Two(FiniteFamily):
    """Two states."""

    spec = FiniteSpec(2, 1, np.array([0.0, 1.0]), np.array([False, False]), 5)
    truth_of: Any = Truth(np.ones((2, 1, 1)), np.zeros((2, 1, 1), int), np.full((2, 1, 2), 0.5), np.array([1.0, 0.0]))

    def tasks(self, key: Key, count: int) -> list[Task]:
        return [Task(index, "", {"x": index}) for index in range(count)]

    def truth(self, task: Task) -> Truth:
        return raising() if self.truth_of is None else self.truth_of


@pytest.mark.parametrize(
    ("truth", "says"),
    [
        (None, "truth failed for task 0: ValueError"),
        (Two.truth_of._replace(reward=np.ones((2, 1, 2))), "the probabilities of reward do not sum to 1"),
        (Two.truth_of._replace(start=np.ones(3) / 3), r"start has the shape \(3,\); expected \(2,\)"),
        (Two.truth_of._replace(successor=np.full((2, 1, 1), -1)), "a successor is not a state"),
    ],
)
def test_a_finite_family_with_a_wrong_truth_is_refused(truth: Any, says: str):
    assert check(Two(), 2, 0) == []
    with pytest.raises(UserError, match=says):
        check(type("Mine", (Two,), {"truth_of": truth})(), 2, 0)


def test_the_command_says_it_in_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import posterity\nfamily = posterity.Family.from_gymnasium('Pendulum-v1', vary={'gravity': 3})\n"
    )
    assert main(["run", "mine.py:family"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("posterity: Family 'mine.py:family' cannot be loaded: vary: 'gravity' is 3; expected")
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == ["mine.py"]

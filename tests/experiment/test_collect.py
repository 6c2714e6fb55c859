"""Collecting, on an environment that writes down what is done to it."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from posterity.errors import UserError
from posterity.experiment.collect import EachLane, collect
from posterity.families.base import Family
from posterity.families.mujoco import Bodies, HopperGravity
from posterity.families.pendulum import PendulumGravity
from posterity.types import Key


class Scripted(gymnasium.Env[Any, Any]):
    """Episodes of 3 steps that terminate and of 2 that are cut off, in turn. The reward is 10 x episode + step."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Discrete(100), spaces.Discrete(2)
        self.seeds: list[int | None] = []
        self.moment = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.seeds.append(seed)
        self.moment = 0
        return 10 * (len(self.seeds) - 1), {}

    def step(self, action: Any):
        self.moment += 1
        episode = len(self.seeds) - 1
        ends = self.moment == (3 if episode % 2 == 0 else 2)
        now = 10 * episode + self.moment
        info: dict[str, Any] = {}
        return now, float(now), ends and episode % 2 == 0, ends and episode % 2 == 1, info


class Scribe:
    """Acts by step parity and keeps all it was told in its state."""

    def init(self, key: Key) -> list[Any]:
        return []

    def begin_task(self, key: Key, state: list[Any]) -> list[Any]:
        return state

    def act(self, key: Key, state: list[Any], obs: int, first: bool) -> tuple[list[Any], int]:
        return [*state, ("act", key, obs, first)], len(state) % 2

    def observe(self, key: Key, state: list[Any], row: Any) -> list[Any]:
        return [*state, ("observe", key, row)]

    def learn(self, key: Key, state: list[Any], rows: Any):
        return state, {}

    start = 1

    def keep(self, key: Key, state: list[Any]) -> int:
        return len(state)

    def player(self, own: int, latest: int, score: str, strategy: str) -> int:
        return own

    def play(self, key: Key, player: int, obs: int, first: bool) -> tuple[int, int]:
        return player + 1, player % 2


def test_an_iteration_is_its_steps_its_episodes_and_their_returns():
    env, learners = Scripted(), EachLane(Scribe())
    keys = [Key.of(4).fold("task", 2, "iteration", 1)]
    (state,), (got,) = collect(learners, keys, learners.init(keys), [env], 7)
    np.testing.assert_array_equal(got.rows.obs, [0, 1, 2, 10, 11, 20, 21])
    np.testing.assert_array_equal(got.rows.next_obs, [1, 2, 3, 11, 12, 21, 22])
    np.testing.assert_array_equal(got.rows.terminated, [False, False, True, False, False, False, False])
    assert got.returns == [1 + 2 + 3, 11 + 12]
    assert got.finished == 2
    acted = [entry for entry in state if entry[0] == "act"]
    assert [first for *_, first in acted] == [True, False, False, True, False, True, False]
    assert len({entry[1] for entry in state}) == 14, "every decision and every observation has a key of its own"
    assert len(set(env.seeds)) == 3, "and every episode a seed of its own"


def test_an_episode_cut_by_the_iterations_end_counts_only_if_no_other_ended():
    env, learners = Scripted(), EachLane(Scribe())
    _, (got,) = collect(learners, [Key.of(0)], learners.init([Key.of(0)]), [env], 2)
    assert got.returns == [1 + 2]
    assert got.finished == 0


def test_lanes_are_kept_apart():
    envs, learners = [Scripted(), Scripted()], EachLane(Scribe())
    keys = [Key.of(0), Key.of(1)]
    states, got = collect(learners, keys, learners.init(keys), envs, 4)
    assert envs[0].seeds != envs[1].seeds
    assert all(entry[1].path[0] == lane for lane, state in enumerate(states) for entry in state)
    np.testing.assert_array_equal(got[0].rows.obs, got[1].rows.obs)


class Telling(Scripted):
    """Says in which steps it was solved: (episode, moment)."""

    def __init__(self, *solved: tuple[int, int]) -> None:
        super().__init__()
        self.solved = solved

    def step(self, action: Any):
        now, reward, terminated, truncated, _ = super().step(action)
        success = (len(self.seeds) - 1, self.moment) in self.solved
        return now, reward, terminated, truncated, {"success": float(success)}


@pytest.mark.parametrize(
    ("solved", "steps", "share"),
    [
        ((), 7, 0.0),
        (((0, 1), (0, 2)), 7, 0.5),  # two steps of one episode solve it once
        (((0, 2), (1, 2)), 7, 1.0),
        (((0, 2), (2, 1)), 7, 0.5),  # the third episode has not ended
        (((0, 1),), 2, 1.0),  # none ended: the one under way counts
    ],
)
def test_an_episode_is_solved_if_any_step_of_it_was(solved: tuple[tuple[int, int], ...], steps: int, share: float):
    learners = EachLane(Scribe())
    _, (got,) = collect(learners, [Key.of(0)], learners.init([Key.of(0)]), [Telling(*solved)], steps)
    assert got.solved == share


def test_an_environment_need_not_tell_of_success():
    learners = EachLane(Scribe())
    _, (got,) = collect(learners, [Key.of(0)], learners.init([Key.of(0)]), [Scripted()], 4)
    assert got.solved is None


class Broken(Scripted):
    """Goes wrong at its third step."""

    def __init__(self, following: Any) -> None:
        super().__init__()
        self.following = following

    def step(self, action: Any):
        if self.moment < 2:
            return super().step(action)
        if isinstance(self.following, Exception):
            raise self.following
        return self.following, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("following", "said"),
    [(np.nan, "gave reward 0.0 and observation nan"), (ZeroDivisionError("by zero"), "failed in step: ZeroDivision")],
)
def test_an_environment_that_fails_is_named_in_one_line(following: Any, said: str):
    learners = EachLane(Scribe())
    with pytest.raises(UserError, match=f"The environment Broken {said}"):
        collect(learners, [Key.of(0)], learners.init([Key.of(0)]), [Broken(following)], 5)


class Dice(Scribe):
    """Acts at random, in as many dimensions as it is told."""

    def __init__(self, size: int) -> None:
        self.size = size

    def act(self, key: Key, state: list[Any], obs: Any, first: bool) -> tuple[list[Any], Any]:
        return state, key.generator().uniform(-1, 1, self.size).astype(np.float32)

    def observe(self, key: Key, state: list[Any], row: Any) -> list[Any]:
        return state


def collected(family: Family, size: int, lanes: int = 4) -> tuple[Any, Any]:
    """What lanes of Dice meet in tasks of their own, and what went ahead of them."""
    keys, learners = [Key.of(lane) for lane in range(lanes)], EachLane(Dice(size))
    envs = [family.make(task) for task in family.tasks(Key.of(0), lanes)]
    with family.ahead(envs) as ahead:
        return collect(learners, keys, learners.init(keys), envs, 60, ahead)[1], ahead


def test_rows_are_the_same_with_physics_ahead(monkeypatch: pytest.MonkeyPatch):
    found = []
    for cores in (1, 5, 9):
        monkeypatch.setattr("posterity.families.mujoco._cores", lambda cores=cores: cores)
        found.append(collected(HopperGravity(), 3))
    assert [type(ahead) for _, ahead in found] == [type(None), Bodies, Bodies]
    assert min(lane.finished for lane in found[0][0]) > 0
    for rows, _ in found[1:]:
        np.testing.assert_equal(rows, found[0][0])


def test_a_family_need_not_do_anything_ahead():
    rows, ahead = collected(PendulumGravity(), 1)
    assert ahead is None
    assert len(rows) == 4


@pytest.mark.parametrize("cores", [1, 9])
def test_an_action_that_fits_no_body_is_one_line_with_physics_ahead_too(cores: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("posterity.families.mujoco._cores", lambda: cores)
    with pytest.raises(UserError, match="The environment TaskEnv failed in step: ValueError"):
        collected(HopperGravity(), 5)

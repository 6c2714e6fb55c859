"""Collecting, on an environment that writes down what is done to it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from posterity.agents.base import Agent, Info, Keys, Policy, Score
from posterity.errors import UserError
from posterity.experiment.collect import Collected, collect
from posterity.families.base import Env, Family, Prestep
from posterity.families.mujoco import HopperGravity
from posterity.families.mujoco_threads import BatchedPhysics
from posterity.families.pendulum import PendulumGravity
from posterity.types import BoolArray, HostArray, Key, Transition

ONE = [Key.of(0)]  # lane


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


class Told(NamedTuple):
    """Everything an agent was told."""

    acts: list[tuple[Keys, list[int], list[bool]]]  # keys, observations, whether an episode begins
    observes: list[tuple[Keys, Transition]]


class Scribe(Agent[Told, Told]):
    """Acts by step parity and writes all it was told into its state."""

    def init(self, keys: Keys) -> Told:
        return Told([], [])

    def begin_task(self, keys: Keys, state: Told) -> Told:
        return state

    def act(self, keys: Keys, state: Told, obs: HostArray, first: BoolArray) -> tuple[Told, HostArray]:
        acts = [*state.acts, (keys, obs.tolist(), first.tolist())]
        return state._replace(acts=acts), np.full(len(keys), len(state.acts) % 2)

    def observe(self, keys: Keys, state: Told, step: Transition) -> Told:
        return state._replace(observes=[*state.observes, (keys, step)])

    def update(self, keys: Keys, state: Told, rows: Transition) -> tuple[Told, Info]:
        return state, {}

    def snapshot(self, keys: Keys, state: Told) -> Told:
        return state

    def policy(self, own: Told, latest: Told, score: Score, variant: str) -> Policy:
        raise NotImplementedError


def gather(envs: Sequence[Env], steps: int, keys: Keys = ONE) -> tuple[Told, Collected]:
    """What comes of `steps` steps of a scribe in each environment."""
    agent = Scribe()
    return collect(agent, keys, agent.init(keys), envs, steps)


def test_an_iteration_is_its_steps_its_episodes_and_their_returns():
    env = Scripted()
    told, got = gather([env], 7, [Key.of(4).fold("task", 2, "iteration", 1)])
    np.testing.assert_array_equal(got.rows.obs, [[0, 1, 2, 10, 11, 20, 21]])
    np.testing.assert_array_equal(got.rows.action, [[0, 1, 0, 1, 0, 1, 0]])
    np.testing.assert_array_equal(got.rows.reward, [[1, 2, 3, 11, 12, 21, 22]])
    np.testing.assert_array_equal(got.rows.next_obs, [[1, 2, 3, 11, 12, 21, 22]])
    np.testing.assert_array_equal(got.rows.terminated, [[False, False, True, False, False, False, False]])
    np.testing.assert_array_equal(got.rows.truncated, [[False, False, False, False, True, False, False]])
    assert got.returns == [[1 + 2 + 3, 11 + 12]]
    assert got.episodes.tolist() == [2]
    assert [first for _, _, first in told.acts] == [[True], [False], [False], [True], [False], [True], [False]]
    keys = [entry[0][0] for entry in (*told.acts, *told.observes)]
    assert len(set(keys)) == 14, "every decision and every observation has a key of its own"
    assert len(set(env.seeds)) == 3, "and every episode a seed of its own"


def test_terminated_episodes_and_the_reward_of_all_steps_are_counted_apart():
    """Of two that ended one was cut off; the third is under way, and its reward is in no return."""
    _, got = gather([Scripted()], 7)
    assert got.terminated.tolist() == [1]
    assert got.reward.tolist() == [1 + 2 + 3 + 11 + 12 + 21 + 22]


def test_an_agent_observes_every_step_as_it_is_in_the_rows():
    told, got = gather([Scripted(), Scripted()], 4, [Key.of(0), Key.of(1)])
    assert len(told.observes) == 4
    for number, (_, step) in enumerate(told.observes):
        for seen, kept in zip(step, got.rows, strict=True):
            np.testing.assert_array_equal(seen, np.asarray(kept)[:, number])


def test_an_episode_cut_by_the_iterations_end_counts_only_if_no_other_ended():
    _, got = gather([Scripted()], 2)
    assert got.returns == [[1 + 2]]
    assert got.episodes.tolist() == [0]


def test_lanes_are_kept_apart():
    envs, seeds = [Scripted(), Scripted()], [3, 8]
    told, got = gather(envs, 4, [Key.of(seed) for seed in seeds])
    assert envs[0].seeds != envs[1].seeds
    assert all([key.path[0] for key in keys] == seeds for keys, *_ in (*told.acts, *told.observes))
    np.testing.assert_array_equal(np.asarray(got.rows.obs)[0], np.asarray(got.rows.obs)[1])
    assert len(got.returns) == len(got.success) == 2
    assert got.episodes.shape == got.terminated.shape == got.reward.shape == (2,)


class Lost(Scribe):
    """Forgets a lane."""

    def act(self, keys: Keys, state: Told, obs: HostArray, first: BoolArray) -> tuple[Told, HostArray]:
        return state, np.zeros(len(keys) - 1, int)


def test_an_agent_that_acts_for_another_number_of_lanes_is_refused():
    keys, envs = [Key.of(lane) for lane in range(3)], [Scripted() for _ in range(3)]
    with pytest.raises(UserError, match=r"actions of shape \(2,\); one for each lane is due, \(3,\) in all"):
        collect(Lost(), keys, Told([], []), envs, 1)


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
    _, got = gather([Telling(*solved)], steps)
    assert got.success == [share]


def test_an_environment_need_not_tell_of_success():
    _, got = gather([Scripted()], 4)
    assert got.success == [None]


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
    [
        (np.nan, ": an observation is nan"),
        ("text", ": an observation is a value of type str"),
        ([1, 2], ": an observation has the shape"),
        (ZeroDivisionError("by zero"), " failed in step: ZeroDivision"),
    ],
)
def test_an_environment_that_fails_is_named_in_one_line(following: Any, said: str):
    with pytest.raises(UserError, match=f"The environment Broken{said}"):
        gather([Broken(following)], 5)


class Stillborn(Scripted):
    """Goes wrong before its first step."""

    def __init__(self, began: Any) -> None:
        super().__init__()
        self.began = began

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        if isinstance(self.began, Exception):
            raise self.began
        return self.began, {}


@pytest.mark.parametrize(
    ("began", "said"),
    [(np.inf, ": the first observation is inf"), (OSError("no file"), " failed in reset: OSError, no file")],
)
def test_an_environment_that_cannot_begin_is_named_in_one_line(began: Any, said: str):
    with pytest.raises(UserError, match=f"The environment Stillborn{said}"):
        gather([Stillborn(began)], 1)


class Dice(Scribe):
    """Acts at random, in as many dimensions as it is told."""

    def __init__(self, size: int) -> None:
        self.size = size

    def act(self, keys: Keys, state: Told, obs: HostArray, first: BoolArray) -> tuple[Told, HostArray]:
        drawn = [key.generator().uniform(-1, 1, self.size) for key in keys]
        return state, np.stack(drawn).astype(np.float32)


def collected(family: Family, size: int, lanes: int = 4) -> tuple[Collected, Prestep | None]:
    """What lanes of Dice meet in tasks of their own, and what went before their steps."""
    keys, agent = [Key.of(lane) for lane in range(lanes)], Dice(size)
    envs = [family.make(task) for task in family.tasks(Key.of(0), lanes)]
    with family.prestep(envs) as prestep:
        return collect(agent, keys, agent.init(keys), envs, 60, prestep)[1], prestep


def test_rows_are_the_same_with_batched_physics(monkeypatch: pytest.MonkeyPatch):
    found: list[tuple[Collected, Prestep | None]] = []
    for cores in (1, 5, 9):
        monkeypatch.setattr("posterity.families.mujoco._cores", lambda cores=cores: cores)
        found.append(collected(HopperGravity(), 3))
    assert [type(prestep) for _, prestep in found] == [type(None), BatchedPhysics, BatchedPhysics]
    assert found[0][0].episodes.min() > 0
    for got, _ in found[1:]:
        np.testing.assert_equal(got, found[0][0])


def test_a_family_need_not_do_anything_before_a_step():
    got, prestep = collected(PendulumGravity(), 1)
    assert prestep is None
    assert np.asarray(got.rows.obs).shape == (4, 60, 3)


@pytest.mark.parametrize("cores", [1, 9])
def test_an_action_that_fits_no_body_is_one_line_with_batched_physics_too(cores: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("posterity.families.mujoco._cores", lambda: cores)
    with pytest.raises(UserError, match="one for each lane is due"):
        collected(HopperGravity(), 5)

"""What every family must keep, whatever it is about."""

import json
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from posterity.families import FAMILIES, family_type
from posterity.families.base import Family, FiniteFamily
from posterity.families.boxjump import BoxJump
from posterity.families.metaworld import Cw10, MetaworldFamily
from posterity.families.pointgoal import PointGoal
from posterity.types import FiniteSpec, Key, Spec

KEY = Key.of(0).fold("stream")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    kind = family_type(request.param)
    if issubclass(kind, MetaworldFamily):
        pytest.importorskip("metaworld", reason="the extra is not installed: pip install 'posterity[metaworld]'")
    return kind()


def play(family: Family, task, seed: int, steps: int = 60) -> list[Any]:
    """What a fixed random policy meets."""
    env = family.make(task)
    env.action_space.seed(0)
    obs, _ = env.reset(seed=seed)
    met = [np.asarray(obs).tolist()]
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        met += [np.asarray(obs).tolist(), float(reward), terminated, truncated]
        if terminated or truncated:
            obs, _ = env.reset()
            met.append(np.asarray(obs).tolist())
    env.close()
    return met


def test_gymnasium_accepts_its_environments(family: Family):
    for task in family.tasks(KEY, 2):
        with warnings.catch_warnings():
            for advice in ("we recommend using a symmetric and normalized space", "This is probably too"):
                warnings.filterwarnings("ignore", message=f".*{advice}.*")  # on Gymnasium's own spaces
            check_env(family.make(task).unwrapped, skip_render_check=True, skip_close_check=True)


def test_the_spec_tells_the_truth_about_the_environment(family: Family):
    (task,) = family.tasks(KEY, 1)
    env = family.make(task)
    obs, _ = env.reset(seed=0)
    if isinstance(family.spec, FiniteSpec):
        assert env.observation_space.n == family.spec.states  # pyright: ignore[reportAttributeAccessIssue]
        assert env.action_space.n == family.spec.actions  # pyright: ignore[reportAttributeAccessIssue]
    else:
        assert isinstance(family.spec, Spec)
        assert np.shape(obs) == (family.spec.obs_dim,)
        np.testing.assert_array_equal(env.action_space.low, family.spec.low)  # pyright: ignore[reportAttributeAccessIssue]
        np.testing.assert_array_equal(env.action_space.high, family.spec.high)  # pyright: ignore[reportAttributeAccessIssue]


def test_two_copies_of_a_task_with_one_seed_are_identical(family: Family):
    (task,) = family.tasks(KEY, 1)
    (again,) = family.tasks(KEY, 1)
    assert play(family, task, seed=5) == play(family, again, seed=5)


def test_episodes_of_different_seeds_differ(family: Family):
    """Unless the task is deterministic from a fixed start, in which case the actions decide all."""
    (task,) = family.tasks(KEY, 1)
    certain = isinstance(family, BoxJump | MetaworldFamily | PointGoal) and not isinstance(family, Cw10)
    if isinstance(family, FiniteFamily):
        truth = family.truth(task)
        certain = truth.start.max() == 1.0 and truth.probability.max(axis=-1).min() == 1.0
    assert (play(family, task, seed=5) == play(family, task, seed=6)) == certain


def test_a_longer_stream_begins_with_a_shorter_one(family: Family):
    assert family.tasks(KEY, 9)[:3] == family.tasks(KEY, 3)
    assert [task.index for task in family.tasks(KEY, 9)] == list(range(9))


def test_a_task_survives_json(family: Family):
    """Factors are plain values: records hold them, and the task can be built again from there."""
    for task in family.tasks(KEY, 3):
        assert json.loads(json.dumps(asdict(task))) == asdict(task)


def test_an_episode_is_cut_off_after_the_steps_of_the_spec_and_that_is_not_termination(family: Family):
    (task,) = family.tasks(KEY, 1)
    env = family.make(task)
    env.action_space.seed(3)
    env.reset(seed=0)
    for step in range(family.spec.max_episode_steps):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated:
            return
        assert truncated == (step + 1 == family.spec.max_episode_steps)


def test_every_task_can_be_drawn(family: Family):
    assert all(family.draw(task).strip() for task in family.tasks(KEY, 3))


@pytest.mark.parametrize("name", ["item-search", "random-mdp"])
def test_streams_of_finite_families_differ_by_seed(name: str):
    family = family_type(name)()
    assert family.tasks(KEY, 5) != family.tasks(Key.of(1).fold("stream"), 5)


@pytest.mark.parametrize("name", ["item-search", "random-mdp"])
def test_the_environment_plays_the_truth(name: str):
    """Frequencies of outcomes of one pair against the truth: 4 standard errors of 4000 steps."""
    family = family_type(name)()
    assert isinstance(family, FiniteFamily)
    (task,) = family.tasks(KEY, 1)
    truth, env = family.truth(task), family.make(task)
    np.testing.assert_allclose(truth.probability.sum(axis=-1), 1.0)
    np.testing.assert_allclose(truth.reward.sum(axis=-1), 1.0)
    start, _ = env.reset(seed=1)
    met, earned = np.zeros(family.spec.states), 0.0
    for _ in range(4000):
        env.unwrapped.state = start  # pyright: ignore[reportAttributeAccessIssue]
        following, reward, *_ = env.step(0)
        met[following] += 1 / 4000
        earned += float(reward) / 4000
    chance = np.zeros(family.spec.states)
    where = np.arange(family.spec.states) if truth.successor is None else truth.successor[start, 0]
    np.add.at(chance, where, truth.probability[start, 0])
    assert (np.abs(met - chance) <= 4 * np.sqrt(chance * (1 - chance) / 4000) + 1e-12).all()
    assert abs(earned - truth.reward[start, 0] @ family.spec.levels) < 4 * np.ptp(family.spec.levels) / np.sqrt(4000)

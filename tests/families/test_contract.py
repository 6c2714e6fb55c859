"""What every family must keep, whatever it is about."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from posterity.families import FAMILIES, family_type
from posterity.families.base import Family, FiniteFamily
from posterity.types import Key

KEY = Key.of(0).fold("stream")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return family_type(request.param)()


def play(family: Family, task, seed: int, steps: int = 60):
    """What a fixed random policy meets."""
    env = family.make(task)
    generator = np.random.default_rng(0)
    obs, _ = env.reset(seed=seed)
    met = [obs]
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(int(generator.integers(family.spec.actions)))
        met += [obs, reward, terminated, truncated]
        if terminated or truncated:
            obs, _ = env.reset()
            met.append(obs)
    return met


def test_gymnasium_accepts_its_environments(family: Family):
    for task in family.tasks(KEY, 2):
        check_env(family.make(task), skip_render_check=True, skip_close_check=True)


def test_two_copies_of_a_task_with_one_seed_are_identical(family: Family):
    (task,) = family.tasks(KEY, 1)
    (again,) = family.tasks(KEY, 1)
    assert play(family, task, seed=5) == play(family, again, seed=5)


def test_a_longer_stream_begins_with_a_shorter_one(family: Family):
    assert family.tasks(KEY, 9)[:3] == family.tasks(KEY, 3)
    assert [task.index for task in family.tasks(KEY, 9)] == list(range(9))


def test_streams_of_different_seeds_differ(family: Family):
    assert family.tasks(KEY, 5) != family.tasks(Key.of(1).fold("stream"), 5)


def test_a_task_survives_json(family: Family):
    """Factors are plain values: records hold them, and the task can be built again from there."""
    for task in family.tasks(KEY, 3):
        assert json.loads(json.dumps(asdict(task))) == asdict(task)


def test_an_episode_is_cut_off_after_the_steps_of_the_spec_and_that_is_not_termination(family: Family):
    (task,) = family.tasks(KEY, 1)
    env = family.make(task)
    env.reset(seed=0)
    for step in range(family.spec.steps):
        obs, _, terminated, truncated, _ = env.step(0)
        if terminated:
            assert family.spec.terminal[obs]
            return
        assert truncated == (step + 1 == family.spec.steps)


def test_every_task_can_be_drawn(family: Family):
    assert all(family.draw(task).strip() for task in family.tasks(KEY, 3))


def test_the_environment_plays_the_truth(family: Family):
    """Frequencies of outcomes of one pair against the truth: 4 standard errors of 4000 steps."""
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

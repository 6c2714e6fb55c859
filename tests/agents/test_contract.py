"""What every method must keep, on every family it runs on."""

import numpy as np
import pytest

from posterity.agents import METHODS, method
from posterity.experiment import checkpoint
from posterity.experiment.lanes import Lanes, collect
from posterity.families import FAMILIES, family_type
from posterity.types import Key

CASES = [(name, family) for name in METHODS for family in FAMILIES]


def make(name: str, family: str, tasks: int = 3):
    environment = family_type(family)()
    chosen = method(name)
    return environment, chosen.agent_type()(environment.spec, chosen.settings_type()(), tasks, **chosen.fixed)


def live(name: str, family: str, seed: int = 0, tasks: int = 2, iterations: int = 2):
    """A short life; returns the last state and all rows."""
    environment, agent = make(name, family)
    lanes = Lanes(agent, [Key.of(seed)])
    states, rows = lanes.init(), []
    stream = environment.tasks(Key.of(seed).fold("stream"), tasks)
    for task in stream:
        states = lanes.begin_task(task.index, states)
        for iteration in range(iterations):
            states, met = collect(lanes, task.index, iteration, states, [environment.make(task)], 15)
            states, _ = lanes.learn(task.index, iteration, states, [met[0].rows])
            rows.append(met[0].rows)
    return states, rows


def leaves(state):
    return {name: np.asarray(leaf) for name, leaf in checkpoint.leaves(state)}


@pytest.mark.parametrize(("name", "family"), CASES)
def test_the_same_seed_lives_the_same_life(name: str, family: str):
    first, second = live(name, family), live(name, family)
    for one, other in zip(first[1], second[1], strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("name", "family"), CASES)
def test_acting_and_observing_change_no_state_in_place(name: str, family: str):
    environment, agent = make(name, family)
    (task,) = environment.tasks(Key.of(0).fold("stream"), 1)
    env = environment.make(task)
    before = agent.begin_task(Key.of(1), agent.init(Key.of(0)))
    copy = {key: value.copy() for key, value in leaves(before).items()}
    state = before
    obs, _ = env.reset(seed=0)
    for step in range(10):
        state, action = agent.act(Key.of(0).fold(step), state, obs, step == 0)
        following, reward, terminated, *_ = env.step(action)
        row = checkpoint_row(obs, action, reward, following, terminated)
        state = agent.observe(Key.of(0).fold(step, 1), state, row)
        obs = following
        if terminated:
            break
    for key, value in leaves(before).items():
        np.testing.assert_array_equal(value, copy[key])


def checkpoint_row(obs, action, reward, following, terminated):
    from posterity.types import Transition

    return Transition(obs, action, float(reward), following, terminated)


@pytest.mark.parametrize(("name", "family"), CASES)
def test_a_state_survives_the_disk_bit_for_bit(name: str, family: str, tmp_path):
    states, _ = live(name, family)
    _, agent = make(name, family)
    checkpoint.save(tmp_path / "state", states, checkpoint.Position())
    loaded, _ = checkpoint.load(tmp_path / "state", [agent.init(Key.of(9))])
    assert type(loaded[0]) is type(states[0])
    for key, value in leaves(states).items():
        np.testing.assert_array_equal(leaves(loaded)[key], value)


@pytest.mark.parametrize(("name", "family"), CASES)
def test_a_new_task_starts_with_no_memory_of_what_was_visited(name: str, family: str):
    (state,), _ = live(name, family)
    _, agent = make(name, family)
    assert state.visits.any()
    assert not agent.begin_task(Key.of(0), state).visits.any()

"""What every method must keep, on every family it runs on."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from posterity.agents import METHODS, method
from posterity.agents.base import SCORES, Score
from posterity.experiment import checkpoint
from posterity.experiment.collect import EachLane, collect
from posterity.families import family_type
from posterity.types import Budget, Key

BUDGET = Budget(tasks=3, iterations=3, steps=15)
FINITE, REAL = ("item-search", "random-mdp"), ("pendulum-gravity",)
CASES = [(name, family) for name in METHODS for family in (FINITE if METHODS[name].finite else REAL)]
# Fifteen steps make a nearly singular Fisher matrix; damped, conjugate gradients do not blow up its rounding.
GRADIENT = {"value": {"hidden": (8,), "rows": 5}, "damping": 0.1}
SMALL: dict[str, dict[str, Any]] = {
    "BlrlSettings": {},
    "VblrlSettings": {
        "planner": {"horizon": 4, "candidates": 12, "elites": 3, "rounds": 2, "particles": 2},
        "learner": {"world_steps": 4, "task_steps": 4, "task_rows": 8, "world_rows": 4, "world_tasks": 2},
        "network": {"hidden": (8, 8)},
        "horizon": {"use": True, "steps": 3, "hidden": (4,)},
        "task_minimum": 10,
        "world_iterations": 1,
    },
    "NpgSettings": GRADIENT,
    "EwcSettings": GRADIENT | {"hidden": (4,)},
    "LpgFtwSettings": GRADIENT | {"columns": 2},
}


@cache
def make(name: str, family: str):
    """Made once per case, so that what is compiled is compiled once."""
    environment, chosen = family_type(family)(), method(name)
    kind = chosen.settings_type()
    settings = kind.model_validate(SMALL[kind.__name__])
    agent = chosen.agent_type()(environment.spec, settings, BUDGET, **chosen.fixed)
    return environment, agent if hasattr(agent, "together") else EachLane(agent)


def live(name: str, family: str, seeds=(0,), tasks: int = 2, iterations: int = 3):
    """A short life; returns the last state and all rows."""
    environment, learners = make(name, family)
    roots = [Key.of(seed) for seed in seeds]
    state, rows = learners.init([key.fold("init") for key in roots]), []
    streams = [environment.tasks(key.fold("stream"), tasks) for key in roots]
    for number in range(tasks):
        state = learners.begin_task([key.fold(number, "begin") for key in roots], state)
        envs = [environment.make(stream[number]) for stream in streams]
        for iteration in range(iterations):
            keys = [key.fold(number, iteration) for key in roots]
            state, met = collect(learners, keys, state, envs, BUDGET.steps)
            state, infos = learners.learn([key.fold("learn") for key in keys], state, [lane.rows for lane in met])
            assert len(infos) == len(seeds)
            assert all(np.isfinite(list(info.values())).all() for info in infos)
            rows.append([lane.rows for lane in met])
    return state, rows


def leaves(state) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in checkpoint.leaves(state)}


@pytest.mark.parametrize(("name", "family"), CASES)
def test_the_same_seed_lives_the_same_life(name: str, family: str):
    first, second = live(name, family), live(name, family)
    for one, other in zip(first[1], second[1], strict=True):
        for a, b in zip(one[0], other[0], strict=True):
            np.testing.assert_array_equal(a, b)
    for key, value in leaves(first[0]).items():
        np.testing.assert_array_equal(leaves(second[0])[key], value)


@pytest.mark.parametrize(("name", "family"), CASES)
def test_lane_k_lives_the_life_of_seed_k(name: str, family: str):
    """To float tolerance: a batched product may round in another order than a single one."""
    _, together = live(name, family, seeds=(0, 1))
    for seed in (0, 1):
        _, alone = live(name, family, seeds=(seed,))
        for both, one in zip(together, alone, strict=True):
            for a, b in zip(both[seed], one[0], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("name", "family"), CASES)
def test_actions_are_legal(name: str, family: str):
    environment, _ = make(name, family)
    _, rows = live(name, family)
    space = environment.make(environment.tasks(Key.of(0), 1)[0]).action_space
    for lanes in rows:
        for action in lanes[0].action:
            assert space.contains(np.asarray(action, dtype=space.dtype))


@pytest.mark.parametrize(("name", "family"), CASES)
def test_a_state_survives_the_disk_bit_for_bit(name: str, family: str, tmp_path):
    state, _ = live(name, family)
    _, learners = make(name, family)
    checkpoint.save(tmp_path / "state", state, checkpoint.Position(task=2))
    loaded, _ = checkpoint.load(tmp_path / "state", learners.init([Key.of(9)]))
    assert type(loaded) is type(state)
    for key, value in leaves(state).items():
        np.testing.assert_array_equal(leaves(loaded)[key], value)
        assert leaves(loaded)[key].dtype == value.dtype


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("name", "family"), CASES)
def test_what_is_kept_plays_legally_without_learning(name: str, family: str, score: Score):
    environment, learners = make(name, family)
    state, _ = live(name, family)
    keys = [Key.of(3)]
    kept = learners.keep(keys, state)
    before = leaves(kept)
    env = environment.make(environment.tasks(Key.of(0), 1)[0])
    obs, _ = env.reset(seed=0)
    actions = []
    for _ in range(2):
        player = learners.player(kept, kept, score, "confidence")
        for step in range(3):
            player, action = learners.play([key.fold(step) for key in keys], player, [obs], [step == 0])
            actions.append(np.asarray(action[0], dtype=env.action_space.dtype))
            assert env.action_space.contains(actions[-1])
    np.testing.assert_array_equal(actions[:3], actions[3:])
    for place, value in leaves(kept).items():
        np.testing.assert_array_equal(before[place], value)
    assert 0 <= learners.start <= BUDGET.iterations

"""What tests/agents/test_contract.py asks of every method, asked of blrl with every explorer and kind of belief."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posterity
from posterity import tree
from posterity.agents.blrl import NOTES, Blrl, BlrlSettings, BlrlState
from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment.checkpoint import Position
from posterity.experiment.collect import collect
from posterity.families.base import FiniteFamily
from posterity.families.grid import Grid
from posterity.families.itemsearch import ItemSearch
from posterity.families.randommdp import RandomMDP
from posterity.types import Budget, Key

BUDGET = Budget(tasks=2, iterations=2, steps_per_iteration=40)
PLACES = [(task, iteration) for task in range(2) for iteration in range(2)]
CASES: dict[str, tuple[FiniteFamily, dict[str, Any]]] = {
    "psrl": (RandomMDP(), {"explorer": "psrl", "unknown": "task"}),
    "psrl on a sparse grid": (Grid(), {"explorer": "psrl"}),
    "beb": (RandomMDP(), {"explorer": "beb"}),
    "certainty": (RandomMDP(), {"explorer": "certainty", "transfer": False}),
    "bamcp": (RandomMDP(), {"explorer": "bamcp", "simulations": 4}),
    "voi": (RandomMDP(), {"explorer": "voi", "unknown": "task"}),
    "ucb": (RandomMDP(), {"explorer": "ucb", "unknown": "task"}),
    "path": (ItemSearch(), {"explorer": "path", "places": "alike"}),
    "kinds": (RandomMDP(), {"explorer": "ucb", "kinds": 2}),
}
EVERY = pytest.mark.parametrize("case", CASES)


def made(case: str) -> Blrl:
    family, settings = CASES[case]
    return Blrl(family.spec, BlrlSettings.model_validate(settings), BUDGET)


def live(case: str, seeds: tuple[int, ...], places: list[tuple[int, int]], state: BlrlState | None = None) -> BlrlState:
    agent, family = made(case), CASES[case][0]
    roots = [Key.of(seed) for seed in seeds]
    state = agent.init(roots) if state is None else state
    for task, iteration in places:
        if iteration == 0:
            state = agent.begin_task(roots, state)
        envs = [family.make(family.tasks(key.fold("stream"), 2)[task]) for key in roots]
        keys = [key.fold(task, iteration) for key in roots]
        state, met = collect(agent, keys, state, envs, BUDGET.steps_per_iteration)
        state, _ = agent.update(keys, state, met.rows)
    return state


def assert_same(one: object, other: object) -> None:
    for (name, leaf), (_, beside) in zip(tree.leaves(one), tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(leaf), np.asarray(beside), err_msg=name)


@EVERY
def test_saved_within_a_task_a_life_goes_on_as_if_unbroken_and_lane_k_is_the_life_of_seed_k(case: str, tmp_path: Path):
    whole = live(case, (0, 1), PLACES)
    begun = live(case, (0, 1), PLACES[:3])
    before = tree.copied(begun)
    checkpoint.save(tmp_path / "state", begun, Position(1, 1))
    loaded, _ = checkpoint.load(tmp_path / "state", made(case).init([Key.of(8), Key.of(9)]))
    assert_same(live(case, (0, 1), PLACES[3:], loaded), whole)
    assert_same(begun, before)  # saving, loading and going on left it as it was
    assert_same(tree.lane(whole, 1), tree.lane(live(case, (1,), PLACES), 0))


@EVERY
def test_with_transfer_a_task_begins_with_what_the_last_one_taught_and_without_it_does_not(case: str):
    family, settings = CASES[case]
    worlds: dict[bool, list[object]] = {}
    for transfer in (True, False):
        agent = Blrl(family.spec, BlrlSettings.model_validate(settings | {"transfer": transfer}), BUDGET)
        keys = [Key.of(0)]
        state = agent.begin_task(keys, agent.init(keys))
        envs = [family.make(family.tasks(Key.of(0).fold("stream"), 1)[0])]
        state, _ = collect(agent, keys, state, envs, 40)
        worlds[transfer] = [agent.init(keys).world, agent.begin_task(keys, state).world]
    changed = {
        transfer: any(
            (np.asarray(a) != np.asarray(b)).any() for (_, a), (_, b) in zip(*map(tree.leaves, both), strict=True)
        )
        for transfer, both in worlds.items()
    }
    assert changed == {True: True, False: False}


def test_steps_are_counted_whenever_they_are_entered_into_the_table():
    """More steps than there is room for notes, and one pair's visits among them."""
    agent, family = made("psrl"), CASES["psrl"][0]
    keys = [Key.of(0)]
    state = agent.begin_task(keys, agent.init(keys))
    envs = [family.make(family.tasks(keys[0], 1)[0])]
    state, met = collect(agent, keys, state, envs, NOTES + 7)
    visits = np.zeros((6, 3), dtype=np.int64)
    np.add.at(visits, (np.asarray(met.rows.obs)[0], np.asarray(met.rows.action)[0]), 1)
    np.testing.assert_array_equal(agent.entered(keys, state).visits[0], visits)


def test_search_by_path_is_refused_where_no_structure_is_known_before_anything_is_written(tmp_path: Path):
    with pytest.raises(UserError, match="needs a family that declares a layout"):
        posterity.run("random-mdp", out=tmp_path / "run", agent={"explorer": "path"})
    assert not (tmp_path / "run").exists()


def test_a_belief_too_large_for_memory_is_refused_in_one_line_before_anything_is_written(tmp_path: Path):
    with pytest.raises(UserError, match=r"A belief about 1000 states .* would take .* GB and may take 2") as said:
        posterity.run("river-swim", out=tmp_path / "run", env={"states": 1000}, agent={"kinds": 5})
    assert "\n" not in str(said.value)
    assert not (tmp_path / "run").exists()


def test_in_a_house_of_a_known_street_the_object_is_found_by_the_third_epoch_and_every_time_after():
    """Fifteen houses to learn from, and fifteen more: found in four of five of the first three epochs, then always."""
    family = ItemSearch()
    agent = Blrl(family.spec, BlrlSettings(explorer="path", places="alike", unknown="task"), Budget(50, 6, 21))
    keys = [Key.of(0)]
    state, returns = agent.init(keys), []
    for number, task in enumerate(family.tasks(Key.of(0).fold("stream"), 30)):
        state, envs = agent.begin_task(keys, state), [family.make(task)]
        for iteration in range(6):
            state, met = collect(agent, [Key.of(0).fold(number, iteration)], state, envs, 21)
            returns.append(np.mean(met.returns[0]))
    late = np.array(returns).reshape(30, 6)[15:]
    assert late[:, :3].mean() > 0.8
    assert late[:, 4:].mean() == 1.0

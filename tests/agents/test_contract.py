"""What every method keeps (agents/base.py), on families of its kind.

Agents know a family by its spec alone. So there are finite ones with and without structure, and of the others one with
a single action and one with several, whose episodes can also end in a fall.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
import pytest

from posterity import tree
from posterity.agents import METHODS, method
from posterity.agents.base import SCORES, Agent, Info, Keys, Policy, Score
from posterity.experiment import checkpoint
from posterity.experiment.checkpoint import Position
from posterity.experiment.collect import collect
from posterity.families import family_type
from posterity.families.base import Family
from posterity.types import Budget, HostArray, Key, Transition

BUDGET = Budget(tasks=3, iterations=2, steps_per_iteration=12)
Tree = TypeVar("Tree")
PLACES = [(task, iteration) for task in range(2) for iteration in range(2)]  # of a short life, in order
SEEDS = (0, 1)
FINITE: dict[str, dict[str, Any]] = {"item-search": {}, "random-mdp": {}}
SEVERAL = {"hopper-gravity": {"max_episode_steps": 5}}
REAL: dict[str, dict[str, Any]] = {"pendulum-gravity": {"max_episode_steps": 5}, **SEVERAL}


def families_of(name: str) -> dict[str, dict[str, Any]]:
    """The families a method is tested on, with their settings."""
    if METHODS[name].finite:
        return FINITE
    return SEVERAL if METHODS[name].agent == METHODS["vblrl"].agent else REAL  # its programs compile slowly


CASES = [(name, family) for name in METHODS for family in families_of(name)]
EVERY = pytest.mark.parametrize(("name", "family"), CASES)

# Twelve steps make a nearly singular Fisher matrix; damped, conjugate gradients do not blow up its rounding.
GRADIENT = {"value": {"hidden": (8,), "batch_size": 4}, "damping": 0.1}
SMALL: dict[str, dict[str, Any]] = {
    "BlrlSettings": {},
    "VblrlSettings": {
        "planner": {"horizon": 4, "candidates": 12, "elites": 3, "cem_iterations": 2, "particles": 2},
        "learner": {"gradient_steps": 4, "task_batch_size": 8, "world_batch_size": 4},
        "network": {"hidden": (8, 8)},
        "value": {"gradient_steps": 3},
        "task_min_transitions": 10,
        "world_iterations": 1,
        "latent": {"transitions": 8},  # for the method that has one
    },
    "ActorCriticAgentSettings": {"updates_per_step": 1, "hidden": (8,)},
    "NpgSettings": GRADIENT,
    "EwcSettings": GRADIENT | {"hidden": (4,)},
    "LpgFtwSettings": GRADIENT | {"columns": 2},
}


class Life(NamedTuple):
    """What a short life left."""

    state: object
    rows: list[Transition]  # [L, B, ...] of every iteration
    infos: list[Info]


@cache
def make_family(family: str) -> Family:
    kind = family_type(family)
    return kind(kind.settings_type.model_validate((FINITE | REAL)[family]))


def build(name: str, family: str) -> Agent[object, object]:
    chosen, kind = method(name), method(name).settings_type()
    made: Any = chosen.agent_type()  # and not `chosen.build`, by which other tests share agents (conftest.py)
    return made(make_family(family).spec, kind.model_validate(SMALL[kind.__name__]), BUDGET, **chosen.fixed)


@cache
def make(name: str, family: str) -> Agent[object, object]:
    """Made once for a case, so that what is compiled is compiled once."""
    return build(name, family)


def roots(seeds: Sequence[int]) -> list[Key]:
    return [Key.of(seed) for seed in seeds]


def envs_of(family: str, seeds: Sequence[int], task: int) -> list[Any]:
    """[L] the environment of each lane in a task."""
    maker = make_family(family)
    return [maker.make(maker.tasks(key.fold("stream"), 2)[task]) for key in roots(seeds)]


def first_obs(family: str) -> HostArray:
    """[L, ...] how an episode of the first task begins."""
    return np.stack([env.reset(seed=0)[0] for env in envs_of(family, SEEDS, 0)])


def begin(agent: Agent[object, object], seeds: Sequence[int], state: object, task: int) -> object:
    return agent.begin_task([key.fold(task, "begin") for key in roots(seeds)], state)


def live(
    agent: Agent[object, object],
    family: str,
    seeds: Sequence[int] = SEEDS,
    places: Sequence[tuple[int, int]] = PLACES,
    state: object = None,
) -> Life:
    """The iterations at `places`, from `state` on, or from the first one."""
    rows: list[Transition] = []
    infos: list[Info] = []
    state = agent.init([key.fold("init") for key in roots(seeds)]) if state is None else state
    for task, iteration in places:
        state = begin(agent, seeds, state, task) if iteration == 0 else state
        keys = [key.fold(task, iteration) for key in roots(seeds)]
        state, met = collect(agent, keys, state, envs_of(family, seeds, task), BUDGET.steps_per_iteration)
        state, info = agent.update([key.fold("learn") for key in keys], state, met.rows)
        rows.append(met.rows)
        infos.append(info)
    return Life(state, rows, infos)


@cache
def life(name: str, family: str, seeds: tuple[int, ...] = SEEDS, iterations: int = len(PLACES)) -> Life:
    """A life that several tests look at."""
    return live(make(name, family), family, seeds, PLACES[:iterations])


def copied(node: Tree) -> Tree:
    """A tree as it is now."""
    return tree.map_leaves(np.array, node)


def assert_close(one: object, other: object, tolerance: float) -> None:
    """Two trees, leaf by leaf."""
    first, second = dict(tree.leaves(one)), dict(tree.leaves(other))
    assert first.keys() == second.keys()
    for name, leaf in first.items():
        value, beside = np.asarray(leaf), np.asarray(second[name])
        assert value.dtype == beside.dtype, name
        np.testing.assert_allclose(value, beside, rtol=tolerance, atol=tolerance, err_msg=name)


def assert_same(one: object, other: object) -> None:
    """Two trees, bit for bit."""
    assert_close(one, other, 0.0)


def shapes(node: object) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Of every array of a tree; a leaf that is neither an array nor a plain number is refused."""
    found = {name: leaf for name, leaf in tree.leaves(node) if not tree.is_number(leaf)}
    assert all(isinstance(leaf, np.ndarray | jax.Array) for leaf in found.values())
    return {name: (np.asarray(leaf).shape, np.asarray(leaf).dtype) for name, leaf in found.items()}


def numbers(node: object) -> dict[str, object]:
    return {name: leaf for name, leaf in tree.leaves(node) if tree.is_number(leaf)}


# The state ---------------------------------------------------------------------------------------------------------


@EVERY
def test_states_and_snapshots_are_trees_of_numbers_and_of_arrays_with_a_leading_axis_of_lanes(name: str, family: str):
    agent = make(name, family)
    for lanes in (1, 2):
        keys = roots(range(lanes))
        state = life(name, family, SEEDS[:lanes]).state
        for node in (agent.init(keys), begin(agent, SEEDS[:lanes], agent.init(keys), 0), state):
            assert {shape[0] for shape, _ in shapes(node).values()} == {lanes}
        assert {shape[0] for shape, _ in shapes(agent.snapshot(keys, state)).values()} == {lanes}
    one, two = (life(name, family, seeds).state for seeds in ((0,), (0, 1)))
    assert [(shape[1:], kind) for shape, kind in shapes(one).values()] == [
        (shape[1:], kind) for shape, kind in shapes(two).values()
    ]
    assert numbers(one) == numbers(two), "plain numbers are the same for all lanes"


@EVERY
def test_no_array_of_a_state_changes_its_shape_or_type_in_a_life(name: str, family: str):
    """So what a fresh agent makes is the form that a checkpoint is read into."""
    agent = make(name, family)
    assert shapes(life(name, family).state) == shapes(agent.init(roots(SEEDS)))
    state = life(name, family).state
    fresh = agent.snapshot(roots(SEEDS), agent.init(roots(SEEDS)))
    assert shapes(agent.snapshot(roots(SEEDS), state)) == shapes(fresh)


@EVERY
def test_the_same_seeds_live_the_same_life_whatever_the_agent_did_before(name: str, family: str):
    agent, first = make(name, family), life(name, family)
    live(agent, family, (5, 6), PLACES[:3])
    assert_same(live(agent, family), first)


@EVERY
def test_lane_k_lives_the_life_of_seed_k(name: str, family: str):
    """To float tolerance in JAX: a batched product may round in another order than a single one.

    With a latent, in the first iteration: a Metropolis step that a rounding turns leads to another life.
    """
    iterations = 1 if name == "hip-mdp" else len(PLACES)
    together = life(name, family, SEEDS, iterations)
    for lane, seed in enumerate(SEEDS):
        alone = tree.lane(life(name, family, (seed,), iterations), 0)
        assert_close(tree.lane(together, lane), alone, 0.0 if METHODS[name].finite else 1e-3)
    first, second = (np.asarray(tree.lane(together.rows[0].action, lane)) for lane in (0, 1))
    assert (first != second).any(), "lanes differ"


@EVERY
def test_no_lane_knows_of_another(name: str, family: str):
    """With another seed beside it, a lane's life is the same to the bit."""
    beside = live(make(name, family), family, (0, 7))
    assert_same(tree.lane(life(name, family), 0), tree.lane(beside, 0))


@EVERY
def test_saved_and_loaded_by_a_new_agent_a_life_goes_on_as_if_unbroken(name: str, family: str, tmp_path: Path):
    """Cut between two tasks, and within one. Nothing hides outside the state.

    Variants of vblrl are the same class. They are loaded by an agent that has lived on since: what hid in it would be
    of another moment.
    """
    whole = life(name, family)
    anew = make(name, family) if name in ("single-task", "pooled") else build(name, family)
    for done in (2, 3):
        state = live(make(name, family), family, places=PLACES[:done]).state
        position, file = Position(*PLACES[done]), tmp_path / f"state-{done}"
        checkpoint.save(file, state, position, make(name, family).task_memory)
        loaded, found = checkpoint.load(file, anew.init(roots((8, 9))), anew.task_memory)
        assert found == position
        assert type(loaded) is type(state)
        assert_same(loaded, state)
        rest = live(anew, family, places=PLACES[done:], state=loaded)
        assert_same(rest, Life(whole.state, whole.rows[done:], whole.infos[done:]))


@EVERY
def test_acting_observing_and_looking_on_leave_a_state_as_it_was(name: str, family: str):
    agent, state = make(name, family), life(name, family).state
    before, keys = copied(state), roots(SEEDS)
    later, _ = agent.act(keys, state, first_obs(family), np.ones(2, dtype=bool))
    acted = copied(later)
    agent.observe(keys, later, Transition(*(np.asarray(part)[:, 0] for part in life(name, family).rows[0])))
    agent.snapshot(keys, later)
    agent.begin_task(keys, later)
    assert_same(copied(state), before)
    assert_same(copied(later), acted)


# Acting and learning -----------------------------------------------------------------------------------------------


@EVERY
def test_actions_are_legal(name: str, family: str):
    space = envs_of(family, SEEDS, 0)[0].action_space
    actions = np.concatenate([np.asarray(rows.action) for rows in life(name, family).rows], axis=1)
    assert actions.shape[:2] == (2, 4 * 12)
    for action in actions.reshape(2 * 4 * 12, *space.shape):
        assert space.contains(np.asarray(action, dtype=space.dtype))


@EVERY
def test_the_numbers_for_the_record_are_finite_and_one_for_each_lane(name: str, family: str):
    infos = life(name, family).infos
    assert all(infos)
    for key, values in ((key, values) for info in infos for key, values in info.items()):
        assert len(values) == 2
        assert values.ndim == (2 if key == "latent" else 1)
        assert np.isfinite(values).all()
    assert all(("latent" in info) == (name == "hip-mdp") for info in infos)


@pytest.mark.parametrize("name", METHODS)
def test_the_table_of_methods_says_what_the_class_says(name: str):
    """It is told before the method is imported."""
    assert METHODS[name].agent_type().finite == METHODS[name].finite
    assert METHODS[name].summary


# Evaluation --------------------------------------------------------------------------------------------------------


def ways(agent: Agent[object, object]) -> list[tuple[Score, str]]:
    """Every score, and Back in all its variants."""
    backward = agent.back_variants or ("",)
    return [(score, variant) for score in SCORES for variant in (backward if score == "back" else ("",))]


def played(policy: Policy, keys: Keys, obs: HostArray) -> list[tuple[HostArray, Info]]:
    """Three actions of an episode, and what is said of each."""
    told: list[tuple[HostArray, Info]] = []
    for step in range(3):
        action = policy.act([key.fold(step) for key in keys], obs, np.full(len(keys), step == 0))
        told.append((np.array(action), policy.facts()))
    return told


def snapshots(name: str, family: str) -> tuple[object, object, object]:
    """Of the moment before anything was learned, of the end of the first task, and of the end of the second."""
    agent, keys = make(name, family), roots(SEEDS)
    untaught = begin(agent, SEEDS, agent.init(keys), 0)
    first, second = agent.snapshot(keys, untaught), agent.snapshot(keys, life(name, family, SEEDS, 2).state)
    return first, second, agent.snapshot(keys, life(name, family).state)


@EVERY
def test_snapshots_act_legally_for_every_score_and_do_not_learn(name: str, family: str):
    agent, keys, taken = make(name, family), roots(SEEDS), snapshots(name, family)
    before, space = copied(taken), envs_of(family, SEEDS, 0)[0].action_space
    for score, variant in ways(agent):
        own = taken[0] if score == "zero-shot" else taken[1]
        once, again = (played(agent.policy(own, taken[2], score, variant), keys, first_obs(family)) for _ in range(2))
        assert_same(once, again)
        for actions, facts in once:
            assert all(space.contains(action.astype(space.dtype)) for action in actions)
            assert len(actions) == 2
            assert all(value.shape == (2,) and np.isfinite(value).all() for value in facts.values())
    assert_same(copied(taken), before)
    assert 0 <= agent.start_iterations <= BUDGET.iterations


@EVERY
def test_snapshots_act_the_same_from_disk_and_in_any_order_of_lanes(name: str, family: str, tmp_path: Path):
    """As an evaluation has it: written, read into the form of a fresh agent's, and put side by side anew."""
    agent, keys, obs = make(name, family), roots(SEEDS), first_obs(family)
    _, own, latest = snapshots(name, family)
    turned: list[object] = []
    for number, snapshot in enumerate((own, latest)):
        checkpoint.save_tree(tmp_path / f"{number}", snapshot)
        read = checkpoint.load_tree(tmp_path / f"{number}", agent.snapshot(keys, agent.init(keys)))
        assert_same(read, snapshot)
        turned.append(tree.stack([tree.lane(read, 1), tree.lane(read, 0)]))
    for score, variant in ways(agent):
        forth = played(agent.policy(own, latest, score, variant), keys, obs)
        back = played(agent.policy(turned[0], turned[1], score, variant), keys[::-1], obs[::-1])
        assert_same(tree.lane(forth, 0), tree.lane(back, 1))
        assert_same(tree.lane(forth, 1), tree.lane(back, 0))

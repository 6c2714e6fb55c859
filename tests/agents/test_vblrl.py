"""Algorithm 1 as an agent: how tasks begin, which model plans, and that lanes and programs are what they should be."""

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity import tree
from posterity.agents import METHODS
from posterity.agents.base import Info
from posterity.agents.lanes import Program
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlState
from posterity.types import Budget, HostArray, Key, Spec, Transition

SPEC = Spec(obs_dim=2, low=np.array([-1.0]), high=np.array([1.0]), max_episode_steps=12, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(tasks=3, iterations=7, steps_per_iteration=12)
FIRST, GOING_ON = np.ones(2, dtype=bool), np.zeros(2, dtype=bool)
# The same as in the other tests of VBLRL, so that what is compiled is compiled once.
SMALL = {
    "planner": {"horizon": 3, "candidates": 12, "elites": 3, "cem_iterations": 2, "particles": 2},
    "learner": {"gradient_steps": 3, "task_batch_size": 5, "world_batch_size": 4},
    "network": {"hidden": [8]},
    "value": {"gradient_steps": 3},
    "task_min_transitions": 12,
    "world_iterations": 1,
}


def agent(variant: str = "vblrl", **changes: Any) -> Vblrl:
    """Shared by all tests that ask for the same one (conftest.py)."""
    return cast(Vblrl, METHODS[variant].build(SPEC, VblrlSettings.model_validate({**SMALL, **changes}), BUDGET))


def rows(seed: int) -> Transition:
    """Twelve steps x' = x + (a / 10, 1 / 20) from anywhere, with reward x_0, in each of two lanes."""
    draw = np.random.default_rng(seed)
    obs, action = draw.normal(size=(2, 12, 2)), draw.uniform(-1, 1, (2, 12, 1))
    change = np.concatenate([0.1 * action, np.full_like(action, 0.05)], axis=-1)
    none = np.zeros((2, 12), dtype=bool)
    return Transition(obs, action, obs[..., 0], obs + change, none, none)


def learned(learner: Vblrl, tasks: int = 1, iterations: int = 1) -> tuple[VblrlState, Info]:
    state, info = learner.init(KEYS), {}
    for task in range(tasks):
        state = learner.begin_task([key.fold(task) for key in KEYS], state)
        for iteration in range(iterations):
            keys = [key.fold(task, iteration) for key in KEYS]
            state, info = learner.update(keys, state, rows(10 * task + iteration))
    return state, info


def lived(learner: Vblrl, lanes: Sequence[int] = (0, 1)) -> tuple[VblrlState, HostArray]:
    """Two tasks of two iterations with three actions each; the last state, and all actions [steps, L, A]."""
    order, state, actions = [*lanes], learner.init([KEYS[lane] for lane in lanes]), []
    for task in range(2):
        state = learner.begin_task([KEYS[lane].fold(task) for lane in lanes], state)
        for iteration in range(2):
            for step in range(3):
                keys = [KEYS[lane].fold(task, iteration, step) for lane in lanes]
                obs = np.array([[0.0, 0.1 * step], [1.0, 0.1 * step]])
                state, action = learner.act(keys, state, obs[order], np.full(2, step == 0))
                actions.append(action)
            new = Transition(*(column[order] for column in rows(10 * task + iteration)))
            state, _ = learner.update([KEYS[lane].fold(task, iteration) for lane in lanes], state, new)
    return state, np.array(actions)


def same(one: Any, other: Any) -> bool:
    return all(bool((a == b).all()) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def is_zero(node: Any) -> bool:
    return not any(leaf.any() for leaf in jax.tree.leaves(node))


# How a task begins


def test_the_task_posterior_starts_as_the_world_posterior_and_has_it_as_prior():
    state, _ = learned(agent())
    later = agent().begin_task([key.fold(1) for key in KEYS], state)
    assert same(later.task.posterior, state.world.posterior)
    assert same(later.prior, state.world.posterior)
    assert not same(later.prior, state.prior)
    assert not is_zero(state.task.optimiser)
    assert is_zero(later.task.optimiser), "with a fresh optimiser"


def test_the_first_task_has_the_fixed_prior_since_nothing_is_believed_yet():
    state = agent().begin_task(KEYS, agent().init(KEYS))
    assert same(state.task.posterior, state.world.posterior)
    assert is_zero(state.prior.mean)
    assert all(np.allclose(jax.nn.softplus(rho), 0.5) for rho in jax.tree.leaves(state.prior.rho))


def test_without_transfer_a_task_starts_fresh_with_the_fixed_prior():
    learner = agent("single-task")
    state, info = learned(learner)
    later = learner.begin_task([key.fold(1) for key in KEYS], state)
    assert not same(later.task.posterior, state.task.posterior)
    assert not same(later.task.posterior, state.world.posterior)
    assert is_zero(later.prior.mean)
    assert "world_loss" not in info
    assert "task_loss" in info


def test_one_model_for_all_tasks_learns_and_plans_and_there_is_no_other():
    state, info = learned(agent("pooled"))
    assert "task_loss" not in info
    assert "world_loss" in info
    for iteration in range(3):
        acting = agent("pooled").acting(state._replace(iteration=iteration))
        assert same(acting.posterior, state.world.posterior)
    assert not same(state.task.posterior, state.world.posterior)


# Who plans


@pytest.mark.parametrize(("world_iterations", "minimum", "start"), [(1, 12, 1), (2, 12, 2), (0, 13, 2), (1, 36, 3)])
def test_the_world_posterior_plans_in_the_first_iterations_and_the_tasks_own_afterwards(
    world_iterations: int, minimum: int, start: int
):
    """Until it has had its iterations, and the task has had enough transitions to be fitted."""
    learner = agent(world_iterations=world_iterations, task_min_transitions=minimum)
    assert learner.start_iterations == start
    state, _ = learned(agent())
    state = state._replace(task_number=1)
    assert not same(state.task.posterior, state.world.posterior)
    for iteration in range(5):
        acting = learner.acting(state._replace(iteration=iteration)).posterior
        assert same(acting, state.world.posterior if iteration < start else state.task.posterior)


def test_the_score_start_is_taken_after_one_iteration_at_the_earliest():
    assert agent(world_iterations=0, task_min_transitions=1).start_iterations == 1


def test_actions_are_random_only_in_the_very_first_iteration():
    obs = np.zeros((2, 2))

    def random(learner: Vblrl, state: VblrlState) -> bool:
        drawn = np.stack([key.generator().uniform(-1, 1, 1) for key in KEYS]).astype(np.float32)
        return np.array_equal(learner.act(KEYS, state, obs, FIRST)[1], drawn)

    fresh = agent().begin_task(KEYS, agent().init(KEYS))
    state, _ = learned(agent())
    assert random(agent(), fresh)
    assert not random(agent(), state)
    assert not random(agent(), agent().begin_task(KEYS, state))
    alone, _ = learned(agent("single-task"))
    assert not random(agent("single-task"), alone)
    assert random(agent("single-task"), agent("single-task").begin_task(KEYS, alone)), "nothing is carried over"


@pytest.mark.parametrize(
    ("bayesian", "drawn"), [("both", [True, True]), ("world", [True, False]), ("none", [False, False])]
)
def test_a_model_that_is_not_bayesian_plans_as_a_plain_network(bayesian: str, drawn: list[bool]):
    """Networks of the others are drawn with all of their spread: the world's plans first, then the task's."""
    learner = agent(bayesian=bayesian)
    state, _ = learned(agent())
    noises = [learner.acting(state._replace(task_number=1, iteration=iteration)).noise for iteration in (0, 1)]
    assert [noise is not None and bool((noise == 1.0).all()) for noise in noises] == drawn
    assert [noise is None for noise in noises] == [not one for one in drawn]


def test_a_search_begins_where_the_last_one_ended_and_anew_with_an_episode():
    state, _ = learned(agent())
    far = state._replace(plan=jax.tree.map(lambda leaf: leaf + 0.9, state.plan))
    obs = np.zeros((2, 2))
    _, kept_on = agent().act(KEYS, far, obs, GOING_ON)
    _, anew = agent().act(KEYS, far, obs, FIRST)
    _, plain = agent().act(KEYS, state, obs, FIRST)
    np.testing.assert_array_equal(anew, plain)
    assert not (kept_on == anew).any()


def test_every_sixteenth_plan_is_imagined_once_more_and_that_is_the_forecast():
    """By the networks it was found by, within the horizon: what follows it is no part of the promise."""
    learner = agent()
    state, _ = learned(learner)
    asked = []
    for step in range(17):
        keys, obs = [key.fold(step) for key in KEYS], np.full((2, 2), 0.1 * step, np.float32)
        before, (state, actions) = state, learner.act(keys, state, obs, np.full(2, step == 0))
        if not (state.forecast[:, 2] > before.forecast[:, 2]).all():
            continue
        asked.append(step)
        for lane in range(2):
            model = tree.lane(learner.acting(before)._replace(critic=None), lane)
            draw, search = jax.random.split(jax.random.wrap_key_data(jnp.asarray(keys[lane].words(2))))
            returns = learner.planner.rollouts.forward(draw, model, jnp.asarray(obs[lane]))
            found = jnp.concatenate([actions[lane][None], state.plan.mean[lane, :-1]])
            promised, _ = returns(jax.random.split(search)[1], found[None])
            added = state.forecast[lane] - before.forecast[lane]
            np.testing.assert_allclose(added[:2], [promised.mean(), promised.std()], rtol=1e-3, atol=1e-4)
    assert asked == [0, 16]


# Lanes and programs


def test_a_run_follows_from_its_seed_alone_whichever_lane_it_is_in():
    """Seeds 0 and 1 against 1 and 0, by the same programs. That lane k is the run of seed k alone: test_contract.py."""
    there, actions = lived(agent())
    here, swapped = lived(agent(), (1, 0))
    np.testing.assert_allclose(actions, swapped[:, ::-1], rtol=1e-3, atol=1e-3)
    for lane in (0, 1):
        pair = (jax.tree.leaves(tree.lane(state, index)) for state, index in ((there, lane), (here, 1 - lane)))
        for one, other in zip(*pair, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    assert not np.isclose(actions[:, 0], actions[:, 1], atol=1e-2).all(), "and no two seeds are the same"


def programs(owner: object) -> dict[str, Program[Any]]:
    """The compiled programs of an object, by name."""
    found: dict[str, Program[Any]] = {}
    for name, part in vars(owner).items():
        parts = part if isinstance(part, dict) else {"": part}
        found |= {f"{name}{key}": one for key, one in parts.items() if isinstance(one, Program)}
    return found


def test_every_program_is_traced_exactly_once_in_a_run_and_its_evaluation():
    learner = Vblrl(SPEC, VblrlSettings.model_validate(SMALL), BUDGET)
    state, _ = lived(learner)
    now = learner.snapshot(KEYS, state)
    stored = tree.map_leaves(np.asarray, now)  # as it comes from the disk
    for own in (now, stored):
        for variant in learner.back_variants:
            policy = learner.policy(own, now, "back", variant)
            for first in (FIRST, GOING_ON):
                policy.act(KEYS, np.zeros((2, 2)), first)
    found = programs(learner.programs) | programs(learner.planner)
    traces = {name: program.traces for name, program in found.items()}
    assert traces.pop("fit('task', 'world')") == 0, "both at once: only on a GPU"
    assert traces.pop("widened") == 0, "only of ensembles"
    assert [traces.pop(name) for name in ("init_termination", "fit_termination")] == [0, 0], "only if one is learned"
    assert [traces.pop(name) for name in ("init_actor", "fit_actor", "explore")] == [0, 0, 0], "only with an actor"
    assert len(traces) == 15
    assert set(traces.values()) == {1}, traces

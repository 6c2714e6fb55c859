"""vblrl with a map of sparse rewards: what a task begins with, what steps change, and where a map cannot be had."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents import METHODS
from posterity.agents.detection import detecting
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlState
from posterity.errors import UserError
from posterity.models.reward_map import RewardBelief
from posterity.types import Budget, Key, Spec, Transition

SPEC = Spec(obs_dim=2, low=np.array([-1.0]), high=np.array([1.0]), max_episode_steps=12, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(tasks=3, iterations=2, steps_per_iteration=12)
SMALL = {
    "planner": {"horizon": 3, "candidates": 12, "elites": 3, "cem_iterations": 2, "particles": 2},
    "learner": {"gradient_steps": 3, "task_batch_size": 5, "world_batch_size": 4},
    "network": {"hidden": [8]},
    "task_min_transitions": 12,
    "world_iterations": 1,
    "reward_map": {"lattice": 4},
}


def agent(variant: str = "vblrl", spec: Spec = SPEC, **changes: Any) -> Vblrl:
    return cast(Vblrl, METHODS[variant].build(spec, VblrlSettings.model_validate({**SMALL, **changes}), BUDGET))


def rows(seed: int) -> Transition:
    """Twelve steps in each of two lanes, of which those to the right are rewarded."""
    obs, none = np.random.default_rng(seed).normal(size=(2, 12, 2)), np.zeros((2, 12), dtype=bool)
    following = obs + 0.1
    return Transition(obs, np.zeros((2, 12, 1)), (following[..., 0] > 0.5).astype(float), following, none, none)


def lived(learner: Vblrl, tasks: int, lanes: tuple[int, ...] = (0, 1)) -> VblrlState:
    """Tasks of two iterations each, every step observed."""
    keys = [KEYS[lane] for lane in lanes]
    state = learner.init(keys)
    for task in range(tasks):
        state = learner.begin_task([key.fold(task) for key in keys], state)
        for iteration in range(2):
            new = Transition(*(column[[*lanes]] for column in rows(10 * task + iteration)))
            for step in range(12):
                told = [key.fold(task, iteration, step) for key in keys]
                state, _ = learner.act(told, state, np.asarray(new.obs[:, step]), np.full(len(lanes), step == 0))
                state = learner.observe(told, state, Transition(*(np.asarray(part)[:, step] for part in new)))
            state, _ = learner.update([key.fold(task, iteration) for key in keys], state, new)
    return state


def belief(state: VblrlState) -> RewardBelief:
    assert state.rewards is not None
    return state.rewards


def variance(state: VblrlState) -> np.ndarray:
    """[L, C] of the task's map."""
    return np.asarray(jnp.diagonal(belief(state).covariance, axis1=1, axis2=2))


def next_task(learner: Vblrl, state: VblrlState) -> VblrlState:
    return learner.begin_task([key.fold(9) for key in KEYS], state)


def test_a_task_begins_with_what_earlier_ones_taught_and_no_more():
    learner = agent()
    state = lived(learner, 1)
    later = next_task(learner, state)
    assert later.reward_prior is not None
    np.testing.assert_allclose(variance(later), later.reward_prior.variance, rtol=1e-6)
    fresh = np.asarray(learner.init(KEYS).reward_prior.variance)  # pyright: ignore[reportOptionalMemberAccess]
    changed = np.asarray(later.reward_prior.variance) < 0.9 * fresh
    assert changed.any(), "where the first task has been less is doubted"
    assert not changed.all(), "and where it has not been all is open"


def test_without_transfer_every_task_begins_with_nothing():
    learner = agent("single-task")
    later = next_task(learner, lived(learner, 2))
    np.testing.assert_array_equal(variance(later), variance(learner.init(KEYS)))


def test_one_model_for_all_tasks_has_one_map_for_all_tasks():
    learner = agent("pooled")
    state = lived(learner, 2)
    np.testing.assert_array_equal(belief(next_task(learner, state)).mean, belief(state).mean)


def test_a_step_changes_what_is_believed_at_once_and_plans_by_it():
    learner = agent()
    state = lived(learner, 1)
    step = Transition(*(np.asarray(part)[:, 0] for part in rows(5)))
    after = learner.observe(KEYS, state, step)
    assert (variance(after).sum(axis=1) < variance(state).sum(axis=1)).all()
    assert learner.acting(after).rewards is after.rewards
    assert learner.snapshot(KEYS, after).rewards is after.rewards


def test_the_lattice_lies_around_where_the_first_episode_began():
    """Not around the places that happened to be met: an explorer begins again and again, and may go any way."""
    state = lived(agent(), 2)
    np.testing.assert_allclose(belief(state).centre, rows(0).obs[:, 0], rtol=1e-6)


def test_lane_k_of_a_batched_run_is_the_run_of_seed_k():
    both, alone = lived(agent(), 2), lived(agent(), 2, lanes=(1,))
    for batched, single in zip(jax.tree.leaves(belief(both)), jax.tree.leaves(belief(alone)), strict=True):
        np.testing.assert_allclose(batched[1], single[0], atol=2e-4)


@pytest.mark.parametrize("score", ["zero-shot", "start"])
def test_an_evaluation_of_a_new_task_learns_its_map_and_leaves_the_runs_as_it_is(score: Any):
    learner = agent()
    taken = learner.snapshot(KEYS, next_task(learner, lived(learner, 1)))
    policy = learner.policy(taken, taken, score, "")
    assert taken.rewards is not None
    before = np.array(taken.rewards.mean)
    policy.act(KEYS, np.zeros((2, 2)), np.ones(2, bool))
    policy.observe(KEYS, Transition(*(np.asarray(part)[:, 0] for part in rows(5))))
    (model,) = policy.models
    assert model.rewards is not None
    assert not np.array_equal(model.rewards.mean, before)
    np.testing.assert_array_equal(taken.rewards.mean, before)


def test_where_a_map_cannot_be_had_one_line_says_why():
    deep = Spec(4, np.array([-1.0]), np.array([1.0]), 12, alive=None)
    known = SPEC._replace(reward=lambda obs, action, next_obs: obs[..., 0])
    with pytest.raises(UserError, match="at most 3 numbers, and these have 4"):
        agent(spec=deep)
    with pytest.raises(UserError, match="is known"):
        agent(spec=known)
    with pytest.raises(UserError, match="not from a map"):
        agent(policy={"updates_per_step": 1})
    with pytest.raises(UserError, match="2 or more points"):
        agent(reward_map={"lattice": 1})
    with pytest.raises(UserError, match="does not compare maps"):
        detecting(agent(), 1)

"""An inherited actor and a fresh one take turns at the beginning of a task, and the better of them goes on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents.actor_critic import ActorCriticAgentSettings, ActorCriticMethod
from posterity.agents.training import VblrlSettings
from posterity.agents.trial import Trials
from posterity.agents.vblrl import Vblrl
from posterity.models import actor_critic, replay
from posterity.types import Budget, Key, Spec, Transition

SPEC = Spec(2, np.array([-1.0]), np.array([1.0]), 8, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(3, 4, 8)
VBLRL: dict[str, Any] = {
    "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 0, "particles": 2},
    "learner": {"gradient_steps": 2, "task_batch_size": 8, "world_batch_size": 4},
    "network": {"hidden": (8,)},
    "policy": {"updates_per_step": 1, "imagined_share": 0.5, "trial_iterations": 3},
    "value": {"gradient_steps": 0},
    "latent": {"size": 2, "transitions": 8},
    "members": 2,
    "task_min_transitions": 8,
    "world_iterations": 1,
}


def networks(seed: int) -> Any:
    """Of two lanes."""
    made = [actor_critic.init(jax.random.key(seed + lane), 2, 1, (4,)) for lane in range(2)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)


def same(one: Any, other: Any, lane: int) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(bool((a[lane] == b[lane]).all()) for a, b in pairs)


def tried(iterations: int, earned: list[list[float]]) -> tuple[Any, Any, Any, Any]:
    """Task 2 of two lanes: what was inherited, what is fresh, and how the trial ended."""
    trials, inherited, fresh = Trials(iterations), networks(0), networks(10)
    trial = trials.begin(fresh, np.zeros(2, np.int32))
    end: Any = None
    for iteration, each in enumerate(earned):
        end = trials.follow(trial, inherited, 2, iteration, np.asarray(each, np.float32))
        trial = end.trial
        if iteration + 1 < iterations:
            turn = fresh if trials.fresh_acts(2, iteration + 1) else inherited
            assert all(same(end.playing, turn.now.actor, lane) for lane in range(2))
            assert all(same(end.networks, inherited, lane) for lane in range(2))
    return inherited, fresh, end, trial


def test_each_lane_goes_on_with_the_inherited_actor_only_if_its_turns_earned_more():
    """Turns of the inherited one earn 6 and 2: a mean of 4, and a standard error of 2. In the first lane the fresh one
    earned 5, in the second 1."""
    inherited, fresh, end, trial = tried(3, [[6.0, 6.0], [5.0, 1.0], [2.0, 2.0]])
    assert same(end.networks, fresh, 0)
    assert same(end.networks, inherited, 1)
    assert same(end.playing, fresh.now.actor, 0)
    assert same(end.playing, inherited.now.actor, 1)
    np.testing.assert_array_equal(trial.since, [2, 0])


def test_a_difference_that_chance_would_make_is_no_reason_to_inherit():
    """Equal returns in the first lane; in the second a mean of 4 against 2.5, with a standard error of 2."""
    _, fresh, end, trial = tried(3, [[1.0, 6.0], [1.0, 2.5], [1.0, 2.0]])
    assert all(same(end.networks, fresh, lane) for lane in range(2))
    np.testing.assert_array_equal(trial.since, [2, 2])


def test_a_trial_of_one_iteration_has_no_turn_of_the_fresh_one():
    inherited, _, end, _ = tried(1, [[-5.0, -5.0]])
    assert all(same(end.networks, inherited, lane) for lane in range(2))


def test_the_first_task_and_later_iterations_are_no_trial():
    trials = Trials(4)
    assert [trials.under_way(task, iteration) for task, iteration in ((0, 0), (1, 0), (1, 3), (1, 4))] == [
        False,
        True,
        True,
        False,
    ]
    assert [trials.fresh_acts(1, iteration) for iteration in range(6)] == [False, True, False, True, False, False]


def met(tasks: int) -> replay.Replay:
    """The observation says which task a transition is of."""
    memory = replay.empty(4, 6, 1, 1)
    for task in range(tasks):
        place, none = np.full((6, 1), task, np.float32), np.zeros(6, bool)
        rows = Transition(place, np.zeros((6, 1), np.float32), np.ones(6, np.float32), place, none, none)
        memory = replay.add(memory, jnp.int32(task), rows)
    return memory


@pytest.mark.parametrize(("since", "tasks"), [(0, {0, 1, 2, 3}), (1, {1, 2, 3}), (2, {2, 3}), (3, {3})])
def test_a_batch_has_no_transitions_from_before_a_fresh_start(since: int, tasks: set[int]):
    rows = replay.sample_mixed(jax.random.key(0), met(4), jnp.int32(3), 0.5, 500, jnp.int32(since))
    assert set(np.asarray(rows.obs)[:, 0].astype(int)) == tasks


def played(agent: Any, task_rewards: list[list[float]]) -> list[tuple[Any, Any]]:
    """The states after each iteration; every step of iteration i of task k earns task_rewards[k][i]."""
    generator, state, states = np.random.default_rng(0), agent.init(KEYS), []
    for task, rewards in enumerate(task_rewards):
        state = agent.begin_task([key.fold("task", task) for key in KEYS], state)
        for iteration, reward in enumerate(rewards):
            keys = [key.fold("task", task, "iteration", iteration) for key in KEYS]
            obs = generator.normal(size=(2, 9, 2))
            steps, over = [key.fold("step", 0, "act") for key in keys], np.zeros((2, 8), bool)
            state, action = agent.act(steps, state, obs[:, 0].astype(np.float32), np.ones(2, bool))
            actions = np.broadcast_to(np.asarray(action)[:, None], (2, 8, 1))
            rows = Transition(obs[:, :-1], actions, np.full((2, 8), reward), obs[:, 1:], over, over)
            state, info = agent.update(keys, state, rows)
            states.append((state, info))
    return states


def agents() -> list[Any]:
    plain = ActorCriticAgentSettings(updates_per_step=1, hidden=(8,), transfer=True, trial_iterations=3)
    return [ActorCriticMethod(SPEC, plain, BUDGET), Vblrl(SPEC, VblrlSettings.model_validate(VBLRL), BUDGET)]


@pytest.mark.parametrize("number", [0, 1], ids=["actor-critic", "vblrl"])
def test_an_agent_goes_on_with_the_fresh_actor_where_that_earned_more(number: int):
    """In the second task the fresh actor's turn pays, in the third that of the inherited one."""
    states = played(agents()[number], [[0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]])
    fresh = [np.asarray(info["fresh"]).all() for _, info in states]
    assert fresh == [True, True, False, True, False, True, False, True, False, False]
    before, after, last = (states[place][0] for place in (3, 4, -1))
    name = "training" if number == 0 else "actor"
    assert all(same(after._asdict()[name], after.trial.fresh, lane) for lane in range(2))
    assert not same(before._asdict()[name], before.trial.fresh, 0)
    np.testing.assert_array_equal(after.trial.since, [1, 1])
    np.testing.assert_array_equal(last.trial.since, [1, 1])


def test_an_actor_beside_a_plan_is_not_tried():
    with pytest.raises(ValueError, match="trial_iterations"):
        VblrlSettings.model_validate(VBLRL | {"planner": VBLRL["planner"] | {"cem_iterations": 1}})

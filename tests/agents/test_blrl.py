"""BLRL and BOSS, mostly on a problem of two states: one lane, unless lanes are what is tested."""

from typing import Literal

import numpy as np
import pytest

from posterity import tree
from posterity.agents.blrl import Blrl, BlrlSettings, BlrlState
from posterity.families.itemsearch import ItemSearch
from posterity.families.randommdp import RandomMDP
from posterity.tabular.dirichlet import DirichletRows, Pooling, Rows, TaskRows, World
from posterity.tabular.layout import HiddenLayout
from posterity.tabular.mdp import FiniteMDP, policy_values, value_iteration
from posterity.types import Budget, FiniteSpec, FloatArray, Key, Transition

BUDGET = Budget(tasks=1, iterations=1, steps_per_iteration=10)
TWO_TASKS = BUDGET._replace(tasks=2)
SPEC = FiniteSpec(2, 2, np.array([0.0, 1.0]), np.zeros(2, dtype=bool), 10)
KEYS = [Key.of(0)]


def begun(agent: Blrl, *numbers: int) -> BlrlState:
    """In the first task, before anything was done: a lane for each seed."""
    keys = [Key.of(number) for number in numbers or (0,)]
    return agent.begin_task(keys, agent.init(keys))


def act(agent: Blrl, state: BlrlState, obs: int, number: int = 0) -> tuple[BlrlState, int]:
    """What the one lane does, with a key of this number."""
    state, actions = agent.act([Key.of(0).fold(number)], state, np.array([obs]), np.array([False]))
    return state, int(actions[0])


def see(agent: Blrl, state: BlrlState, obs: int, action: int, reward: float, following: int) -> BlrlState:
    """The one lane makes a step that ends nothing."""
    parts = (obs, action, reward, following, False, False)
    state = agent.observe(KEYS, state, Transition(*(np.array([part]) for part in parts)))
    return agent.entered(KEYS, state)


def next_states(state: BlrlState) -> FloatArray:
    """[S, A, S] the world posterior of the one lane."""
    assert isinstance(state.world, World)
    return state.world.alpha.next_state[0]


def prior_of_task(state: BlrlState) -> Rows:
    """What the task began with, with a leading axis of lanes."""
    assert isinstance(state.task, TaskRows)
    return state.task.prior


def point_mass() -> World:
    """Certain of the two-state problem: staying in state 1 pays 1; "go" moves over and pays nothing. One lane."""
    sure = 1e9
    next_state, reward = np.full((1, 2, 2, 2), 1e-9), np.full((1, 2, 2, 2), 1e-9)
    for state, action, following, level in ((0, 0, 0, 0), (0, 1, 1, 0), (1, 0, 1, 1), (1, 1, 0, 0)):
        next_state[0, state, action, following] = sure
        reward[0, state, action, level] = sure
    flat = tree.stack([DirichletRows(SPEC, BUDGET, 1.0, "counts").prior()])
    return flat._replace(alpha=Rows(next_state, reward))


def test_with_one_model_and_a_point_mass_boss_acts_optimally_from_the_first_step():
    agent = Blrl(SPEC, BlrlSettings(models=1), BUDGET, transfer=False)
    state = agent.begin_task(KEYS, agent.init(KEYS)._replace(world=point_mass()))
    assert act(agent, state, 0)[1] == 1  # go over to state 1
    assert act(agent, state, 1)[1] == 0  # and stay there


def test_models_are_sampled_again_exactly_when_a_pair_becomes_known():
    agent = Blrl(SPEC, BlrlSettings(known=3), BUDGET)
    state = begun(agent)
    resamplings = []
    for step in range(7):
        state, _ = act(agent, state, 0, step)
        resamplings.append(int(np.asarray(state.resamplings)[0]))
        state = see(agent, state, 0, 0, 0.0, 0)
    assert resamplings == [1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("transfer", [True, False])
def test_blrl_takes_the_task_into_the_world_posterior_when_a_pair_becomes_known_and_boss_never(transfer: bool):
    agent = Blrl(SPEC, BlrlSettings(known=2), TWO_TASKS, transfer=transfer)
    state = begun(agent)
    prior = next_states(state).copy()
    for visit in (1, 2):
        state = see(agent, state, 0, 0, 1.0, 1)
        changed = bool((next_states(state) != prior).any())
        assert changed == (transfer and visit == 2)
    later = agent.begin_task([Key.of(1)], state)
    assert bool((prior_of_task(later).next_state[0] != prior).any()) == transfer


def test_the_task_posterior_starts_as_the_world_posterior():
    agent = Blrl(SPEC, BlrlSettings(known=1), TWO_TASKS)
    state = see(agent, begun(agent), 0, 0, 1.0, 1)
    later = agent.begin_task([Key.of(1)], state)
    assert isinstance(later.task, TaskRows)
    assert isinstance(state.world, World)
    for prior, alpha in zip(later.task.prior, state.world.alpha, strict=True):
        np.testing.assert_array_equal(prior, alpha)
    assert not any(counts.any() for counts in later.task.counts)


@pytest.mark.parametrize(
    ("transfer", "unknown", "low", "high"),
    [(False, "world", 0.9, 1.0), (True, "task", 0.9, 1.0), (True, "world", 0.35, 0.65)],
    ids=["boss", "pseudo-code", "text"],
)
def test_boss_and_the_pseudo_code_use_what_was_seen_of_unknown_pairs_and_the_text_does_not(
    transfer: bool, unknown: Literal["world", "task"], low: float, high: float
):
    """Fifty visits of a pair that pays, B = 100: who samples from the task posterior knows; the flat prior says 1/2."""
    agent = Blrl(SPEC, BlrlSettings(known=100, models=1, gamma=0.0, unknown=unknown), BUDGET, transfer=transfer)
    state = begun(agent)
    for _ in range(50):
        state = see(agent, state, 0, 1, 1.0, 0)
    chosen = [act(agent, state, 0, number)[1] for number in range(200)]
    assert low < np.mean(chosen) <= high


def test_the_world_posterior_takes_in_a_finished_task_to_its_end():
    agent = Blrl(SPEC, BlrlSettings(known=5, pooling="counts"), TWO_TASKS)
    state = begun(agent)
    for _ in range(8):
        state = see(agent, state, 0, 1, 1.0, 0)
    assert next_states(state)[0, 1, 0] == 1 + 5
    assert next_states(agent.begin_task([Key.of(1)], state))[0, 1, 0] == 1 + 8


def test_when_nothing_promises_a_reward_actions_are_tried_at_random():
    agent = Blrl(SPEC._replace(levels=np.array([0.0])), BlrlSettings(), BUDGET)
    state = begun(agent)
    assert {act(agent, state, 0, step)[1] for step in range(40)} == {0, 1}


def test_a_new_task_starts_with_no_memory_of_what_was_visited():
    agent = Blrl(SPEC, BlrlSettings(), TWO_TASKS)
    state = see(agent, begun(agent), 0, 0, 0.0, 1)
    assert state.visits.sum() == 1
    assert not agent.begin_task([Key.of(1)], state).visits.any()


def test_what_is_known_and_how_often_models_were_sampled_goes_on_record_for_each_lane():
    """Lane 1 stays in one pair, which becomes known once; lane 0 meets two pairs twice."""
    agent = Blrl(SPEC, BlrlSettings(known=2), BUDGET)
    keys, state = [Key.of(0), Key.of(1)], begun(agent, 0, 1)
    no = np.zeros(2, dtype=bool)
    for obs in (0, 0, 1, 1):
        state, _ = agent.act(keys, state, np.array([obs, 0]), no)
        step = Transition(np.array([obs, 0]), np.zeros(2, int), np.zeros(2), np.zeros(2, int), no, no)
        state = agent.observe(keys, state, step)
    _, info = agent.update(keys, state, step)
    np.testing.assert_array_equal(info["known_pairs"], [2, 1])
    np.testing.assert_array_equal(info["resamplings"], [2, 2])


def test_a_snapshot_has_the_policy_that_the_next_step_would_follow():
    """Just after a pair became known that is the policy of models sampled anew, else the one there is."""
    agent = Blrl(SPEC, BlrlSettings(known=2), BUDGET)
    state, _ = act(agent, begun(agent), 0)
    state = see(agent, state, 0, 0, 1.0, 0)
    np.testing.assert_array_equal(agent.snapshot(KEYS, state).policy, state.policy)
    state = see(agent, state, 0, 0, 1.0, 0)
    assert state.resample.all()
    following, _ = agent.act(KEYS, state, np.array([0]), np.array([False]))
    np.testing.assert_array_equal(agent.snapshot(KEYS, state).policy, following.policy)


def test_acting_and_observing_change_no_state_in_place():
    family = RandomMDP()
    agent = Blrl(family.spec, BlrlSettings(), BUDGET)
    before = begun(agent)
    copy = {name: np.copy(np.asarray(leaf)) for name, leaf in tree.leaves(before)}
    state, action = act(agent, before, 0)
    see(agent, state, 0, action, 1.0, 2)
    for name, leaf in tree.leaves(before):
        np.testing.assert_array_equal(np.asarray(leaf), copy[name])


def test_structure_can_be_left_unused():
    family = ItemSearch()
    assert isinstance(Blrl(family.spec, BlrlSettings(), BUDGET).belief, HiddenLayout)
    assert isinstance(Blrl(family.spec, BlrlSettings(structure=False), BUDGET).belief, DirichletRows)


@pytest.mark.parametrize("pooling", ["evidence", "counts"])
def test_after_many_visits_the_policy_is_nearly_optimal_in_the_true_task(pooling: Pooling):
    """400 observations of every pair, then one plan: less than 0.1 of a value near 12 may be lost."""
    family = RandomMDP()
    (task,) = family.tasks(Key.of(0).fold("stream"), 1)
    truth, generator = family.truth(task), np.random.default_rng(0)
    agent = Blrl(family.spec, BlrlSettings(known=400, pooling=pooling), BUDGET)
    state = begun(agent)
    for s, a in np.ndindex(family.spec.states, family.spec.actions):
        following = generator.choice(family.spec.states, size=400, p=truth.probability[s, a])
        rewards = generator.choice(family.spec.levels, size=400, p=truth.reward[s, a])
        for next_state, reward in zip(following, rewards, strict=True):
            state = see(agent, state, s, a, float(reward), int(next_state))
    state, _ = act(agent, state, 0, 1)
    process = FiniteMDP(truth.probability, None, truth.reward @ family.spec.levels, family.spec.terminal)
    lost = value_iteration(process, 0.95, 1e-9).values - policy_values(process, state.policy[0], 0.95)
    assert 0 <= lost.max() < 0.1

import numpy as np
import pytest

from posterity.agents.blrl import Blrl, BlrlSettings
from posterity.experiment.checkpoint import leaves
from posterity.families.itemsearch import ItemSearch
from posterity.families.randommdp import RandomMDP
from posterity.tabular.dirichlet import Rows, World
from posterity.types import Budget, FiniteSpec, Key, Transition

BUDGET = Budget(tasks=1, iterations=1, steps=10)
SPEC = FiniteSpec(2, 2, np.array([0.0, 1.0]), np.zeros(2, dtype=bool), 10)


def point_mass() -> World:
    """Certain of the two-state problem: staying in state 1 pays 1; "go" moves over and pays nothing."""
    sure = 1e9
    next_state, reward = np.full((2, 2, 2), 1e-9), np.full((2, 2, 2), 1e-9)
    for state, action, following, level in ((0, 0, 0, 0), (0, 1, 1, 0), (1, 0, 1, 1), (1, 1, 0, 0)):
        next_state[state, action, following] = sure
        reward[state, action, level] = sure
    return World(Rows(next_state, reward), Rows(np.zeros((1, 2, 2, 2)), np.zeros((1, 2, 2, 2))), -1)


def test_with_one_model_and_a_point_mass_boss_acts_optimally_from_the_first_step():
    agent = Blrl(SPEC, BlrlSettings(models=1), BUDGET._replace(tasks=1), transfer=False)
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0))._replace(world=point_mass()))
    assert agent.act(Key.of(1), state, 0, first=True)[1] == 1  # go over to state 1
    assert agent.act(Key.of(1), state, 1, first=True)[1] == 0  # and stay there


def test_models_are_sampled_again_exactly_when_a_pair_becomes_known():
    agent = Blrl(SPEC, BlrlSettings(known=3), BUDGET._replace(tasks=1))
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
    resampled = []
    for step in range(7):
        state, _ = agent.act(Key.of(step), state, 0, first=step == 0)
        resampled.append(state.resampled)
        state = agent.observe(Key.of(step), state, Transition(0, 0, 0.0, 0, False))
    assert resampled == [1, 1, 1, 2, 2, 2, 2]


def test_blrl_takes_the_task_into_the_world_posterior_when_a_pair_becomes_known_and_boss_never():
    for transfer in (True, False):
        agent = Blrl(SPEC, BlrlSettings(known=2), BUDGET._replace(tasks=2), transfer=transfer)
        state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
        prior = state.world.alpha.next_state.copy()
        for visit in (1, 2):
            state = agent.observe(Key.of(0), state, Transition(0, 0, 1.0, 1, False))
            changed = bool((state.world.alpha.next_state != prior).any())
            assert changed == (transfer and visit == 2)
        later = agent.begin_task(Key.of(1), state)
        assert bool((later.task.prior.next_state != prior).any()) == transfer


def test_the_task_posterior_starts_as_the_world_posterior():
    agent = Blrl(SPEC, BlrlSettings(known=1), BUDGET._replace(tasks=2))
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
    state = agent.observe(Key.of(0), state, Transition(0, 0, 1.0, 1, False))
    later = agent.begin_task(Key.of(1), state)
    for prior, alpha in zip(later.task.prior, state.world.alpha, strict=True):
        np.testing.assert_array_equal(prior, alpha)
    assert not any(counts.any() for counts in later.task.counts)


def test_boss_and_the_pseudo_code_use_what_was_seen_of_unknown_pairs_and_the_text_does_not():
    """Fifty visits of a pair that pays, B = 100: who samples from the task posterior knows; the flat prior says 1/2."""
    seen = {}
    for name, transfer, unknown in (("boss", False, "world"), ("text", True, "world"), ("pseudo-code", True, "task")):
        settings = BlrlSettings.model_validate({"known": 100, "models": 1, "gamma": 0.0, "unknown": unknown})
        agent = Blrl(SPEC, settings, BUDGET, transfer=transfer)
        state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
        for _ in range(50):
            state = agent.observe(Key.of(0), state, Transition(0, 1, 1.0, 0, False))
        chosen = [agent.act(Key.of(0).fold(n), state, 0, first=True)[1] for n in range(200)]
        seen[name] = np.mean(chosen)
    assert seen["boss"] > 0.9
    assert seen["pseudo-code"] > 0.9
    assert 0.35 < seen["text"] < 0.65


def test_the_world_posterior_takes_in_a_finished_task_to_its_end():
    agent = Blrl(SPEC, BlrlSettings(known=5, pooling="counts"), BUDGET._replace(tasks=2))
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
    for _ in range(8):
        state = agent.observe(Key.of(0), state, Transition(0, 1, 1.0, 0, False))
    assert state.world.alpha.next_state[0, 1, 0] == 1 + 5
    assert agent.begin_task(Key.of(1), state).world.alpha.next_state[0, 1, 0] == 1 + 8


def test_when_nothing_promises_a_reward_actions_are_tried_at_random():
    spec = SPEC._replace(levels=np.array([0.0]))
    agent = Blrl(spec, BlrlSettings(), BUDGET._replace(tasks=1))
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
    chosen = {agent.act(Key.of(0).fold(step), state, 0, first=False)[1] for step in range(40)}
    assert chosen == {0, 1}


def test_a_new_task_starts_with_no_memory_of_what_was_visited():
    agent = Blrl(SPEC, BlrlSettings(), BUDGET._replace(tasks=2))
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
    state = agent.observe(Key.of(0), state, Transition(0, 0, 0.0, 1, False))
    assert state.visits.sum() == 1
    assert not agent.begin_task(Key.of(1), state).visits.any()


def test_acting_and_observing_change_no_state_in_place():
    family = RandomMDP()
    agent = Blrl(family.spec, BlrlSettings(), BUDGET)
    before = agent.begin_task(Key.of(1), agent.init(Key.of(0)))
    copy = {name: np.copy(leaf) for name, leaf in leaves(before)}
    state, action = agent.act(Key.of(0), before, 0, first=True)
    agent.observe(Key.of(0), state, Transition(0, action, 1.0, 2, False))
    for name, leaf in leaves(before):
        np.testing.assert_array_equal(leaf, copy[name])


def test_structure_can_be_left_unused():
    family = ItemSearch()
    assert hasattr(Blrl(family.spec, BlrlSettings(), BUDGET).belief, "layout")
    assert not hasattr(Blrl(family.spec, BlrlSettings(structure=False), BUDGET).belief, "layout")


@pytest.mark.parametrize("pooling", ["evidence", "counts"])
def test_after_many_visits_the_policy_is_nearly_optimal_in_the_true_task(pooling):
    """400 observations of every pair, then one plan: less than 0.1 of a value near 12 may be lost."""
    from posterity.tabular.mdp import FiniteMDP, policy_values, value_iteration

    family = RandomMDP()
    (task,) = family.tasks(Key.of(0).fold("stream"), 1)
    truth, generator = family.truth(task), np.random.default_rng(0)
    agent = Blrl(family.spec, BlrlSettings(known=400, pooling=pooling), BUDGET._replace(tasks=1))
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
    for s, a in np.ndindex(family.spec.states, family.spec.actions):
        following = generator.choice(family.spec.states, size=400, p=truth.probability[s, a])
        rewards = generator.choice(family.spec.levels, size=400, p=truth.reward[s, a])
        for next_state, reward in zip(following, rewards, strict=True):
            state = agent.observe(Key.of(0), state, Transition(s, a, float(reward), int(next_state), False))
    state, _ = agent.act(Key.of(1), state, 0, first=True)
    process = FiniteMDP(truth.probability, None, truth.reward @ family.spec.levels, family.spec.terminal)
    lost = value_iteration(process, 0.95, 1e-9).values - policy_values(process, state.policy, 0.95)
    assert 0 <= lost.max() < 0.1

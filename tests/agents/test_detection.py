"""Tasks that change unannounced: what is left is found again as it was, and what is refused."""

import jax
import numpy as np
import pytest

from posterity import tree
from posterity.agents import memory
from posterity.agents.detection import BLOCK, Detecting, DetectingState, detecting
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import NORMALISER_ITERATIONS, Vblrl
from posterity.errors import UserError
from posterity.models import change, replay
from posterity.models.change import Odds
from posterity.models.dynamics import NetworkSettings
from posterity.models.elbo import LearnerSettings
from posterity.models.latent import LatentSettings
from posterity.planning.cem import PlannerSettings
from posterity.types import Budget, Key, Spec, Transition

SPEC = Spec(2, -np.ones(1), np.ones(1), 20, None)
SETTINGS = VblrlSettings(
    planner=PlannerSettings(horizon=3, candidates=8, elites=2, cem_iterations=1, particles=2),
    network=NetworkSettings(hidden=(4,)),
    learner=LearnerSettings(gradient_steps=3, task_batch_size=4, world_batch_size=2),
    task_min_transitions=10,
    world_iterations=1,
)
BUDGET = Budget(tasks=3, iterations=8, steps_per_iteration=10)
KEYS = [Key.of(0)]


@pytest.fixture(scope="module")
def agent() -> Detecting:
    return Detecting(Vblrl(SPEC, SETTINGS, BUDGET), 1)


@pytest.fixture
def begun(agent: Detecting) -> DetectingState:
    """Made anew for every test: an update takes the memory of what it is given."""
    return agent.begin_task(KEYS, agent.init(KEYS))


def sure(task: int) -> Odds:
    odds = change.no_odds(BUDGET.tasks)
    odds.log[task], odds.since[task] = 9.0, 4
    return odds


def rows(steps: int = 10, scale: float = 1.0) -> Transition:
    generator = np.random.default_rng(0)
    obs = generator.normal(size=(1, steps + 1, 2))
    none = np.zeros((1, steps), bool)
    return Transition(
        obs[:, :-1], generator.uniform(-1, 1, (1, steps, 1)), scale * obs[:, 1:, 0], obs[:, 1:], none, none
    )


def switched(agent: Detecting, state: DetectingState, to: int) -> DetectingState:
    """The state after a decision, as `observe` comes to it."""
    known = state._replace(known=agent._with_present(state), seen=7)
    return agent._switched(KEYS, known, sure(to), to)


def test_only_the_first_task_is_announced(agent: Detecting, begun: DetectingState):
    assert agent.begin_task(KEYS, begun) is begun
    assert (begun.inner.task_number, begun.met) == (0, 1)


def test_a_task_that_comes_back_is_as_it_was_left(agent: Detecting, begun: DetectingState):
    learned, _ = agent.update(KEYS, begun, rows())
    learned, _ = agent.update(KEYS, learned, rows())
    new = switched(agent, learned, BUDGET.tasks)
    assert (new.inner.task_number, new.met, new.began) == (1, 2, 3)
    new, info = agent.update(KEYS, new, rows(scale=-1.0))
    assert info["believed_task"] == 1
    assert (info["switches"], info["switch_step"], info["switch_back"]) == (1, 7, 0)
    back = switched(agent, new, 0)
    assert (back.inner.task_number, back.met) == (0, 2)
    same = jax.tree.map(np.array_equal, back.inner.task.posterior, learned.inner.task.posterior)
    assert all(jax.tree.leaves(same))
    assert back.inner.iteration == NORMALISER_ITERATIONS  # units are not estimated again


def test_a_task_that_comes_back_is_told_by_its_own_steps():
    """Its latent goes on being inferred from the task's first transitions, not from another task's."""
    agent = detecting(Vblrl(SPEC, SETTINGS.model_copy(update={"latent": LatentSettings(size=2)}), BUDGET), 1)
    state = agent.begin_task(KEYS, agent.init(KEYS))
    for iteration in range(2):
        state, _ = agent.update(KEYS, state, rows(scale=1.0 + iteration))
    back = switched(agent, switched(agent, state, BUDGET.tasks), 0).inner
    assert back.recent is not None
    np.testing.assert_array_equal(back.recent.obs[:, :20], back.replay.obs[:, 0, :20])
    assert np.any(back.recent.obs[:, :20])
    assert not np.any(back.recent.obs[:, 20:])


def test_a_task_begun_in_error_leaves_its_place_free(agent: Detecting, begun: DetectingState):
    learned, _ = agent.update(KEYS, begun, rows())
    mistaken = switched(agent, learned, BUDGET.tasks)
    assert switched(agent, mistaken, 0).met == 1


def test_an_iteration_that_mostly_belongs_to_another_task_is_not_learned_from(agent: Detecting, begun: DetectingState):
    late, info = agent.update(KEYS, begun._replace(began=6), rows())
    assert late.inner.replay.filled.sum() == 0
    assert "world_loss" not in info
    kept, _ = agent.update(KEYS, begun._replace(began=4), rows())
    stored = np.asarray(kept.inner.replay.reward)[0, 0, :10]
    np.testing.assert_allclose(stored, np.tile(np.asarray(rows().reward, np.float32)[0, 4:], 2)[:10])


def test_every_few_steps_are_weighed(agent: Detecting, begun: DetectingState):
    state = begun
    for _ in range(NORMALISER_ITERATIONS):
        state, _ = agent.update(KEYS, state, rows())
    before = state.known.scales.copy()
    for step in range(BLOCK):
        state = agent.observe(KEYS, state, Transition(*(np.asarray(part)[:, step] for part in rows())))
    assert (state.known.scales[0, 0] != before[0, 0]).all()
    np.testing.assert_array_equal(state.known.scales[0, 1:], before[0, 1:])


def test_what_is_decided_is_the_same_after_a_checkpoint(agent: Detecting, begun: DetectingState):
    """All that decides is in the state: written as arrays and read back, it comes to the same."""
    state = begun
    for _ in range(NORMALISER_ITERATIONS):
        state, _ = agent.update(KEYS, state, rows())
    arrays = {name: np.asarray(leaf) for name, leaf in tree.leaves(state)}
    read = tree.filled(agent.init(KEYS), arrays)
    for step in range(2 * BLOCK):
        row = Transition(*(np.asarray(part)[:, step] for part in rows()))
        state, read = (agent.observe([Key.of(step)], each, row) for each in (state, read))
    for (name, one), (_, other) in zip(tree.leaves(state), tree.leaves(read), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other), err_msg=name)


def test_a_full_memory_is_thinned_evenly():
    whole = replay.empty(2, 10, 1, 1)
    kept = whole._replace(reward=whole.reward.at[0].set(np.arange(10.0)), filled=whole.filled.at[0].set(10))
    lane = jax.tree.map(lambda leaf: leaf[None], kept)
    assert memory.thinned(lane, 1, 4) is lane
    half = memory.thinned(lane, 0, 4)
    assert half.filled.tolist() == [[3, 0]]
    np.testing.assert_array_equal(half.reward[0, 0, :3], [0, 4, 9])


def test_what_cannot_detect_is_refused_in_one_line():
    with pytest.raises(UserError, match="for one seed"):
        detecting(Vblrl(SPEC, SETTINGS, BUDGET), 2)
    with pytest.raises(UserError, match="method vblrl"):
        detecting(Vblrl(SPEC, SETTINGS, BUDGET, "single-task"), 1)
    with pytest.raises(UserError, match="method vblrl"):
        detecting(object(), 1)

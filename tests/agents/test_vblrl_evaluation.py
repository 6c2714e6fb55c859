"""Acting later as at one moment of a run: zero-shot, Start, Train and the ways of going back."""

from functools import cache
from typing import Any, cast

import jax
import numpy as np
import pytest

from posterity.agents import METHODS
from posterity.agents.base import Score
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlSnapshot
from posterity.errors import UserError
from posterity.models.confidence import BACK_VARIANTS
from posterity.types import Budget, Key, Spec, Transition

SPEC = Spec(obs_dim=2, low=np.array([-1.0]), high=np.array([1.0]), max_episode_steps=12, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(tasks=3, iterations=7, steps_per_iteration=12)
OBS, FIRST = np.zeros((2, 2)), np.ones(2, dtype=bool)
PLANNER = {"horizon": 3, "candidates": 12, "elites": 3, "cem_iterations": 2, "particles": 2}
# The same as in the other tests of VBLRL, so that what is compiled is compiled once.
SMALL = {
    "planner": PLANNER,
    "learner": {"gradient_steps": 3, "task_batch_size": 5, "world_batch_size": 4},
    "network": {"hidden": [8]},
    "value": {"gradient_steps": 3},
    "task_min_transitions": 12,
    "world_iterations": 1,
}


def agent(variant: str = "vblrl", **changes: Any) -> Vblrl:
    """Shared by all tests that ask for the same one (conftest.py)."""
    settings = VblrlSettings.model_validate({**SMALL, **changes})
    return cast(Vblrl, METHODS[variant].build(SPEC, settings, BUDGET))


def rows(seed: int) -> Transition:
    """Twelve steps of two lanes that drift by a number of their own."""
    draw = np.random.default_rng(seed)
    obs, none = draw.normal(size=(2, 12, 2)), np.zeros((2, 12), dtype=bool)
    return Transition(obs, draw.uniform(-1, 1, (2, 12, 1)), obs[..., 0], obs + draw.normal(), none, none)


@cache
def snapshot(variant: str = "vblrl", tasks: int = 2) -> VblrlSnapshot:
    """After one iteration of each task."""
    learner = agent(variant)
    state = learner.init(KEYS)
    for task in range(tasks):
        state = learner.begin_task([key.fold(task) for key in KEYS], state)
        state, _ = learner.update([key.fold(task, 0) for key in KEYS], state, rows(task))
    return learner.snapshot(KEYS, state)


def same(one: Any, other: Any) -> bool:
    return all(bool((a == b).all()) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def planners(variant: str, score: Score, back_variant: str = "") -> list[str]:
    """The posteriors that plan, by name. `today` is the world posterior a task later."""
    own, latest = snapshot(variant, 1), snapshot(variant, 2)
    names = {"task": own.task, "world": own.world, "today": latest.world}
    models = agent(variant).policy(own, latest, score, back_variant).models
    for model in models:
        assert same(model.normaliser, own.normaliser)
    return [next(name for name, q in names.items() if same(q, model.posterior)) for model in models]


def test_each_score_is_planned_by_the_posterior_it_is_about():
    assert planners("vblrl", "zero-shot") == ["world"]
    assert planners("vblrl", "start") == planners("vblrl", "train") == ["task"]
    assert planners("vblrl", "back", "confidence") == planners("vblrl", "back", "blend") == ["task", "today"]
    assert planners("vblrl", "back", "task-only") == ["task"]
    assert planners("vblrl", "back", "world-only") == ["today"]


def test_with_one_model_for_all_tasks_going_back_is_with_what_it_has_become():
    for score in ("zero-shot", "start", "train"):
        assert planners("pooled", score) == ["world"]
    assert planners("pooled", "back") == ["today"]


def test_without_transfer_every_score_is_the_tasks_own():
    for score in ("zero-shot", "start", "train", "back"):
        assert planners("single-task", score) == ["task"]


@pytest.mark.parametrize(
    ("bayesian", "drawn"), [("both", [True, True]), ("world", [False, True]), ("none", [False, False])]
)
def test_going_back_draws_networks_from_those_models_that_are_bayesian(bayesian: str, drawn: list[bool]):
    """The others are plain networks, which have no noise."""
    policy = agent(bayesian=bayesian).policy(snapshot(), snapshot(), "back", "blend")
    noises = [model.noise for model in policy.models]
    assert [noise is not None and bool((noise == 1.0).all()) for noise in noises] == drawn
    assert [noise is None for noise in noises] == [not one for one in drawn]


@pytest.mark.parametrize("variant", BACK_VARIANTS)
def test_a_policy_gives_legal_actions_and_tells_whose_predictions_went_on(variant: str):
    policy = agent().policy(snapshot(tasks=1), snapshot(), "back", variant)
    before = policy.plan
    actions = policy.act(KEYS, OBS, FIRST)
    assert actions.shape == (2, 1)
    assert np.all(np.abs(actions) <= 1)
    assert not same(policy.plan, before), "the next search begins where this one ended"
    facts = policy.facts()
    assert set(facts) == ({"world_reward", "world_state"} if variant in ("confidence", "blend") else set())
    for share in facts.values():
        assert share.shape == (2,)
        assert ((share >= 0) & (share <= 1)).all()


@pytest.mark.parametrize("variant", ["confidence", "task-only"])
def test_a_policy_made_anew_acts_the_same_and_learns_nothing(variant: str):
    own, latest = snapshot(tasks=1), snapshot()
    kept = jax.tree.map(np.array, (own, latest))
    actions = []
    for _ in range(2):
        policy = agent().policy(own, latest, "back", variant)
        steps = [[key.fold(step) for key in KEYS] for step in range(3)]
        actions.append([policy.act(keys, OBS, np.full(2, step == 0)) for step, keys in enumerate(steps)])
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0][0], actions[0][1])
    assert same((own, latest), kept)


def test_before_anything_was_learned_actions_are_random():
    fresh = agent().snapshot(KEYS, agent().begin_task(KEYS, agent().init(KEYS)))
    drawn = np.stack([key.generator().uniform(-1, 1, 1) for key in KEYS]).astype(np.float32)
    np.testing.assert_array_equal(agent().policy(fresh, fresh, "zero-shot", "").act(KEYS, OBS, FIRST), drawn)
    learned = agent().policy(snapshot(), snapshot(), "zero-shot", "").act(KEYS, OBS, FIRST)
    assert not (learned == drawn).any()
    mixed = snapshot()._replace(random=np.array([False, True]))
    actions = agent().policy(mixed, mixed, "zero-shot", "").act(KEYS, OBS, FIRST)
    np.testing.assert_array_equal(actions, [learned[0], drawn[1]], err_msg="lane by lane")


def test_one_particle_has_no_confidence_but_can_be_blended():
    """What one network predicts to be chance is enough for a blend."""
    alone = agent(planner={**PLANNER, "particles": 1})
    with pytest.raises(UserError, match=r"^Confidence is a spread over particles, and this run plans with one; try bl"):
        alone.policy(snapshot(), snapshot(), "back", "confidence")
    policy = alone.policy(snapshot(), snapshot(), "back", "blend")
    policy.act(KEYS, OBS, FIRST)
    for share in policy.facts().values():
        assert ((share > 0) & (share < 1)).all()


def test_a_run_goes_back_as_it_is_set_to_unless_told_otherwise():
    assert agent().back_variants == ("confidence", "blend", "task-only", "world-only")
    assert agent(backward={"variant": "blend"}).back_variants == ("blend", "confidence", "task-only", "world-only")
    for variant in ("pooled", "single-task"):
        assert agent(variant, backward={"variant": "blend"}).back_variants == (), "with one posterior there is one way"

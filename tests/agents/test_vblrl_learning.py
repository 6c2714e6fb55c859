"""What VBLRL learns after an iteration: posteriors, what their prior is worth, the normaliser and the critic."""

from itertools import pairwise
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity import tree
from posterity.agents import METHODS
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlState
from posterity.errors import UserError
from posterity.models import critic, dynamics
from posterity.types import Budget, Key, Spec, Transition

SPEC = Spec(obs_dim=2, low=np.array([-1.0]), high=np.array([1.0]), max_episode_steps=12, alive=None)
KEYS = [Key.of(0), Key.of(1)]
BUDGET = Budget(tasks=3, iterations=7, steps_per_iteration=12)
# The same as in the other tests of VBLRL, so that what is compiled is compiled once.
LEARNER = {"gradient_steps": 3, "task_batch_size": 5, "world_batch_size": 4}
SMALL = {
    "planner": {"horizon": 3, "candidates": 12, "elites": 3, "cem_iterations": 2, "particles": 2},
    "network": {"hidden": [8]},
    "value": {"gradient_steps": 3},
    "task_min_transitions": 12,
    "world_iterations": 1,
}


HEAVY = {"kl_weight": 1.0, "gradient_steps": 50, "task_learning_rate": 0.01}  # the prior tells, and is reached


def agent(variant: str = "vblrl", learner: dict[str, Any] | None = None, **changes: Any) -> Vblrl:
    """A small learner with these settings, those of its fits apart; shared by all tests that ask for the same one."""
    settings = VblrlSettings.model_validate({**SMALL, "learner": {**LEARNER, **(learner or {})}, **changes})
    return cast(Vblrl, METHODS[variant].build(SPEC, settings, BUDGET))


def rows(seed: int, width: float = 1.0) -> Transition:
    """Twelve steps x' = x + (a / 10, 1 / 20) from anywhere `width` wide, with reward x_0, in each of two lanes."""
    draw = np.random.default_rng(seed)
    obs, action = width * draw.normal(size=(2, 12, 2)), draw.uniform(-1, 1, (2, 12, 1))
    change = np.concatenate([0.1 * action, np.full_like(action, 0.05)], axis=-1)
    none = np.zeros((2, 12), dtype=bool)
    return Transition(obs, action, obs[..., 0], obs + change, none, none)


def begun(learner: Vblrl) -> VblrlState:
    return learner.begin_task(KEYS, learner.init(KEYS))


def second_task(learner: Vblrl) -> VblrlState:
    """At the beginning of a second task, after one iteration of the first."""
    first, _ = learner.update(KEYS, begun(learner), rows(0))
    return learner.begin_task([key.fold(1) for key in KEYS], first)


def copied(state: VblrlState) -> VblrlState:
    """Memory of its own: an update uses up the replay it is given."""
    return tree.map_leaves(lambda leaf: leaf if tree.is_number(leaf) else jnp.copy(leaf), state)


def same(one: Any, other: Any) -> bool:
    return all(bool((a == b).all()) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def all_close(one: Any, other: Any) -> None:
    """To float tolerance: products of another shape round in another order."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def distance(one: Any, other: Any) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return float(sum(((a - b) ** 2).sum() for a, b in pairs))


# Posteriors


def test_transitions_are_remembered_by_task():
    learner = agent()
    state, _ = learner.update(KEYS, second_task(learner), rows(1))
    state, _ = learner.update(KEYS, state, rows(2))
    np.testing.assert_array_equal(state.replay.filled, [[12, 24, 0], [12, 24, 0]])
    np.testing.assert_allclose(state.replay.obs[:, 1, 12:24], rows(2).obs, rtol=1e-6)


def drifting(sign: float, seed: int) -> Transition:
    """Twelve steps of x' = x + (sign, 0): two tasks of opposite sign contradict each other."""
    draw = np.random.default_rng(seed)
    obs = draw.normal(size=(2, 12, 2))
    none = np.zeros((2, 12), dtype=bool)
    return Transition(obs, draw.uniform(-1, 1, (2, 12, 1)), obs[..., 0], obs + np.array([sign, 0.0]), none, none.copy())


def test_the_world_learns_from_all_tasks_and_a_task_from_its_own():
    """After a task of drift +1 and one of drift -1 the task expects about -1, the world about 0."""
    many = {"gradient_steps": 400, "world_learning_rate": 0.01, "task_learning_rate": 0.01, "world_batch_size": 4}
    learner = agent(learner=many, normalise=False)
    state = learner.init(KEYS)
    for task, sign in enumerate((1.0, -1.0)):
        state = learner.begin_task([key.fold(task) for key in KEYS], state)
        for iteration in range(2):
            keys = [key.fold(task, iteration) for key in KEYS]
            state, _ = learner.update(keys, state, drifting(sign, 10 * task + iteration))
    asked = jnp.asarray(np.concatenate([drifting(1.0, 7).obs[0], np.zeros((12, 1))], axis=1), jnp.float32)
    for lane in (0, 1):
        task, world = (
            dynamics.forward(network, asked, learner.settings.network).mean[:, 1].mean()
            for network in (
                jax.tree.map(lambda leaf, lane=lane: leaf[lane, 0], each.posterior.mean)
                for each in (state.task, state.world)
            )
        )
        assert task < -0.7
        assert abs(world) < 0.5


def test_the_task_posterior_stays_as_it_is_until_its_task_has_enough_transitions():
    learner = agent(task_min_transitions=13)
    before = begun(learner)
    once, info = learner.update(KEYS, before, rows(0))
    assert same(once.task, before.task)
    assert not same(once.world.posterior, before.world.posterior)
    assert "task_loss" not in info
    twice, info = learner.update(KEYS, once, rows(1))
    assert not same(twice.task.posterior, before.task.posterior)
    assert "task_loss" in info


def test_fitting_both_posteriors_in_one_scan_is_fitting_them_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    """As is done on a GPU. The task's batches are smaller than the world's, so they are filled up."""
    learner = agent()
    both = learner.programs.fit["task", "world"]
    before = both.traces
    apart, info = learner.update(KEYS, begun(learner), rows(0))
    assert both.traces == before
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    together, info_together = learner.update(KEYS, begun(learner), rows(0))
    assert both.traces == before + 1
    assert not same(apart.task.posterior, begun(learner).task.posterior)
    all_close((apart.task, apart.world), (together.task, together.world))
    assert info.keys() == info_together.keys()
    all_close(info["task_loss"], info_together["task_loss"])


def test_gradients_from_the_kernel_are_learned_from_and_what_it_cannot_do_is_refused():
    by_kernel = agent("single-task", network={"hidden": [16]}, kernels="on")
    assert by_kernel.describe()["fit"] == "fused"
    assert by_kernel.describe()["planner"] == "fused, bf16"
    assert agent().describe()["fit"] == agent().describe()["planner"] == "plain (there is no NVIDIA GPU)"
    state, info = by_kernel.update(KEYS, begun(by_kernel), rows(0))
    assert np.isfinite(info["task_log_likelihood"]).all()
    assert not same(state.task.posterior, begun(by_kernel).task.posterior)
    with pytest.raises(UserError, match=r"^kernels are on, but the fused fit needs 16, 32, 64 or 128 units"):
        agent(kernels="on")


def test_a_model_that_diverges_ends_the_run_in_one_line():
    """In any lane."""
    learner = agent()
    state, _ = learner.update(KEYS, begun(learner), rows(0))
    broken = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), state.world.posterior)
    with pytest.raises(UserError, match=r"^The model diverged in task 0, iteration 1 \(.* is nan\); try a lower"):
        learner.update(KEYS, state._replace(world=state.world._replace(posterior=broken)), rows(1))


# What the prior is worth


def test_the_task_posterior_is_drawn_towards_its_prior():
    """With a heavy KL the fit ends nearer to where the prior was put than a fit towards another one."""
    learner = agent(learner=HEAVY)
    state = begun(learner)
    moved = jax.tree.map(lambda leaf: leaf + 0.5, state.prior.mean)
    near, _ = learner.update(KEYS, copied(state._replace(prior=state.prior._replace(mean=moved))), rows(0))
    far, _ = learner.update(KEYS, state, rows(0))
    assert distance(near.task.posterior.mean, moved) < 0.5 * distance(far.task.posterior.mean, moved)


def test_the_world_posterior_holds_a_later_task_as_tightly_as_the_scale_says():
    """Not the first task, whose prior is the fixed one, nor the world posterior."""

    def fitted(scale: float) -> tuple[VblrlState, VblrlState]:
        learner = agent(learner={**HEAVY, "prior_kl_scale": scale})
        first, _ = learner.update(KEYS, begun(learner), rows(0))
        later, _ = learner.update(KEYS, learner.begin_task(KEYS, copied(first)), rows(2))
        return first, later

    (first, later), (free_first, free_later) = fitted(1.0), fitted(0.0)
    all_close(first.task.posterior, free_first.task.posterior)
    all_close(later.world.posterior, free_later.world.posterior)
    near, far = (distance(state.task.posterior.mean, state.prior.mean) for state in (later, free_later))
    assert near < 0.5 * far


def test_the_world_posterior_holds_a_task_less_and_less_as_its_transitions_come_in():
    training = agent(learner={"prior_kl_scale": 0.01, "prior_kl_anneal_transitions": 100}).training

    def scale(task: int, transitions: int) -> float:
        return float(training._prior_kl_scale(jnp.int32(task), jnp.int32(transitions)))

    held = [scale(1, transitions) for transitions in (0, 50, 100, 200, 1000, 10**6)]
    np.testing.assert_allclose(held, [1.0, 1.0, 1.0, 0.5, 0.1, 0.01])
    assert scale(0, 1000) == 1.0, "the first task's prior is the fixed one"


# The normaliser


def test_the_normaliser_makes_inputs_and_targets_of_the_first_task_standard():
    learner = agent()
    new = rows(0)
    state, _ = learner.update(KEYS, begun(learner), new)
    inputs = np.concatenate([new.obs, new.action], axis=-1)
    targets = np.concatenate([np.asarray(new.reward)[..., None], new.next_obs - new.obs], axis=-1)
    np.testing.assert_allclose(state.normaliser.input_mean, inputs.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(state.normaliser.input_scale, inputs.std(axis=1), rtol=1e-3)
    np.testing.assert_allclose(state.normaliser.target_mean, targets.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(state.normaliser.target_scale[:, :2], targets.std(axis=1)[:, :2], rtol=1e-3)
    np.testing.assert_array_equal(state.normaliser.target_scale[:, 2], [1.0, 1.0])  # what never varies keeps its unit
    np.testing.assert_array_equal(state.target_std, np.ones((2, 3)))


def test_the_normaliser_is_estimated_in_five_iterations_of_the_first_task_and_then_held():
    learner = agent()
    state = begun(learner)
    seen = [state.normaliser]
    for iteration in range(7):
        state, _ = learner.update([key.fold(iteration) for key in KEYS], state, rows(iteration, width=1.0 + iteration))
        seen.append(state.normaliser)
    assert [not same(before, after) for before, after in pairwise(seen)] == [True] * 5 + [False] * 2
    state, _ = learner.update(KEYS, learner.begin_task(KEYS, state), rows(9, width=9.0))
    assert same(state.normaliser, seen[-1]), "also in the next task"


def test_without_transfer_every_task_has_a_normaliser_of_its_own():
    learner = agent("single-task")
    wide = rows(3, width=9.0)
    state, _ = learner.update(KEYS, second_task(learner), wide)
    np.testing.assert_allclose(state.normaliser.input_scale[:, :2], np.std(wide.obs, axis=1), rtol=1e-3)


def test_without_normalising_units_stay_as_they_are_and_the_targets_deviation_is_known():
    learner = agent(normalise=False)
    new = rows(0)
    state, _ = learner.update(KEYS, begun(learner), new)
    assert same(state.normaliser, begun(learner).normaliser)
    np.testing.assert_allclose(state.target_std[:, 0], np.std(new.reward, axis=1), rtol=1e-3)


# The critic


@pytest.mark.parametrize(("variant", "goes_on"), [("vblrl", True), ("single-task", False), ("pooled", True)])
def test_a_critic_is_learned_goes_on_to_the_next_task_and_is_part_of_a_snapshot(variant: str, goes_on: bool):
    learner = agent(variant)
    before = begun(learner)
    state, info = learner.update(KEYS, before, rows(0))
    assert before.critic is not None
    assert state.critic is not None
    assert (info["value_error"] > 0).all()
    assert not same(state.critic.critic.layers, before.critic.critic.layers)
    reward = np.asarray(rows(0).reward)
    np.testing.assert_allclose(state.critic.critic.low, reward.min(axis=1) / 0.01, rtol=1e-3)
    np.testing.assert_allclose(state.critic.critic.high, reward.max(axis=1) / 0.01, rtol=1e-3)
    values = jax.vmap(lambda own, units: critic.value(own, units, jnp.ones((3, 2)), 0.99))
    assert (values(state.critic.critic, state.normaliser) != 0).all(), "what follows counts"
    later = learner.begin_task([key.fold(1) for key in KEYS], state)
    assert same(later.critic, state.critic) == goes_on
    now = learner.snapshot(KEYS, state)
    policy = learner.policy(now, now, "back", "task-only" if learner.back_variants else "")
    assert same(policy.models[0].critic, state.critic.critic)
    assert np.isfinite(policy.act(KEYS, np.zeros((2, 2)), np.ones(2, dtype=bool))).all()


def test_without_a_critic_there_is_none_anywhere():
    learner = agent(value={})
    state, info = learner.update(KEYS, begun(learner), rows(0))
    assert state.critic is None
    assert learner.acting(state).critic is None
    assert learner.snapshot(KEYS, state).critic is None
    assert "value_error" not in info

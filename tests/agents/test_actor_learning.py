"""What an actor learns from beside its own task: earlier tasks, and what a model imagines."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents.actor_learning import ActorCriticLearning, ended, trust
from posterity.agents.base import Info
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Vblrl
from posterity.errors import UserError
from posterity.models import dynamics, normaliser, replay
from posterity.models.dynamics import DynamicsModel, NetworkSettings
from posterity.models.replay import Replay, Rows
from posterity.types import Budget, Key, Spec, Transition

NETWORK = NetworkSettings(hidden=(8,))
SPEC = Spec(2, np.array([-1.0]), np.array([1.0]), 5, (np.array([-3.0, -np.inf]), np.array([3.0, np.inf])))


def met(tasks: int, count: int, finished: int) -> Replay:
    """Observations say which task they are of: the second number is the task's."""
    memory = replay.empty(3, 8, 2, 1, finished=finished)
    for task in range(tasks):
        place = np.stack([np.arange(count) / count, np.full(count, task)], axis=1).astype(np.float32)
        none = np.zeros(count, bool)
        rows = Transition(place, np.zeros((count, 1), np.float32), np.ones(count, np.float32), place, none, none)
        memory = replay.add(memory, jnp.int32(task), rows)
    return memory


@pytest.mark.parametrize("finished", [0, 3])
def test_a_share_of_a_batch_is_of_earlier_tasks(finished: int):
    """A quarter, to four standard errors; and none in the first task."""
    rows = replay.sample_mixed(jax.random.key(0), met(3, 6, finished), jnp.int32(2), 0.25, 4000)
    task = np.asarray(rows.obs)[:, 1]
    np.testing.assert_array_equal(task, np.asarray(rows.task))
    assert abs((task < 2).mean() - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5
    assert set(task) == {0.0, 1.0, 2.0}
    first = replay.sample_mixed(jax.random.key(0), met(1, 6, finished), jnp.int32(0), 0.25, 100)
    assert set(np.asarray(first.obs)[:, 1]) == {0.0}


def model() -> DynamicsModel:
    """Networks that predict nothing but chance, of variance exp(2): in the mean a step leads to where it began."""
    made = dynamics.init(jax.random.key(0), 2, 1, NETWORK, 0.02)
    still = jax.tree.map(lambda leaf: jnp.zeros_like(leaf)[None], made.mean)
    *hidden, last = still
    noisy = last._replace(bias=last.bias.at[:, 3:].set(20.0))
    return DynamicsModel(made._replace(mean=(*hidden, noisy), rho=still), normaliser.identity(2, 1), None, jnp.ones(3))


def test_imagined_transitions_are_the_means_of_what_the_model_predicts():
    learning = ActorCriticLearning(SPEC, 0.9, 1, True, 0.5, NETWORK, particles=2)
    actor = learning.init(jax.random.key(1)).now.actor
    made, counts = learning.imagine(
        jax.random.key(2), actor, normaliser.identity(2, 1), met(2, 6, 0), jnp.int32(1), model()
    )
    assert made.reward.shape == counts.shape
    np.testing.assert_array_equal(made.next_obs, made.obs)
    np.testing.assert_array_equal(made.reward, 0.0)
    assert set(np.asarray(made.obs)[:, 1].tolist()) == {0.0, 1.0}  # states of both tasks, dynamics of this one
    assert (np.asarray(counts) > 0.5).all()  # networks that agree everywhere are never in doubt
    assert not np.asarray(made.terminated).any()


def test_imagination_counts_less_where_critics_err_more_on_it():
    """What it adds to the mean square error is then as much as with the errors on what happens."""
    real = jnp.float32(0.3)
    for times in (0.0, 0.5, 1.0):
        assert float(trust(real, times * real, 1.0)) == pytest.approx(1.0, rel=1e-5)
    for times in (1.5, 4.0, 20.0):
        assert float(trust(real, times * real, 1.0)) * times**2 == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(("foretold", "full"), [(1.0, True), (30.0, False)])
def test_where_imagined_rewards_contradict_each_other_little_is_imagined(foretold: float, full: bool):
    """Steps from one state earn 0 or 2 by chance, so critics of rewards alone err by 1 on what happens. Both networks
    foretell 1, or one of them `foretold`, by which critics then err much more."""
    learning = ActorCriticLearning(SPEC, 0.0, 200, False, 0.5, NETWORK, particles=2, imagined_error=1.0)
    told, task, none = model(), jnp.int32(0), np.zeros(6, bool)
    place, reward = np.zeros((6, 2), np.float32), np.array([0, 2] * 3, np.float32)
    rows = Transition(place, np.zeros((6, 1), np.float32), reward, place, none, none)
    memory = replay.add(replay.empty(1, 6, 2, 1), task, rows)
    *hidden, last = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), told.posterior.mean)
    mean = (*hidden, last._replace(bias=last.bias.at[:, 0].set(jnp.array([1.0, foretold]))))
    two = told._replace(posterior=told.posterior._replace(mean=mean, rho=jax.tree.map(jnp.zeros_like, mean)))
    training = learning.init(jax.random.key(1))
    imagined = 0.0
    for number in range(2):
        training, loss = learning.fit(jax.random.key(2 + number), training, two.normaliser, memory, task, two)
        imagined = float(loss.imagined)
    assert (imagined > 0.4) == full  # of 0.5


def test_a_step_out_of_the_box_ends_an_episode():
    place = jnp.array([[0.0, 0.0], [2.9, 9.0], [3.1, 0.0], [-4.0, 0.0]])
    rows = Rows(place, jnp.zeros((4, 1)), jnp.zeros(4), place)
    np.testing.assert_array_equal(ended(SPEC, rows), [0.0, 0.0, 1.0, 1.0])


def settings(**changes: Any) -> VblrlSettings:
    small = {
        "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 0, "particles": 2},
        "learner": {"gradient_steps": 2, "task_batch_size": 8, "world_batch_size": 4},
        "network": {"hidden": (8,)},
        "policy": {"updates_per_step": 1, "imagined_share": 0.5},
        "task_min_transitions": 4,
        "world_iterations": 1,
    }
    return VblrlSettings.model_validate(small | changes)


@pytest.mark.parametrize(("search", "latent"), [(0, 0), (2, 0), (0, 2), (2, 2)])
def test_an_actor_acts_alone_or_proposes_to_the_search(search: int, latent: int):
    """Both act within the bounds and learn; alone, an evaluation plays the likeliest action, whatever the key.

    Where tasks have a latent, an actor that acts alone is told it.
    """
    planner = {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": search, "particles": 2}
    agent = Vblrl(SPEC, settings(planner=planner, latent={"size": latent}), Budget(2, 2, 6))
    keys = [Key.of(0), Key.of(1)]
    state = agent.begin_task(keys, agent.init(keys))
    info: Info = {}
    generator, obs, first = np.random.default_rng(0), np.zeros((2, 2)), np.ones(2, bool)
    for iteration in range(2):
        met: list[Transition] = []
        for step in range(6):
            state, action = agent.act([key.fold(iteration, step) for key in keys], state, obs, first)
            assert action.shape == (2, 1)
            assert (np.abs(action) <= 1.0).all()
            following = obs + 0.1 * generator.normal(size=obs.shape)
            none = np.zeros(2, bool)
            met.append(Transition(obs, action, action[:, 0], following, none, none))
            obs = following
        rows = Transition(*(np.stack(column, axis=1) for column in zip(*met, strict=True)))
        state, info = agent.update(keys, state, rows)
    assert np.isfinite(info["value_error"]).all()
    assert state.actor is not None
    assert state.actor.now.actor[0].weight.shape[-2] == SPEC.obs_dim + (0 if search else latent)
    own = agent.snapshot(keys, state)
    plays = [agent.policy(own, own, "train", "").act([key.fold(n) for key in keys], obs, first) for n in range(2)]
    assert (plays[0] == plays[1]).all() == (search == 0)
    back = [agent.policy(own, own, "back", variant).act(keys, obs, first) for variant in agent.back_variants]
    if not latent:  # then its own actor and today's are one here; else the task's latent has moved since
        assert all((action == plays[0]).all() for action in back) == (search == 0)


def test_without_a_search_and_without_an_actor_nobody_acts():
    with pytest.raises(ValueError, match="updates_per_step"):
        settings(policy={"updates_per_step": 0})


def test_an_actor_refuses_discrete_actions():
    with pytest.raises(UserError, match="discrete"):
        Vblrl(SPEC._replace(actions=3, low=np.zeros(3), high=np.ones(3)), settings(), Budget(1, 1, 4))

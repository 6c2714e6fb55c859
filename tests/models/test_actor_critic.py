"""The actor and its critics: densities and values with known answers, and what keeps values careful."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import actor_critic, normaliser
from posterity.models.actor_critic import ActionBox, StepBatch

BOX = ActionBox(jnp.array([-2.0]), jnp.array([2.0]))
UNITS = normaliser.identity(1, 1)
GAMMA = 0.9


def fresh(critics: int = 3) -> actor_critic.ActorCriticTraining:
    begin = actor_critic.init(jax.random.key(0), 1, 1, (16,), critics)
    return actor_critic.widened(begin, jnp.float32(-1.0), jnp.float32(1.0), GAMMA)


def one_step(key: jax.Array) -> StepBatch:
    """Episodes of one step from random places, by random actions; the best action is the place itself."""
    place_key, action_key = jax.random.split(key)
    obs = jax.random.uniform(place_key, (64, 1), minval=-1.0, maxval=1.0)
    action = jax.random.uniform(action_key, (64, 1), minval=-2.0, maxval=2.0)
    reward = 1.0 - (action - obs)[:, 0] ** 2
    return StepBatch(obs, action, reward, obs, jnp.ones(64))


@pytest.fixture(scope="module")
def learned() -> actor_critic.ActorCriticTraining:
    fit = jax.jit(lambda now: actor_critic.fit(jax.random.key(1), now, UNITS, one_step, BOX, GAMMA, 6000))
    return fit(fresh())[0]


def test_the_actor_finds_the_best_action_of_every_place(learned: actor_critic.ActorCriticTraining):
    """The best action is the place itself, and earns 1. To 0.15: entropy is worth something too."""
    places = jnp.linspace(-0.8, 0.8, 9)[:, None]
    action = actor_critic.mean_action(learned.now.actor, UNITS, places, BOX)
    assert float(jnp.abs(action - places).max()) < 0.15
    worth = actor_critic.value(learned.now, UNITS, places, BOX, GAMMA)
    np.testing.assert_allclose(worth, 1.0, atol=0.1)


def test_critics_learn_the_reward_of_actions_nobody_prefers(learned: actor_critic.ActorCriticTraining):
    told = actor_critic.values(learned.now.critics, UNITS, jnp.zeros((3, 1)), jnp.array([[-1.0], [0.5], [1.5]]), GAMMA)
    np.testing.assert_allclose(told.mean(axis=0), [0.0, 0.75, -1.25], atol=0.2)


def test_the_density_of_actions_integrates_to_one():
    """By importance sampling: the mean over draws of 1 / density, where they lie in an interval, is its length."""
    actor = fresh().now.actor
    obs = jnp.zeros((20_000, 1))
    action, density = actor_critic.sample_action(jax.random.key(2), actor, UNITS, obs, BOX)
    assert float(jnp.abs(action).max()) <= 2.0
    inside = jnp.abs(action[:, 0]) < 0.8  # where draws are not rare; in -1 .. 1 that is 0.8 long
    np.testing.assert_allclose(float((inside * jnp.exp(-density)).mean()), 0.8, rtol=0.03)


def test_a_careful_value_is_the_mean_less_what_critics_disagree_by():
    told = jnp.array([[1.0, 2.0], [3.0, 2.0]])
    np.testing.assert_allclose(actor_critic.careful(told), [2.0 - actor_critic.PESSIMISM, 2.0], atol=1e-3)


def test_no_value_leaves_what_rewards_allow():
    """Rewards from -1 to 1 for ever, discounted by 0.9, are worth -10 to 10."""
    wild = jax.tree.map(lambda leaf: leaf + 100.0, fresh().now.critics)
    worth = actor_critic.value(fresh().now._replace(critics=wild), UNITS, jnp.ones((4, 1)), BOX, GAMMA)
    np.testing.assert_allclose(worth, 10.0)


def test_an_end_is_worth_its_reward_and_nothing_after_it():
    """Where critics are certain that all is worth 5, a step that ends is worth 1, and one that goes on 1 + 0.9 x 5."""
    now = fresh()
    *hidden, last = now.targets
    told = 5.0 / float(actor_critic.scale(UNITS, GAMMA))
    flat = (*hidden, last._replace(weight=0.0 * last.weight, bias=0.0 * last.bias + told))
    batch = StepBatch(jnp.zeros((2, 2, 1)), jnp.zeros((2, 2, 1)), jnp.ones((2, 2)), jnp.zeros((2, 2, 1)), jnp.eye(2))
    silent = now._replace(targets=flat, log_alpha=jnp.float32(-50.0))
    target = actor_critic._targets(jax.random.key(0), silent, UNITS, batch, BOX, GAMMA)
    np.testing.assert_allclose(target, jnp.where(jnp.eye(2) > 0, 1.0, 5.5), rtol=1e-3)

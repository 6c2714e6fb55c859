"""The actor and its critics: densities and values with known answers, and what keeps values careful."""

import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import actor_critic, normaliser
from posterity.models.actor_critic import ActionBox

BOX = ActionBox(jnp.array([-2.0]), jnp.array([2.0]))
UNITS = normaliser.identity(1, 1)
GAMMA = 0.9


def fresh(critics: int = 3) -> actor_critic.ActorCriticTraining:
    begin = actor_critic.init(jax.random.key(0), 1, 1, (16,), critics)
    return actor_critic.widened(begin, jnp.float32(-1.0), jnp.float32(1.0), GAMMA)


def test_the_density_of_actions_integrates_to_one():
    """By importance sampling: the mean over draws of 1 / density, where they lie in an interval, is its length."""
    actor = fresh().now.actor
    obs = jnp.zeros((20_000, 1))
    action, density = actor_critic.sample_action(jax.random.key(2), actor, UNITS, obs, BOX)
    assert float(jnp.abs(action).max()) <= 2.0
    inside = jnp.abs(action[:, 0]) < 0.8  # where draws are not rare; in -1 .. 1 that is 0.8 long
    np.testing.assert_allclose(float((inside * jnp.exp(-density)).mean()), 0.8, rtol=0.03)


def test_an_actor_that_knows_nothing_tries_much():
    """Deviation exp(-0.3) before the squashing, in every place and dimension."""
    obs = jnp.linspace(-2.0, 2.0, 5)[:, None]
    _, log_std = actor_critic._outputs(fresh().now.actor, UNITS, obs)
    np.testing.assert_allclose(log_std, actor_critic.INITIAL_LOG_STD, atol=0.1)


def test_a_careful_value_is_the_mean_less_what_critics_disagree_by():
    told = jnp.array([[1.0, 2.0], [3.0, 2.0]])
    np.testing.assert_allclose(actor_critic.careful(told), [2.0 - actor_critic.PESSIMISM, 2.0], atol=1e-3)


def test_no_value_leaves_what_rewards_allow():
    """Rewards from -1 to 1 for ever, discounted by 0.9, are worth -10 to 10."""
    wild = jax.tree.map(lambda leaf: leaf + 100.0, fresh().now.critics)
    worth = actor_critic.value(fresh().now._replace(critics=wild), UNITS, jnp.ones((4, 1)), BOX, GAMMA)
    np.testing.assert_allclose(worth, 10.0)


def test_networks_of_one_task_say_what_they_say_when_they_are_told_it():
    """Its context is put into the first layer, once, instead of beside every observation. At first it says nothing."""
    made = actor_critic.init(jax.random.key(0), 3, 2, (8,), 2, context=4).now
    assert not made.actor[0].weight[3:].any()
    assert not made.critics[0].weight[:, 5:].any()
    made = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(4), leaf.shape), made)
    units, box = normaliser.identity(3, 2), ActionBox(-jnp.ones(2), jnp.ones(2))
    context, obs = jax.random.normal(jax.random.key(1), (4,)), jax.random.normal(jax.random.key(2), (5, 3))
    own, beside = actor_critic.in_task(made, context), jnp.broadcast_to(context, (5, 4))
    noise = jax.random.normal(jax.random.key(3), (5, 2))
    action, density = actor_critic.drawn_action(noise, own.actor, units, obs, box)
    told = actor_critic.drawn_action(noise, made.actor, units, obs, box, beside)
    np.testing.assert_allclose(action, told[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(density, told[1], rtol=1e-4)
    values = actor_critic.values(made.critics, units, obs, action, 0.9, beside)
    np.testing.assert_allclose(actor_critic.values(own.critics, units, obs, action, 0.9), values, rtol=1e-4, atol=1e-6)

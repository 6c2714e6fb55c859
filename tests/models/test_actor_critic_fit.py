"""Learning an actor and its critics: a problem with a known best action, and what an end is worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.models import actor_critic, actor_critic_fit, normaliser
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
    fit = jax.jit(lambda now: actor_critic_fit.fit(jax.random.key(1), now, UNITS, one_step, BOX, GAMMA, 6000))
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


def test_an_end_is_worth_its_reward_and_nothing_after_it():
    """Where critics are certain that all is worth 5, a step that ends is worth 1, and one that goes on 1 + 0.9 x 5."""
    now = fresh()
    *hidden, last = now.targets
    told = 5.0 / float(actor_critic.scale(UNITS, GAMMA))
    flat = (*hidden, last._replace(weight=0.0 * last.weight, bias=0.0 * last.bias + told))
    batch = StepBatch(jnp.zeros((2, 2, 1)), jnp.zeros((2, 2, 1)), jnp.ones((2, 2)), jnp.zeros((2, 2, 1)), jnp.eye(2))
    silent = now._replace(targets=flat, log_alpha=jnp.float32(-50.0))
    learner = actor_critic_fit.Learner(UNITS, BOX, GAMMA)
    target = learner.targets(silent, batch, jnp.zeros((2, 2, 1)))
    np.testing.assert_allclose(target, jnp.where(jnp.eye(2) > 0, 1.0, 5.5), rtol=1e-3)


@pytest.mark.parametrize("entropy", [actor_critic_fit.ENTROPY_ALONE, actor_critic_fit.ENTROPY_BESIDE_A_PLAN])
def test_the_actor_keeps_the_entropy_it_is_told(entropy: float):
    """By exp(-(2u)^2 / alpha) the two take alphas of 0.47 and 0.17, and it begins half way. To 0.15 nats."""
    begin = fresh()._replace(log_alpha=jnp.log(jnp.float32(0.28)))
    fit = jax.jit(lambda now: actor_critic_fit.fit(jax.random.key(1), now, UNITS, one_step, BOX, GAMMA, 6000, entropy))
    assert abs(float(fit(begin)[1].entropy) - entropy) < 0.15


def test_told_which_task_it_is_the_actor_does_what_pays_there():
    """In one and the same place the best action is the task's own: -1 in one task, 1 in the other. Untold it is 0."""

    def batch(key: jax.Array) -> StepBatch:
        task_key, action_key = jax.random.split(key)
        task = jnp.where(jax.random.uniform(task_key, (64, 1)) < 0.5, -1.0, 1.0)
        action = jax.random.uniform(action_key, (64, 1), minval=-2.0, maxval=2.0)
        nowhere = jnp.ones((64, 1))
        return StepBatch(nowhere, action, 1.0 - (action - task)[:, 0] ** 2, nowhere, jnp.ones(64), task)

    begin = actor_critic.init(jax.random.key(0), 1, 1, (16,), 3, context=1)
    begin = actor_critic.widened(begin, jnp.float32(-8.0), jnp.float32(1.0), GAMMA)
    fit = jax.jit(lambda now: actor_critic_fit.fit(jax.random.key(1), now, UNITS, batch, BOX, GAMMA, 4000))
    now = fit(begin)[0].now
    for task in (-1.0, 1.0):
        own = actor_critic.in_task(now, jnp.array([task]))
        assert abs(float(actor_critic.mean_action(own.actor, UNITS, jnp.ones((1, 1)), BOX)[0, 0]) - task) < 0.2
        worth = actor_critic.value(own, UNITS, jnp.ones((1, 1)), BOX, GAMMA)
        np.testing.assert_allclose(worth, 1.0, atol=0.2)

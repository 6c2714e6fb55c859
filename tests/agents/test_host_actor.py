"""Acting on the host is acting by the same policy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.host_actor import HostActor
from posterity.models import actor_critic, latent, mlp, normaliser
from posterity.models.actor_critic import ActionBox
from posterity.types import Key, Spec

SPEC = Spec(3, np.array([-1.0, 0.0]), np.array([1.0, 2.0]), max_episode_steps=10, alive=None)
KEYS = [Key.of(0), Key.of(1)]


def _actors(seed: int):
    made = [actor_critic.init(jax.random.key(seed + lane), 3, 2, (8,), 2).now.actor for lane in range(2)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)


def test_each_lane_acts_by_its_own_actor_and_the_newest_one_counts():
    """Against the plain functions of one lane; twice, with other weights the second time."""
    host, units, obs = HostActor(SPEC), lanes.repeated(normaliser.identity(3, 2), 2), np.ones((2, 3), np.float32)
    box = ActionBox(jnp.float32(SPEC.low), jnp.float32(SPEC.high))
    for seed in (0, 10):
        actors = _actors(seed)
        told = host.act(KEYS, obs, actors, units, explores=False)
        for lane in range(2):
            actor, own = jax.tree.map(lambda leaf, n=lane: leaf[n], (actors, units))
            alone = actor_critic.mean_action(actor, own, jnp.asarray(obs[lane]), box)
            np.testing.assert_allclose(told[lane], alone, rtol=1e-5, atol=1e-6)


def test_exploring_actions_differ_by_key_and_stay_within_the_range():
    host, units, obs = HostActor(SPEC), lanes.repeated(normaliser.identity(3, 2), 2), np.ones((2, 3), np.float32)
    actors = _actors(0)
    one, other = (host.act([key.fold(n) for key in KEYS], obs, actors, units, explores=True) for n in ("a", "b"))
    assert (one != other).all()
    assert (one >= SPEC.low).all()
    assert (one <= SPEC.high).all()


def test_pink_exploring_drifts_where_white_noise_stays():
    """An actor that tries things around 0: the mean of 64 actions in a row is larger with pink noise, and no lane's
    actions leave the range."""
    units, obs = lanes.repeated(normaliser.identity(3, 2), 2), np.zeros((2, 3), np.float32)
    actors, drift = _actors(0), {}
    for noise in ("white", "pink"):
        host = HostActor(SPEC, noise)
        steps = [[key.fold("episode", e, "step", n, "act") for key in KEYS] for e in range(8) for n in range(64)]
        acted = np.stack([host.act(keys, obs, actors, units, explores=True) for keys in steps])
        assert (acted >= SPEC.low).all()
        assert (acted <= SPEC.high).all()
        drift[noise] = np.abs(acted.reshape(8, 64, 2, 2).mean(axis=1) - acted.mean(axis=0)).mean()
    assert drift["pink"] > 2 * drift["white"]


def test_an_actor_that_is_told_the_task_acts_by_what_is_believed_of_it():
    """The mean of the first member's hypotheses, in every lane; and anew when the belief changes."""
    host, units, obs = HostActor(SPEC), lanes.repeated(normaliser.identity(3, 2), 2), np.ones((2, 3), np.float32)
    box = ActionBox(jnp.float32(SPEC.low), jnp.float32(SPEC.high))
    made = [mlp.init(jax.random.key(lane), (3 + 4, 8, 2 * 2)) for lane in range(2)]
    actors = jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)
    for seed in (5, 6):
        latents = jax.random.normal(jax.random.key(seed), (2, 3, 7, 4))
        acted = host.act(KEYS, obs, actors, units, explores=False, latents=latents)
        for lane in range(2):
            own = mlp.conditioned(made[lane], latent.told(latents[lane]))
            alone = actor_critic.mean_action(own, normaliser.identity(3, 2), jnp.asarray(obs[lane]), box)
            np.testing.assert_allclose(acted[lane], alone, rtol=1e-4, atol=1e-6)

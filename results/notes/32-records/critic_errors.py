"""Errors of a run's critics on transitions that happened and on imagined ones, by step of the rollout (note 32).

python results/notes/32-records/critic_errors.py RUN        a run of vblrl whose actor acts alone, first lane and task
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from posterity.agents.vblrl_state import VblrlState
from posterity.experiment import checkpoint
from posterity.experiment.folder import read_config
from posterity.experiment.run import build
from posterity.models import actor_critic, dynamics, replay
from posterity.types import Key

PARTICLES, ROLLOUTS, LENGTH = 8, 512, 4


def main(path: Path) -> None:
    """Prints the root mean square and the mean of Q minus its target, in units of the value."""
    config = read_config(path)
    _, found = build(config)
    agent: Any = found
    fresh = agent.init([Key.of(config.seed + lane).fold("init") for lane in range(config.seeds)])
    state, _ = checkpoint.load(path / "checkpoints" / "state.safetensors", fresh, agent.task_memory)
    assert isinstance(state, VblrlState)
    lane: Any = jax.tree.map(lambda leaf: leaf[0], (state.replay, state.normaliser, state.actor))
    memory, units, training = lane
    model: Any = jax.tree.map(lambda leaf: leaf[0], agent.model_of("task", state))
    gamma, network, pair = agent.settings.value.gamma, agent.settings.network, training.now
    box = actor_critic.ActionBox(jnp.float32(agent.spec.low), jnp.float32(agent.spec.high))
    low, high = (jnp.float32(side) for side in agent.spec.alive)
    unit, key = actor_critic.scale(units, gamma), jax.random.key(1)

    def alive(obs: jax.Array) -> jax.Array:
        side = obs.shape[-1]
        return (
            ((obs.reshape(-1, side) > low[None]) & (obs.reshape(-1, side) < high[None])).all(-1).reshape(obs.shape[:-1])
        )

    def errors(k: jax.Array, obs: jax.Array, action: jax.Array, reward: jax.Array, after: jax.Array) -> jax.Array:
        following, density = actor_critic.sample_action(k, pair.actor, units, after, box)
        told = actor_critic.careful(actor_critic.values(training.targets, units, after, following, gamma))
        soft = jnp.clip(told, pair.least, pair.most) - jnp.exp(training.log_alpha) * density
        said = actor_critic.values(pair.critics, units, obs, action, gamma).mean(axis=0)
        return (said - reward - gamma * jnp.where(alive(after), soft, 0.0)) / unit

    def told(name: str, error: jax.Array, weight: jax.Array) -> None:
        share = weight / weight.sum()
        print(f"{name}: {float(jnp.sqrt((share * error**2).sum())):.4f}, mean {float((share * error).sum()):.4f}")

    rows = replay.sample_task(key, memory, jnp.int32(0), PARTICLES * ROLLOUTS)
    real = errors(key, rows.obs, rows.action, rows.reward, rows.next_obs)
    told("that happened", real, jnp.ones_like(real))
    networks = model.sample(key, PARTICLES)

    def doubt(obs: jax.Array, action: jax.Array) -> jax.Array:
        return jnp.sqrt(dynamics.forecast(networks, units.inputs(obs, action), network).epistemic.mean(-1))

    usual = jnp.quantile(doubt(rows.obs, rows.action), 0.95)
    for sample in (True, False):
        obs, going = rows.obs.reshape(PARTICLES, ROLLOUTS, -1), jnp.ones((PARTICLES, ROLLOUTS))
        for step in range(LENGTH):
            action, _ = actor_critic.sample_action(jax.random.fold_in(key, 10 + step), pair.actor, units, obs, box)
            prediction = model.predict_each(networks, obs, action, network)
            reward, after = model.step(jax.random.fold_in(key, 20 + step), obs, prediction, sample=sample)
            going = going * (doubt(obs, action) <= usual)
            found = errors(jax.random.fold_in(key, 30 + step), obs, action, reward, after)
            told(f"imagined, {'drawn' if sample else 'mean'}, step {step + 1}", found, going)
            going, obs = going * alive(after), after


if __name__ == "__main__":
    main(Path(sys.argv[1]))

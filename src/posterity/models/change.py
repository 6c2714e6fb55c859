"""Has the task changed, and into which? Shiryaev's rule: the odds of each other task against the present one.

    odds_j  <-  (odds_j + hazard pi_j) / (1 - hazard)  x  p_j(step) / p_present(step)           for every step

    p_k     what the posterior of task k foretells, as wide as its forecasts were off in that task so far
    p_new   what the world posterior foretells, with deviations 2 or 4 times as wide as its forecasts were off so far
    pi_j    one half for a new task, the rest shared by the tasks known before

When the odds of all others together are above `ODDS`, the likeliest of them is the task now. Errors of a learned model
have heavy tails and come in bursts, where it has not been before. So densities are Student's t, and no step counts for
more than `MOST` nats: a change takes a dozen steps to be seen.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.models.dynamics import DynamicsModel, NetworkSettings, forecast
from posterity.types import FloatArray, IntArray

HAZARD = 1e-3  # probability of a change at any step, beforehand
ODDS = 99.0  # of a change, at which it is taken for one
MOST = 1.0  # nats of one step
FREEDOM = 4.0  # degrees of freedom of Student's t
NETWORKS = 8  # that a forecast is made with
WIDER = (2.0, 4.0)  # deviations of a new task, in those that the world posterior foretells
RATE = 0.02  # of one step in the running scale of squared errors
SQUARES = (0.01, 100.0)  # the least and the greatest of it
UNKNOWN = 1.0  # what it is for a task of which nothing is known yet


class Steps(NamedTuple):
    """W steps, in the environment's units."""

    obs: jax.Array  # [W, O]
    action: jax.Array  # [W, A]
    reward: jax.Array  # [W]
    next_obs: jax.Array  # [W, O]


class Odds(NamedTuple):
    """Of K tasks and a new one against the present one."""

    log: FloatArray  # [K + 1]
    since: IntArray  # [K + 1] steps since they began to rise


def squared_errors(
    key: jax.Array, model: DynamicsModel, steps: Steps, network: NetworkSettings
) -> tuple[jax.Array, jax.Array]:
    """[W, 1 + O] squared errors of a forecast in units of its variance, and the logarithm of that variance."""
    inputs = model.normaliser.inputs(steps.obs, steps.action)
    targets = model.normaliser.targets(steps.obs, steps.reward, steps.next_obs)
    told = forecast(model.sample(key, NETWORKS), inputs, network)
    variance = told.aleatoric + told.epistemic
    return (targets - told.mean) ** 2 / variance, jnp.log(variance)


def log_density(squares: jax.Array, log_variance: jax.Array, wider: jax.Array) -> jax.Array:
    """[W] of steps, all dimensions together, with variances `wider` [1 + O] times as large; but for a constant."""
    tails = (FREEDOM + 1.0) * jnp.log1p(squares / wider[None] / FREEDOM)
    return -0.5 * (tails + log_variance + jnp.log(wider)[None]).sum(axis=-1)


def new_log_density(squares: jax.Array, log_variance: jax.Array, usual: jax.Array) -> jax.Array:
    """[W] of steps, if the task is new: `squares` are the world posterior's, `usual` [1 + O] what they were so far."""
    each = [log_density(squares, log_variance, usual * wide**2) for wide in WIDER]
    return jax.nn.logsumexp(jnp.stack(each), axis=0) - jnp.log(jnp.float32(len(WIDER)))


def no_odds(tasks: int) -> Odds:
    """Nothing speaks for a change."""
    return Odds(np.full(tasks + 1, -np.inf), np.zeros(tasks + 1, np.int64))


def after(odds: Odds, density: FloatArray, present: int, known: int, room: bool) -> Odds:
    """The odds after steps whose log density [W, K + 1] is known. `room`: whether a new task is possible."""
    tasks = len(odds.log) - 1
    prior = np.zeros(tasks + 1)
    others = [task for task in range(known) if task != present]
    prior[others] = (0.5 if room else 1.0) / max(len(others), 1)
    prior[tasks] = 0.0 if not room else (0.5 if others else 1.0)
    log, since = odds.log.copy(), odds.since.copy()
    with np.errstate(divide="ignore"):
        entry = np.log(HAZARD * prior)
    for row in density:
        risen = log > entry  # before this step something spoke for it
        since = np.where(risen, since + 1, 1)
        log = np.logaddexp(log, entry) - np.log1p(-HAZARD) + np.clip(row - row[present], -MOST, MOST)
        log[(prior == 0.0)] = -np.inf
    return Odds(log, since)


def decided(odds: Odds) -> int | None:
    """The place of the task that it is now, K for a new one; None: still the same."""
    if not np.isfinite(odds.log).any() or np.logaddexp.reduce(odds.log) < np.log(ODDS):
        return None
    return int(odds.log.argmax())


def learned_squares(before: FloatArray, squares: FloatArray) -> FloatArray:
    """[..., 1 + O] the running scale of squared errors after steps [W, ..., 1 + O], by Student's t.

    That is a mean in which an error counts for less, the further it lies out.
    """
    for row in squares:
        weight = (FREEDOM + 1.0) / (FREEDOM + row / before)
        before = np.clip((1.0 - RATE) * before + RATE * weight * row, *SQUARES)
    return before

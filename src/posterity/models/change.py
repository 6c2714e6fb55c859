"""Has the task changed, and into which? Shiryaev's rule: the odds of each other task against the present one.

    odds_j  <-  (odds_j + hazard pi_j) / (1 - hazard)  x  exp(evidence_j)                             for every step

    a task known before   how much better its posterior foretells the step than the present one's, both held to be as
                          wide as the wider of the two; less, if it is further off than it used to be in its own time
    a new task            how much likelier the step is if the present task's errors were 2 or 4 times what they used
                          to be
    both                  what speaks for them counts the less, the further the step is from all that the present task
                          has shown, in units of how far its own steps usually are from those before: a model errs
                          where it has not been, and another that has been there knows better
    pi_j                  one tenth for a new task, the rest shared by the tasks known before

When the odds of all others together are above `ODDS`, the likeliest of them is the task now. Where two tasks do the
same, such as a pendulum at rest, nothing speaks for either: that is why both have one width. Errors of a learned model
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
NEW = 0.1  # probability that a change is to a new task, where others are known
ODDS = 99.0  # of a change, at which it is taken for one
MOST = 1.0  # nats of one step
FREEDOM = 4.0  # degrees of freedom of Student's t
NETWORKS = 8  # that a forecast is made with
NEAR = 0.2  # the least distance, in standard deviations of the inputs, that is held to be a near one
ASKED = 128  # steps of a task whose nearest earlier one is looked for, to know how far it usually is
MOMENT = 20  # steps before one, which are near it only because they have just been
FEW = 500  # steps of a task, below which everything is far from what was before it and no distance is the usual one
LARGER = (2.0, 4.0)  # errors in a new task, in those that were usual
LEAST = 0.03  # an error of which, in deviations of the targets, is never odd
RATE = 0.02  # of one step in the running scale of errors
SCALES = (0.01, 100.0)  # the least and the greatest of it
UNKNOWN = 1.0  # what it is for a task of which nothing is known yet


class Steps(NamedTuple):
    """W steps, in the environment's units."""

    obs: jax.Array  # [W, O]
    action: jax.Array  # [W, A]
    reward: jax.Array  # [W]
    next_obs: jax.Array  # [W, O]


class Told(NamedTuple):
    """What K tasks foretold of W steps, in the units of the normaliser."""

    squares: FloatArray  # [K, W, 1 + O] squared errors
    variance: FloatArray  # [K, W, 1 + O]
    near: FloatArray  # [W] how near the present task has been to each step: 1, there, to 0, nowhere near


class Odds(NamedTuple):
    """Of K tasks and a new one against the present one."""

    log: FloatArray  # [K + 1]
    since: IntArray  # [K + 1] steps since they began to rise


def foretold(
    key: jax.Array, model: DynamicsModel, steps: Steps, network: NetworkSettings
) -> tuple[jax.Array, jax.Array]:
    """[W, 1 + O] squared errors of a model's forecast, and the variance that it gave them."""
    inputs = model.normaliser.inputs(steps.obs, steps.action)
    targets = model.normaliser.targets(steps.obs, steps.reward, steps.next_obs)
    told = forecast(model.sample(key, NETWORKS), inputs, network)
    return (targets - told.mean) ** 2, told.aleatoric + told.epistemic


def nearness(inputs: jax.Array, seen: jax.Array, filled: jax.Array) -> jax.Array:
    """[W] how near inputs [W, O + A] are to the nearest of the first `filled` of those seen, [C, O + A].

    The unit is how far a step of this task usually was from all before it: with more inputs all are further apart.
    """
    there = jnp.arange(seen.shape[0]) < filled
    nearest = jnp.where(there[None], _apart(inputs, seen), jnp.inf).min(axis=1)
    return jnp.exp(-0.5 * nearest / jnp.maximum(NEAR**2, usual_distance(seen, filled) ** 2))


def usual_distance(seen: jax.Array, filled: jax.Array) -> jax.Array:
    """[] the median distance of a step to its nearest earlier one, of the first `filled` seen in order, [C, O + A].

    Steps of the later half are asked, those of the same moment left out. 0 where there are too few.
    """
    half = (filled + 1) // 2
    asked = half + jnp.arange(ASKED) * (filled - half) // ASKED
    earlier = jnp.arange(seen.shape[0])[None] <= asked[:, None] - MOMENT
    nearest = jnp.where(earlier, _apart(seen[asked], seen), jnp.inf).min(axis=1)
    return jnp.where(filled < FEW, 0.0, jnp.sqrt(jnp.median(nearest)))


def _apart(some: jax.Array, others: jax.Array) -> jax.Array:
    """[S, C] mean squared differences of rows."""
    return ((some[:, None] - others[None]) ** 2).mean(axis=-1)


def no_odds(tasks: int) -> Odds:
    """Nothing speaks for a change."""
    return Odds(np.full(tasks + 1, -np.inf), np.zeros(tasks + 1, np.int64))


def evidence(told: Told, scales: FloatArray, present: int) -> FloatArray:
    """[W, K + 1] nats for each task, and for a new one; `scales` [K, 1 + O] are the usual errors of each."""
    usual = np.maximum(told.variance * scales[:, None], LEAST**2)
    width = np.maximum(usual, usual[present])
    better = _density(told.squares, width) - _density(told.squares[present], width)
    off = _off(told.squares, usual)  # [K, W]
    nats = np.concatenate([better - np.maximum(off, 0.0), off[present][None]])
    return np.where(nats > 0.0, told.near * nats, nats).T


def _off(squares: FloatArray, usual: FloatArray) -> FloatArray:
    """[...] nats for errors that are larger than usual, [..., 1 + O] each."""
    larger = [_density(squares, usual * times**2) for times in LARGER]
    return np.logaddexp.reduce(larger) - np.log(len(LARGER)) - _density(squares, usual)


def _density(squares: FloatArray, width: FloatArray) -> FloatArray:
    """[...] log density of errors with squared scales `width`, all dimensions together; but for a constant."""
    return -0.5 * ((FREEDOM + 1.0) * np.log1p(squares / width / FREEDOM) + np.log(width)).sum(axis=-1)


def after(odds: Odds, nats: FloatArray, present: int, known: int, room: bool) -> Odds:
    """The odds after steps whose evidence [W, K + 1] is known. `room`: whether a new task is possible."""
    tasks = len(odds.log) - 1
    prior = np.zeros(tasks + 1)
    others = [task for task in range(known) if task != present]
    prior[others] = (1.0 - NEW if room else 1.0) / max(len(others), 1)
    prior[tasks] = 0.0 if not room else (NEW if others else 1.0)
    log, since = odds.log.copy(), odds.since.copy()
    with np.errstate(divide="ignore"):
        entry = np.log(HAZARD * prior)
    for row in nats:
        since = np.where(log > entry, since + 1, 1)  # something spoke for it before this step
        log = np.logaddexp(log, entry) - np.log1p(-HAZARD) + np.clip(row, -MOST, MOST)
        log[prior == 0.0] = -np.inf
    return Odds(log, since)


def decided(odds: Odds) -> int | None:
    """The place of the task that it is now, K for a new one; None: still the same."""
    if not np.isfinite(odds.log).any() or np.logaddexp.reduce(odds.log) < np.log(ODDS):
        return None
    return int(odds.log.argmax())


def learned_scale(before: FloatArray, errors: FloatArray) -> FloatArray:
    """[1 + O] the running scale of squared errors after steps [W, 1 + O], in units of the foretold variance.

    It is the mean in which an error counts for less, the further it lies out: the likeliest scale of Student's t.
    """
    for row in errors:
        weight = (FREEDOM + 1.0) / (FREEDOM + row / before)
        before = np.clip((1.0 - RATE) * before + RATE * weight * row, *SCALES)
    return before

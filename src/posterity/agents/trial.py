"""Whether what an actor inherits helps in a new task: it takes turns with a fresh one, and goes on if it is better.

Where tasks are of several kinds, an actor that has learned one kind may keep itself from what the next one asks for: an
arm that has learned to reach may go straight to the goal, and never find that an object has to be pushed there. That
cannot be told in advance, so it is tried. In the first iterations of a task the inherited actor acts in every
other one and a fresh actor, with critics of its own, in those between. Both learn from all steps of the task, the
inherited one from earlier tasks too. Then one of them goes on, and later tasks inherit from it: the inherited one if
it has earned more by at least one standard error, or else the fresh one, which has not learned anything wrong yet.

    since    the first task that the networks have learned from: a fresh start that goes on begins anew to count
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.guard import chosen
from posterity.models.actor_critic import ActorCriticTraining
from posterity.models.mlp import Layers
from posterity.types import Array


class Trial(NamedTuple):
    """What is known of both. Arrays have a leading axis of lanes."""

    fresh: ActorCriticTraining
    returns: jax.Array  # [iterations] what each turn has earned
    since: jax.Array  # []


class Tried(NamedTuple):
    """After an iteration of a trial."""

    trial: Trial
    networks: ActorCriticTraining  # those that go on, or are still tried as the inherited ones
    playing: Layers  # the actor of the next iteration


class Trials:
    """The trials of all lanes, as programs."""

    def __init__(self, iterations: int) -> None:
        """`iterations` of a task are a trial; 0: there is none."""
        self.iterations = iterations
        self.follow = lanes.compiled(self._follow)

    def begin(self, fresh: ActorCriticTraining, since: Array) -> Trial:
        """Before the first iteration of a task."""
        return Trial(fresh, jnp.zeros((*since.shape, self.iterations)), jnp.asarray(since, jnp.int32))

    def under_way(self, task: int, iteration: int) -> bool:
        """In the first task nothing is inherited, so nothing is tried."""
        return task > 0 and iteration < self.iterations

    def fresh_acts(self, task: int, iteration: int) -> bool:
        """The inherited actor has the first turn."""
        return self.under_way(task, iteration) and iteration % 2 == 1

    def facts(self, trial: Trial | None, task: int, iteration: int) -> dict[str, Array]:
        """For the record: whether what acted in this iteration [L] began afresh in this task."""
        if trial is None:
            return {}
        if self.under_way(task, iteration):
            return {"fresh": np.full(trial.since.shape, self.fresh_acts(task, iteration))}
        return {"fresh": np.asarray(trial.since) == task}

    def _follow(
        self, trial: Trial, inherited: ActorCriticTraining, task: jax.Array, iteration: jax.Array, earned: jax.Array
    ) -> Tried:
        """An iteration earned `earned` [] an episode, and both have learned from it."""
        returns = trial.returns.at[iteration].set(earned)
        over = iteration + 1 >= self.iterations
        won = over & ~self._helps(returns)
        networks = chosen(won, trial.fresh, inherited)
        playing = chosen(~over & (iteration % 2 == 0), trial.fresh.now.actor, networks.now.actor)
        return Tried(Trial(trial.fresh, returns, jnp.where(won, task, trial.since)), networks, playing)

    def _helps(self, returns: jax.Array) -> jax.Array:
        """Whether the inherited actor has earned more, by at least one standard error of the difference."""
        inherited, fresh = returns[0::2], returns[1::2]
        if not fresh.size:
            return jnp.array(True)
        chance = sum(part.var(ddof=1) / part.size for part in (inherited, fresh) if part.size > 1)
        return inherited.mean() - fresh.mean() > jnp.sqrt(chance)

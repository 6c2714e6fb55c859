"""`posterity` on other kinds of Meta-World in mt10's place, and with one thing changed:

python kinds.py KIND[,KIND...] PLAIN|TOLD|ALONE run mt10 ...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from posterity.agents import actor_learning, lanes
from posterity.agents.actor_critic import ActorCriticMethod
from posterity.agents.actor_learning import ActorCriticLearning
from posterity.cli import main
from posterity.families.metaworld import Mt10
from posterity.models.posterior import Latents
from posterity.types import HostArray, Key, Spec


def only(names: tuple[str, ...]) -> None:
    """The stream has these kinds, in this order."""

    def categories(self: Mt10) -> tuple[str, ...]:
        return names

    Mt10.categories = categories


def told() -> None:
    """Actor and critics are told the number of the task, one-hot."""
    built = ActorCriticMethod.__init__

    def build(self: Any, spec: Spec, settings: Any, budget: Any) -> None:
        built(self, spec, settings, budget)
        count, steps = budget.tasks, settings.updates_per_step * budget.steps_per_iteration
        learning = ActorCriticLearning(
            spec, settings.gamma, steps, settings.transfer, hidden=settings.hidden, context=count
        )
        known = Latents(jnp.eye(count), jnp.full((count, count), -30.0))
        self.fresh = lanes.compiled(learning.init)
        self.fit = lanes.compiled(
            lambda key, training, units, memory, task, since: learning.fit(
                key, training, units, memory, task, known=known, since=since
            )
        )

    def act(self: Any, keys: Sequence[Key], state: Any, obs: HostArray, first: Any) -> Any:
        if self._explores(state):
            return state, self.actor.random(keys)
        which = jnp.broadcast_to(jnp.eye(self.budget.tasks)[state.task_number], (len(keys), 1, 1, self.budget.tasks))
        if (state.task_number, state.iteration) != getattr(self, "seen", None):
            self.seen, self.which = (state.task_number, state.iteration), which
        return state, self.actor.act(keys, obs, state.guard.playing, state.normaliser, True, self.which)

    ActorCriticMethod.__init__ = build
    ActorCriticMethod.act = act


def alone() -> None:
    """Networks are inherited, and batches have no transitions of earlier tasks."""
    actor_learning.EARLIER_SHARE = 0.0


if __name__ == "__main__":
    only(tuple(sys.argv[1].split(",")))
    for name in sys.argv[2].split("+"):
        {"PLAIN": lambda: None, "TOLD": told, "ALONE": alone}[name]()
    sys.exit(main(sys.argv[3:]))

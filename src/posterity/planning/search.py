"""One way to search for actions, real or discrete: what the planner and the controller call."""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp

from posterity.planning import categorical, cem
from posterity.planning.categorical import Score
from posterity.planning.cem import Plan, PlannerSettings
from posterity.types import Spec


class Search(Protocol):
    """A search over action sequences."""

    fresh: Plan  # where a search begins when nothing is known

    def improved(self, key: jax.Array, score: Score, begin: Plan, proposals: jax.Array | None = None) -> Plan:
        """What it finds from `begin` on, with `proposals` [K, T, A] among the candidates."""
        ...

    def around(self, mean: jax.Array) -> Plan:
        """Where a search begins when a plan [T, A] is known."""
        ...

    def shifted(self, plan: Plan) -> Plan:
        """Where the next search begins, one step on."""
        ...

    def chosen(self, mean: jax.Array) -> jax.Array:
        """The actions [T, A] of a plan."""
        ...


class RealSearch:
    """The cross-entropy method with normals (`cem.py`)."""

    def __init__(self, low: jax.Array, high: jax.Array, settings: PlannerSettings, colour: float = 0.0) -> None:
        self.low, self.high, self.settings, self.colour = low, high, settings, colour
        self.fresh = cem.start(settings.horizon, low, high)

    def improved(self, key: jax.Array, score: Score, begin: Plan, proposals: jax.Array | None = None) -> Plan:
        """By the settings' number of iterations."""
        return cem.cem(key, score, begin, self.low, self.high, self.settings, proposals, self.colour)

    def around(self, mean: jax.Array) -> Plan:
        """With a variance that starts anew."""
        return Plan(mean, self.fresh.variance)

    def shifted(self, plan: Plan) -> Plan:
        """The middle of the range for the last action."""
        return cem.shifted(plan, self.fresh)

    def chosen(self, mean: jax.Array) -> jax.Array:
        """The mean itself."""
        return mean


class DiscreteSearch:
    """The cross-entropy method with categorical distributions (`categorical.py`)."""

    def __init__(self, actions: int, settings: PlannerSettings) -> None:
        self.settings, self.fresh = settings, categorical.start(settings.horizon, actions)

    def improved(self, key: jax.Array, score: Score, begin: Plan, proposals: jax.Array | None = None) -> Plan:
        """By the settings' number of iterations, or over all sequences. There are no proposals of discrete actions."""
        return categorical.search(key, score, begin, self.settings)

    def around(self, mean: jax.Array) -> Plan:
        """With probabilities that are less certain than those of the plan."""
        return categorical.widened(Plan(mean, 0.0 * mean))

    def shifted(self, plan: Plan) -> Plan:
        """Likewise; the last action is as likely as any."""
        return categorical.shifted(plan, self.fresh)

    def chosen(self, mean: jax.Array) -> jax.Array:
        """The likeliest actions, one-hot."""
        return categorical.chosen(mean)


def make_search(spec: Spec, settings: PlannerSettings, colour: float = 0.0) -> Search:
    """The search for the actions that a task has. `colour`: of the noise of real ones."""
    if spec.actions:
        return DiscreteSearch(spec.actions, settings)
    return RealSearch(jnp.float32(spec.low), jnp.float32(spec.high), settings, colour)

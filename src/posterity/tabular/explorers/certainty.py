"""Certainty equivalence: act as if the mean of the posterior were the truth.

It never tries anything for the sake of learning. With a prior from many tasks there is often little left to learn.
"""

from __future__ import annotations

import numpy as np

from posterity.tabular.explorers.base import Explorer, Moment, Plan, Posterior
from posterity.tabular.mdp import greedy
from posterity.tabular.solve import solve


class Certainty(Explorer):
    """Greedy in the mean model, which is planned with again whenever the visits to a pair have doubled."""

    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """Modified policy iteration from the values of the last plan."""
        solution = solve(posterior.mean(), self.planning.gamma, self.planning.tolerance, moment.values)
        return Plan(greedy(solution.action_values), solution.values, self.nothing())

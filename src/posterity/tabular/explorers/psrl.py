"""Posterior sampling (PSRL; Strens 2000, Osband et al. 2013): act as if one sampled model were true.

One model is drawn when an episode begins, and again after 1 / (1 - gamma) steps of an episode that goes on. Drawing
more often would not let a plan be carried out that needs several steps to find something new.
"""

from __future__ import annotations

import numpy as np

from posterity.tabular.explorers.base import Explorer, Moment, Plan, Posterior
from posterity.tabular.mdp import FiniteMDP, greedy
from posterity.tabular.solve import solve
from posterity.types import BoolArray, IntArray


class Psrl(Explorer):
    """Greedy in one sampled model."""

    def due(self, visits: IntArray) -> BoolArray:
        """Never because of a visit."""
        return np.zeros(np.shape(visits), dtype=bool)

    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """Modified policy iteration from the values of the last plan."""
        models = posterior.sample(generator, 1)
        model = FiniteMDP(models.probability[0], models.successor, models.reward[0], models.terminal)
        solution = solve(model, self.planning.gamma, self.planning.tolerance, moment.values)
        return Plan(greedy(solution.action_values), solution.values, self.nothing())

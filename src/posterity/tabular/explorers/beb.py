"""BEB, the Bayesian exploration bonus (Kolter and Ng 2009).

The mean model, in which a pair pays beta / (1 + n) on top of its reward, n what the posterior of the pair is worth in
observations. What the prior is sure of gets little: with transfer the bonus shrinks as tasks go by.
"""

from __future__ import annotations

import numpy as np

from posterity.tabular.explorers.base import Explorer, Moment, Plan, Posterior
from posterity.tabular.mdp import greedy
from posterity.tabular.solve import solve


class Beb(Explorer):
    """Greedy in the mean model with a bonus for pairs that little is known of."""

    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """Modified policy iteration from the values of the last plan."""
        mean = posterior.mean()
        extra = self.planning.bonus * float(np.ptp(self.spec.levels)) / (1.0 + posterior.weight())
        model = mean._replace(reward=mean.reward + extra)
        solution = solve(model, self.planning.gamma, self.planning.tolerance, moment.values)
        return Plan(greedy(solution.action_values), solution.values, self.nothing())

"""Upper confidence bounds: the mean model, in which a pair pays for what is uncertain about its value.

    bonus(s, a)  =  beta SD[ r(s, a) + gamma sum_s' p(s' | s, a) V(s') ]            SD over the posterior of the row

This is a variance-based bonus (Sorg, Singh and Lewis 2010) in units of value, as in the uncertainty Bellman equation
(O'Donoghue et al. 2018). Unlike the bonus of BEB it asks what there is to learn and not how often a pair was seen. A
step that every task takes alike pays nothing, and neither does an outcome that leads to states as good as each other.
V is the value of this very plan, so bonus and plan are found in turn. As in UCBVI (Azar et al. 2017), no bonus lifts a
pair above the most that can be earned, r_max / (1 - gamma). Without this cap values that are all uncertain would lift
each other without end.
"""

from __future__ import annotations

import numpy as np

from posterity.tabular.explorers.base import Explorer, Moment, Plan, Posterior
from posterity.tabular.mdp import action_values, greedy
from posterity.tabular.solve import solve

ROUNDS = 3  # of bonus and plan; the first has the values of the last plan


class Ucb(Explorer):
    """Greedy in the mean model with a bonus of `bonus` standard deviations."""

    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """Modified policy iteration from the values of the last plan, for each round's bonus."""
        mean, gamma, tolerance = posterior.mean(), self.planning.gamma, self.planning.tolerance
        most = float(self.spec.levels.max()) / (1.0 - gamma)
        values, quality = np.where(self.spec.terminal, 0.0, moment.values), mean.reward
        for _ in range(ROUNDS):
            values = np.minimum(values, most)
            room = np.maximum(most - action_values(mean, values, gamma), 0.0)
            extra = np.minimum(self.planning.bonus * np.sqrt(posterior.variance(values, gamma)), room)
            solution = solve(mean._replace(reward=mean.reward + extra), gamma, tolerance, values)
            values, quality = solution.values, solution.action_values
        return Plan(greedy(quality), values, self.nothing())

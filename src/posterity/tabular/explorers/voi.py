"""The value of information (Dearden, Friedman and Russell 1998): a Bayes-adaptive look one discovery ahead.

K models are sampled and each is solved by itself, which gives K opinions Q_k(s, a) on what an action is worth. To find
out which is right is worth something only where it would change what is done:

    gain_k(s, a)  =  max(0, Q_k(s, a) - mean Q(s, best))          of an action that is not the best on average
                  =  max(0, mean Q(s, second) - Q_k(s, best))     of the best one
    act by           mean Q(s, a) + mean gain(s, a)

Once the samples agree on what is best the gains vanish and nothing is tried any more, whatever else is uncertain.
"""

from __future__ import annotations

import numpy as np

from posterity.tabular.explorers.base import Explorer, Moment, Plan, Posterior
from posterity.tabular.mdp import greedy
from posterity.tabular.solve import solve_each
from posterity.types import FloatArray


class Voi(Explorer):
    """Greedy in the mean value of K sampled models plus the value of information."""

    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """Policy iteration in each sample, from the values of the last plan."""
        models = posterior.sample(generator, self.planning.models)
        quality = solve_each(models, self.planning.gamma, self.planning.tolerance, moment.values)
        return Plan(greedy(with_information(quality)), quality.mean(axis=0).max(axis=1), self.nothing())


def with_information(quality: FloatArray) -> FloatArray:
    """[S, A] mean values and what knowing would be worth, of the values Q [K, S, A] in each model."""
    mean = quality.mean(axis=0)
    if mean.shape[1] == 1:
        return mean
    order = np.argsort(mean, axis=1)
    rows = np.arange(len(mean))
    best, second = order[:, -1], order[:, -2]
    gain = np.maximum(quality - mean[rows, best][:, None], 0.0)
    gain[:, rows, best] = np.maximum(mean[rows, second] - quality[:, rows, best], 0.0)
    return mean + gain.mean(axis=0)

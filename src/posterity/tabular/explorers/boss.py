"""BOSS, best of sampled set (Asmuth et al. 2009), the explorer of the paper's Algorithm 3.

K models are sampled and merged into one MDP in which every action may follow the model that makes it look best. Models
are sampled again when a pair becomes known, and at no other time.
"""

from __future__ import annotations

import numpy as np

from posterity.tabular.boss import optimistic_values
from posterity.tabular.explorers.base import Explorer, Moment, Plan, Posterior
from posterity.tabular.mdp import greedy
from posterity.types import BoolArray, IntArray


class Boss(Explorer):
    """Greedy in the merge of K sampled models."""

    each_episode = False

    @property
    def lasts(self) -> int:
        """For ever."""
        return np.iinfo(np.int32).max

    def due(self, visits: IntArray) -> BoolArray:
        """When the pair becomes known."""
        return np.asarray(visits == self.planning.known)

    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """Value iteration from zero, to the paper's tolerance."""
        models = posterior.sample(generator, self.planning.models)
        quality = optimistic_values(models, self.planning.gamma, self.planning.tolerance)
        return Plan(greedy(quality), quality.max(axis=1), self.nothing())

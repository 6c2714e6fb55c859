"""Best of Sampled Set (Asmuth et al., 2009): optimism from K sampled models.

K models are merged into one process with A x K actions: (a, k) does what model k says a does. Its optimal value is at
least that of every single sample, so a pair about which the samples disagree looks as good as the best of them, and
the greedy policy goes and finds out.
"""

from __future__ import annotations

import numpy as np

from posterity.tabular.mdp import FiniteMDP, value_iteration
from posterity.types import FloatArray


def merge(models: FiniteMDP) -> FiniteMDP:
    """The merged process of K stacked models. Action index a * K + k is (a, k)."""
    count, states, actions, outcomes = models.probability.shape
    successor = models.successor
    return FiniteMDP(
        probability=np.moveaxis(models.probability, 0, 2).reshape(states, actions * count, outcomes),
        successor=None if successor is None else np.repeat(successor, count, axis=1),
        reward=np.moveaxis(models.reward, 0, 2).reshape(states, actions * count),
        terminal=models.terminal,
    )


def optimistic_values(models: FiniteMDP, gamma: float, tolerance: float) -> FloatArray:
    """Q[S, A] of the merged process: for each real action, that of the model which makes it look best."""
    count, states, actions, _ = models.probability.shape
    merged = value_iteration(merge(models), gamma, tolerance).action_values
    return merged.reshape(states, actions, count).max(axis=2)

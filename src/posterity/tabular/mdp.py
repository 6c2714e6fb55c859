"""Finite Markov decision processes and their exact solution.

    V(s) = max_a  r(s, a) + gamma sum_m p(m | s, a) V(successor(s, a, m))                      (Bellman)

A pair (s, a) has M outcomes; `successor` says where each leads. A dense process has one outcome per state, so
`successor` is None; a house in which every move has two outcomes has M = 2, and solving it costs S x A x 2 a sweep
instead of S x A x S.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from posterity.types import BoolArray, FloatArray, IntArray


class FiniteMDP(NamedTuple):
    """One process, or a stack of K over the same states when `probability` and `reward` carry a leading axis."""

    probability: FloatArray  # [S, A, M]
    successor: IntArray | None  # [S, A, M]; None: outcome m leads to state m
    reward: FloatArray  # [S, A] expected
    terminal: BoolArray  # [S] worth nothing, whatever happens next


class Solution(NamedTuple):
    """What value iteration ends with. `values` are within tolerance * gamma / (1 - gamma) of the fixed point."""

    values: FloatArray  # [S]
    action_values: FloatArray  # [S, A]
    sweeps: int


def action_values(mdp: FiniteMDP, values: FloatArray, gamma: float) -> FloatArray:
    """One Bellman backup: Q[S, A] of acting once and being worth `values` [S] afterwards."""
    if mdp.successor is None:
        following = mdp.probability @ values
    else:
        following = np.einsum("sam,sam->sa", mdp.probability, values[mdp.successor])
    return mdp.reward + gamma * following


def value_iteration(mdp: FiniteMDP, gamma: float, tolerance: float) -> Solution:
    """Sweeps from zero until no value changes by `tolerance` or more."""
    values = np.zeros(mdp.reward.shape[0])
    sweeps = 0
    while True:
        quality = action_values(mdp, values, gamma)
        updated = np.where(mdp.terminal, 0.0, quality.max(axis=1))
        sweeps += 1
        change = np.abs(updated - values).max()
        if not np.isfinite(change):
            raise ValueError("the process has values that are not finite")
        values = updated
        if change < tolerance:
            return Solution(values, action_values(mdp, values, gamma), sweeps)


def policy_values(mdp: FiniteMDP, policy: FloatArray, gamma: float) -> FloatArray:
    """V[S] of a stochastic policy [S, A], by one linear solve: (I - gamma P_policy) V = r_policy."""
    states = policy.shape[0]
    alive = ~mdp.terminal
    reward = np.where(alive, (policy * mdp.reward).sum(axis=1), 0.0)
    weight = policy[:, :, None] * mdp.probability * alive[:, None, None]
    if mdp.successor is None:
        matrix = weight.sum(axis=1)
        return np.asarray(np.linalg.solve(np.eye(states) - gamma * matrix, reward), dtype=np.float64)
    origin = np.broadcast_to(np.arange(states)[:, None, None], weight.shape)
    places = origin.ravel(), mdp.successor.ravel()
    moves = sparse.csr_array((weight.ravel(), places), shape=(states, states))
    system = sparse.eye_array(states, format="csc") - gamma * moves.tocsc()
    return np.asarray(spsolve(system, reward), dtype=np.float64)


def greedy(quality: FloatArray, slack: float = 1e-9) -> FloatArray:
    """The policy [S, A] that spreads evenly over the best actions of each state."""
    best = quality >= quality.max(axis=1, keepdims=True) - slack
    return best / best.sum(axis=1, keepdims=True)

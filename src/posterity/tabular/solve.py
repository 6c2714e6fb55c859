"""Solving a finite MDP from a guess: modified policy iteration (Puterman and Shin, 1978).

    improve     policy(s) = argmax_a r(s, a) + gamma sum_m p(m | s, a) V(successor(s, a, m))
    evaluate    V <- (I - gamma P_policy)^-1 r_policy, exactly where S is small, else some sweeps of it

A guess near the answer, such as the values of the last plan, saves most of the work. It does not change the answer by
more than the tolerance, which here bounds the error of the values themselves.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from posterity.tabular.mdp import FiniteMDP, Solution, action_values
from posterity.types import FloatArray, IntArray

SMALL = 150  # states up to which policies are evaluated by one linear solve
SWEEPS = 10  # of evaluation between two improvements
ROUNDS = 10_000


def solve(mdp: FiniteMDP, gamma: float, tolerance: float, start: FloatArray | None = None) -> Solution:
    """Values within `tolerance` of the optimum, from the guess `start` [S] on."""
    states = mdp.reward.shape[0]
    rows = np.arange(states)
    values = np.zeros(states) if start is None else start.copy()
    for rounds in range(1, ROUNDS):
        quality = action_values(mdp, values, gamma)
        policy = quality.argmax(axis=1)
        improved = np.where(mdp.terminal, 0.0, quality[rows, policy])
        error = np.abs(improved - values).max()
        if not np.isfinite(error):
            raise ValueError("the process has values that are not finite")
        if error * gamma <= tolerance * (1.0 - gamma):
            return Solution(improved, action_values(mdp, improved, gamma), rounds)
        values = _evaluated(mdp, policy, gamma, improved)
    raise ValueError(f"no solution in {ROUNDS} rounds")


def solve_each(models: FiniteMDP, gamma: float, tolerance: float, start: FloatArray) -> FloatArray:
    """Q[K, S, A] of K stacked processes, each solved by itself: small dense ones together, others one by one."""
    count, states = models.reward.shape[:2]
    if models.successor is not None or states > SMALL:
        each = [
            FiniteMDP(models.probability[k], models.successor, models.reward[k], models.terminal) for k in range(count)
        ]
        return np.stack([solve(model, gamma, tolerance, start).action_values for model in each])
    alive = np.where(models.terminal, 0.0, 1.0)
    number, rows = np.arange(count)[:, None], np.arange(states)
    values = np.broadcast_to(start, (count, states))
    for _ in range(ROUNDS):
        quality = models.reward + gamma * np.einsum("ksam,km->ksa", models.probability, values)
        policy = quality.argmax(axis=2)
        improved = alive * np.take_along_axis(quality, policy[..., None], axis=2)[..., 0]
        if np.abs(improved - values).max() * gamma <= tolerance * (1.0 - gamma):
            return quality
        matrix = alive[:, None] * models.probability[number, rows, policy]
        reward = alive * models.reward[number, rows, policy]
        values = np.linalg.solve(np.eye(states) - gamma * matrix, reward[..., None])[..., 0]
    raise ValueError(f"no solution in {ROUNDS} rounds")


def _evaluated(mdp: FiniteMDP, policy: IntArray, gamma: float, values: FloatArray) -> FloatArray:
    """[S] what `policy` is worth, exactly or after some sweeps from `values`."""
    states = len(policy)
    rows = np.arange(states)
    chance = np.where(mdp.terminal[:, None], 0.0, mdp.probability[rows, policy])
    reward = np.where(mdp.terminal, 0.0, mdp.reward[rows, policy])
    if states <= SMALL:
        matrix = chance if mdp.successor is None else _dense(chance, mdp.successor[rows, policy], states)
        return np.asarray(np.linalg.solve(np.eye(states) - gamma * matrix, reward), dtype=np.float64)
    moves = chance
    if mdp.successor is not None:
        ends = np.arange(states + 1) * chance.shape[1]
        moves = sparse.csr_array((chance.ravel(), mdp.successor[rows, policy].ravel(), ends), shape=(states, states))
    for _ in range(SWEEPS):
        values = reward + gamma * (moves @ values)
    return values


def _dense(chance: FloatArray, successor: IntArray, states: int) -> FloatArray:
    matrix = np.zeros((states, states))
    np.add.at(matrix, (np.arange(states)[:, None], successor), chance)
    return matrix

"""LPG-FTW, lifelong policy gradient: faster training without forgetting (Mendez, Wang and Eaton 2020).

    theta_t = L s_t                                                            the policy of task t
    s_t     maximises J_t(L s) - code_penalty |s|_1                            while the task is learned, L held
    L       maximises mean_t [ g_t . L s_t + (L s_t - theta_t)' H_t (L s_t - theta_t) ] - dictionary_penalty |L|^2 / 2

The last is a quadratic with the solution  vec(L) = (A / T - dictionary_penalty I)^-1 (b / T),  where
A = sum_t 2 (s_t s_t') kron H_t  and  b = sum_t s_t kron (2 H_t theta_t - g_t);  theta_t, the gradient g_t and the
curvature H_t are those of the task's final policy, and A and b all that is kept of it.

The dictionary L [d, k] grows: the first task trains its first column; each of the next k - 1 tasks also trains a vector
of its own beside L s, which becomes a column when the task is over. Later tasks train s alone. Deviations belong to the
task. With hidden layers these are L s, and each task has an output layer of its own (the Meta-World variant).

Departure: a task's own vector starts at zero with hidden layers too, where the published code starts it at random.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents.policy_gradient import GradientSettings, GradientState, PolicyGradient
from posterity.models.natural import hessian
from posterity.models.policy import Policy
from posterity.settings import setting
from posterity.types import FloatArray, Key


class LpgFtwSettings(GradientSettings):
    """What LPG-FTW can be told."""

    columns: int = setting(5, "k: columns of the dictionary (published: 3, 5 or 10).", ge=1)
    code_penalty: float = setting(1e-5, "Weight of |s|_1 from the second task on (published: 1e-5).", ge=0)
    dictionary_penalty: float = setting(1e-5, "Weight of |L|^2 / 2 after a task (published: 1e-5).", gt=0)


class Factors(NamedTuple):
    """What a task trains, for one lane or all."""

    dictionary: Any  # [d, k] L
    code: Any  # [k] s
    extra: Any  # [d] beside L s, while the dictionary grows
    head: Any  # the task's own output layer; empty for a linear policy
    log_std: Any  # [A]


class Memory(NamedTuple):
    """Of the finished tasks, per lane."""

    a: FloatArray  # [L, k d, k d] sum of 2 (s s') kron H
    b: FloatArray  # [L, k d] sum of s kron (2 H theta - g)
    codes: FloatArray  # [L, k] sum of s


class KeptFactors(NamedTuple):
    """What it takes to act in a task later on, also with a dictionary that has changed."""

    theta: Any  # [L, d] as trained
    log_std: Any  # [L, A]
    dictionary: Any  # [L, d, k]
    code: Any  # [L, k]


class LpgFtw(PolicyGradient):
    """A dictionary of policies, and a code for each task."""

    remembers = True

    def blank(self, lanes: int) -> Memory:
        """No tasks yet."""
        k, size = self.settings.columns, self.settings.columns * self.shared
        return Memory(np.zeros((lanes, size, size)), np.zeros((lanes, size)), np.zeros((lanes, k)))

    def compose(self, trained: Factors) -> Policy:
        """theta = L s, beside it the task's own vector, then its output layer."""
        shared = trained.dictionary @ trained.code + trained.extra
        return Policy(jnp.concatenate([shared, trained.head]), trained.log_std)

    def begin(self, keys: list[Key], state: GradientState) -> tuple[Factors, Memory]:
        """The dictionary there is; the code is the mean of the earlier tasks'."""
        fresh = self.fresh(keys)
        if state.number < 0:
            return fresh, state.memory
        code = (state.memory.codes / (state.number + 1)).astype(np.float32)
        return fresh._replace(dictionary=state.trained.dictionary, code=code), state.memory

    def mask(self, number: int) -> Factors:
        """The first task trains the first column; the others their code, and while L grows a vector of their own."""
        k, d, ones = self.settings.columns, self.shared, np.ones
        filled = np.arange(k) < number  # columns there are
        return Factors(
            dictionary=np.zeros((d, k), np.float32) + np.eye(1, k, dtype=np.float32) * (number == 0),
            code=filled.astype(np.float32),
            extra=np.full(d, 0 < number < k, np.float32),
            head=ones(self.size - d, np.float32),
            log_std=ones(len(self.half), np.float32),
        )

    def terms(self, state: GradientState) -> np.ndarray:
        """[L] whether the code is penalised."""
        return np.full(len(state.noise), state.number > 0, np.float32)

    def prior(self, trained: Factors, terms: jax.Array) -> jax.Array:
        """-code_penalty |s|_1."""
        return -self.settings.code_penalty * terms * jnp.abs(trained.code).sum()

    def finish(self, state: GradientState, gradient: FloatArray, fisher: FloatArray) -> GradientState:
        """The task's own vector becomes a column, the task joins A and b, and L is found anew from the second on."""
        trained = _grown(state.trained, state.number)
        tasks, penalty = state.number + 1, self.settings.dictionary_penalty
        memory, found = Memory(*(part.copy() for part in state.memory)), trained.dictionary.copy()
        for lane, (g, f) in enumerate(zip(gradient, fisher, strict=True)):
            theta = state.policy.theta[lane, : self.shared].astype(np.float64)
            code = trained.code[lane].astype(np.float64)
            a, b = quadratic(code, theta, g, hessian(g, f, self.settings.step_size))
            memory.a[lane] += a
            memory.b[lane] += b
            memory.codes[lane] += code
            if tasks > 1:
                found[lane] = best_dictionary(memory.a[lane] / tasks, memory.b[lane] / tasks, penalty, len(code))
        return state._replace(trained=trained._replace(dictionary=found), memory=memory)

    def keep(self, keys: list[Key], state: GradientState) -> KeptFactors:
        """The policy as it is, and what it becomes of when the dictionary changes."""
        return KeptFactors(*state.policy, state.trained.dictionary, state.trained.code)

    def recall(self, own: KeptFactors, latest: KeptFactors) -> Any:
        """The dictionary as it is now, with the task's own code and output layer."""
        shared = (np.asarray(latest.dictionary) @ np.asarray(own.code)[..., None])[..., 0]
        return np.concatenate([shared, own.theta[:, self.shared :]], axis=1)

    def _fresh_one(self, data: jax.Array) -> Factors:
        theta, k = self._new_theta(data), self.settings.columns
        column, head = theta[: self.shared], theta[self.shared :]
        first = jnp.eye(1, k)
        return Factors(column[:, None] * first, first[0], jnp.zeros(self.shared), head, self._new_log_std())


def quadratic(code: FloatArray, theta: FloatArray, gradient: FloatArray, curvature: FloatArray) -> tuple[Any, Any]:
    """What a task adds to A and b. vec(L) is column after column, so that vec(L)' (s kron v) = (L s)' v."""
    return 2 * np.kron(np.outer(code, code), curvature), np.kron(code, 2 * curvature @ theta - gradient)


def best_dictionary(a: FloatArray, b: FloatArray, penalty: float, columns: int) -> np.ndarray:
    """[d, k] the maximiser of vec(L)' A vec(L) / 2 - b . vec(L) - penalty |L|^2 / 2; A is negative semidefinite."""
    return np.linalg.solve(a - penalty * np.eye(len(a)), b).reshape(columns, -1).T


def _grown(trained: Factors, number: int) -> Factors:
    """The task's own vector as column `number`, of the mean length of the others; theta stays what it is."""
    if not 0 < number < trained.code.shape[1]:
        return trained
    length = np.linalg.norm(trained.dictionary[..., :number], axis=1).mean(axis=1)  # [L]
    weight = np.linalg.norm(trained.extra, axis=1) / length
    dictionary, code = trained.dictionary.copy(), trained.code.copy()
    dictionary[..., number] = trained.extra / np.where(weight > 0, weight, 1.0)[:, None]
    code[:, number] = weight
    return trained._replace(dictionary=dictionary, code=code, extra=np.zeros_like(trained.extra))

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

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents.base import Keys
from posterity.agents.policy_gradient import GradientSettings, GradientState, PolicyGradient
from posterity.models.natural import hessian
from posterity.models.policy import PolicyParams
from posterity.settings import setting
from posterity.types import Array, Budget, FloatArray, HostArray, Spec


class LpgFtwSettings(GradientSettings):
    """What LPG-FTW can be told."""

    columns: int = setting(
        5, "Number of columns of the dictionary, which are basis policies (published: 3, 5 or 10).", ge=1
    )
    code_penalty: float = setting(
        1e-5, "Strength of the L1 penalty on a task's code, from the second task on (published: 1e-5).", ge=0
    )
    dictionary_penalty: float = setting(
        1e-5, "Strength of the L2 penalty on the dictionary when it is fitted to all tasks (published: 1e-5).", gt=0
    )


class Factors(NamedTuple):
    """What a task trains, for one lane or all."""

    dictionary: Array  # [d, k] L
    code: Array  # [k] s
    extra: Array  # [d] beside L s, while the dictionary grows
    head: Array  # the task's own output layer; empty for a linear policy
    log_std: Array  # [A]


class Memory(NamedTuple):
    """Of the finished tasks, for each lane."""

    a: FloatArray  # [L, k d, k d] sum of 2 (s s') kron H
    b: FloatArray  # [L, k d] sum of s kron (2 H theta - g)
    codes: FloatArray  # [L, k] sum of s


class LpgFtwSnapshot(NamedTuple):
    """What it takes to act in a task later on, also with a dictionary that has changed."""

    theta: Array  # [L, d] as trained
    log_std: Array  # [L, A]
    dictionary: Array  # [L, d, k]
    code: Array  # [L, k]


State = GradientState[Factors, Memory]


class LpgFtw(PolicyGradient[Factors, Memory, HostArray, LpgFtwSnapshot]):
    """A dictionary of policies, and a code for each task."""

    summary = "a dictionary of policies and a code for each task (LPG-FTW)"
    settings_type = LpgFtwSettings
    wants_curvature = True

    def __init__(self, spec: Spec, settings: LpgFtwSettings, budget: Budget) -> None:
        super().__init__(spec, settings, budget)
        self.columns = settings.columns
        self.code_penalty, self.dictionary_penalty = settings.code_penalty, settings.dictionary_penalty

    def init_params(self, key: jax.Array) -> Factors:
        """A dictionary whose first column is a new policy, and the code that picks it."""
        theta, log_std = self.new_policy(key)
        first = jnp.eye(1, self.columns)
        column, head = theta[: self.shared], theta[self.shared :]
        return Factors(column[:, None] * first, first[0], jnp.zeros(self.shared), head, log_std)

    def init_memory(self, lanes: int) -> Memory:
        """No tasks yet."""
        size = self.columns * self.shared
        return Memory(np.zeros((lanes, size, size)), np.zeros((lanes, size)), np.zeros((lanes, self.columns)))

    def init_task_params(self, keys: Keys, state: State) -> Factors:
        """The dictionary there is; the code is the mean of the earlier tasks'."""
        fresh = self.fresh_params(keys)
        if state.number < 0:
            return fresh
        code = (state.memory.codes / (state.number + 1)).astype(np.float32)
        return fresh._replace(dictionary=state.trained.dictionary, code=code)

    def compose(self, trained: Factors) -> PolicyParams:
        """theta = L s, beside it the task's own vector, then its output layer."""
        shared = trained.dictionary @ trained.code + trained.extra
        return PolicyParams(jnp.concatenate([shared, trained.head]), trained.log_std)

    def mask(self, number: jax.Array) -> Factors:
        """The first task trains the first column; the others their code, and while L grows a vector of their own."""
        first, growing = number == 0, (number > 0) & (number < self.columns)
        return Factors(
            dictionary=jnp.zeros((self.shared, self.columns)).at[:, 0].set(first),
            code=(jnp.arange(self.columns) < number).astype(jnp.float32),  # columns there are
            extra=jnp.full(self.shared, growing, jnp.float32),
            head=jnp.ones(self.size - self.shared),
            log_std=jnp.ones(self.action_dim),
        )

    def regulariser_terms(self, state: State) -> HostArray:
        """[L] 1 if the code is penalised, else 0."""
        return np.full(len(state.noise), state.number > 0, np.float32)

    def regulariser(self, trained: Factors, terms: Array) -> jax.Array:
        """-code_penalty |s|_1."""
        return -self.code_penalty * jnp.asarray(terms) * jnp.abs(trained.code).sum()

    def end_task(self, state: State, gradient: FloatArray, fisher: FloatArray) -> State:
        """The task's own vector becomes a column, the task joins A and b, and L is found anew from the second on."""
        trained = _grown(state.trained, state.number)
        tasks = state.number + 1
        memory, found = Memory(*(part.copy() for part in state.memory)), np.array(trained.dictionary)
        for lane, (g, f) in enumerate(zip(gradient, fisher, strict=True)):
            theta = np.asarray(state.policy.theta[lane, : self.shared], np.float64)
            code = np.asarray(trained.code[lane], np.float64)
            a, b = quadratic(code, theta, g, hessian(g, f, self.settings.step_size))
            memory.a[lane] += a
            memory.b[lane] += b
            memory.codes[lane] += code
            if tasks > 1:
                mean_a, mean_b = memory.a[lane] / tasks, memory.b[lane] / tasks
                found[lane] = best_dictionary(mean_a, mean_b, self.dictionary_penalty, self.columns)
        return state._replace(trained=trained._replace(dictionary=found), memory=memory)

    def snapshot(self, keys: Keys, state: State) -> LpgFtwSnapshot:
        """The policy as it is, and what it takes to find it again when the dictionary has changed."""
        return LpgFtwSnapshot(*state.policy, state.trained.dictionary, state.trained.code)

    def policy_for(self, own: LpgFtwSnapshot, latest: LpgFtwSnapshot) -> Array:
        """The dictionary as it is now, with the task's own code and output layer."""
        shared = (np.asarray(latest.dictionary) @ np.asarray(own.code)[..., None])[..., 0]
        return np.concatenate([shared, np.asarray(own.theta)[:, self.shared :]], axis=1)


def quadratic(
    code: FloatArray, theta: FloatArray, gradient: FloatArray, curvature: FloatArray
) -> tuple[HostArray, HostArray]:
    """What a task adds to A and b. vec(L) is column after column, so that vec(L)' (s kron v) = (L s)' v."""
    return 2 * np.kron(np.outer(code, code), curvature), np.kron(code, 2 * curvature @ theta - gradient)


def best_dictionary(a: HostArray, b: HostArray, penalty: float, columns: int) -> HostArray:
    """[d, k] the maximiser of vec(L)' A vec(L) / 2 - b . vec(L) - penalty |L|^2 / 2; A is negative semidefinite."""
    return np.linalg.solve(a - penalty * np.eye(len(a)), b).reshape(columns, -1).T


def _grown(trained: Factors, number: int) -> Factors:
    """The task's own vector as column `number`, of the mean length of the others; theta stays what it is."""
    dictionary, code, extra = np.array(trained.dictionary), np.array(trained.code), np.asarray(trained.extra)
    if not 0 < number < code.shape[1]:
        return trained
    length = np.linalg.norm(dictionary[..., :number], axis=1).mean(axis=1)  # [L]
    weight = np.linalg.norm(extra, axis=1) / length
    dictionary[..., number] = extra / np.where(weight > 0, weight, 1.0)[:, None]
    code[:, number] = weight
    return trained._replace(dictionary=dictionary, code=code, extra=np.zeros_like(extra))

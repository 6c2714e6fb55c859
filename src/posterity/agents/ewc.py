"""Elastic weight consolidation (Kirkpatrick et al. 2017) on the natural policy gradient: one policy for all tasks.

    J(theta) + penalty sum_t (theta - theta_t)' H_t (theta - theta_t),        H_t = -eta_t F_t / 2

theta_t is the policy at the end of task t and F_t its Fisher matrix there, the whole of it. The sums of H_t and of
H_t theta_t are all that is kept of the tasks. A linear policy is shared whole, deviations included (they are not
penalised); of one with hidden layers these are shared, and each task has an output layer and deviations of its own.

Departure: the published code adds the penalty's gradient in another order of parameters than the policy's, so that with
more than one action dimension it pulls at the wrong weights. Here there is one order.
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


class EwcSettings(GradientSettings):
    """What EWC can be told."""

    penalty: float = setting(
        1e-7,
        "Strength of the penalty for moving away from the policies of earlier tasks (published: 1e-7 .. 1e-4).",
        ge=0,
    )


class Memory(NamedTuple):
    """Of the finished tasks, for each lane."""

    curvature: HostArray  # [L, d, d] sum of H_t
    pull: HostArray  # [L, d] sum of H_t theta_t
    rest: HostArray  # [L] sum of theta_t' H_t theta_t: makes the penalty 0 at the only task's policy


State = GradientState[PolicyParams, Memory]


class Ewc(PolicyGradient[PolicyParams, Memory, Memory, PolicyParams]):
    """One shared policy that is held back where earlier tasks are curved."""

    summary = "one policy, held back where earlier tasks are curved (elastic weight consolidation)"
    settings_type = EwcSettings
    wants_curvature = True

    def __init__(self, spec: Spec, settings: EwcSettings, budget: Budget) -> None:
        super().__init__(spec, settings, budget)
        self.penalty = settings.penalty

    def init_params(self, key: jax.Array) -> PolicyParams:
        """A new policy."""
        return self.new_policy(key)

    def init_memory(self, lanes: int) -> Memory:
        """No tasks, no penalty."""
        d = self.shared
        return Memory(np.zeros((lanes, d, d)), np.zeros((lanes, d)), np.zeros(lanes))

    def init_task_params(self, keys: Keys, state: State) -> PolicyParams:
        """The policy goes on; where tasks have parts of their own, these are fresh."""
        fresh = self.fresh_params(keys)
        if state.number < 0:
            return fresh
        if not self.settings.hidden:
            return state.trained
        return PolicyParams(self._joined(state.trained.theta, fresh.theta), fresh.log_std)

    def compose(self, trained: PolicyParams) -> PolicyParams:
        """The policy itself is trained."""
        return trained

    def regulariser_terms(self, state: State) -> Memory:
        """The memory in single precision."""
        return Memory(*(part.astype(np.float32) for part in state.memory))

    def regulariser(self, trained: PolicyParams, terms: Memory) -> jax.Array:
        """penalty sum_t (theta - theta_t)' H_t (theta - theta_t), never above 0."""
        theta = jnp.asarray(trained.theta[: self.shared])
        return self.penalty * (theta @ terms.curvature @ theta - 2 * theta @ terms.pull + terms.rest)

    def end_task(self, state: State, gradient: FloatArray, fisher: FloatArray) -> State:
        """The task's curvature joins the sum."""
        size = self.settings.step_size
        curvature = np.stack([hessian(g, f, size) for g, f in zip(gradient, fisher, strict=True)])
        theta = np.asarray(state.policy.theta[:, : self.shared], np.float64)
        pull = (curvature @ theta[..., None])[..., 0]
        new = Memory(curvature, pull, (theta * pull).sum(axis=1))
        return state._replace(memory=Memory(*(old + part for old, part in zip(state.memory, new, strict=True))))

    def snapshot(self, keys: Keys, state: State) -> PolicyParams:
        """The policy as it is."""
        return state.policy

    def policy_for(self, own: PolicyParams, latest: PolicyParams) -> Array:
        """The shared part as it is now, with the task's own part."""
        return self._joined(latest.theta, own.theta)

    def _joined(self, shared: Array, own: Array) -> HostArray:
        """[L, d] the shared part of one policy, and the rest of another."""
        return np.concatenate([np.asarray(shared)[:, : self.shared], np.asarray(own)[:, self.shared :]], axis=1)

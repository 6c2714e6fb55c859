"""Elastic weight consolidation (Kirkpatrick et al. 2017) on the natural policy gradient: one policy for all tasks.

    J(theta) + penalty sum_t (theta - theta_t)' H_t (theta - theta_t),        H_t = -eta_t F_t / 2

theta_t is the policy at the end of task t and F_t its Fisher matrix there, the whole of it. The sums of H_t and of
H_t theta_t are all that is kept of the tasks. A linear policy is shared whole, deviations included (they are not
penalised); of one with hidden layers these are shared, and each task has an output layer and deviations of its own.

Departure: the published code adds the penalty's gradient in another order of parameters than the policy's, so that with
more than one action dimension it pulls at the wrong weights. Here there is one order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from posterity.agents.policy_gradient import GradientSettings, GradientState, PolicyGradient
from posterity.models.natural import hessian
from posterity.models.policy import Policy
from posterity.settings import setting
from posterity.types import FloatArray, Key


class EwcSettings(GradientSettings):
    """What EWC can be told."""

    penalty: float = setting(1e-7, "Weight of the earlier tasks' curvature (published: 1e-7 .. 1e-4).", ge=0)


class Memory(NamedTuple):
    """Of the finished tasks, per lane."""

    curvature: FloatArray  # [L, d, d] sum of H_t
    pull: FloatArray  # [L, d] sum of H_t theta_t
    rest: FloatArray  # [L] sum of theta_t' H_t theta_t: makes the penalty 0 at the only task's policy


class Ewc(PolicyGradient):
    """One shared policy that is held back where earlier tasks are curved."""

    remembers = True

    def blank(self, lanes: int) -> Memory:
        """No tasks, no penalty."""
        d = self.shared
        return Memory(np.zeros((lanes, d, d)), np.zeros((lanes, d)), np.zeros(lanes))

    def begin(self, keys: list[Key], state: GradientState) -> tuple[Policy, Memory]:
        """The policy goes on; where tasks have parts of their own, these are fresh."""
        fresh = self.fresh(keys)
        if state.number < 0:
            return fresh, state.memory
        if not self.settings.hidden:
            return state.trained, state.memory
        shared = state.trained.theta[:, : self.shared]
        return Policy(np.concatenate([shared, fresh.theta[:, self.shared :]], axis=1), fresh.log_std), state.memory

    def terms(self, state: GradientState) -> Memory:
        """The memory in single precision."""
        return Memory(*(part.astype(np.float32) for part in state.memory))

    def prior(self, trained: Policy, terms: Memory) -> jax.Array:
        """penalty sum_t (theta - theta_t)' H_t (theta - theta_t), never above 0."""
        theta = trained.theta[: self.shared]
        return self.settings.penalty * (theta @ terms.curvature @ theta - 2 * theta @ terms.pull + terms.rest)

    def finish(self, state: GradientState, gradient: FloatArray, fisher: FloatArray) -> GradientState:
        """The task's curvature joins the sum."""
        size = self.settings.step_size
        curvature = np.stack([hessian(g, f, size) for g, f in zip(gradient, fisher, strict=True)])
        theta = state.policy.theta[:, : self.shared].astype(np.float64)
        pull = (curvature @ theta[..., None])[..., 0]
        new = Memory(curvature, pull, (theta * pull).sum(axis=1))
        return state._replace(memory=Memory(*(old + part for old, part in zip(state.memory, new, strict=True))))

    def recall(self, own: Any, latest: Any) -> Any:
        """The shared part as it is now, with the task's own part."""
        return np.concatenate([latest.theta[:, : self.shared], own.theta[:, self.shared :]], axis=1)

    def _fresh_one(self, data: jax.Array) -> Policy:
        return Policy(self._new_theta(data), self._new_log_std())

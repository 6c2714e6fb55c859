"""Natural policy gradient (Kakade 2001; Rajeswaran et al. 2017): the single-task learner among the baselines.

    x = (F + damping I)^-1 g,        theta <- theta + sqrt(size / (g . x)) x        once an iteration

Every task begins with a fresh policy and a fresh value network. With `fine_tune` the one policy goes on from task to
task: plain sequential fine-tuning, which is EWC without its penalty.
"""

from __future__ import annotations

from typing import Any

import jax

from posterity.agents.policy_gradient import GradientSettings, GradientState, PolicyGradient
from posterity.models.policy import Policy
from posterity.settings import setting
from posterity.types import Key


class NpgSettings(GradientSettings):
    """What NPG can be told."""

    fine_tune: bool = setting(False, "Go on with the policy of the task before; false: every task from scratch.")


class Npg(PolicyGradient):
    """One policy a task, or one for all that only ever learns the present task."""

    def begin(self, keys: list[Key], state: GradientState) -> tuple[Policy, Any]:
        """A fresh policy, or the one there is."""
        old = state.number >= 0 and self.settings.fine_tune
        return state.trained if old else self.fresh(keys), ()

    def recall(self, own: Any, latest: Any) -> Any:
        """Its own policy, which nothing has changed since; a fine-tuned one is what it has become."""
        return latest.theta if self.settings.fine_tune else own.theta

    def _fresh_one(self, data: jax.Array) -> Policy:
        return Policy(self._new_theta(data), self._new_log_std())

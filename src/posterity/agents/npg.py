"""Natural policy gradient (Kakade 2001; Rajeswaran et al. 2017): the single-task learner among the baselines.

    x = (F + damping I)^-1 g,        theta <- theta + sqrt(size / (g . x)) x        once an iteration

Every task begins with a fresh policy and a fresh value network. With `fine_tune` the one policy goes on from task to
task: plain sequential fine-tuning, which is EWC without its penalty.
"""

from __future__ import annotations

import jax

from posterity.agents.base import Keys
from posterity.agents.policy_gradient import GradientSettings, GradientState, PolicyGradient
from posterity.models.policy import PolicyParams
from posterity.settings import setting
from posterity.types import Array, Budget, Spec

Nothing = tuple[()]  # the memory of a method that remembers no task
State = GradientState[PolicyParams, Nothing]


class NpgSettings(GradientSettings):
    """What NPG can be told."""

    fine_tune: bool = setting(
        False, "Start each task from the policy of the task before; false: from a new policy, without transfer."
    )


class Npg(PolicyGradient[PolicyParams, Nothing, Nothing, PolicyParams]):
    """One policy a task, or one for all that only ever learns the present task."""

    summary = "natural policy gradient, every task from scratch (--fine-tune: one policy for all)"
    settings_type = NpgSettings

    def __init__(self, spec: Spec, settings: NpgSettings, budget: Budget) -> None:
        super().__init__(spec, settings, budget)
        self.fine_tune = settings.fine_tune

    def init_params(self, key: jax.Array) -> PolicyParams:
        """A new policy."""
        return self.new_policy(key)

    def init_memory(self, lanes: int) -> Nothing:
        """Nothing is remembered."""
        return ()

    def init_task_params(self, keys: Keys, state: State) -> PolicyParams:
        """A fresh policy, or the one there is."""
        return state.trained if self.fine_tune and state.number >= 0 else self.fresh_params(keys)

    def compose(self, trained: PolicyParams) -> PolicyParams:
        """The policy itself is trained."""
        return trained

    def regulariser_terms(self, state: State) -> Nothing:
        """Nothing holds the policy back."""
        return ()

    def snapshot(self, keys: Keys, state: State) -> PolicyParams:
        """The policy as it is."""
        return state.policy

    def policy_for(self, own: PolicyParams, latest: PolicyParams) -> Array:
        """Its own policy, which nothing has changed since; a fine-tuned one is what it has become."""
        return latest.theta if self.fine_tune else own.theta

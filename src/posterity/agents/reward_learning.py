"""The map of sparse rewards while tasks are met, for all lanes: `models/reward_map.py` has the mathematics.

begin      a task begins: the prior is learned from the tasks before, and nothing else is known of this one
seen       one step of it
again      all its steps so far once more, because the units have changed: where it began is the lattice's centre
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.base import Keys
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl_state import Variant
from posterity.errors import UserError
from posterity.models import replay, reward_map
from posterity.models.dynamics import DynamicsModel
from posterity.models.normaliser import Normaliser
from posterity.models.replay import Replay
from posterity.models.reward_map import Lattice, RewardBelief, RewardPrior
from posterity.types import Spec, Transition


class RewardLearning:
    """The programs, compiled once."""

    def __init__(self, spec: Spec, settings: VblrlSettings, variant: Variant) -> None:
        self.lattice = Lattice(settings.reward_map.lattice, spec.obs_dim)
        self.variant = variant
        precision = settings.outer_precision
        self._begin = lanes.compiled(reward_map.begin, precision)
        self._learn = lanes.compiled(self._learn_one, precision)
        self._seen = lanes.compiled(self._seen_one, precision)
        self.again = lanes.compiled(self._again_one, precision)

    def nothing_known(self, count: int) -> RewardPrior:
        """Of `count` lanes."""
        return lanes.repeated(reward_map.nothing_known(self.lattice), count)

    def fresh(self, prior: RewardPrior) -> RewardBelief:
        """What is believed of a task before its first step."""
        return self._begin(prior)

    def begin(
        self,
        keys: Keys,
        task: int,
        prior: RewardPrior | None,
        belief: RewardBelief | None,
        units: Normaliser,
        memory: Replay,
    ) -> tuple[RewardPrior, RewardBelief]:
        """The prior and the belief where a task begins. Where one model is pooled, there is one map for all tasks."""
        assert prior is not None
        assert belief is not None
        if not self.variant.inherits:
            prior = self.nothing_known(len(keys))
        elif task > 0 and not self.variant.tells_tasks_apart:
            return prior, belief
        elif task > 0:
            prior = self._learn([key.fold("reward prior") for key in keys], prior, units, memory, task)
        return prior, self.fresh(prior)

    def observe(self, belief: RewardBelief | None, units: Normaliser, step: Transition) -> RewardBelief:
        """What is believed after one more step [L, ...]."""
        outcome = (np.asarray(part, np.float32) for part in (step.next_obs, step.reward))
        return self._seen(belief, units, *outcome)

    # One lane ----------------------------------------------------------------------------------------------------

    def _learn_one(
        self, key: jax.Array, prior: RewardPrior, units: Normaliser, memory: Replay, task: jax.Array
    ) -> RewardPrior:
        return reward_map.learned(self.lattice, prior, *reward_map.of_tasks(key, memory, prior.centre, units, task))

    def _seen_one(
        self, belief: RewardBelief, units: Normaliser, next_obs: jax.Array, reward: jax.Array
    ) -> RewardBelief:
        return reward_map.seen(belief, self.lattice, *reward_map.in_units(belief.centre, units, next_obs, reward))

    def _again_one(
        self, prior: RewardPrior, units: Normaliser, memory: Replay, task: jax.Array
    ) -> tuple[RewardPrior, RewardBelief]:
        rows, filled = replay.transitions(memory, task)
        prior = prior._replace(centre=rows.obs[0])
        steps = *reward_map.in_units(prior.centre, units, rows.next_obs, rows.reward), filled.astype(jnp.float32)
        return prior, reward_map.conditioned(reward_map.begin(prior), self.lattice, *steps)


class RewardAdaptation:
    """Learns the map of an evaluation's task while it acts; the prior stays as it is."""

    def __init__(self, learning: RewardLearning) -> None:
        self.learning = learning

    def observe(self, keys: Keys, model: DynamicsModel, step: Transition) -> DynamicsModel:
        """The model with one more step [L, ...]."""
        return model._replace(rewards=self.learning.observe(model.rewards, model.normaliser, step))


def reward_learning(spec: Spec, settings: VblrlSettings, variant: Variant) -> RewardLearning | None:
    """What learns a map of rewards, if one is asked for; or one line that says why it cannot be had."""
    points = settings.reward_map.lattice
    if not points:
        return None
    if points < 2:
        raise UserError("A map of rewards has 2 or more points in each dimension; set reward_map.lattice to 0 or 2")
    if spec.obs_dim > reward_map.MOST_DIMENSIONS:
        raise UserError(
            f"A map of rewards is for observations of at most {reward_map.MOST_DIMENSIONS} numbers, and these have "
            f"{spec.obs_dim}; set reward_map.lattice to 0"
        )
    if spec.reward is not None:
        raise UserError("The reward of this family is known, so no map of it is learned; set reward_map.lattice to 0")
    if settings.policy.updates_per_step:
        raise UserError(
            "An actor learns from the rewards of the network and not from a map; set reward_map.lattice or "
            "policy.updates_per_step to 0"
        )
    return RewardLearning(spec, settings, variant)

"""What acts, as a learner that learns nothing: so that a controller plays the file of a policy like any other."""

from __future__ import annotations

import numpy as np

from posterity.agents.base import Agent, Info, Keys, Policy, Score
from posterity.control.plain import PlainPolicy
from posterity.types import BoolArray, HostArray, Transition


class PolicyAgent(Agent[object, object]):
    """A fixed network. Its state is the layers, of one lane and without an axis for it."""

    def __init__(self, plain: PlainPolicy) -> None:
        self.player = PlainPlayer(plain)

    def init(self, keys: Keys) -> object:
        """The layers."""
        return self.player.plain.network.layers

    def begin_task(self, keys: Keys, state: object) -> object:
        """The same for every task."""
        return state

    def act(self, keys: Keys, state: object, obs: HostArray, first: BoolArray) -> tuple[object, HostArray]:
        """The likeliest action."""
        return state, self.player.act(keys, obs, first)

    def update(self, keys: Keys, state: object, rows: Transition) -> tuple[object, Info]:
        """Nothing is learned."""
        return state, {}

    def snapshot(self, keys: Keys, state: object) -> object:
        """The layers."""
        return state

    def policy(self, own: object, latest: object, score: Score, variant: str) -> Policy:
        """The same for every score."""
        return self.player


class PlainPlayer(Policy):
    """A plain policy, as an evaluation plays one."""

    def __init__(self, plain: PlainPolicy) -> None:
        self.plain = plain

    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        """[L, A] the likeliest actions."""
        return np.stack([self.plain.act(each) for each in obs])

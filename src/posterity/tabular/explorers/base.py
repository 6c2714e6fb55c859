"""The contract of an explorer: how a learner that knows its posterior decides what to do.

All explorers see the same posterior, with or without what earlier tasks taught, and turn it into a plan. A plan is a
policy, which is followed until the next plan; a few actions that come before it (`agenda`); and the values it came
from, where the next plan may begin. An explorer also says when a plan is due.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from posterity.errors import UserError
from posterity.tabular.mdp import FiniteMDP
from posterity.types import BoolArray, FiniteSpec, FloatArray, IntArray

Name = Literal["boss", "psrl", "beb", "certainty", "bamcp", "voi", "ucb", "path"]


class Posterior(Protocol):
    """What is believed of the present task."""

    def sample(self, generator: np.random.Generator, count: int) -> FiniteMDP:
        """`count` processes drawn from the posterior, stacked."""
        ...

    def mean(self) -> FiniteMDP:
        """The process of the mean row of every pair."""
        ...

    def weight(self) -> FloatArray:
        """[S, A] how many observations of a pair the posterior is worth."""
        ...

    def variance(self, values: FloatArray, gamma: float) -> FloatArray:
        """[S, A] the variance over the posterior of r(s, a) + gamma sum_s' p(s' | s, a) values(s')."""
        ...

    def places(self) -> tuple[FloatArray, IntArray]:
        """Of a family with a layout, [S]: the chance that a thing lies in a state, and the number of the thing."""
        ...


class Moment(NamedTuple):
    """Where a plan is made."""

    obs: int
    remaining: int  # steps before the episode is cut off
    values: FloatArray  # [S] of the last plan


class Plan(NamedTuple):
    """What to do from now on."""

    policy: FloatArray  # [S, A] even over ties
    values: FloatArray  # [S]
    agenda: IntArray  # [T] the first actions; -1: as the policy says


class Planning(NamedTuple):
    """What explorers can be told."""

    models: int  # K, sampled models
    known: int  # B, visits after which a pair is known
    gamma: float
    tolerance: float
    bonus: float  # of BEB, in units of the range of rewards
    simulations: int  # of BAMCP


class Explorer(ABC):
    """Makes plans. It remembers nothing: the state of the learner is all there is."""

    each_episode: ClassVar[bool] = True  # a plan is due when an episode begins

    def __init__(self, spec: FiniteSpec, planning: Planning) -> None:
        self.spec, self.planning = spec, planning
        self.ahead = 1  # T, length of the agenda

    @property
    def lasts(self) -> int:
        """Steps after which a plan is out of date. By default 1 / (1 - gamma), beyond which little counts."""
        return max(1, round(1.0 / (1.0 - self.planning.gamma)))

    def due(self, visits: IntArray) -> BoolArray:
        """Whether a plan is due now that a pair was visited this many times. By default when visits have doubled."""
        return np.asarray((visits & (visits - 1)) == 0)

    @abstractmethod
    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """A plan for the present task as it is believed to be."""

    def nothing(self) -> IntArray:
        """[T] an agenda without actions."""
        return np.full(self.ahead, -1, dtype=np.int64)


def needs_layout(spec: FiniteSpec) -> None:
    """Refuses a family whose structure is not known."""
    if spec.layout is None:
        raise UserError("Explorer 'path' needs a family that declares a layout, such as item-search, and its structure")

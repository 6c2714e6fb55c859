"""A method of one's own: random search over linear policies, which carries the best one over to the next task.

In the folder of this file:

    posterity run pendulum-gravity --method own_method:RandomSearch --tasks 3 --iterations 50 --change 0.5
    posterity evaluate runs/pendulum-gravity-own_method-RandomSearch-001
    posterity report runs/pendulum-gravity-own_method-RandomSearch-001

It shows what a method consists of, and is no good learner: a linear policy cannot swing a pendulum up.

A state is a tree of arrays with a leading axis of L lanes, one for each seed. It is all there is: no lane and no task
may leave anything in the agent itself, and whatever is random comes from the keys.
"""

from typing import NamedTuple

import numpy as np

from posterity.agents.base import Agent, Info, Keys, Policy, Score
from posterity.settings import Settings, setting
from posterity.types import BoolArray, Budget, HostArray, Spec, Transition


class SearchSettings(Settings):
    """How policies are searched for."""

    change: float = setting(0.3, "Standard deviation of the change from the best weights to a trial's.", gt=0)


class SearchState(NamedTuple):
    best: HostArray  # [L, A, O + 1] weights of the best policy so far
    trial: HostArray  # [L, A, O + 1] weights that act in this iteration
    score: HostArray  # [L] reward of an iteration by the best policy in this task


class LinearPolicy(Policy):
    def __init__(self, spec: Spec, weights: HostArray) -> None:
        self.spec, self.weights = spec, weights

    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        inputs = np.concatenate([obs, np.ones((len(obs), 1))], axis=1)
        return np.clip(np.einsum("lao,lo->la", self.weights, inputs), self.spec.low, self.spec.high)

    def facts(self) -> Info:
        return {}


class RandomSearch(Agent[SearchState, SearchState]):
    summary = "random search over linear policies"
    settings_type = SearchSettings

    def __init__(self, spec: Spec, settings: SearchSettings, budget: Budget) -> None:
        self.spec, self.settings = spec, settings

    def init(self, keys: Keys) -> SearchState:
        weights = np.zeros((len(keys), len(self.spec.low), self.spec.obs_dim + 1))
        return SearchState(weights, weights, np.zeros(len(keys)))

    def begin_task(self, keys: Keys, state: SearchState) -> SearchState:
        return SearchState(state.best, state.best, np.full(len(keys), -np.inf))

    def act(self, keys: Keys, state: SearchState, obs: HostArray, first: BoolArray) -> tuple[SearchState, HostArray]:
        return state, LinearPolicy(self.spec, state.trial).act(keys, obs, first)

    def update(self, keys: Keys, state: SearchState, rows: Transition) -> tuple[SearchState, Info]:
        reward = np.asarray(rows.reward).sum(axis=1)
        better = reward > state.score
        best = np.where(better[:, None, None], state.trial, state.best)
        noise = np.stack([key.generator().normal(size=best.shape[1:]) for key in keys])
        score = np.where(better, reward, state.score)
        return SearchState(best, best + self.settings.change * noise, score), {"best_reward": score}

    def snapshot(self, keys: Keys, state: SearchState) -> SearchState:
        return state

    def policy(self, own: SearchState, latest: SearchState, score: Score, variant: str) -> LinearPolicy:
        return LinearPolicy(self.spec, own.best)

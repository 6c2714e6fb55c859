"""Bayesian Lifelong RL for finite MDPs (paper, Algorithm 3), and BOSS, which is the same with a fixed prior.

    for each task:
        N[s, a] <- 0;  resample <- true;  task posterior <- world posterior          begin_task
        for each step:
            if resample: sample K models, merge them, solve the merged MDP           act
            act greedily;  N[s, a] += 1;  update the task posterior                  act, observe
            if N[s, a] = B: update the world posterior;  resample <- true            observe

A pair is known once N[s, a] >= B. Models take known pairs from the task posterior and unknown ones from the world
posterior, as the paper's text says; its pseudo-code, and BOSS, sample from the task posterior only (`unknown`).

Departures. Ties between actions are broken at random: if none of the K samples promises a reward, all actions look
alike, and one fixed choice among them could repeat for ever. The world posterior also takes in a finished task's steps
since its last pair became known. BOSS never updates the world posterior.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from posterity.agents.base import Agent, Info, Keys, Policy, Score
from posterity.agents.lanes import each_lane
from posterity.settings import Settings, setting
from posterity.tabular.boss import optimistic_values
from posterity.tabular.dirichlet import DirichletRows, Pooling
from posterity.tabular.layout import HiddenLayout
from posterity.tabular.mdp import FiniteMDP, greedy
from posterity.types import BoolArray, Budget, FiniteSpec, FloatArray, HostArray, IntArray, Key, Transition

WorldBelief: TypeAlias = Any  # a NamedTuple of arrays that only the belief looks into
TaskBelief: TypeAlias = Any


class BlrlSettings(Settings):
    """What BLRL and BOSS can be told."""

    models: int = setting(5, "K: models sampled from the posterior and merged (paper: 5).", ge=1)
    known: int = setting(1, "B: visits after which a state-action pair is known and models are sampled again.", ge=1)
    gamma: float = setting(0.95, "Discount of value iteration (paper: 0.95).", ge=0, lt=1)
    tolerance: float = setting(0.01, "Value iteration stops when no value changes by this much (paper: 0.01).", gt=0)
    concentration: float = setting(1.0, "Dirichlet parameter of the prior before any task.", ge=1e-6, le=1e6)
    pooling: Pooling = setting(
        "evidence", "How tasks become the world posterior: evidence (fit the Dirichlet) or counts (add them up)."
    )
    unknown: Literal["world", "task"] = setting(
        "world", "Which posterior unknown pairs are sampled from: world (the paper's text) or task (its pseudo-code)."
    )
    structure: bool = setting(True, "Use what a family tells of its structure; false: learn every row by itself.")


class Belief(Protocol):
    """A posterior over finite MDPs, for the world and for a task. See tabular/dirichlet.py and tabular/layout.py."""

    def prior(self) -> WorldBelief:
        """The world posterior before any task."""
        ...

    def begin(self, world: WorldBelief) -> tuple[WorldBelief, TaskBelief]:
        """World and task posterior at the start of a task."""
        ...

    def observe(self, task: TaskBelief, row: Transition) -> TaskBelief:
        """The task posterior after one more step."""
        ...

    def pool(self, world: WorldBelief, task: TaskBelief) -> WorldBelief:
        """The world posterior that has taken in the present task so far."""
        ...

    def sample(
        self, generator: np.random.Generator, world: WorldBelief, task: TaskBelief, known: BoolArray, count: int
    ) -> FiniteMDP:
        """K processes, stacked."""
        ...


class BlrlState(NamedTuple):
    """Everything a run of BLRL is; in the methods of the contract with a leading axis of lanes."""

    world: WorldBelief  # the belief's world posterior
    task: TaskBelief  # the belief's task posterior
    visits: IntArray  # [S, A] N, of this task
    policy: FloatArray  # [S, A] greedy in the merged MDP, even over ties
    resample: BoolArray | np.bool_  # [] whether models are sampled before the next action
    resamplings: IntArray | np.int64  # [] times models were sampled in this task


class BlrlSnapshot(NamedTuple):
    """The policy of one moment."""

    policy: FloatArray  # [S, A]


class FixedPolicy(Policy):
    """Draws actions from a table of probabilities."""

    def __init__(self, table: FloatArray) -> None:
        self.table = table  # [L, S, A]

    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        """One action for each lane."""
        rows = self.table[np.arange(len(keys)), obs]
        return np.array([_draw(key.generator(), row) for key, row in zip(keys, rows, strict=True)])

    def facts(self) -> Info:
        """Nothing to say."""
        return {}


class Blrl(Agent[BlrlState, BlrlSnapshot]):
    """Algorithm 3. `transfer=False` is BOSS: every task starts from the same prior."""

    summary = "Bayesian lifelong RL for finite MDPs: the world posterior is the next task's prior"
    settings_type = BlrlSettings
    finite = True

    def __init__(self, spec: FiniteSpec, settings: BlrlSettings, budget: Budget, transfer: bool = True) -> None:
        self.spec = spec
        self.settings = settings
        self.transfer = transfer
        self.belief: Belief = (
            HiddenLayout(spec, settings.concentration)
            if spec.layout is not None and settings.structure
            else DirichletRows(spec, budget.tasks, settings.concentration, settings.pooling if transfer else "counts")
        )

    # The contract: every lane by itself --------------------------------------------------------------------------

    def init(self, keys: Keys) -> BlrlState:
        """The prior, and no task yet."""
        return each_lane(self._init, keys)

    def begin_task(self, keys: Keys, state: BlrlState) -> BlrlState:
        """The task posterior starts as the world posterior, which first takes in the last task to its end."""
        return each_lane(self._begin_task, keys, state)

    def act(self, keys: Keys, state: BlrlState, obs: HostArray, first: BoolArray) -> tuple[BlrlState, HostArray]:
        """Sample, merge and solve if need be; then act greedily."""
        if not np.any(state.resample):  # most steps
            return state, FixedPolicy(state.policy).act(keys, obs, first)
        state, actions = each_lane(self._act, keys, state, obs)
        return state, np.asarray(actions)

    def observe(self, keys: Keys, state: BlrlState, step: Transition) -> BlrlState:
        """Count, update the task posterior, and when the pair becomes known the world posterior."""
        pair = np.arange(len(keys)), step.obs, step.action
        visits = state.visits.copy()
        visits[pair] += 1
        task = each_lane(self._learn, keys, state.task, step)
        state = state._replace(visits=visits, task=task)
        newly = visits[pair] == self.settings.known
        return each_lane(self._pool, keys, state, newly) if newly.any() else state

    def update(self, keys: Keys, state: BlrlState, rows: Transition) -> tuple[BlrlState, Info]:
        """Nothing left to learn between iterations: every step was learned from when it happened."""
        known = (state.visits >= self.settings.known).sum(axis=(1, 2))
        return state, {"known_pairs": known, "resamplings": np.asarray(state.resamplings)}

    def snapshot(self, keys: Keys, state: BlrlState) -> BlrlSnapshot:
        """The policy that the next step would follow."""
        return each_lane(self._snapshot, keys, state)

    def policy(self, own: BlrlSnapshot, latest: BlrlSnapshot, score: Score, variant: str) -> FixedPolicy:
        """The task's own policy: finished tasks are not gone back to."""
        return FixedPolicy(own.policy)

    # One lane ----------------------------------------------------------------------------------------------------

    def _init(self, key: Key) -> BlrlState:
        pairs = (self.spec.states, self.spec.actions)
        world = self.belief.prior()
        _, task = self.belief.begin(world)
        visits, policy = np.zeros(pairs, dtype=np.int64), np.full(pairs, 1.0 / pairs[1])
        return BlrlState(world, task, visits, policy, np.bool_(True), np.int64(0))

    def _begin_task(self, key: Key, state: BlrlState) -> BlrlState:
        world = self.belief.pool(state.world, state.task) if self.transfer and state.visits.any() else state.world
        world, task = self.belief.begin(world)
        visits = np.zeros_like(state.visits)
        return BlrlState(world, task, visits, state.policy, resample=np.bool_(True), resamplings=np.int64(0))

    def _act(self, key: Key, state: BlrlState, obs: int) -> tuple[BlrlState, np.int64]:
        generator = key.generator()
        if state.resample:
            policy = self._solve(generator, state)
            state = state._replace(policy=policy, resample=np.bool_(False), resamplings=state.resamplings + 1)
        return state, _draw(generator, state.policy[obs])

    def _learn(self, key: Key, task: TaskBelief, step: Transition) -> TaskBelief:
        return self.belief.observe(task, step)

    def _pool(self, key: Key, state: BlrlState, newly: np.bool_) -> BlrlState:
        """A pair became known, if one did: the world posterior takes in the task so far, and models are drawn anew."""
        if not newly:
            return state
        world = self.belief.pool(state.world, state.task) if self.transfer else state.world
        return state._replace(world=world, resample=np.bool_(True))

    def _snapshot(self, key: Key, state: BlrlState) -> BlrlSnapshot:
        return BlrlSnapshot(self._solve(key.generator(), state) if state.resample else state.policy)

    def _solve(self, generator: np.random.Generator, state: BlrlState) -> FloatArray:
        """[S, A] greedy in the merge of K sampled models."""
        known = state.visits >= self.settings.known
        if not self.transfer or self.settings.unknown == "task":
            known = np.ones_like(known)
        models = self.belief.sample(generator, state.world, state.task, known, self.settings.models)
        return greedy(optimistic_values(models, self.settings.gamma, self.settings.tolerance))


def _draw(generator: np.random.Generator, chances: FloatArray) -> np.int64:
    return np.int64(generator.choice(len(chances), p=chances))

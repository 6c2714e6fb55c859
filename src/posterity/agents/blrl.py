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

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from posterity.agents.base import Info, Score, Strategy
from posterity.settings import Settings, setting
from posterity.tabular.boss import optimistic_values
from posterity.tabular.dirichlet import DirichletRows, Pooling
from posterity.tabular.layout import HiddenLayout
from posterity.tabular.mdp import FiniteMDP, greedy
from posterity.types import BoolArray, Budget, FiniteSpec, FloatArray, IntArray, Key, Transition


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

    def prior(self) -> Any:
        """The world posterior before any task."""
        ...

    def begin(self, world: Any) -> tuple[Any, Any]:
        """World and task posterior at the start of a task."""
        ...

    def observe(self, task: Any, row: Transition) -> Any:
        """The task posterior after one more step."""
        ...

    def pool(self, world: Any, task: Any) -> Any:
        """The world posterior that has taken in the present task so far."""
        ...

    def sample(self, generator: np.random.Generator, world: Any, task: Any, known: BoolArray, count: int) -> FiniteMDP:
        """K processes, stacked."""
        ...


class BlrlState(NamedTuple):
    """Everything a run of BLRL is."""

    world: Any  # the belief's world posterior
    task: Any  # the belief's task posterior
    visits: IntArray  # [S, A] N, of this task
    policy: FloatArray  # [S, A] greedy in the merged MDP, even over ties
    resample: bool
    resampled: int  # times models were sampled in this task


class Kept(NamedTuple):
    """The policy of one moment."""

    policy: FloatArray  # [S, A]


class Blrl:
    """Algorithm 3. `transfer=False` is BOSS: every task starts from the same prior."""

    def __init__(self, spec: FiniteSpec, settings: BlrlSettings, budget: Budget, transfer: bool = True) -> None:
        self.spec = spec
        self.settings = settings
        self.transfer = transfer
        self.belief: Belief = (
            HiddenLayout(spec, settings.concentration)
            if spec.layout is not None and settings.structure
            else DirichletRows(spec, budget.tasks, settings.concentration, settings.pooling if transfer else "counts")
        )

    def init(self, key: Key) -> BlrlState:
        """The prior, and no task yet."""
        pairs = (self.spec.states, self.spec.actions)
        world = self.belief.prior()
        _, task = self.belief.begin(world)
        return BlrlState(world, task, np.zeros(pairs, dtype=np.int64), np.full(pairs, 1.0 / pairs[1]), True, 0)

    def begin_task(self, key: Key, state: BlrlState) -> BlrlState:
        """The task posterior starts as the world posterior, which first takes in the last task to its end."""
        world = self.belief.pool(state.world, state.task) if self.transfer and state.visits.any() else state.world
        world, task = self.belief.begin(world)
        return state._replace(world=world, task=task, visits=np.zeros_like(state.visits), resample=True, resampled=0)

    def act(self, key: Key, state: BlrlState, obs: int, first: bool) -> tuple[BlrlState, int]:
        """Sample, merge and solve if need be; then act greedily."""
        generator = key.generator()
        if state.resample:
            policy = self._solve(generator, state)
            state = state._replace(policy=policy, resample=False, resampled=state.resampled + 1)
        return state, int(generator.choice(self.spec.actions, p=state.policy[obs]))

    def observe(self, key: Key, state: BlrlState, row: Transition) -> BlrlState:
        """Count, update the task posterior, and when the pair becomes known the world posterior."""
        visits = state.visits.copy()
        visits[row.obs, row.action] += 1
        task = self.belief.observe(state.task, row)
        if visits[row.obs, row.action] != self.settings.known:
            return state._replace(visits=visits, task=task)
        world = self.belief.pool(state.world, task) if self.transfer else state.world
        return state._replace(visits=visits, task=task, world=world, resample=True)

    def learn(self, key: Key, state: BlrlState, rows: Transition) -> tuple[BlrlState, Info]:
        """Nothing left to learn between iterations: every step was learned from when it happened."""
        return state, {"known": int((state.visits >= self.settings.known).sum()), "resampled": state.resampled}

    @property
    def start(self) -> int:
        """After the first iteration: it learns from every step."""
        return 1

    def keep(self, key: Key, state: BlrlState) -> Kept:
        """The policy that the next step would follow."""
        return Kept(self._solve(key.generator(), state) if state.resample else state.policy)

    def player(self, own: Kept, latest: Kept, score: Score, strategy: Strategy) -> Kept:
        """The task's own policy: finished tasks are not gone back to."""
        return own

    def play(self, key: Key, player: Kept, obs: int, first: bool) -> tuple[Kept, int]:
        """As the policy says."""
        return player, int(key.generator().choice(self.spec.actions, p=player.policy[obs]))

    def _solve(self, generator: np.random.Generator, state: BlrlState) -> FloatArray:
        """[S, A] greedy in the merge of K sampled models."""
        known = state.visits >= self.settings.known
        if not self.transfer or self.settings.unknown == "task":
            known = np.ones_like(known)
        models = self.belief.sample(generator, state.world, state.task, known, self.settings.models)
        return greedy(optimistic_values(models, self.settings.gamma, self.settings.tolerance))

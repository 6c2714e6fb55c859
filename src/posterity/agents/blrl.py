"""Bayesian Lifelong RL for finite MDPs (paper, Algorithm 3), and BOSS, which is the same with a fixed prior.

    for each task:
        N[s, a] <- 0;  plan is due;  task posterior <- world posterior               begin_task
        for each step:
            if a plan is due: the explorer makes one from the posterior              act
            act by the plan;  N[s, a] += 1;  update the task posterior               act, observe
            if N[s, a] = B: update the world posterior;  plan is due                 observe

The paper's explorer is `boss`: K models are sampled, merged and solved, and a plan is due when a pair becomes known,
that is N[s, a] = B. Others act on the same posterior and say themselves when a plan is due (tabular/explorers). Models
take known pairs from the task posterior and unknown ones from the world posterior, as the paper's text says; its
pseudo-code, and BOSS, sample from the task posterior only (`unknown`), and the world then learns when a task ends.

Departures. Ties between actions are broken at random: if none of the K samples promises a reward, all actions look
alike, and one fixed choice among them could repeat for ever. The world posterior also takes in a finished task's steps
since its last pair became known. BOSS never updates the world posterior.

The table of counts is not copied at every step: steps are noted down, and entered when a plan is due.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import numpy as np

from posterity.agents.base import Agent, Info, Keys, Policy, Score
from posterity.agents.lanes import each_lane
from posterity.settings import Settings, setting
from posterity.tabular.belief import Belief, Bound
from posterity.tabular.dirichlet import DirichletRows, Pooling
from posterity.tabular.explorers import EXPLORERS, Moment, Name, Planning
from posterity.tabular.kinds import DirichletKinds
from posterity.tabular.layout import HiddenLayout, Places
from posterity.types import BoolArray, Budget, FiniteSpec, FloatArray, HostArray, IntArray, Key, Transition

NOTES = 64  # steps that are noted down before they are entered


class BlrlSettings(Settings):
    """What BLRL and BOSS can be told."""

    explorer: Name = setting(
        "boss",
        "How to act on the posterior: boss (the paper's merged MDP), psrl, beb, ucb, certainty, bamcp, voi or path.",
    )
    transfer: bool = setting(True, "Let the world posterior learn; false: every task begins with the same prior.")
    models: int = setting(5, "K: models sampled from the posterior and merged (paper: 5).", ge=1)
    known: int = setting(1, "B: visits after which a state-action pair is known and models are sampled again.", ge=1)
    gamma: float = setting(0.95, "Discount of value iteration (paper: 0.95).", ge=0, lt=1)
    tolerance: float = setting(0.01, "Value iteration stops when no value changes by this much (paper: 0.01).", gt=0)
    concentration: float = setting(1.0, "Dirichlet parameter of the prior before any task.", ge=1e-6, le=1e6)
    pooling: Pooling = setting(
        "evidence", "How tasks become the world posterior: evidence (fit the Dirichlet) or counts (add them up)."
    )
    strength: float = setting(
        4.0, "Of pooling by evidence: what the first guess of how alike tasks are is worth, in rows.", gt=0, le=1000
    )
    kinds: int = setting(1, "Kinds of tasks at most; with several, the kind of a task is inferred.", ge=1, le=100)
    unknown: Literal["world", "task"] = setting(
        "world", "Which posterior unknown pairs are sampled from: world (the paper's text) or task (its pseudo-code)."
    )
    structure: bool = setting(True, "Use what a family tells of its structure; false: learn every row by itself.")
    places: Places = setting(
        "each", "Of a family with a layout: each thing has likely places of its own, or places may be alike."
    )
    bonus: float = setting(
        1.0, "Of beb: the bonus of a pair that nothing is known of; of ucb: how many standard deviations.", ge=0
    )
    simulations: int = setting(100, "Of explorer bamcp: simulated histories for each action.", ge=1)


class Notes(NamedTuple):
    """Steps that are not in the tables yet: the first `filled` rows."""

    obs: IntArray  # [B]
    action: IntArray  # [B]
    reward: FloatArray  # [B]
    next_obs: IntArray  # [B]
    filled: IntArray | np.int64  # []

    def steps(self, count: int) -> Transition:
        """The first `count` rows."""
        ended = np.zeros(count, dtype=bool)
        obs, action, reward, next_obs = (part[:count] for part in self[:4])
        return Transition(obs, action, reward, next_obs, ended, ended)


class BlrlState(NamedTuple):
    """Everything a run of BLRL is; in the methods of the contract with a leading axis of lanes."""

    world: object  # the belief's world posterior
    task: object  # the belief's task posterior
    notes: Notes
    visits: IntArray  # [S, A] N, of this task, without what is only noted
    policy: FloatArray  # [S, A] the plan, even over ties
    values: FloatArray  # [S] of the plan
    agenda: IntArray  # [T] actions that come before the policy; -1: none
    resample: BoolArray | np.bool_  # [] whether a plan is due before the next action
    resamplings: IntArray | np.int64  # [] plans made in this task
    age: IntArray | np.int64  # [] steps since the last plan
    elapsed: IntArray | np.int64  # [] steps since the episode began


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
        return np.array([_draw(key, row) for key, row in zip(keys, rows, strict=True)])

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
        self.transfer = transfer and settings.transfer
        self.belief = _belief(spec, settings, budget, self.transfer)
        planning = Planning(*(settings.model_dump()[name] for name in Planning._fields))
        shown = spec if settings.structure else spec._replace(layout=None)
        self.explorer = EXPLORERS[settings.explorer](shown, planning)
        self.task_only = not self.transfer or settings.unknown == "task"

    # The contract: every lane by itself --------------------------------------------------------------------------

    def init(self, keys: Keys) -> BlrlState:
        """The prior, and no task yet."""
        return each_lane(self._init, keys)

    def begin_task(self, keys: Keys, state: BlrlState) -> BlrlState:
        """The task posterior starts as the world posterior, which first takes in the last task to its end."""
        return each_lane(self._begin_task, keys, state)

    def act(self, keys: Keys, state: BlrlState, obs: HostArray, first: BoolArray) -> tuple[BlrlState, HostArray]:
        """Plan if need be; then act by the plan."""
        state = state._replace(elapsed=np.where(first, 0, state.elapsed))
        due = np.asarray(state.resample) | (np.asarray(state.age) >= self.explorer.lasts)
        if self.explorer.each_episode:
            due = due | first
        if due.any():
            state, actions = each_lane(self._act, keys, state, obs, due)
            return state, np.asarray(actions)
        actions = FixedPolicy(state.policy).act(keys, obs, first)
        if self.explorer.ahead > 1:
            listed = state.agenda[np.arange(len(keys)), state.age]
            actions = np.where(listed >= 0, listed, actions)
        return state, actions  # most steps

    def observe(self, keys: Keys, state: BlrlState, step: Transition) -> BlrlState:
        """Count, update the task posterior, and when the pair becomes known the world posterior."""
        ended = np.asarray(step.terminated) | np.asarray(step.truncated)
        notes, lanes = state.notes, np.arange(len(keys))
        noted = notes._replace(**{name: part.copy() for name, part in zip(Notes._fields, notes[:4], strict=False)})
        for column, part in zip(noted[:4], step[:4], strict=True):
            column[lanes, notes.filled] = part
        obs, action = np.asarray(step.obs), np.asarray(step.action)
        same = (noted.obs == obs[:, None]) & (noted.action == action[:, None])
        same &= np.arange(NOTES) <= np.asarray(notes.filled)[:, None]
        due = self.explorer.due(state.visits[lanes, obs, action] + same.sum(axis=1))
        count = notes.filled + 1
        state = state._replace(
            notes=noted._replace(filled=count),
            resample=state.resample | due,
            age=state.age + 1,
            elapsed=np.where(ended, 0, state.elapsed + 1),
        )
        pooled = due & (not self.task_only)
        return each_lane(self._learned, keys, state, pooled) if (pooled | (count == NOTES)).any() else state

    def update(self, keys: Keys, state: BlrlState, rows: Transition) -> tuple[BlrlState, Info]:
        """Nothing left to learn between iterations: every step was learned from when it happened."""
        state = self.entered(keys, state)
        known = (state.visits >= self.settings.known).sum(axis=(1, 2))
        return state, {"known_pairs": known, "resamplings": np.asarray(state.resamplings)}

    def entered(self, keys: Keys, state: BlrlState) -> BlrlState:
        """The same state with all that is noted down entered into the tables."""
        return each_lane(self._entered, keys, state) if np.any(state.notes.filled) else state

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
        zero, nothing = np.int64(0), np.zeros(NOTES, dtype=np.int64)
        return BlrlState(
            world=world,
            task=self.belief.begin(world),
            notes=Notes(nothing, nothing, np.zeros(NOTES), nothing, zero),
            visits=np.zeros(pairs, dtype=np.int64),
            policy=np.full(pairs, 1.0 / pairs[1]),
            values=np.zeros(pairs[0]),
            agenda=np.full(self.explorer.ahead, -1, dtype=np.int64),
            resample=np.bool_(True),
            resamplings=zero,
            age=zero,
            elapsed=zero,
        )

    def _begin_task(self, key: Key, state: BlrlState) -> BlrlState:
        state = self._entered(key, state)
        learned = self.transfer and state.visits.any()
        world = self.belief.pool(state.world, state.task, final=True) if learned else state.world
        return state._replace(
            world=world,
            task=self.belief.begin(world),
            visits=np.zeros_like(state.visits),
            resample=np.bool_(True),
            resamplings=np.int64(0),
        )

    def _act(self, key: Key, state: BlrlState, obs: int, due: np.bool_) -> tuple[BlrlState, np.int64]:
        generator = key.generator()
        if due:
            state = self._planned(generator, self._entered(key, state), int(obs))
        listed = state.agenda[state.age] if self.explorer.ahead > 1 else -1
        return state, np.int64(listed) if listed >= 0 else _drawn(generator, state.policy[obs])

    def _learned(self, key: Key, state: BlrlState, pooled: np.bool_) -> BlrlState:
        """Enters the notes if there is no room for more, or if the world posterior is to take in the task so far."""
        if pooled or state.notes.filled == NOTES:
            state = self._entered(key, state)
        return state._replace(world=self.belief.pool(state.world, state.task)) if pooled else state

    def _entered(self, key: Key, state: BlrlState) -> BlrlState:
        """Enters what is noted down into the tables."""
        count = int(state.notes.filled)
        if count == 0:
            return state
        steps = state.notes.steps(count)
        visits = state.visits.copy()
        np.add.at(visits, (steps.obs, steps.action), 1)
        task = self.belief.observe(state.task, steps)
        return state._replace(visits=visits, task=task, notes=state.notes._replace(filled=np.int64(0)))

    def _planned(self, generator: np.random.Generator, state: BlrlState, obs: int) -> BlrlState:
        """With a plan made now."""
        known = state.visits >= self.settings.known
        if self.task_only:
            known = np.ones_like(known)
        posterior = Bound(self.belief, state.world, state.task, known)
        moment = Moment(obs, self.spec.max_episode_steps - int(state.elapsed), state.values)
        plan = self.explorer.plan(generator, posterior, moment)
        return state._replace(
            **plan._asdict(), resample=np.bool_(False), resamplings=state.resamplings + 1, age=np.int64(0)
        )

    def _snapshot(self, key: Key, state: BlrlState) -> BlrlSnapshot:
        state = self._entered(key, state)
        return BlrlSnapshot(self._planned(key.generator(), state, 0).policy if state.resample else state.policy)


def _belief(spec: FiniteSpec, settings: BlrlSettings, budget: Budget, transfer: bool) -> Belief[object, object]:
    """What to believe with: the family's structure where it is known, else rows, of one kind of task or several."""
    if spec.layout is not None and settings.structure:
        belief: object = HiddenLayout(spec, settings.concentration, settings.places)
    else:
        pooling = settings.pooling if transfer else "counts"
        rows = DirichletRows(spec, budget, settings.concentration, pooling, settings.strength, settings.kinds)
        belief = rows if settings.kinds == 1 else DirichletKinds(rows, settings.kinds)
    return cast("Belief[object, object]", belief)


def _draw(key: Key, chances: FloatArray) -> np.int64:
    """An action. Where there is no choice, no random number is needed."""
    best = chances.argmax()
    return best if chances[best] == 1.0 else _drawn(key.generator(), chances)


def _drawn(generator: np.random.Generator, chances: FloatArray) -> np.int64:
    return np.int64(generator.choice(len(chances), p=chances))

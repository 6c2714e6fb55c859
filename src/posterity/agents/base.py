"""The contract between a learner and everything around it.

An agent is a set of functions of a state. It runs L learners (lanes) side by side, one for each seed. Its state is one
tree of arrays with a leading axis of lanes, so that a checkpoint is the state and nothing hides; plain numbers in the
tree are the same for all lanes. The agent object itself holds settings only. Randomness comes from the keys, one for
each lane, and no lane knows of another. What is written for one lane runs for all through `agents/lanes.py`.

    state = agent.init(keys)
    for each task:
        state = agent.begin_task(keys, state)
        for each iteration:
            for each step:
                state, actions = agent.act(keys, state, obs, first)
                state = agent.observe(keys, state, step)
            state, info = agent.update(keys, state, rows)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

from posterity import tree
from posterity.settings import NoSettings, Settings
from posterity.types import BoolArray, HostArray, Key, Transition

State = TypeVar("State")  # a tree of arrays with a leading axis of lanes
Snapshot = TypeVar("Snapshot")  # likewise
Keys = Sequence[Key]  # [L]
Info = Mapping[str, HostArray]  # numbers [L], or lists [L, n], for the record; one that is not finite is left out

Score = Literal["zero-shot", "start", "train", "back"]
SCORES: tuple[Score, ...] = ("zero-shot", "start", "train", "back")


class Policy(ABC):
    """Acts in an evaluation and does not learn. It is made anew for every set of episodes."""

    @abstractmethod
    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        """Actions [L, ...] for observations [L, ...]. `first` [L]: an episode begins with this observation."""

    def observe(self, keys: Keys, step: Transition) -> None:  # noqa: B027 - most policies have nothing to do here
        """One step [L, ...] happened. Nothing is learned from it, but a policy may infer which task this is."""

    def facts(self) -> Info:
        """What there is to say of the last actions; an episode's record has the mean over its steps."""
        return {}


class Behaviour(Protocol):
    """What acts in all of an iteration, in NumPy. It can be sent to another process."""

    def act(self, keys: Keys, obs: HostArray) -> HostArray:
        """Actions [L, ...] for observations [L, ...]."""
        ...

    def lane(self, lane: int) -> Behaviour:
        """What acts in one lane alone, which is to the bit what it does there beside the others."""
        ...


class Agent(ABC, Generic[State, Snapshot]):
    """A learner. Made as `AgentClass(spec, settings, budget)`; docs/adding-a-method.md has a small one."""

    summary: ClassVar[str] = ""  # one line for `posterity methods`
    settings_type: ClassVar[type[Settings]] = NoSettings
    finite: ClassVar[bool] = False  # learns finite MDPs, or else tasks with real observations and actions
    task_memory: ClassVar[str] = ""  # the part of its state, if any, whose arrays are [L, K tasks, ...]: a checkpoint
    # writes what belongs to a finished task once. A part `present` of it is of the present task alone: [L, ...]

    @abstractmethod
    def init(self, keys: Keys) -> State:
        """The state before the first task."""

    @abstractmethod
    def begin_task(self, keys: Keys, state: State) -> State:
        """A new task begins: what is believed about the family becomes its prior. Agents are not told which task."""

    @abstractmethod
    def act(self, keys: Keys, state: State, obs: HostArray, first: BoolArray) -> tuple[State, HostArray]:
        """The state after deciding, and the actions [L, ...]. `first` [L]: an episode begins with this observation."""

    def observe(self, keys: Keys, state: State, step: Transition) -> State:
        """One step [L, ...] happened. Agents that learn only between iterations leave this out."""
        return state

    def behaviour(self, state: State) -> Behaviour | None:
        """What acts in all of the next iteration, where that is settled now and needs no JAX; None: `act` does.

        Each lane may then be played in a process of its own, and neither `act` nor `observe` is called.
        """
        return None

    @abstractmethod
    def update(self, keys: Keys, state: State, rows: Transition) -> tuple[State, Info]:
        """An iteration ended; `rows` [L, B, ...] are its steps in order. The numbers go into its record."""

    def extend(self, state: State, fresh: State) -> State:
        """A state of a run with a smaller budget, with room for this one's. `fresh` is what `init` gives here.

        Whatever grows with the number of tasks has to grow, and nothing that was learned may be lost or moved. By
        default arrays that are larger in `fresh` begin as in `state` and end as in `fresh`; all else is of `state`.
        """
        return tree.extended(state, fresh)

    # Evaluation: acting later as now, without learning

    @property
    def start_iterations(self) -> int:
        """Iterations of a task after which its score Start is taken."""
        return 1

    @property
    def back_variants(self) -> tuple[str, ...]:
        """The names of the ways in which the score Back can be played, the default first; empty: there is one way."""
        return ()

    @abstractmethod
    def snapshot(self, keys: Keys, state: State) -> Snapshot:
        """What it takes to act later as now: a tree of arrays with a leading axis of lanes."""

    @abstractmethod
    def policy(self, own: Snapshot, latest: Snapshot, score: Score, variant: str) -> Policy:
        """What acts when a task is evaluated.

        `own` was taken in that task: before its first iteration for zero-shot, after `start_iterations` for start,
        after its last iteration for train and back. `latest` was taken at the end of the last task learned: what going
        back may use. `variant` is one of `back_variants` for the score back, and empty elsewhere.
        """

    def describe(self) -> Mapping[str, str]:
        """On what the numbers are computed (device, kernels and why not), for the record."""
        return {}

"""The words everything else is written in.

Shape letters, used in every docstring that names an array:

    L lanes (independent learners)    K tasks, or models sampled from a posterior    C capacity    B batch
    O observation    A action, or number of actions    N candidates    P particles    T planning steps
    S states    M outcomes of a state-action pair    R reward levels    V hidden variables

Randomness is a `Key`: the run's seed followed by the names of where it is used. A key is folded, never consumed, so
what is drawn for task 3, iteration 5, step 7 does not depend on what was drawn before it. That is what makes a resumed
run equal an unbroken one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # for types only: this module does not load JAX
    import jax

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
HostArray: TypeAlias = NDArray[Any]  # in the host's memory, of any kind of number
Facts: TypeAlias = Mapping[str, Any]  # names and plain values, as in a JSON object or a TOML table
Record: TypeAlias = dict[str, Any]  # the same, to be filled in
Array: TypeAlias = "HostArray | jax.Array"
# (obs [B, O], action [B, A] or the number [B] of a discrete one, next_obs [B, O]) -> [B]
StepFunction: TypeAlias = Callable[[Array, Array, Array], Array]


_STEP = zlib.crc32(b"step")


class Key(NamedTuple):
    """A place in the tree of random streams: `Key.of(seed).fold("task", 3)`."""

    path: tuple[int, ...]

    @classmethod
    def of(cls, seed: int) -> Key:
        """The root of the tree that `seed` grows."""
        return cls((seed,))

    def fold(self, *names: str | int) -> Key:
        """The key of a place below this one. A word counts by its checksum, which no Python process changes."""
        return Key(self.path + tuple(n if isinstance(n, int) else zlib.crc32(n.encode()) for n in names))

    def step(self) -> tuple[Key, int]:
        """The place and the number n of a key `place.fold("step", n, name)`; any other key is the first step there."""
        if len(self.path) > 3 and self.path[-3] == _STEP:
            return Key(self.path[:-3]), self.path[-2]
        return self, 0

    def generator(self) -> np.random.Generator:
        """A fresh NumPy generator. The same key always gives the same stream."""
        return np.random.Generator(np.random.PCG64(self._sequence()))

    def seed(self) -> int:
        """One 31-bit number for what takes a plain seed, such as Gymnasium's `reset`."""
        return int(self.words(1)[0] >> 1)

    def words(self, count: int) -> NDArray[np.uint32]:
        """`count` random 32-bit words, for what makes its own keys, such as JAX."""
        return self._sequence().generate_state(count).astype(np.uint32)

    def _sequence(self) -> np.random.SeedSequence:
        """By spawn key: as plain entropy (3,) and (3, 0) would be the same place, since words are padded with zeros."""
        return np.random.SeedSequence(self.path[0], spawn_key=self.path[1:])


@dataclass(frozen=True)
class Task:
    """One draw of a family's hidden parameter. Agents never see `factors`."""

    index: int
    name: str
    factors: Facts  # plain JSON values: what it takes to build the task again


class Budget(NamedTuple):
    """How much a run will see, so that memory can be laid out before it begins."""

    tasks: int
    iterations: int
    steps_per_iteration: int


class Transition(NamedTuple):
    """One step, or many with leading axes. Being cut off by a time limit (`truncated`) is not termination."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    terminated: Array
    truncated: Array


class Layout(NamedTuple):
    """What is known of a finite world in which only the places of things are hidden.

    Moving is certain: action a in state s leads to `move[s, a]`. Variable v is a thing that lies in one of the states
    `where[v]` or nowhere; entering the state it lies in earns `reward` and ends the episode in state `found`.
    """

    move: IntArray  # [S, A] the state an action leads to
    where: IntArray  # [V, N] the states in which variable v may lie
    reward: float
    found: int


class FiniteSpec(NamedTuple):
    """What an agent may know of every task of a finite family."""

    states: int
    actions: int
    levels: FloatArray  # [R] the rewards a step can give
    terminal: BoolArray  # [S] states in which an episode is over
    max_episode_steps: int  # an episode is cut off after this many
    layout: Layout | None = None  # the structure of a world in which only the places of things are hidden
    successors: IntArray | None = None  # [S, A, M] the states a pair can lead to; None: any

    def random_action(self, generator: np.random.Generator) -> HostArray:
        """The number [] of an action, uniform over all."""
        return np.asarray(generator.integers(self.actions))


class Spec(NamedTuple):
    """What an agent may know of every task of a family with real observations.

    Actions are real too, or one of a few (`Spec.discrete`). A discrete action is its number outside of an agent, and
    one-hot inside: `low` and `high` are then the bounds of that.
    """

    obs_dim: int  # O
    low: FloatArray  # [A] least action
    high: FloatArray  # [A] greatest action
    max_episode_steps: int  # an episode is cut off after this many
    alive: tuple[FloatArray, FloatArray] | None  # (low [O], high [O]): outside this box an episode ends
    min_scale: tuple[FloatArray, FloatArray] | None = (
        None  # least scale of observations [O], of (reward, change) [1 + O]:
    )
    # what lies still in the first task may be elsewhere, or move, in the second
    # What is known is used by plans instead of what is learned. Both are functions that JAX can trace.
    reward: StepFunction | None = None  # the reward of a step
    terminated: StepFunction | None = None  # whether a step ended its episode for good; instead of `alive`
    learn_termination: bool = False  # episodes do end, and nobody says when
    actions: int = 0  # how many discrete actions there are; 0: actions are real numbers

    @classmethod
    def discrete(
        cls,
        obs_dim: int,
        actions: int,
        max_episode_steps: int,
        alive: tuple[FloatArray, FloatArray] | None = None,
        *,
        reward: StepFunction | None = None,
        terminated: StepFunction | None = None,
        learn_termination: bool = False,
    ) -> Spec:
        """With discrete actions, numbered from 0."""
        sizes = (obs_dim, np.zeros(actions), np.ones(actions), max_episode_steps, alive, None)
        return cls(*sizes, reward, terminated, learn_termination, actions)

    def random_action(self, generator: np.random.Generator) -> HostArray:
        """Uniform over all actions: [A], or the number [] of a discrete one."""
        if self.actions:
            return np.asarray(generator.integers(self.actions))
        return generator.uniform(self.low, self.high).astype(np.float32)

    def encoded(self, action: Array) -> HostArray:
        """Actions as networks take them: [..., A] one-hot if they are discrete and come as numbers [...]."""
        given = np.asarray(action)
        return np.eye(self.actions, dtype=np.float32)[given.astype(int)] if self.actions else given

    def decoded(self, action: Array) -> HostArray:
        """The other way round."""
        given = np.asarray(action)
        return given.argmax(axis=-1) if self.actions else given

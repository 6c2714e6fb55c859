"""What a family of tasks is.

A family is a distribution of tasks. It says what every task has in common (`spec`), draws tasks (`tasks`), and builds
the environment of one (`make`). The hidden parameter is in `Task.factors`, which no agent is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from posterity.errors import UserError
from posterity.settings import NoSettings, Settings
from posterity.types import Facts, FiniteSpec, FloatArray, HostArray, IntArray, Key, Record, StepFunction, Task

RECURRING = "Probability that a task is one met before, which nobody tells; 0: all are new."  # a setting's help line
Env: TypeAlias = gymnasium.Env[Any, Any]
Prestep = Callable[[Sequence[int], HostArray], None]  # the lanes that are to step, and the actions of all lanes


class Family(ABC):
    """A distribution of tasks. Make one by `from_gymnasium`, or subclass it; every method runs on it."""

    summary: ClassVar[str] = ""
    settings_type: ClassVar[type[Settings]] = NoSettings
    # The settings a run of a family of one's own starts from: tasks, iterations, steps_per_iteration, and below "agent"
    # those of the default method (blrl or vblrl). The built-in families have presets instead.
    budget: Facts = MappingProxyType({})
    finite: ClassVar[bool] = False  # whether tasks are finite MDPs
    simulated: ClassVar[bool] = (
        False  # whether a step is physics, which takes longer than to tell another process of it
    )
    spec: Any  # what every task has in common: a FiniteSpec or a Spec

    def __init__(self, settings: Any = None) -> None:
        self.settings: Any = settings if settings is not None else self.settings_type()

    @staticmethod
    def from_gymnasium(
        env: str | Callable[..., Env],
        vary: Mapping[str, object],
        *,
        max_episode_steps: int | None = None,
        alive: Mapping[int, tuple[float, float]] | str | None = "estimate",
        reward: StepFunction | None = None,
        terminated: StepFunction | None = None,
        budget: Facts | None = None,
    ) -> Family:
        """A family of any Gymnasium environment, given by its id or by a function that makes it.

        Observations are a Box. Actions are a Box or Discrete.

        `vary` says what is drawn anew for every task: names and distributions, such as `{"gravity": uniform(0.5, 1.5)}`
        (docs/adding-a-family.md has the names). `max_episode_steps` is the environment's own if it is not given.
        `alive` is the box outside which an episode ends, `{0: (0.7, 2.0)}` for the first number of the observation;
        "estimate" finds it by random play, and has it learned if episodes end and no box explains it; "learn" has it
        learned; None says that no episode ends early. `reward` and `terminated` are functions of (obs [B, O], action
        [B, A], next_obs [B, O]) where they are known: plans use them instead of what is learned. They are written with
        jax.numpy or plain operators, and are checked against the environment before a run. A discrete action is its
        number, [B]. `budget` holds settings that a run starts from: tasks, iterations, steps_per_iteration, and below
        "agent" those of vblrl.
        """
        from posterity.families.custom import from_gymnasium

        return from_gymnasium(
            env,
            vary,
            max_episode_steps=max_episode_steps,
            alive=alive,
            reward=reward,
            terminated=terminated,
            budget=budget,
        )

    @abstractmethod
    def tasks(self, key: Key, count: int) -> list[Task]:
        """The first `count` tasks of the stream that `key` names. A longer stream begins with a shorter one."""

    @abstractmethod
    def make(self, task: Task) -> Env:
        """The environment of `task`. `reset(seed=...)` decides everything that is random in the episode."""

    def prestep(self, envs: Sequence[Env]) -> AbstractContextManager[Prestep | None]:
        """What does part of the next step of several `envs` together, before they step; None: nothing to gain.

        No observation, reward or ending may depend on whether it is used.
        """
        return nullcontext()

    def configured(self, settings: Settings) -> Family:
        """This family with other settings."""
        return self if settings == self.settings else type(self)(settings)

    def notes(self) -> list[str]:
        """What a user should know of this family before a run, a line each."""
        return []

    def drawn_from(self) -> dict[str, str]:
        """The distribution of each factor in words, where it is known."""
        return {}

    def draw(self, task: Task) -> str:
        """A picture of `task` in characters, for people."""
        return "\n".join(f"{name}: {value}" for name, value in task.factors.items())

    def picture(self, task: Task, env: Env) -> HostArray | None:
        """[H, W, 3] what an environment of `task` looks like now, in bytes; None: it has to draw itself."""
        return None


class Truth(NamedTuple):
    """The true process of one finite task, for the environment and for measuring. Agents never get it."""

    probability: FloatArray  # [S, A, M]
    successor: IntArray | None  # [S, A, M]; None: outcome m leads to state m
    reward: FloatArray  # [S, A, R] probability of each reward level
    start: FloatArray  # [S] where an episode begins


class FiniteFamily(Family):
    """A family of finite MDPs: say what the true process of a task is, and its environment follows."""

    finite = True
    spec: FiniteSpec

    @abstractmethod
    def truth(self, task: Task) -> Truth:
        """The true process of `task`."""

    def world(self) -> tuple[FloatArray, FloatArray] | None:
        """The Dirichlet parameters, [S, A, S] and [S, A, R], that the rows of tasks are drawn from, if so they are."""
        return None

    def make(self, task: Task) -> Env:
        """The environment that plays `truth(task)`, cut off after `spec.max_episode_steps` steps."""
        return FiniteEnv(self.spec, self.truth(task))

    def picture(self, task: Task, env: Env) -> HostArray | None:
        """All states, the present one among them."""
        from posterity.families.drawing import states

        most = self.truth(task).reward @ self.spec.levels  # [S, A] expected
        return states(self.spec.states, finite_state(env), most.max(axis=1).tolist())


def finite_state(env: Env) -> int:
    """Where an environment of a finite family is."""
    inner = env.unwrapped
    if not isinstance(inner, FiniteEnv):
        raise UserError(f"{type(inner).__name__} is no FiniteEnv: its family has to draw it (`picture`)")
    return inner.state


class FiniteEnv(Env):
    """Plays a `Truth`. Observations and actions are the numbers of states and actions."""

    def __init__(self, spec: FiniteSpec, truth: Truth) -> None:
        self.observation_space = spaces.Discrete(spec.states)
        self.action_space = spaces.Discrete(spec.actions)
        self.finite = spec
        self.truth = truth
        self.ladder = truth.probability.cumsum(axis=-1)
        self.reward_ladder = truth.reward.cumsum(axis=-1)
        self.start_ladder = truth.start.cumsum()
        self.state = 0
        self.elapsed = 0

    def reset(self, *, seed: int | None = None, options: Record | None = None) -> tuple[int, Record]:
        """A start state drawn from `truth.start`."""
        super().reset(seed=seed, options=options)
        self.state = self._pick(self.start_ladder)
        self.elapsed = 0
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, Record]:
        """One outcome and one reward of the pair."""
        outcome = self._pick(self.ladder[self.state, action])
        reward = float(self.finite.levels[self._pick(self.reward_ladder[self.state, action])])
        successor = self.truth.successor
        self.state = outcome if successor is None else int(successor[self.state, action, outcome])
        self.elapsed += 1
        return (
            self.state,
            reward,
            bool(self.finite.terminal[self.state]),
            self.elapsed >= self.finite.max_episode_steps,
            {},
        )

    def _pick(self, ladder: FloatArray) -> int:
        """The category in whose part of the cumulative ladder a uniform number falls."""
        return int(np.searchsorted(ladder, self.np_random.random() * ladder[-1], side="right"))

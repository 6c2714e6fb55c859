"""Any Gymnasium environment as a family: something about it is drawn anew for every task.

    family = posterity.Family.from_gymnasium("Swimmer-v5", vary={"viscosity": posterity.log_uniform(0.2, 5.0)})

What `vary` may name is in vary.py. Bounds, sizes and the length of an episode are the environment's own. When episodes
end is seen by random play (estimate.py) unless it is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, TimeLimit

from posterity.errors import UserError
from posterity.families.base import RECURRING, Env, Family
from posterity.families.distributions import check_names, stream
from posterity.families.estimate import Estimate, alive_box, random_play, told_bounds, told_numbers
from posterity.families.streams import recurring
from posterity.families.vary import Factory, Part, Registered, made, read_part
from posterity.plugins import kind
from posterity.settings import Settings, setting
from posterity.types import Facts, FloatArray, Key, Spec, StepFunction, Task

Alive = Mapping[int, tuple[float, float]]  # index of an observation, and the range outside which an episode ends
LARGEST = 1000  # numbers in an observation; a picture has more
PLAYED = 4  # tasks that are played to see what ends an episode


class GymnasiumSettings(Settings):
    """What can vary between uses of one environment."""

    max_episode_steps: int = setting(0, "Steps after which an episode is cut off; 0: the family's own.", ge=0)
    recurring: float = setting(0.0, RECURRING, ge=0, le=1)


class Recipe(NamedTuple):
    """What `from_gymnasium` was told."""

    title: str
    factory: Factory
    parts: tuple[Part, ...]
    max_episode_steps: int
    alive: Alive | None
    estimate: bool  # the alive box from random play
    learn_termination: bool  # and no box
    reward: StepFunction | None
    terminated: StepFunction | None
    budget: Facts


class GymnasiumFamily(Family):
    """A Gymnasium environment with hidden parameters; made by `Family.from_gymnasium`."""

    settings_type = GymnasiumSettings
    settings: GymnasiumSettings

    def __init__(self, recipe: Recipe, settings: GymnasiumSettings | None = None) -> None:
        super().__init__(settings)
        self.recipe, self.budget = recipe, recipe.budget
        env = self._bare({})
        self.actions = _discrete(env, recipe.title)
        self.low, self.high = _action_bounds(env, recipe.title)
        self.obs_dim = _obs_dim(env, recipe.title)
        self.max_episode_steps = self.settings.max_episode_steps or recipe.max_episode_steps or _time_limit(env)
        if not self.max_episode_steps:
            raise UserError(f"{recipe.title} does not say how long an episode is: say max_episode_steps=200")
        env.close()

    def configured(self, settings: Settings) -> Family:
        """The same environment with other settings."""
        if settings == self.settings or not isinstance(settings, GymnasiumSettings):
            return self
        return GymnasiumFamily(self.recipe, settings)

    @cached_property
    def spec(self) -> Spec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """From the environment, with the box of `alive` that was given or that random play shows."""
        recipe, alive = self.recipe, self.estimate.alive
        if recipe.alive is not None:
            alive = np.full(self.obs_dim, -np.inf), np.full(self.obs_dim, np.inf)
            for index, (least, most) in recipe.alive.items():
                alive[0][index], alive[1][index] = least, most
        learned = recipe.learn_termination or (alive is None and self.estimate.terminations > 0)
        told = self._bare_spec._replace(reward=recipe.reward, terminated=recipe.terminated)
        return told._replace(alive=alive, learn_termination=learned)

    @cached_property
    def _bare_spec(self) -> Spec:
        """What the environment's spaces say."""
        return Spec(self.obs_dim, self.low, self.high, self.max_episode_steps, None, actions=self.actions)

    @cached_property
    def estimate(self) -> Estimate:
        """What random play tells of terminations, if nobody said it."""
        if not self.recipe.estimate:
            return Estimate(None, "", 0, 0)
        tasks = self.tasks(Key.of(0).fold("play"), PLAYED)
        env = self._bare({})
        told, bounds = told_numbers(env), told_bounds(env)
        env.close()
        return alive_box(random_play(self.make, tasks, self._bare_spec.random_action), told, bounds)

    def notes(self) -> list[str]:
        """What random play showed."""
        return [f"{self.recipe.title}: {self.estimate.note}"] if self.estimate.note else []

    def drawn_from(self) -> dict[str, str]:
        """The distributions of `vary`."""
        return {part.name: part.drawn.words for part in self.recipe.parts}

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Every parameter of every task has a stream of its own, so that another parameter changes none of the rest."""
        tasks: list[Task] = []
        values = {part.name: stream(part.drawn, key.fold(part.name), count) for part in self.recipe.parts}
        for index in range(count):
            factors = {part.name: values[part.name][index] for part in self.recipe.parts}
            named = [
                f"{part.name} {'x' if part.factor else '='} {_short(factors[part.name])}" for part in self.recipe.parts
            ]
            tasks.append(Task(index, ", ".join(named), factors))
        return recurring(key, tasks, self.settings.recurring)

    def make(self, task: Task) -> Env:
        """The environment with the task's values, cut off after `max_episode_steps`."""
        parts = self.recipe.parts
        env = self._bare({part.argument: task.factors[part.name] for part in parts if part.argument})
        for part in sorted(parts, key=lambda part: not part.name.startswith("size")):  # mass and inertia follow a size
            if not part.argument:
                changed = part.change(env, task.factors[part.name])
                env = env if changed is None else changed
        return env if _time_limit(env) == self.max_episode_steps else TimeLimit(env, self.max_episode_steps)

    def _bare(self, arguments: Facts) -> Env:
        """The environment with these arguments, its observations as one row of numbers."""
        given = {"max_episode_steps": self.settings.max_episode_steps or self.recipe.max_episode_steps}
        registered = isinstance(self.recipe.factory, Registered) and given["max_episode_steps"]
        env = made(self.recipe.factory, self.recipe.title, {**arguments, **(given if registered else {})})
        space = env.observation_space
        several = isinstance(space, spaces.Dict | spaces.Tuple) or (isinstance(space, spaces.Box) and space.shape[1:])
        return FlattenObservation(env) if several and space.is_np_flattenable else env


def from_gymnasium(
    env: str | Factory,
    vary: Mapping[str, object],
    *,
    max_episode_steps: int | None = None,
    alive: Alive | str | None = "estimate",
    reward: StepFunction | None = None,
    terminated: StepFunction | None = None,
    budget: Facts | None = None,
) -> GymnasiumFamily:
    """The family; see `Family.from_gymnasium`."""
    if not (isinstance(env, str) or callable(env)):
        raise UserError(f"from_gymnasium takes the id of an environment or a function that makes one, not {kind(env)}")
    factory = Registered(env) if isinstance(env, str) else env
    title = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    if max_episode_steps is not None and max_episode_steps < 1:
        raise UserError(f"max_episode_steps is {max_episode_steps}; expected 1 or more")
    probe = made(factory, title, {})
    parts = [read_part(name, given, factory, probe) for name, given in check_names(vary).items()]
    probe.close()
    box = alive if isinstance(alive, Mapping) else None
    if isinstance(alive, str) and alive not in ("estimate", "learn"):
        raise UserError(f"alive is '{alive}'; expected a box {{index: (low, high)}}, 'estimate', 'learn' or None")
    if terminated is not None and (box is not None or alive == "learn"):
        raise UserError("alive and terminated both say when an episode ends; give one of them")
    estimate, learn = alive == "estimate" and terminated is None, alive == "learn"
    steps = max_episode_steps or 0
    recipe = Recipe(title, factory, tuple(parts), steps, box, estimate, learn, reward, terminated, budget or {})
    family = GymnasiumFamily(recipe)
    if box is not None and not all(0 <= index < family.obs_dim for index in box):
        raise UserError(f"alive names {sorted(box)}; observations have the indices 0 to {family.obs_dim - 1}")
    return family


def _discrete(env: Env, title: str) -> int:
    """How many discrete actions there are; 0: they are real."""
    space = env.action_space
    if not isinstance(space, spaces.Discrete):
        return 0
    if space.start != 0 or space.n < 2:
        raise UserError(f"{title} has the action space {space}; expected 2 discrete actions or more, numbered from 0")
    return int(space.n)


def _action_bounds(env: Env, title: str) -> tuple[FloatArray, FloatArray]:
    """Of real actions; of discrete ones as networks take them, one-hot."""
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return np.zeros(int(space.n)), np.ones(int(space.n))
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise UserError(f"{title} has the action space {space}; expected a Box with one axis, or Discrete")
    if not space.is_bounded():
        raise UserError(f"{title} has actions without bounds, {space}; wrap it in RescaleAction or ClipAction")
    return space.low.astype(np.float64), space.high.astype(np.float64)


def _obs_dim(env: Env, title: str) -> int:
    space = env.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise UserError(f"{title} has the observation space {space}; expected a Box")
    if space.shape[0] > LARGEST:
        raise UserError(f"{title} has observations of {space.shape[0]} numbers; more than {LARGEST} are not supported")
    return space.shape[0]


def _time_limit(env: Env) -> int:
    """Steps after which an environment is cut off; 0: it does not say."""
    layer: Env = env
    limits: list[int] = []
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            limits.append(layer._max_episode_steps)
        layer = layer.env
    own = env.spec.max_episode_steps if env.spec is not None else None
    return min(limits, default=own or 0)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

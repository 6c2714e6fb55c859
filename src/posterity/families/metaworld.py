"""Meta-World's arm: reach and reach-wall with hidden goals; mt10, mt50, cw10, cw20 with one kind of task after another.

    reach, reach-wall   r = max(0, 1000 (d0 - d) + 1000 (exp(-d^2 / 0.01) + exp(-d^2 / 0.001)))     150 steps
    mt10, mt50          the package's own reward, 0 to 10 a step                                     500 steps
    cw10, cw20          the same, in the order of Continual World (Wolczyk et al., NeurIPS 2021)     200 steps

d is the distance of the fingers' middle to the goal, d0 the same at the start of the episode. In reach and reach-wall
the goal is the hidden parameter. Where objects and goals are is drawn by the stream's key, by the package's own rule,
and put into the task; from there everything is certain, whatever the seed of an episode. Only cw10 and cw20 draw places
anew in every episode, as Continual World does. The package ignores the seed
of `reset`, and draws from NumPy's global generator unless it is told otherwise: here it is. docs/families/metaworld.md
lists every choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from posterity.errors import UserError
from posterity.families.base import Env, Family
from posterity.settings import Settings, setting
from posterity.types import FloatArray, HostArray, Key, Record, Spec, Task

# The package's observation, 39 numbers: hand (3), fingers' opening, two objects of place (3) and turn (4); the same of
# the step before; goal (3), zeros where it is hidden. We add where the hand is drawn to, seen from it (3): actions move
# that point, the hand follows some steps later.
HAND, OBJECT, BEFORE, GOAL, PULL = slice(0, 3), slice(4, 7), slice(18, 21), slice(36, 39), slice(39, 42)
STEP = 0.0125  # seconds
# What is one unit at least: places differ by some 5 cm between tasks, the hand moves some 2 mm a step, and rewards go
# up to 2,300 or 10. A goal never moves; without a unit of change of its own, noise would move it by
# centimetres in imagination.
MIN_SCALE_REWARD = {"v1": 500.0, "v2": 2.0}
_NOW = np.array([0.05] * 3 + [0.1] + 2 * ([0.05] * 3 + [0.2] * 4))
MIN_SCALE = np.concatenate([_NOW, _NOW, [0.05] * 3, np.zeros(3)])
MIN_SCALE_CHANGE = np.concatenate(
    [[0.002] * 3 + [0.02] + 2 * ([0.002] * 3 + [0.02] * 4)] * 2 + [[0.002] * 3, np.zeros(3)]
)
MT10 = (
    "reach",
    "push",
    "pick-place",
    "door-open",
    "drawer-open",
    "drawer-close",
    "button-press-topdown",
    "peg-insert-side",
    "window-open",
    "window-close",
)

CW10 = (
    "hammer",
    "push-wall",
    "faucet-close",
    "push-back",
    "stick-pull",
    "handle-press-side",
    "push",
    "shelf-place",
    "window-close",
    "peg-unplug-side",
)


def _speed(obs: FloatArray) -> FloatArray:
    return (obs[HAND] - obs[BEFORE]) / STEP


VIEWS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "places": lambda obs: np.concatenate([obs[HAND], obs[OBJECT]]),
    "places-moving": lambda obs: np.concatenate([obs[HAND], obs[OBJECT], _speed(obs), obs[PULL]]),
    "full": lambda obs: obs[:39],
    "moving": lambda obs: np.concatenate([obs[:18], _speed(obs), obs[PULL], obs[GOAL]]),
}


class ReachSettings(Settings):
    """What can vary between uses of reach and reach-wall."""

    observation: Literal["places", "moving", "full"] = setting(
        "places",
        "places: hand and object, as v1 of 2019; moving: and speed and pull of the hand; full: today's 39.",
    )
    reward: Literal["v1", "v2"] = setting("v1", "v1: dense, to about 2,300 a step (paper); v2: today's, 0 to 10.")
    max_episode_steps: int = setting(150, "Steps after which an episode is cut off (paper: 150).", ge=1, le=500)


class MtSettings(Settings):
    """What can vary between uses of mt10 and mt50."""

    observation: Literal["full", "moving"] = setting(
        "full", "full: all 39 numbers; moving: 27, with speed and pull of the hand for the frame before."
    )
    goal: Literal["visible", "hidden"] = setting("visible", "Whether the goal is observed (released code: it is).")
    order: Literal["paper", "alphabetical"] = setting(
        "paper", "paper: reach, push, pick-place and on; alphabetical: as the package lists mt50."
    )
    max_episode_steps: int = setting(500, "Steps after which an episode is cut off (released code: 500).", ge=1, le=500)


class CwSettings(Settings):
    """What can vary between uses of cw10 and cw20."""

    observation: Literal["full", "moving"] = setting(
        "full", "full: all 39 numbers; moving: 27, with speed and pull of the hand for the frame before."
    )
    goal: Literal["visible", "hidden"] = setting("visible", "Whether the goal is observed.")
    placement: Literal["episode", "task"] = setting(
        "episode", "episode: things are placed anew in every episode (Continual World); task: once for each task."
    )
    max_episode_steps: int = setting(
        200, "Steps after which an episode is cut off (Continual World: 200).", ge=1, le=500
    )


class MetaworldFamily(Family):
    """Tasks of one kind, or of several in turn."""

    simulated = True

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        _classes()
        self.view = self.kind_of_view()
        view, reward = VIEWS[self.view], MIN_SCALE_REWARD[self._options()["reward"]]
        least = view(MIN_SCALE), np.append(reward, view(MIN_SCALE_CHANGE))
        self.spec = Spec(
            len(least[0]), -np.ones(4), np.ones(4), self.settings.max_episode_steps, alive=None, min_scale=least
        )

    def kind_of_view(self) -> str:
        """Which of VIEWS an agent has."""
        return self.settings.observation

    def categories(self) -> tuple[str, ...]:
        """The kinds of tasks, in the order they come."""
        raise NotImplementedError

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Kinds in turn; where things are is drawn for each task, one stream per seed."""
        kinds = self.categories()
        return [self._task(index, kinds[index % len(kinds)], key.fold("places", index)) for index in range(count)]

    def _task(self, index: int, category: str, key: Key) -> Task:
        return Task(index, category, {"category": category, "places": list(places(category, key))})

    def make(self, task: Task) -> Env:
        """The package's environment, with everything in its place."""
        env = ArmEnv(task.factors["category"], task.factors["places"], self.view, **self._options())
        return TimeLimit(env, self.settings.max_episode_steps)

    def _options(self) -> Record:
        return {"reward": "v2", "hidden": self.settings.goal == "hidden"}


class Reach(MetaworldFamily):
    """Reach a goal that is not shown: only the reward tells how far it is."""

    summary = "an arm reaches a hidden goal, another one in every task"
    settings_type: ClassVar[type[Settings]] = ReachSettings
    category: ClassVar[str] = "reach"

    def kind_of_view(self) -> str:
        """Hand and object, still or moving, or everything."""
        return "places-moving" if self.settings.observation == "moving" else self.settings.observation

    def categories(self) -> tuple[str, ...]:
        """One kind."""
        return (self.category,)

    def _task(self, index: int, category: str, key: Key) -> Task:
        where = list(places(category, key))
        name = "goal at " + ", ".join(f"{place:.3f}" for place in where[3:])
        return Task(index, name, {"category": category, "places": where})

    def _options(self) -> Record:
        return {"reward": self.settings.reward, "hidden": True}


class ReachWall(Reach):
    """The same with a wall between the hand and the goal."""

    summary = "an arm reaches a hidden goal behind a wall"
    category = "reach-wall"


class Mt10(MetaworldFamily):
    """Ten kinds of manipulation, one after the other."""

    summary = "ten kinds of manipulation, one after the other"
    settings_type = MtSettings

    def categories(self) -> tuple[str, ...]:
        """The ten of the paper's MT10."""
        return MT10 if self.settings.order == "paper" else tuple(sorted(MT10))


class Mt50(MetaworldFamily):
    """Fifty kinds of manipulation, one after the other."""

    summary = "fifty kinds of manipulation, one after the other"
    settings_type = MtSettings

    def categories(self) -> tuple[str, ...]:
        """All that the package has: those of MT10 first, or by the alphabet."""
        everything = sorted(_classes())
        if self.settings.order == "alphabetical":
            return tuple(everything)
        return (*MT10, *(name for name in everything if name not in MT10))


class Cw10(MetaworldFamily):
    """The ten kinds of manipulation that Continual World has chosen, in its order."""

    summary = "Continual World: ten kinds of manipulation, one after the other"
    settings_type = CwSettings

    def categories(self) -> tuple[str, ...]:
        """Its ten. A longer stream begins again with the first."""
        return CW10

    def _options(self) -> Record:
        return {**super()._options(), "redraws": self.settings.placement == "episode"}


class Cw20(Cw10):
    """The same ten twice."""

    summary = "Continual World: its ten kinds of manipulation, twice"


class ArmEnv(Env):
    """One task. `info["success"]` of a step says whether it is solved there.

    `redraws`: things are placed anew at every reset, by its seed; else they are where the task has them.
    """

    def __init__(
        self,
        category: str,
        where: Sequence[float],
        view: str,
        reward: str = "v2",
        hidden: bool = True,
        redraws: bool = False,
    ):
        self.category, self.redraws = category, redraws
        self.inner = _classes()[category](reward_function_version=reward)
        self.model, self.data = self.inner.model, self.inner.data  # for pictures
        self.inner._partially_observable = hidden
        self.inner.__dict__.pop("sawyer_observation_space", None)  # it was made for the other visibility
        self.inner._set_task_called = self.inner._freeze_rand_vec = True
        self.inner._last_rand_vec = np.array(where, dtype=np.float64)
        self.view = VIEWS[view]
        self.observation_space = spaces.Box(-np.inf, np.inf, self.view(MIN_SCALE).shape, np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: Record | None = None) -> tuple[FloatArray, Record]:
        """The arm at rest and things in their places. Nothing is left to the seed, unless places are drawn by it."""
        super().reset(seed=seed, options=options)
        if self.redraws:
            drawn = Key.of(int(self.np_random.integers(1 << 31)))
            self.inner._last_rand_vec = np.array(places(self.category, drawn), dtype=np.float64)
        obs, _ = self.inner.reset()
        return self._seen(obs), {}

    def step(self, action: HostArray) -> tuple[FloatArray, float, bool, bool, Record]:
        """Moves the hand by a hundredth of the action's first three numbers, and opens or closes the fingers."""
        obs, reward, _, _, info = self.inner.step(np.clip(action, -1.0, 1.0))
        return self._seen(obs), float(reward), False, False, {"success": bool(info["success"])}

    def _seen(self, obs: FloatArray) -> FloatArray:
        return self.view(np.append(obs, self.inner.data.mocap_pos[0] - obs[HAND]))

    def close(self) -> None:
        """Lets go of the simulator."""
        self.inner.close()


@lru_cache(maxsize=4096)
def places(category: str, key: Key) -> tuple[float, ...]:
    """Where the things of a task are, drawn as the package draws it: some places are refused and drawn again."""
    env = _drawer(category)
    env._np_random = key.generator()
    env.reset_model()
    return tuple(float(place) for place in env._last_rand_vec)


@lru_cache(maxsize=10)  # 25 MB each
def _drawer(category: str) -> Any:
    """An environment to draw with."""
    env = _classes()[category]()
    env._freeze_rand_vec, env.seeded_rand_vec, env._set_task_called = False, True, True
    return env


@cache
def _classes() -> Record:
    """The package's environments by name, without the version."""
    try:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    except ImportError as error:
        raise UserError("This family needs Meta-World: pip install 'posterity[metaworld]'") from error
    return {name.removesuffix("-v3"): kind for name, kind in ALL_V3_ENVIRONMENTS.items()}

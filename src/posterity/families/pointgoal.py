"""point-goal: walk on a plane to a goal that no one shows. Exploring is the whole problem.

    goal = radius (cos angle, sin angle)                  angle uniform over the arc, one for each task
    next position = position + action                     each coordinate of the action within [-step, step]
    reward = 1[|next position - goal| <= goal_radius]     nothing else tells where the goal is

Every episode begins at the origin. The idea is the sparse two-dimensional navigation of Bayes-adaptive RL (VariBAD,
Zintgraf et al. 2020). What the best possible explorer earns is computed in `pointgoal_optimum.py`.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from pydantic import model_validator

from posterity.families.base import Env, Family
from posterity.settings import Settings, setting
from posterity.types import BoolArray, FloatArray, HostArray, Key, Record, Spec, Task

ROWS = 10  # of a picture, from the origin to the top of the arc


class PointGoalSettings(Settings):
    """The sizes of the plane."""

    radius: float = setting(1.0, "Distance of the goal from the origin.", gt=0)
    arc: float = setting(
        float(np.pi), "Length in radians of the arc the goal lies on; its middle is straight up.", gt=0, le=np.pi
    )
    goal_radius: float = setting(0.2, "Distance from the goal within which a step is rewarded.", gt=0)
    step: float = setting(0.1, "Greatest displacement in a step, in each of the two coordinates.", gt=0)
    graded: bool = setting(False, "Inside the goal's radius the reward falls from 1 at the goal to 0 at the rim.")
    max_episode_steps: int = setting(60, "Steps after which an episode is cut off.", ge=1)

    @model_validator(mode="after")
    def _hidden(self) -> PointGoalSettings:
        if self.goal_radius >= self.radius:
            raise ValueError(
                f"goal_radius is {self.goal_radius:g}: below radius, {self.radius:g}, the start earns nothing"
            )
        return self


def goal_places(settings: PointGoalSettings, count: int) -> FloatArray:
    """Where the goal may be: the midpoints [count, 2] of equal parts of the arc."""
    return place(settings, np.pi / 2 + settings.arc * ((np.arange(count) + 0.5) / count - 0.5))


def place(settings: PointGoalSettings, angle: float | FloatArray) -> FloatArray:
    """The point [..., 2] of the arc at an angle [...]."""
    return settings.radius * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def reached(settings: PointGoalSettings, positions: FloatArray, goals: FloatArray) -> BoolArray:
    """Whether a step that ends at a position [..., 2] is rewarded if the goal is at `goals` [..., 2]."""
    away = positions - goals
    return away[..., 0] ** 2 + away[..., 1] ** 2 <= settings.goal_radius**2


class PointGoal(Family):
    """A point on a plane, and a goal on an arc around it that only its reward tells."""

    summary = "a point on a plane looks for a hidden goal; the best explorer's return is known"
    settings_type = PointGoalSettings
    settings: PointGoalSettings

    def __init__(self, settings: PointGoalSettings | None = None) -> None:
        super().__init__(settings)
        chosen = self.settings
        reach = np.full(2, chosen.step)
        # A first task in which the goal was never found, or once, must not decide the unit of the reward.
        least = np.full(2, chosen.radius / 2), np.array([0.5, chosen.step / 2, chosen.step / 2])
        self.spec = Spec(2, -reach, reach, chosen.max_episode_steps, alive=None, min_scale=least)

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Angles uniform over the arc, one stream per seed."""
        low, high = (np.pi - self.settings.arc) / 2, (np.pi + self.settings.arc) / 2
        angles = [float(key.fold("goal", index).generator().uniform(low, high)) for index in range(count)]
        return [
            Task(index, f"goal at {np.degrees(angle):.1f} degrees", {"angle": angle})
            for index, angle in enumerate(angles)
        ]

    def make(self, task: Task) -> Env:
        """The plane with the goal in its place."""
        return TimeLimit(PointGoalEnv(self.settings, task.factors["angle"]), self.settings.max_episode_steps)

    def draw(self, task: Task) -> str:
        """The plane from above."""
        picture = np.full((ROWS + 1, 4 * ROWS + 1), " ")

        def mark(points: FloatArray, letter: str) -> None:
            row, column = np.rint(points.reshape(-1, 2).T[::-1] / self.settings.radius * [[ROWS], [2 * ROWS]]).astype(
                int
            )
            picture[row, column + 2 * ROWS] = letter

        mark(goal_places(self.settings, 200), "·")
        mark(place(self.settings, task.factors["angle"]), "G")
        mark(np.zeros(2), "@")
        lines = ["".join(line).rstrip() for line in picture[::-1]]
        return "\n".join([*lines, f"@ start   · where the goal may be   G {task.name}"])

    def picture(self, task: Task, env: Env) -> HostArray | None:
        """The plane from above: the arc, the hidden goal, and the way so far."""
        from posterity.families.drawing import BLUE, GREEN, INK, PALE, Canvas, blended

        inner = env.unwrapped
        if not isinstance(inner, PointGoalEnv):
            return None
        radius, rim = self.settings.radius, self.settings.goal_radius
        edge = radius + 2 * rim
        canvas = Canvas((-edge, -rim), (edge, edge))
        canvas.line(list(goal_places(self.settings, 100)), PALE, 0.02 * radius)
        canvas.disc(
            inner.goal, rim, blended(GREEN, 0.7 if reached(self.settings, inner.position, inner.goal) else 0.25)
        )
        canvas.disc((0, 0), 0.02 * radius, INK)
        if len(inner.way) > 1:
            canvas.line(inner.way, blended(BLUE, 0.5), 0.015 * radius)
        canvas.disc(inner.position, 0.045 * radius, BLUE)
        return canvas.shown()


class PointGoalEnv(Env):
    """One plane. Everything is certain, and every episode begins at the origin."""

    def __init__(self, settings: PointGoalSettings, angle: float) -> None:
        self.settings = settings
        self.goal = place(settings, angle)  # no observation holds it
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-settings.step, settings.step, (2,), np.float64)
        self.position = np.zeros(2)
        self.way = [self.position]  # of the episode, for pictures

    def reset(self, *, seed: int | None = None, options: Record | None = None) -> tuple[HostArray, Record]:
        """At the origin."""
        super().reset(seed=seed, options=options)
        self.position = np.zeros(2)
        self.way = [self.position]
        return self.position.astype(np.float32), {}

    def step(self, action: HostArray) -> tuple[HostArray, float, bool, bool, Record]:
        """Moves by the action, each coordinate cut to the greatest step."""
        chosen = self.settings
        self.position = self.position + np.clip(np.asarray(action, np.float64), -chosen.step, chosen.step)
        self.way.append(self.position)
        reward = float(reached(chosen, self.position, self.goal))
        if chosen.graded:
            reward *= 1.0 - float(np.linalg.norm(self.position - self.goal)) / chosen.goal_radius
        return self.position.astype(np.float32), reward, False, False, {}

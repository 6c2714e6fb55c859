"""pendulum-gravity: Gymnasium's pendulum, gravity drawn for each task. The small family for laptops and tests."""

from __future__ import annotations

import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.wrappers import TimeLimit
from pydantic import model_validator

from posterity.families.base import RECURRING, Env, Family
from posterity.families.streams import drifting, recurring
from posterity.settings import Settings, setting
from posterity.types import HostArray, Key, Spec, Task

NOMINAL = 10.0  # Gymnasium's own g


class PendulumSettings(Settings):
    """How much gravity varies."""

    low: float = setting(0.5, "Least factor on Gymnasium's gravity of 10.", gt=0)
    high: float = setting(1.5, "Greatest factor on it.", gt=0)
    max_episode_steps: int = setting(200, "Steps after which an episode is cut off.", ge=1)
    recurring: float = setting(0.0, RECURRING, ge=0, le=1)
    drift: float = setting(
        0.0, "The factor moves by this from task to task (a standard deviation); 0: it is drawn anew.", ge=0
    )

    @model_validator(mode="after")
    def _ordered(self) -> PendulumSettings:
        if self.low > self.high:
            raise ValueError(f"low is {self.low:g}, above high, {self.high:g}")
        return self


class PendulumGravity(Family):
    """Swing up a pendulum and hold it, under a gravity nobody measured."""

    summary = "Gymnasium's pendulum under another gravity in every task"
    settings_type = PendulumSettings
    settings: PendulumSettings

    def __init__(self, settings: PendulumSettings | None = None) -> None:
        super().__init__(settings)
        self.spec = Spec(
            obs_dim=3,
            low=np.array([-2.0]),
            high=np.array([2.0]),
            max_episode_steps=self.settings.max_episode_steps,
            alive=None,
        )

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Factors uniform between `low` and `high`, one stream per seed; or a walk between the two."""
        low, high, drift = self.settings.low, self.settings.high, self.settings.drift

        def draw(at: Key) -> float:
            return float(at.generator().uniform(low, high))

        key_here = key.fold("gravity")
        factors = (
            drifting(key_here, count, draw, low, high, drift)
            if drift
            else [draw(key_here.fold(index)) for index in range(count)]
        )
        tasks = [Task(index, f"gravity x {factor:.3f}", {"gravity": factor}) for index, factor in enumerate(factors)]
        return recurring(key, tasks, self.settings.recurring)

    def make(self, task: Task) -> Env:
        """Gymnasium's environment with g changed."""
        return TimeLimit(PendulumEnv(g=NOMINAL * task.factors["gravity"]), self.settings.max_episode_steps)

    def picture(self, task: Task, env: Env) -> HostArray | None:
        """From the side: the rod, and an arrow along which the motor pushes. Upright is the goal."""
        from posterity.families.drawing import BLUE, INK, ORANGE, PALE, Canvas

        inner = env.unwrapped
        if not isinstance(inner, PendulumEnv) or inner.state is None:
            return None
        angle, torque = float(inner.state[0]), float(inner.last_u or 0.0)
        tip = np.array([-np.sin(angle), np.cos(angle)])  # 0 is upright, and angles grow to the left
        canvas = Canvas((-1.5, -1.25), (1.5, 1.25))
        canvas.circle((0, 0), 1.0, PALE, 0.015)
        canvas.line([(0, 1.0), (0, 1.12)], PALE, 0.03)
        canvas.line([(0, 0), tip], BLUE, 0.14)
        canvas.disc((0, 0), 0.05, INK)
        push = 0.35 * torque / inner.max_torque * np.array([-tip[1], tip[0]])
        canvas.arrow(1.12 * tip, 1.12 * tip + push, ORANGE, 0.035)
        return canvas.shown()

"""A Gymnasium environment with a hidden parameter as a family: a pendulum whose motor nobody has measured.

In the folder of this file:

    posterity run gymnasium_family.py:WeakMotor
    posterity report runs/gymnasium_family-WeakMotor-vblrl-001
"""

from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TransformAction

from posterity.families.base import Family
from posterity.types import Key, Spec, Task


class WeakMotor(Family):
    """Swing up a pendulum by a motor that has 60 % to 100 % of its power and may be wired the wrong way round."""

    summary = "Gymnasium's pendulum with a motor of unknown power and direction"
    spec = Spec(obs_dim=3, low=np.array([-2.0]), high=np.array([2.0]), max_episode_steps=200, alive=None)
    budget = MappingProxyType(
        {
            "tasks": 4,
            "iterations": 8,
            "steps_per_iteration": 200,
            "agent": {
                "network": {"hidden": (64, 64)},
                "planner": {"candidates": 100, "elites": 10, "cem_iterations": 3, "particles": 5},
                "learner": {"gradient_steps": 300},
            },
        }
    )

    def tasks(self, key: Key, count: int) -> list[Task]:
        drawn = [key.fold("motor", index).generator() for index in range(count)]
        motors = [float(one.uniform(0.6, 1.0) * one.choice([-1.0, 1.0])) for one in drawn]
        return [Task(index, f"motor x {motor:.2f}", {"motor": motor}) for index, motor in enumerate(motors)]

    def make(self, task: Task) -> gymnasium.Env[Any, Any]:
        pendulum = gymnasium.make("Pendulum-v1")  # Gymnasium cuts its episodes off after 200 steps
        return TransformAction(pendulum, lambda torque: torque * task.factors["motor"], pendulum.action_space)

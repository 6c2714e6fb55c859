"""Measuring a learner against the true task, which it never sees.

radius                   mean over pairs of d_pi of the world posterior, for the task that begins (Proposition 4.2)
radius_of_hidden_world   the same for the distribution that the tasks are really drawn from
gap                      value lost by the present policy, E_start[V*(s) - V^policy(s)] (Proposition 4.4)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from posterity.agents.blrl import Blrl
from posterity.errors import UserError
from posterity.experiment.config import RunConfig
from posterity.families.base import FiniteFamily, Truth
from posterity.tabular.dirichlet import World
from posterity.tabular.mdp import FiniteMDP, policy_values, value_iteration
from posterity.tabular.radius import joint_radius
from posterity.types import FloatArray, Task

EXACT = 1e-9  # tolerance of the true optimum, far below any gap of interest
REMEMBERED = 1000  # true optima kept; more than there are lanes


class Solved(NamedTuple):
    """A true task and its optimum."""

    process: FiniteMDP
    best: FloatArray  # [S] V*
    start: FloatArray  # [S]


class Probe:
    """Asks nothing unless `config.probe` is set."""

    def __init__(self, config: RunConfig, family: Any, agent: Any) -> None:
        self.on = config.probe
        if self.on and not (isinstance(family, FiniteFamily) and isinstance(agent, Blrl)):
            raise UserError(f"--probe needs a finite family and a tabular method, not {config.family} {config.method}")
        self.family = family
        self.gamma = agent.settings.gamma if self.on else 0.0
        self.solved: dict[str, Solved] = {}  # the true optima of the lanes' present tasks

    def begin(self, task: Task, state: Any, lane: int) -> dict[str, float | None]:
        """Of a lane's world posterior, for the task that begins now."""
        if not self.on or not isinstance(state[lane].world, World):
            return {}
        truth: Truth = self.family.truth(task)
        hidden = self.family.world()
        facts = {"radius": _radius(state[lane].world.alpha, truth)}
        return facts if hidden is None else facts | {"radius_of_hidden_world": _radius(hidden, truth)}

    def after(self, task: Task, state: Any, lane: int) -> dict[str, float]:
        """Of a lane's present policy in the true task."""
        if not self.on:
            return {}
        true = self._solve(task)
        lost = true.best - policy_values(true.process, state[lane].policy, self.gamma)
        return {"gap": round(float(true.start @ lost), 6)}

    def _solve(self, task: Task) -> Solved:
        name = repr(task)
        if name not in self.solved:
            if len(self.solved) >= REMEMBERED:
                self.solved.clear()
            truth: Truth = self.family.truth(task)
            spec = self.family.spec
            process = FiniteMDP(truth.probability, truth.successor, truth.reward @ spec.levels, spec.terminal)
            best = value_iteration(process, self.gamma, EXACT).values
            self.solved[name] = Solved(process, best, truth.start)
        return self.solved[name]


def _radius(alpha: tuple[FloatArray, FloatArray], truth: Truth) -> float | None:
    """The mean radius over pairs of a world with these parameters for next states and rewards."""
    states = truth.probability.shape[0]
    chances = truth.probability
    if truth.successor is not None:
        chances = np.zeros((*truth.successor.shape[:2], states))
        pair = np.indices(truth.successor.shape)
        np.add.at(chances, (pair[0], pair[1], truth.successor), truth.probability)
    radius = float(np.mean(joint_radius(list(zip(alpha, (chances, truth.reward), strict=True)))))
    return round(radius, 6) if np.isfinite(radius) else None

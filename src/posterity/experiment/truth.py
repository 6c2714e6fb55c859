"""Measuring a learner against the true task, which it never sees.

radius                   mean over pairs of d_pi of the world posterior, for the task that begins (Proposition 4.2)
radius_of_hidden_world   the same for the distribution that the tasks are really drawn from
value_gap                value lost by the present policy, E_start[V*(s) - V^policy(s)] (Proposition 4.4)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posterity import tree
from posterity.agents.blrl import Blrl, BlrlState
from posterity.errors import UserError
from posterity.experiment.config import RunConfig
from posterity.families.base import Family, FiniteFamily, Truth
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


class Truths:
    """Measures nothing unless `config.measure_truth` is set."""

    def __init__(self, config: RunConfig, family: Family, agent: object) -> None:
        self.on = config.measure_truth
        self.family, self.gamma = family, 0.0
        if self.on:
            if not (isinstance(family, FiniteFamily) and isinstance(agent, Blrl)):
                asked = f"{config.family} {config.method}"
                raise UserError(f"--measure-truth needs a finite family and blrl or boss, not {asked}")
            self.gamma = agent.settings.gamma
        self.solved: dict[str, Solved] = {}  # the true optima of the lanes' present tasks

    def begin(self, task: Task, state: object, lane: int) -> dict[str, float | None]:
        """Of a lane's world posterior, for the task that begins now."""
        if not (isinstance(state, BlrlState) and isinstance(self.family, FiniteFamily) and self.on):
            return {}
        world = tree.lane(state.world, lane)
        if not isinstance(world, World):
            return {}
        truth, hidden = self.family.truth(task), self.family.world()
        facts = {"radius": _radius(world.alpha, truth)}
        return facts if hidden is None else facts | {"radius_of_hidden_world": _radius(hidden, truth)}

    def after(self, task: Task, state: object, lane: int) -> dict[str, float]:
        """Of a lane's present policy in the true task."""
        if not (isinstance(state, BlrlState) and isinstance(self.family, FiniteFamily) and self.on):
            return {}
        true = self._solve(self.family, task)
        lost = true.best - policy_values(true.process, state.policy[lane], self.gamma)
        return {"value_gap": round(float(true.start @ lost), 6)}

    def _solve(self, family: FiniteFamily, task: Task) -> Solved:
        name = repr(task)
        if name not in self.solved:
            if len(self.solved) >= REMEMBERED:
                self.solved.clear()
            truth, spec = family.truth(task), family.spec
            process = FiniteMDP(truth.probability, truth.successor, truth.reward @ spec.levels, spec.terminal)
            best = value_iteration(process, self.gamma, EXACT).values
            self.solved[name] = Solved(process, best, truth.start)
        return self.solved[name]


def _radius(alpha: tuple[FloatArray, FloatArray], truth: Truth) -> float | None:
    """The mean radius over pairs of a world with these parameters for next states and rewards."""
    states = truth.probability.shape[0]
    chances = truth.probability
    if truth.successor is not None and alpha[0].shape != chances.shape:
        chances = np.zeros((*truth.successor.shape[:2], states))
        pair = np.indices(truth.successor.shape)
        np.add.at(chances, (pair[0], pair[1], truth.successor), truth.probability)
    radius = float(np.mean(joint_radius(list(zip(alpha, (chances, truth.reward), strict=True)))))
    return round(radius, 6) if np.isfinite(radius) else None

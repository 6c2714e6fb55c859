"""The best search path in a world of which only the places of things are hidden.

Where moving is certain and the only news is "found" or "not found", the Bayes-optimal plan is a path: nothing on the
way changes it until the episode ends. Thing v lies in state s with chance w[v, s], so a path finds something with

    1 - prod_v (1 - sum of w[v, s] over the states of v that it enters)

A beam search extends the best paths step by step to the end of the episode, and keeps one of those that come to the
same place with the same states entered. An episode has a known end, so nothing is discounted, but of paths that
find as much the one that finds sooner is better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posterity.tabular.explorers.base import Explorer, Moment, Plan, Planning, Posterior, needs_layout
from posterity.tabular.mdp import greedy, value_iteration
from posterity.types import BoolArray, FiniteSpec, FloatArray, IntArray

WIDTH = 128  # paths kept
SOONER = 0.999  # what finding one step later is worth


class Beam(NamedTuple):
    """N paths of the same length."""

    place: IntArray  # [N] where they end
    entered: BoolArray  # [N, S]
    missing: FloatArray  # [N, V] the chance that v lies nowhere on the path
    value: FloatArray  # [N] the chance of having found something, sooner being better
    actions: IntArray  # [N, T]
    mark: NDArray[np.uint64]  # [N] the same for the same states entered


class Path(Explorer):
    """Follows the path that most probably finds something before the episode ends."""

    def __init__(self, spec: FiniteSpec, planning: Planning) -> None:
        super().__init__(spec, planning)
        needs_layout(spec)
        generator = np.random.default_rng(0)  # any marks that tell states apart will do
        self.marks, self.places = generator.integers(2**63, size=(2, spec.states), dtype=np.uint64)
        self.ahead = spec.max_episode_steps

    @property
    def lasts(self) -> int:
        """To the end of the episode."""
        return self.spec.max_episode_steps

    def due(self, visits: IntArray) -> BoolArray:
        """Never because of a visit: the path has it that nothing was found so far."""
        return np.zeros(np.shape(visits), dtype=bool)

    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """The path for this episode, and the policy of the mean model for whoever asks for one."""
        chance, thing = posterior.places()
        mean, gamma, tolerance = posterior.mean(), self.planning.gamma, self.planning.tolerance
        sure = mean._replace(probability=mean.probability.round(9) // 1.0, reward=mean.reward.round(9) // 1.0)
        sure = sure._replace(probability=np.stack([1.0 - sure.probability[..., 1], sure.probability[..., 1]], axis=-1))
        steps, agenda = max(1, min(moment.remaining, self.ahead)), self.nothing()
        known = value_iteration(sure, gamma, tolerance)
        if known.values[moment.obs] > 0.0:  # something is known to lie where it can be reached
            return Plan(greedy(known.action_values), known.values, agenda)
        agenda[:steps] = self.best_path(chance, thing, moment.obs, steps)
        solution = value_iteration(mean, gamma, tolerance)
        return Plan(greedy(solution.action_values), solution.values, agenda)

    def best_path(self, chance: FloatArray, thing: IntArray, start: int, steps: int) -> IntArray:
        """[T] the actions of the best path found."""
        beam = Beam(
            np.array([start]),
            np.zeros((1, self.spec.states), dtype=bool),
            np.ones((1, int(thing.max()) + 1)),  # the last one is no thing, and lies nowhere
            np.zeros(1),
            np.zeros((1, steps), dtype=np.int64),
            np.zeros(1, dtype=np.uint64),
        )
        for step in range(steps):
            beam = self._extended(beam, chance, thing, step)
        return beam.actions[beam.value.argmax()]

    def _extended(self, beam: Beam, chance: FloatArray, thing: IntArray, step: int) -> Beam:
        """The paths that are one step longer, the best of them."""
        layout = self.spec.layout
        assert layout is not None
        count, actions = len(beam.place), self.spec.actions
        origin, action = np.repeat(np.arange(count), actions), np.tile(np.arange(actions), count)
        place = layout.move[beam.place[origin], action]
        fresh = ~beam.entered[origin, place]
        left = beam.missing[origin].prod(axis=1)
        before = beam.missing[origin, thing[place]]
        after = np.maximum(before - np.where(fresh, chance[place], 0.0), 0.0)
        found = np.where(before > 0, left * (1.0 - after / np.where(before > 0, before, 1.0)), 0.0)
        value = beam.value[origin] + found * SOONER**step
        mark = np.where(fresh, beam.mark[origin] ^ self.marks[place], beam.mark[origin])
        order = np.argsort(-value, kind="stable")
        _, firsts = np.unique(self.places[place[order]] ^ mark[order], return_index=True)
        kept = order[np.sort(firsts)[:WIDTH]]
        origin, place = origin[kept], place[kept]
        entered, missing, taken = beam.entered[origin], beam.missing[origin], beam.actions[origin]
        rows = np.arange(len(kept))
        entered[rows, place] = True
        missing[rows, thing[place]] = after[kept]
        taken[:, step] = action[kept]
        return Beam(place, entered, missing, value[kept], taken, mark[kept])

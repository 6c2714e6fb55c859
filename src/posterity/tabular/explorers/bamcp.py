"""BAMCP, Bayes-adaptive Monte Carlo planning (Guez et al. 2012): a look ahead that counts what will be learned.

Every simulation draws one model from the posterior and keeps it to its end (root sampling). A tree of what was done and
where it led chooses actions by upper confidence bounds, so that in it information is worth what it later earns. Below
a leaf stands the value of the mean model: what there is to gain without learning more.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from posterity.tabular.explorers.base import Explorer, Moment, Plan, Posterior
from posterity.tabular.mdp import FiniteMDP, greedy
from posterity.tabular.solve import solve
from posterity.types import FloatArray

DEPTH = 15  # steps that the tree may look ahead


class Node:
    """What was tried after one history."""

    def __init__(self, actions: int) -> None:
        self.visits = 0
        self.tries = [0] * actions
        self.value = [0.0] * actions
        self.after: dict[tuple[int, int], Node] = {}


class Search:
    """A tree for one decision."""

    def __init__(self, models: FiniteMDP, values: FloatArray, gamma: float, width: float) -> None:
        self.models, self.gamma, self.width = models, gamma, width
        self.ladder = models.probability.cumsum(axis=-1)
        self.values: list[float] = values.tolist()
        self.actions = models.reward.shape[2]
        self.root = Node(self.actions)

    def simulate(self, number: int, obs: int, chances: list[float]) -> None:
        """Model `number` played from `obs` on, one random number a step, down to a leaf and back up."""
        node, path, earned = self.root, [], 0.0
        for chance in chances:
            action = self._choose(node)
            ladder = self.ladder[number, obs, action]
            outcome = min(bisect_right(ladder, chance * ladder[-1]), len(ladder) - 1)
            reward = float(self.models.reward[number, obs, action])
            path.append((node, action, reward))
            successor = self.models.successor
            obs = outcome if successor is None else int(successor[obs, action, outcome])
            fresh = (action, outcome) not in node.after
            if self.models.terminal[obs]:
                break
            if fresh:
                node.after[action, outcome] = Node(self.actions)
                earned = self.values[obs]
                break
            node = node.after[action, outcome]
        else:
            earned = self.values[obs]
        for passed, action, reward in reversed(path):
            earned = reward + self.gamma * earned
            passed.visits += 1
            passed.tries[action] += 1
            passed.value[action] += (earned - passed.value[action]) / passed.tries[action]

    def _choose(self, node: Node) -> int:
        """The action with the highest upper confidence bound; untried ones first."""
        if 0 in node.tries:
            return node.tries.index(0)
        spread = math.log(node.visits)
        bounds = [v + self.width * math.sqrt(spread / n) for v, n in zip(node.value, node.tries, strict=True)]
        return bounds.index(max(bounds))


class Bamcp(Explorer):
    """Takes the first action of a search through the histories that may come."""

    @property
    def lasts(self) -> int:
        """One step."""
        return 1

    def plan(self, generator: np.random.Generator, posterior: Posterior, moment: Moment) -> Plan:
        """The action of the search in the present state; in the others, the policy of the mean model."""
        count, gamma = self.planning.simulations, self.planning.gamma
        solution = solve(posterior.mean(), gamma, self.planning.tolerance, moment.values)
        search = Search(posterior.sample(generator, count), solution.values, gamma, float(np.ptp(self.spec.levels)))
        for number, chances in enumerate(generator.random((count, min(DEPTH, moment.remaining))).tolist()):
            search.simulate(number, moment.obs, chances)
        policy = greedy(solution.action_values)
        tried = [v if n else -math.inf for v, n in zip(search.root.value, search.root.tries, strict=True)]
        policy[moment.obs] = np.arange(self.spec.actions) == int(np.argmax(tried))
        return Plan(policy, solution.values, self.nothing())

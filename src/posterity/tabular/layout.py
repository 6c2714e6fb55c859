"""Posterior over where things lie, in a world whose moves are known.

Variable v (one kind of thing in one room) lies in one of N states or nowhere: N + 1 categories.

    world:  theta_v ~ Dirichlet(alpha_v)        how often it lies where, over tasks
    task:   x_v | theta_v ~ Categorical(theta_v), drawn once; entering a state tells for certain whether it is there

Given the states of this task that were entered, x_v is in the set U_v of categories not yet ruled out. The exact world
posterior is then the mixture sum_{c in U} alpha_c / alpha_U Dirichlet(alpha + e_c). In its place stands the Dirichlet
of the same mean and the same total variance, which is the mixture itself when U is everything (nothing seen, nothing
learned) or one category (a count is added).

`places` says what is known of the N states beforehand. `each`: nothing, so that every thing has its own likely places.
`alike`: they may be much alike, as the cells of a room are. How much is learned from all things together: given that a
thing lies somewhere, it lies in state n with (count_n + c / N) / (count + c), and c is the one under which the
counts of all things are most probable.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.special import gammaln

from posterity.tabular.mdp import FiniteMDP
from posterity.types import BoolArray, FiniteSpec, FloatArray, IntArray, Transition

Places = Literal["each", "alike"]
EVENNESS = 2.0 ** np.arange(0, 13)  # the values of c that are compared


class LayoutWorld(NamedTuple):
    """How often things lie where. `before` is what was believed when the present task began."""

    alpha: FloatArray  # [V, N + 1], the last category is "nowhere"
    before: FloatArray  # [V, N + 1]


class LayoutTask(NamedTuple):
    """What was seen in this task."""

    empty: BoolArray  # [S] entered, and nothing was there
    found: BoolArray  # [S] entered, and it was there


class HiddenLayout:
    """The structured belief of a family that has a `Layout`."""

    def __init__(self, spec: FiniteSpec, concentration: float, places: Places = "each") -> None:
        if spec.layout is None:
            raise ValueError("this family has no layout")
        self.spec = spec
        self.layout = spec.layout
        self.concentration = concentration
        self.places: Places = places
        here = np.zeros((*self.layout.move.shape, 2), dtype=np.int64)
        here[..., 0] = self.layout.move
        here[..., 1] = self.layout.found
        self.successor = here  # [S, A, 2]: on, or found

    def prior(self) -> LayoutWorld:
        """Before any task: as likely somewhere as nowhere, and anywhere alike."""
        variables, places = self.layout.where.shape
        alpha = np.full((variables, places + 1), self.concentration / places)
        alpha[:, -1] = self.concentration
        return LayoutWorld(alpha, alpha)

    def begin(self, world: LayoutWorld) -> LayoutTask:
        """A new task: nothing seen yet."""
        nothing = np.zeros(self.spec.states, dtype=bool)
        return LayoutTask(nothing, nothing)

    def observe(self, task: LayoutTask, steps: Transition) -> LayoutTask:
        """The states that the actions [B] led to are empty, or hold the thing."""
        entered = self.layout.move[steps.obs, steps.action]
        here = np.asarray(steps.next_obs) == self.layout.found
        found, empty = task.found.copy(), task.empty.copy()
        found[entered[here]] = True
        empty[entered[~here]] = True
        return LayoutTask(empty, found)

    def possible(self, task: LayoutTask) -> BoolArray:
        """[V, N + 1] the categories that what was seen leaves open."""
        found = task.found[self.layout.where]
        settled = found.any(axis=1, keepdims=True)
        somewhere = np.where(settled, found, ~task.empty[self.layout.where])
        return np.concatenate([somewhere, ~settled], axis=1)

    def pool(self, world: LayoutWorld, task: LayoutTask, final: bool = False) -> LayoutWorld:
        """The world posterior given the present task as far as it was seen. `final`: it has ended."""
        alpha = learn_from_possible(world.before, self.possible(task))
        return LayoutWorld(alpha, alpha if final else world.before)

    def weights(self, world: LayoutWorld, possible: BoolArray) -> FloatArray:
        """[V, N + 1] in proportion to how probably a thing lies where, given the categories that are left."""
        return (world.alpha if self.places == "each" else self.evened(world.alpha)) * possible

    def evened(self, alpha: FloatArray) -> FloatArray:
        """Parameters in which places are as alike as all things together say; none is somewhere more often."""
        counts = np.maximum(alpha[:, :-1] - self.concentration / self.layout.where.shape[1], 0.0)
        flat = EVENNESS[:, None, None] / counts.shape[1]
        found = (gammaln(counts + flat) - gammaln(flat)).sum(axis=(1, 2))
        total = counts.sum(axis=1)
        found -= (gammaln(total + EVENNESS[:, None]) - gammaln(EVENNESS[:, None])).sum(axis=1)
        even = EVENNESS[int(found.argmax())]
        shares = (counts + even / counts.shape[1]) / (total[:, None] + even)
        somewhere = alpha[:, :-1].sum(axis=1, keepdims=True)
        return np.concatenate([somewhere * shares, alpha[:, -1:]], axis=1)

    def _seen(self, task: LayoutTask, known: BoolArray) -> BoolArray:
        """[V, N + 1] the categories that entering by a known pair [S, A] leaves open."""
        certain = np.zeros(self.spec.states, dtype=bool)
        certain[self.layout.move[known]] = True
        return self.possible(LayoutTask(task.empty & certain, task.found & certain))

    def sample(
        self, generator: np.random.Generator, world: LayoutWorld, task: LayoutTask, known: BoolArray, count: int
    ) -> FiniteMDP:
        """`count` worlds: what entering by a known pair [S, A] showed holds; the rest is drawn from the world."""
        # x ~ Categorical(theta) and theta ~ Dirichlet(alpha) anew for every draw: x comes as alpha, normalised
        ladder = self.weights(world, self._seen(task, known)).cumsum(axis=-1)
        place = (ladder <= generator.random((count, len(ladder), 1)) * ladder[:, -1:]).sum(axis=-1)
        draw, variable = np.nonzero(place < self.layout.where.shape[1])
        here = np.zeros((count, self.spec.states))
        here[draw, self.layout.where[variable, place[draw, variable]]] = 1.0
        return self._process(here)

    def mean(self, world: LayoutWorld, task: LayoutTask, known: BoolArray) -> FiniteMDP:
        """The process in which entering a state finds something as often as it is believed to lie there."""
        return self._process(self.state_chances(world, task, known)[0])

    def _process(self, here: FloatArray) -> FiniteMDP:
        """Of the chances [..., S] that something lies in a state."""
        chance = here[..., self.layout.move]
        return FiniteMDP(
            np.stack([1.0 - chance, chance], axis=-1), self.successor, self.layout.reward * chance, self.spec.terminal
        )

    def state_chances(self, world: LayoutWorld, task: LayoutTask, known: BoolArray) -> tuple[FloatArray, IntArray]:
        """[S] the chance that a thing lies in a state, and its number; V where none can lie."""
        weights = self.weights(world, self._seen(task, known))
        chances = (weights / weights.sum(axis=-1, keepdims=True))[:, :-1]
        here, thing = np.zeros(self.spec.states), np.full(self.spec.states, len(chances))
        np.add.at(here, self.layout.where, chances)
        thing[self.layout.where] = np.arange(len(chances))[:, None]
        return np.minimum(here, 1.0), thing

    def weight(self, world: LayoutWorld, task: LayoutTask, known: BoolArray) -> FloatArray:
        """[S, A] one observation of a pair, once its state was entered: then all is known of it."""
        return (task.empty | task.found)[self.layout.move].astype(np.float64)

    def variance(
        self, world: LayoutWorld, task: LayoutTask, known: BoolArray, values: FloatArray, gamma: float
    ) -> FloatArray:
        """[S, A] of finding something or not, which is certain in every world."""
        chance = self.state_chances(world, task, known)[0][self.layout.move]
        gain = self.layout.reward + gamma * (values[self.layout.found] - values[self.layout.move])
        return chance * (1.0 - chance) * gain**2


def learn_from_possible(alpha: FloatArray, possible: BoolArray) -> FloatArray:
    """Dirichlet rows [..., M] after one draw of each that is only known to be among `possible` [..., M]."""
    total = alpha.sum(axis=-1, keepdims=True)
    weight = alpha * possible / (alpha * possible).sum(axis=-1, keepdims=True)
    mean = (alpha + weight) / (total + 1.0)
    # E[theta_c^2] of the mixture: with weight w_c the parameter is alpha_c + 1, else alpha_c
    square = (alpha * (alpha + 1.0) + 2.0 * weight * (alpha + 1.0)) / ((total + 1.0) * (total + 2.0))
    spread = (square - mean**2).sum(axis=-1, keepdims=True)
    precision = (mean * (1.0 - mean)).sum(axis=-1, keepdims=True) / spread - 1.0
    return precision * mean

"""A search that has an answer at any time: CEM iterations as separate programs, in a thread of their own.

`act` posts an observation, waits until its deadline, and takes the best mean found by then. Before the first iteration
is done, that is the previous plan, one step on, or where there is an actor its own action. What is found after the
deadline is not lost: the next search begins there.

What an actor would do from here on is among the candidates of every iteration, and in a new episode the search begins
from it, as in a run.

A plan at the settings' size may not fit into a control period. So there are several sizes (rungs), each with fewer
candidates and particles than the next. The largest of which two iterations fit into the budget is taken, by the times
measured so far.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.rollouts import Rollouts
from posterity.agents.training import VblrlSettings
from posterity.models.dynamics import DynamicsModel
from posterity.planning.cem import Plan, PlannerSettings
from posterity.planning.search import Search, make_search
from posterity.types import HostArray, Key, Spec

SCALES = ((1, 1), (2, 1), (4, 2), (8, 4), (16, 8), (32, 8))  # candidates and particles are divided by these
FEWEST_CANDIDATES, FEWEST_PARTICLES = 16, 2
WANTED = 2  # iterations that should fit into the budget
REMEMBERED = 15  # times of each size


class Wish(NamedTuple):
    """A search that was asked for."""

    number: int  # of the decision: counts up
    key: Key
    obs: HostArray  # [O]
    model: DynamicsModel
    mean: HostArray  # [T, A] where it begins
    first: bool  # an episode begins
    deadline: float | None  # on the clock of time.perf_counter


class Found(NamedTuple):
    """The best plan by now."""

    number: int  # of the decision it was made for
    mean: HostArray  # [T, A]
    iterations: int  # that improved it; 0: it is the previous plan, one step on


class Rung:
    """One CEM iteration of one size, and how long it takes."""

    def __init__(self, spec: Spec, settings: VblrlSettings, planner: PlannerSettings) -> None:
        self.planner = planner
        kernels, precision, lattice = settings.kernels, settings.matmul_precision, settings.reward_map.lattice
        rollouts = Rollouts(spec, planner, settings.network, kernels, precision, settings.value.gamma, lattice)
        search = make_search(spec, planner, settings.colour)
        self.improve = lanes.compiled(partial(_improved, rollouts, search), settings.outer_precision)
        self._times: deque[float] = deque(maxlen=REMEMBERED)
        self._compiled = False
        self._lock = threading.Lock()  # the first call compiles, and nobody else should do so beside it

    def run(self, key: Key, iteration: int, obs: HostArray, model: DynamicsModel, plan: Plan, first: bool) -> Plan:
        """The plan after one more iteration. All iterations of a search imagine with the same networks."""
        with self._lock:
            began = time.perf_counter()
            keys = [key.fold("networks")], [key.fold("search", iteration)]
            found = self.improve(*keys, obs[None], model, plan, np.array([first and iteration == 0]))
            jax.block_until_ready(found)
            if self._compiled:
                self._times.append(time.perf_counter() - began)
            self._compiled = True
        return found

    @property
    def seconds(self) -> float | None:
        """What an iteration takes: the median of the last ones; None: not measured yet."""
        return float(np.median(self._times)) if self._times else None


def _improved(
    rollouts: Rollouts,
    search: Search,
    draw_key: jax.Array,
    search_key: jax.Array,
    obs: jax.Array,
    model: DynamicsModel,
    plan: Plan,
    begins: jax.Array,
) -> Plan:
    """One CEM iteration for one lane. `begins`: nothing is known yet but what an actor proposes, if there is one."""
    returns = rollouts.forward(draw_key, model, obs)
    proposals = rollouts.proposals(jax.random.fold_in(draw_key, 1), model, obs)
    if proposals is not None:
        plan = plan._replace(mean=jnp.where(begins, proposals.mean(axis=0), plan.mean))

    def score(key: jax.Array, candidates: jax.Array) -> jax.Array:
        return returns(key, candidates)[0].mean(axis=0)

    return search.improved(search_key, score, plan, proposals)


def sizes(planner: PlannerSettings) -> list[PlannerSettings]:
    """The sizes of a single CEM iteration, the smallest first."""
    made: list[PlannerSettings] = []
    for fewer, thinner in SCALES:
        candidates = max(planner.candidates // fewer, min(planner.candidates, FEWEST_CANDIDATES))
        particles = max(planner.particles // thinner, min(planner.particles, FEWEST_PARTICLES))
        elites = max(planner.elites * candidates // planner.candidates, min(planner.elites, 3))
        size = {"candidates": candidates, "particles": particles, "elites": elites, "cem_iterations": 1}
        new = planner.model_copy(update=size)
        if new not in made:
            made.append(new)
    return made[::-1]


class AnytimeSearch:
    """Searches in a thread of its own. One decision at a time."""

    def __init__(self, spec: Spec, settings: VblrlSettings) -> None:
        self.rungs = [Rung(spec, settings, size) for size in sizes(settings.planner)]
        self.iterations = settings.planner.cem_iterations
        self.search = make_search(spec, settings.planner, settings.colour)
        self.fresh = np.asarray(self.search.fresh.mean)
        self._found = Found(0, self.fresh, 0)
        self._wish: Wish | None = None
        self._changed = threading.Condition()
        self._begun = 0  # number of the decision that began the present episode
        self._done = 0  # number of the last decision whose search is over
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="posterity-search", daemon=True)
        self._thread.start()

    def decide(
        self,
        key: Key,
        obs: HostArray,
        model: DynamicsModel,
        first: bool,
        budget: float | None,
        proposed: HostArray | None = None,
    ) -> Found:
        """The best plan found within `budget` seconds; None: when the whole search is done.

        `proposed` [A]: an action that is better than the previous plan's as long as nothing is found.
        """
        began = time.perf_counter()
        deadline = None if budget is None else began + budget
        with self._changed:
            number = self._found.number + 1 if self._wish is None else self._wish.number + 1
            start = self.fresh if first else shifted(self._found.mean, number - self._found.number, self.fresh)
            if proposed is not None:
                start = np.concatenate([proposed[None], start[1:]])
            self._begun = number if first else self._begun
            self._found = Found(number, start, 0)
            self._wish = Wish(number, key, obs, model, start, first, deadline)
            self._changed.notify_all()
            rung = self.choose(budget)
            hopeless = budget is not None and (rung.seconds is None or rung.seconds > budget)
            if not hopeless:
                left = None if deadline is None else deadline - time.perf_counter()
                self._changed.wait_for(lambda: self._done >= number or self._error is not None, left)
            if self._error is not None:
                raise self._error
            return self._found

    def choose(self, budget: float | None) -> Rung:
        """The largest size of which `WANTED` iterations fit, by what was measured; without a budget the full size."""
        if budget is None:
            return self.rungs[-1]
        wanted = min(self.iterations, WANTED)
        fitting = [rung for rung in self.rungs if rung.seconds is not None and wanted * rung.seconds <= budget]
        return fitting[-1] if fitting else self.rungs[0]

    def warm_up(self, key: Key, obs: HostArray, model: DynamicsModel, budget: float | None) -> None:
        """Compiles and times the sizes, from small to large, until one does not fit into `budget` any more."""
        for rung in self.rungs:
            for number in range(4):
                rung.run(key.fold(number), 0, obs, model, self._plan(self.fresh), first=True)
            if budget is not None and rung.seconds is not None and rung.seconds > budget:
                return

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=10.0)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or (self._wish is not None and self._wish.number > self._done)
                )
                if self._closed or self._wish is None:
                    return
                wish = self._wish
            try:
                self._search(wish)
            except BaseException as error:  # told to whoever waits, in its own thread
                self._error = error
            with self._changed:
                self._done = wish.number
                self._changed.notify_all()

    def _search(self, wish: Wish) -> None:
        budget = None if wish.deadline is None else wish.deadline - time.perf_counter()
        rung = self.choose(budget)
        plan = self._plan(wish.mean)
        for iteration in range(self.iterations):
            if iteration and self._too_late(wish, rung):
                return
            plan = rung.run(wish.key, iteration, wish.obs, wish.model, plan, wish.first)
            mean = np.asarray(plan.mean)[0]
            with self._changed:
                ahead = self._found.number - wish.number
                if ahead == 0:
                    self._found = Found(wish.number, mean, iteration + 1)
                elif self._found.iterations == 0 and wish.number >= self._begun:  # late, but in the same episode
                    self._found = self._found._replace(mean=shifted(mean, ahead, self.fresh))

    def _plan(self, mean: HostArray) -> Plan:
        """Where a search begins: around a mean [T, A], with a fresh spread."""
        return lanes.repeated(self.search.around(jnp.asarray(mean)), 1)

    def _too_late(self, wish: Wish, rung: Rung) -> bool:
        """Whether another iteration would come after the deadline, or nobody waits for it any more."""
        newer = self._wish is not None and self._wish.number != wish.number
        if wish.deadline is None:
            return newer
        return newer or time.perf_counter() + (rung.seconds or 0.0) > wish.deadline


def shifted(mean: HostArray, steps: int, fresh: HostArray) -> HostArray:
    """A plan [T, A] so many steps on: what was planned for later comes first, and the end is not known yet."""
    return np.concatenate([mean[steps:], fresh[: min(steps, len(fresh))]])

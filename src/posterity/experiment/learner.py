"""The learner of a run in a program of one's own: `posterity.load(run)`.

    learner = posterity.load("runs/mine")
    learner.warm_up()                                      # compile now, not at the first action
    learner.begin_task()                                   # a machine that the learner has not met
    obs, _ = env.reset()
    while True:
        action = learner.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        if learner.observe(reward, next_obs, terminated, truncated):
            learner.update()                               # an iteration is full: learn from it
        obs = env.reset()[0] if terminated or truncated else next_obs

With one lane, observations, actions and rewards are those of one environment. With all lanes they have a leading axis
of lanes. Everything random comes from the run's seeds and the number of the step, as in a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from posterity import tree
from posterity.errors import UserError
from posterity.experiment.run import AnyAgent, build, load_state
from posterity.experiment.source import open_source
from posterity.types import BoolArray, Budget, FiniteSpec, HostArray, Key, Spec, Transition


class Learner:
    """Acts and learns with what a run has learned. Made by `posterity.load`; the run's folder is only read.

    A learner that is loaded from a run between two tasks has to be told `begin_task()` before it acts. One that is
    loaded from a run that was stopped within a task may go on with that task.
    """

    def __init__(
        self,
        agent: AnyAgent,
        state: object,
        keys: Sequence[Key],
        spec: Spec | FiniteSpec,
        room: Budget,  # for tasks that are to come
        iterations_left: int,  # of the present task
        single: bool,  # whether arrays come and go without an axis of lanes
    ) -> None:
        self.agent, self.state, self.spec, self.single = agent, state, spec, single
        self.tasks_left, self.iterations_left = room.tasks, iterations_left
        self.steps_per_iteration = room.steps_per_iteration
        self._room, self._keys = room, list(keys)
        self._task = self._iteration = 0
        self._rows: list[Transition] = []
        self._acted = state  # after deciding, until the decision's outcome is observed
        self._waiting: tuple[HostArray, HostArray] | None = None  # what was seen and done, until then
        self._first: BoolArray = np.ones(len(keys), dtype=bool)

    @property
    def lanes(self) -> int:
        """Learners side by side."""
        return len(self._keys)

    def begin_task(self) -> None:
        """A new task begins: what is believed about the family becomes its prior."""
        if self.tasks_left == 0:
            raise UserError("This learner has no room for another task; ask for more with posterity.load(..., tasks=N)")
        self.tasks_left -= 1
        self._task, self._iteration, self.iterations_left = self._task + 1, 0, self._room.iterations
        self._restart()
        self.state = self.agent.begin_task([key.fold("task", self._task, "begin") for key in self._keys], self.state)

    def act(self, obs: ArrayLike) -> HostArray:
        """The action for an observation. It is decided anew, with the same random numbers, until it is observed."""
        if self.iterations_left == 0:
            raise UserError("This learner is between two tasks, or this task has had all its iterations: begin_task()")
        seen = self._laned(obs)
        keys = self._step_keys("act")
        state, actions = self.agent.act(keys, self.state, seen, self._first)
        self._acted, self._waiting = state, (seen, actions)
        return np.asarray(actions[0] if self.single else actions)

    def observe(
        self, reward: ArrayLike, next_obs: ArrayLike, terminated: ArrayLike, truncated: ArrayLike = False
    ) -> bool:
        """What the action of the last `act` brought. True when an iteration is full and it is time to `update`.

        After an end (`terminated` or `truncated`) the next observation that `act` is given begins an episode.
        """
        if self._waiting is None:
            raise UserError("There is no action to observe the outcome of: act first")
        obs, action = self._waiting
        ended = [np.broadcast_to(np.asarray(flag, dtype=bool), (self.lanes,)) for flag in (terminated, truncated)]
        earned = np.asarray(self._laned(reward), dtype=np.float64)
        row = Transition(obs, action, earned, self._laned(next_obs), *ended)
        self.state = self.agent.observe(self._step_keys("observe"), self._acted, row)
        self._rows.append(row)
        self._first, self._waiting = ended[0] | ended[1], None
        return len(self._rows) >= self.steps_per_iteration

    def update(self) -> Mapping[str, HostArray]:
        """Learns from the iteration's steps, which may take seconds. Returns what a run would put on record."""
        if len(self._rows) != self.steps_per_iteration:
            steps = f"{self.steps_per_iteration} steps, and {len(self._rows)} were observed"
            raise UserError(f"An iteration of this learner has {steps}")
        rows = Transition(*(np.stack(column, axis=1) for column in zip(*self._rows, strict=True)))
        keys = [key.fold("task", self._task, "iteration", self._iteration, "learn") for key in self._keys]
        self.state, info = self.agent.update(keys, self.state, rows)
        self._iteration, self.iterations_left = self._iteration + 1, self.iterations_left - 1
        self._restart()
        return {name: np.asarray(values[0]) for name, values in info.items()} if self.single else info

    def warm_up(self, learning: bool = True) -> None:
        """Compiles what acting and, unless told otherwise, learning needs: up to a minute, but not at the first step.

        A copy of the learner decides and learns from made-up steps. This one stays as it is.
        """
        if not isinstance(self.spec, Spec):
            return  # finite methods compile nothing
        keys = [key.fold("warm-up") for key in self._keys]
        state = tree.copied(self.state)
        state = self.agent.begin_task(keys, state)
        for _ in range(self.agent.start_iterations + 1 if learning else 1):  # until the task's own model acts
            rows = self._made_up(self.spec, keys)
            state, _ = self.agent.act(keys, state, np.asarray(rows.obs)[:, 0], np.ones(self.lanes, dtype=bool))
            if learning:
                state, _ = self.agent.update(keys, state, rows)

    def _made_up(self, spec: Spec, keys: Sequence[Key]) -> Transition:
        """The steps of an iteration [L, B, ...], of no world."""
        steps, generators = self.steps_per_iteration, [key.generator() for key in keys]
        obs = np.stack([each.standard_normal((steps + 1, spec.obs_dim)) for each in generators])
        action = np.stack([np.stack([spec.random_action(each) for _ in range(steps)]) for each in generators])
        never = np.zeros((self.lanes, steps), dtype=bool)
        return Transition(obs[:, :-1], action, obs[:, 1:, 0], obs[:, 1:], never, never)

    def _restart(self) -> None:
        """An iteration begins, and with it an episode."""
        self._rows, self._waiting, self._first = [], None, np.ones(self.lanes, dtype=bool)

    def _step_keys(self, what: str) -> list[Key]:
        place = ("task", self._task, "iteration", self._iteration, "step", len(self._rows), what)
        return [key.fold(*place) for key in self._keys]

    def _laned(self, value: ArrayLike) -> HostArray:
        """With a leading axis of lanes."""
        array = np.asarray(value)
        array = array[None] if self.single else array
        if array.ndim == 0 or len(array) != self.lanes:
            raise UserError(f"There are {self.lanes} lanes, and {np.shape(value)} does not begin with that")
        return array


def load_learner(path: Path, lane: int | None, tasks: int, iterations: int | None, trusted: bool = False) -> Learner:
    """The learner of the run in folder `path`: one lane of it, or all."""
    source = open_source(path, trusted)
    old, position = source.config, source.position
    if lane is not None and not 0 <= lane < old.seeds:
        raise UserError(f"{path} has lanes 0 to {old.seeds - 1}, and none is {lane}")
    if tasks < 1 or (iterations is not None and iterations < old.iterations):
        raise UserError(f"tasks is 1 or more, and iterations is not less than in the run, {old.iterations}")
    config = old.model_copy(update={"tasks": tasks, "iterations": iterations or old.iterations})
    family, agent = build(config, position.met)
    keys = [Key.of(config.seed + each) for each in range(config.seeds)]
    state, _ = load_state(source.folder, agent, agent.init(keys), grow=True)
    if lane is not None:
        state, keys = tree.lanes(state, lane, lane + 1), keys[lane : lane + 1]
    room = Budget(tasks, config.iterations, config.steps_per_iteration)
    left = config.iterations - position.iteration if position.iteration else 0
    keys = [key.fold("program", position.met) for key in keys]
    return Learner(agent, state, keys, family.spec, room, left, lane is not None)

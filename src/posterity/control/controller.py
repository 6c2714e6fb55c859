"""What was learned, at a machine: act within a budget of time, adapt, and go on learning.

    with posterity.Controller.load("machine.posterity", learn=True) as controller:
        controller.warm_up(budget_ms=10)
        while running:
            action = controller.act(obs, budget_ms=10)
            ...                                                   # the machine moves
            controller.observe(obs, action, reward, next_obs, terminated, truncated)

Loading runs no code from the file. Every method may be called from any thread. `act` never waits for learning.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from posterity.control import building, familiarity
from posterity.control.building import AnyAgent, AnySpec
from posterity.control.finite import decoded_finite, is_finite
from posterity.control.learner import Learner
from posterity.control.machine import Header, Machine, budget_of, decoded, read_machine, write_machine
from posterity.control.pilots import WINDOW, Forecast, Pilot, pilot_for
from posterity.control.plain import PlainPolicy
from posterity.control.policy_agent import PolicyAgent
from posterity.errors import UserError
from posterity.types import FiniteSpec, HostArray, Key, StepFunction, Transition

SLACK_MS = 5.0  # that an action may come after its budget, on a machine whose cores are not all taken by others


class Progress(NamedTuple):
    """How the learning in the background stands."""

    updates: int  # put in place so far
    dropped: int  # steps that came too fast to be learned from
    error: str  # what ended it; empty: nothing did


class Controller:
    """Acts, adapts and learns with one machine file. Made by `load`."""

    def __init__(self, header: Header, spec: AnySpec, agent: AnyAgent, state: object, learn: bool) -> None:
        self.header, self.spec, self.agent = header, spec, agent
        if learn:
            self._needs_learner("Learning (learn=True)")
        self._pilot: Pilot = pilot_for(agent)
        self._state = self._loaded = state
        self._key = Key.of(header.seed).fold("control", header.updates)
        self._count = 0  # of keys that were used
        self._first = True  # an episode begins with the next observation
        self._recent: deque[Transition] = deque(maxlen=WINDOW)
        self._lock, self._acting = threading.RLock(), threading.Lock()
        self._learner: Learner | None = None
        self._pilot.prepare(self._key, state)
        if learn and not self._pilot.learns:
            self.close()
            raise UserError(f"'{header.method}' cannot go on learning on a machine; load it with learn=False")
        if learn:
            self._learner = Learner(
                header.budget[2],
                lambda now, rows: self._pilot.update(self._next_key("learn"), now, rows),
                lambda now, step: self._pilot.observe(self._next_key("observe"), now, step),
                lambda: self._state,
                self._replace_state,
                self._lock,
            )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        learn: bool = False,
        room: int = 1,
        trust: bool = False,
        reward: StepFunction | None = None,
        terminated: StepFunction | None = None,
    ) -> Self:
        """From a machine file.

        A file that holds only what acts (`posterity export --policy`) acts and no more.

        `learn`: weights go on learning in the background. `room`: for so many new tasks (`begin_task`) there will be
        memory. `trust`: the file may name a method that is not posterity's own, and that code will run. `reward` and
        `terminated`: the functions that the family was made with, if it was; a file holds no code.
        """
        source = str(path)
        machine = read_machine(Path(path))
        if machine.header.policy is not None:
            if reward or terminated:
                raise UserError(f"{source} holds only what acts: load it without reward= and terminated=")
            plain = PlainPolicy.of(machine, source)
            return cls(machine.header, plain.spec, PolicyAgent(plain), plain.network.layers, learn)
        functions = {"reward": reward, "terminated": terminated}
        finite = is_finite(machine.header.spec)
        if finite and (reward or terminated):
            raise UserError(f"{source} is about finite MDPs: load it without reward= and terminated=")
        spec = (
            decoded_finite(machine.header.spec, source) if finite else decoded(machine.header.spec, source, functions)
        )
        agent = building.build(machine, spec, source, trust)
        state = building.state_of(agent, machine, source)
        header, budget = machine.header, budget_of(machine.header)
        if agent.task_memory and header.tasks + room > budget.tasks:
            budget = budget._replace(tasks=header.tasks + room)
            settings = type(agent).settings_type.model_validate(header.agent)
            agent = building.rebuilt(header.method, spec, settings, budget)
            state = building.laid(building.fresh_state(agent, header.seed), state)
            header = header.model_copy(update={"budget": tuple(budget)})
        return cls(header, spec, agent, state, learn)

    # Acting and observing ----------------------------------------------------------------------------------------

    def act(self, obs: object, budget_ms: float | None = None, first: bool | None = None) -> HostArray:
        """[A] the best action found within `budget_ms`, never later than that and `SLACK_MS`; None: a whole search.

        A discrete action is its number [].

        `first`: an episode begins with this observation. It need not be said where `observe` told the ends.
        """
        began = time.perf_counter()
        place = self._place("observation", obs)
        if budget_ms is not None and not (np.isfinite(budget_ms) and budget_ms >= 0):
            raise UserError(f"budget_ms is {budget_ms}; it is a time in milliseconds, 0 or more")
        with self._acting:
            with self._lock:
                state, begins = self._state, self._first if first is None else first
                self._first = False
            left = None if budget_ms is None else max(budget_ms / 1e3 - (time.perf_counter() - began), 0.0)
            action = self._pilot.act(self._next_key("act"), state, place, begins, left)
        if isinstance(self.spec, FiniteSpec) or self.spec.actions:
            return np.asarray(action)
        return np.clip(action, self.spec.low, self.spec.high).astype(np.float32)

    def observe(
        self,
        obs: object,
        action: object,
        reward: float,
        next_obs: object,
        terminated: bool = False,
        truncated: bool = False,
    ) -> None:
        """One step happened: adapts within the episode, and with `learn` the weights learn from it later."""
        if not np.isfinite(reward):
            raise UserError(f"The reward is {reward}; it must be a finite number")
        step = Transition(
            self._place("observation", obs),
            self._action(action),
            np.asarray(reward, np.float64 if isinstance(self.spec, FiniteSpec) else np.float32),
            self._place("next observation", next_obs),
            np.asarray(terminated, bool),
            np.asarray(truncated, bool),
        )
        lane = Transition(*(np.asarray(part)[None] for part in step))
        with self._lock:
            self._recent.append(step)
            self._first = self._first or bool(terminated or truncated)
            self._state = self._pilot.observe(self._next_key("observe"), self._state, lane)
            if self._learner is not None:
                self._learner.add(lane)

    def begin_task(self) -> None:
        """Another machine from now on: what is believed about the family becomes the prior of this task."""
        self._needs_learner("begin_task")
        with self._lock:
            self._pilot.restart()
            if self.agent.task_memory and self.header.tasks >= self.header.budget[0]:
                raise UserError("There is no memory for another task; save, and load with a greater room=")
            self._state = self.agent.begin_task([self._next_key("begin")], self._state)
            self.header = self.header.model_copy(update={"tasks": self.header.tasks + 1})
            self._first = True
            self._recent.clear()
            if self._learner is not None:
                self._learner.restart()

    def forget(self) -> None:
        """Back to what the file holds: all that was observed since is forgotten."""
        if self._learner is not None:
            raise UserError("What is learned in the background is not forgotten; load the file again")
        with self._lock:
            self._pilot.restart()
            self._state, self._first = self._loaded, True
            self._recent.clear()

    # What it knows -----------------------------------------------------------------------------------------------

    def uncertainty(self, obs: object, action: object) -> Forecast:
        """What is expected of an action, with both kinds of uncertainty, in the environment's units."""
        self._needs_learner("uncertainty")
        place = self._place("observation", obs)
        move = self._action(action)
        return self._pilot.forecast(self._next_key("forecast"), self._state, place, move)

    def is_familiar(self) -> bool:
        """Whether the last steps look like a task met before. True until there are ten steps to judge by."""
        return self.surprise() <= 0.0

    def surprise(self) -> float:
        """How far the last steps lie beyond what is familiar, in nats for each dimension; above 0: unlike all before.

        It is 0 or less for familiar steps, and minus infinity while there are too few to judge by.
        """
        self._needs_learner("is_familiar")
        calibration = self.header.calibration
        if calibration is None:
            raise UserError("This file has no calibration, so it cannot be told whether a task is familiar")
        with self._lock:
            recent, state = list(self._recent), self._state
        if len(recent) < familiarity.ENOUGH:
            return -np.inf
        told = self._pilot.explains(self._next_key("explain"), state, familiarity.padded(recent))
        return 0.0 if told is None else calibration.threshold - float(np.mean(told[WINDOW - len(recent) :]))

    @property
    def iterations(self) -> int:
        """Iterations of the search behind the last action; 0: it is from the previous plan."""
        return self._pilot.iterations

    @property
    def learns(self) -> bool:
        """Whether its method has a model: it can tell its uncertainty, and go on learning."""
        return self._pilot.learns

    @property
    def progress(self) -> Progress:
        """How the learning in the background stands."""
        learner = self._learner
        if learner is None:
            return Progress(0, 0, "it was loaded with learn=False")
        return Progress(learner.updates, learner.dropped, "" if learner.error is None else str(learner.error))

    # Life --------------------------------------------------------------------------------------------------------

    def warm_up(self, budget_ms: float | None = None) -> None:
        """Compiles and times everything, so that no later call has to: half a minute or so.

        With a budget, sizes of the search that do not fit into it are left out. Objects that are there by now are taken
        out of Python's garbage collection (`gc.freeze`): a collection of all that JAX holds would stop the loop for
        up to 200 ms.
        """
        seconds = None if budget_ms is None else budget_ms / 1e3
        with self._acting:
            self._pilot.warm_up(self._next_key("warm"), self._state, seconds, self._learner is not None)
            gc.collect()
            gc.freeze()

    def wait_for_learning(self, timeout: float | None = None) -> bool:
        """Waits until there is nothing to learn from any more; whether that came to be in `timeout` seconds."""
        return self._learner is None or self._learner.wait(timeout)

    def save(self, path: str | Path) -> None:
        """Writes what was learned, as a machine file."""
        with self._lock:
            state, header = self._state, self.header
            updates = header.updates + (0 if self._learner is None else self._learner.updates)
        made = {**header.made, "saved": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        changed = header.model_copy(update={"updates": updates, "made": made})
        write_machine(Path(path), Machine(changed, building.named(state)))

    def close(self) -> None:
        """Ends the threads. An update that is under way is finished first."""
        if self._learner is not None:
            self._learner.close()
        self._pilot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _needs_learner(self, what: str) -> None:
        """Refuses what a file cannot do that holds only what acts."""
        if self.header.policy is not None:
            raise UserError(
                f"{what} needs the whole learner, and this file holds only what acts: export the run without --policy"
            )

    def _replace_state(self, state: object) -> None:
        self._state = state

    def _next_key(self, name: str) -> Key:
        with self._lock:
            self._count += 1
            return self._key.fold(name, self._count)

    def _action(self, value: object) -> HostArray:
        """[A], or the number [] of a discrete one."""
        if isinstance(self.spec, FiniteSpec) or self.spec.actions:
            return _numbered("action", value, self.spec.actions)
        return self._array("action", value, len(self.spec.low))

    def _place(self, what: str, value: object) -> HostArray:
        """[O], or the number [] of a state."""
        if isinstance(self.spec, FiniteSpec):
            return _numbered(what, value, self.spec.states)
        return self._array(what, value, self.spec.obs_dim)

    def _array(self, what: str, value: object, size: int) -> HostArray:
        try:
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and is told below
                array = np.asarray(value).astype(np.float32)
        except (TypeError, ValueError):
            raise UserError(f"The {what} is not an array of numbers") from None
        if array.shape != (size,):
            raise UserError(f"The {what} has shape {array.shape}; this machine's has ({size},)")
        if not np.isfinite(array).all():
            raise UserError(f"The {what} holds a number that is not finite: {array.tolist()}")
        return array


def _numbered(what: str, value: object, count: int) -> HostArray:
    """[] one of the numbers 0 to count - 1."""
    number = np.asarray(value)
    if number.shape != () or number.dtype.kind not in "iu" or not 0 <= number < count:
        raise UserError(f"The {what} is {value}; this machine's are the numbers 0 to {count - 1}")
    return number

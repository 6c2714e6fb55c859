"""Lanes that are played apart: each seed's episodes in a process of its own.

Where an actor acts alone (`Agent.behaviour`), what acts is settled for a whole iteration, so no lane has to wait for
another. A player has the environment of its lane. It is sent the actor and a key, and answers with the steps. It runs
the same loop as anyone (`collect`), so the steps are the same to the bit.

A player is a fresh Python without JAX. Its pipe ends with this process, and the player with the pipe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import NamedTuple

import numpy as np

from posterity.agents.base import Behaviour, Keys
from posterity.errors import UserError
from posterity.experiment.collect import Collected, collect
from posterity.families import FAMILIES, contract, make_family
from posterity.families.base import Family
from posterity.settings import Settings
from posterity.types import BoolArray, HostArray, Key, Task, Transition

FEWEST = 4  # cores from which lanes are played apart
VARIABLE = "POSTERITY_PLAYERS"  # of the environment: auto, on or off
TOLD = 20  # steps between two words of how far a player is
WAIT = 0.05  # seconds after which it is asked whether to stop

Pipe = connection.Connection


class _Make(NamedTuple):
    """Play this task from now on."""

    task: Task


class _Play(NamedTuple):
    """Play an iteration."""

    behaviour: Behaviour  # of one lane
    key: Key
    steps: int


class _Leave(NamedTuple):
    """Leave the iteration that is being played."""


class _At(NamedTuple):
    """So many steps are done."""

    step: int


class _Failed(NamedTuple):
    """What went wrong, in one line."""

    why: str


class _LeftError(Exception):
    """An iteration was left before its end."""


def wanted(name: str, family: Family, lanes: int) -> bool:
    """Whether lanes are played apart: several of them, on enough cores, where a step costs more than sending it.

    Families of one's own may hold what no other process has, so they are not.
    """
    choice = os.environ.get(VARIABLE, "auto")
    if choice not in ("auto", "on", "off"):
        raise UserError(f"{VARIABLE} is '{choice}'; it is on, off or auto")
    if choice == "off" or name not in FAMILIES or not family.simulated or not hasattr(socket, "AF_UNIX"):
        return False
    return choice == "on" or (lanes > 1 and cores() >= FEWEST)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Players:
    """One process for each lane. As a context it ends with them gone."""

    def __init__(self, family: str, env: Settings, lanes: int) -> None:
        self.tasks: list[Task] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.pipes: list[Pipe] = []
        for _ in range(lanes):
            process, pipe = _begun()
            self.processes.append(process)
            self.pipes.append(pipe)
            pipe.send((family, env))

    def __enter__(self) -> Players:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            try:
                process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def collect(
        self,
        tasks: Sequence[Task],
        behaviour: Behaviour,
        keys: Keys,
        steps: int,
        before_step: Callable[[int], None],
    ) -> Collected:
        """`steps` steps of every lane in its task. What `before_step` raises ends the iteration in all lanes."""
        if list(tasks) != self.tasks:
            for lane, task in enumerate(tasks):
                self._tell(lane, _Make(task))
            self.tasks = list(tasks)
        for lane, key in enumerate(keys):
            self._tell(lane, _Play(behaviour.lane(lane), key, steps))
        met: dict[int, Collected] = {}
        try:
            at = [0] * len(self.pipes)
            while len(met) < len(self.pipes):
                before_step(min(at))
                for lane, answer in self._answers(met):
                    if isinstance(answer, Collected):
                        met[lane] = answer
                    at[lane] = answer.step if isinstance(answer, _At) else steps
        except BaseException:
            self._leave(met)
            raise
        return _joined([met[lane] for lane in range(len(self.pipes))])

    def _tell(self, lane: int, order: _Make | _Play) -> None:
        try:
            self.pipes[lane].send(order)
        except OSError as error:
            raise _gone(lane) from error

    def _answers(self, met: dict[int, Collected]) -> list[tuple[int, Collected | _At]]:
        """What players say within a moment."""
        busy = {id(pipe): lane for lane, pipe in enumerate(self.pipes) if lane not in met}
        ready = connection.wait([self.pipes[lane] for lane in busy.values()], WAIT)
        answers: list[tuple[int, Collected | _At]] = []
        for pipe in ready:
            lane = busy[id(pipe)]
            try:
                answer = self.pipes[lane].recv()
            except (EOFError, OSError) as error:
                raise _gone(lane) from error
            if isinstance(answer, _Failed):
                met[lane] = _nothing()
                raise UserError(answer.why)
            answers.append((lane, answer))
        return answers

    def _leave(self, met: dict[int, Collected]) -> None:
        """Every player stops where it is. One that does not hear is not waited for."""
        for lane, pipe in enumerate(self.pipes):
            if lane in met:
                continue
            with contextlib.suppress(OSError, EOFError):
                pipe.send(_Leave())
                while isinstance(pipe.recv(), _At):
                    pass


def _gone(lane: int) -> UserError:
    return UserError(f"The process that plays lane {lane} has ended")


def _begun() -> tuple[subprocess.Popen[bytes], Pipe]:
    """A player, and the pipe to it. It finds the modules that this process finds, and has one core for arithmetic."""
    near, far = socket.socketpair()
    with far:
        once = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        path = os.pathsep.join(place for place in sys.path if place)
        process = subprocess.Popen(
            [sys.executable, "-c", f"from posterity.experiment.players import play; play({far.fileno()})"],
            pass_fds=[far.fileno()],
            env={**os.environ, **once, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
        )
    return process, Pipe(near.detach())


def _joined(lanes: Sequence[Collected]) -> Collected:
    """The lanes side by side."""
    return Collected(
        rows=Transition(*(np.concatenate(parts) for parts in zip(*(lane.rows for lane in lanes), strict=True))),
        returns=[lane.returns[0] for lane in lanes],
        episodes=np.concatenate([lane.episodes for lane in lanes]),
        terminated=np.concatenate([lane.terminated for lane in lanes]),
        reward=np.concatenate([lane.reward for lane in lanes]),
        success=[lane.success[0] for lane in lanes],
    )


def _nothing() -> Collected:
    """In place of what a player that failed would have met: it has nothing more to say."""
    none = np.zeros(0)
    return Collected(Transition(*[none] * 6), [], none.astype(int), none.astype(int), none, [])


# In a player's process ------------------------------------------------------------------------------------------------


class _Acting:
    """A behaviour as `collect` asks for actions."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    def act(self, keys: Keys, state: None, obs: HostArray, first: BoolArray) -> tuple[None, HostArray]:
        """By the behaviour."""
        return None, self.behaviour.act(keys, obs)

    def observe(self, keys: Keys, state: None, step: Transition) -> None:
        """Nothing is learned here."""


def play(descriptor: int) -> None:
    """The whole life of a player: it does what it is told until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for whoever told it to play
    pipe = Pipe(descriptor)
    with contextlib.suppress(EOFError, OSError):
        _serve(pipe)


def _serve(pipe: Pipe) -> None:
    name, settings = pipe.recv()
    family, env, fault = make_family(name, settings), None, ""
    while True:
        order = pipe.recv()
        try:
            if isinstance(order, _Make):
                if env is not None:
                    env.close()
                env, fault = contract.made(family, order.task), ""
            elif isinstance(order, _Play):
                if env is None:
                    raise UserError(fault)
                acting = _Acting(order.behaviour)
                _, met = collect(acting, [order.key], None, [env], order.steps, None, _Word(pipe))
                pipe.send(met)
        except _LeftError:
            pipe.send(_Leave())
        except EOFError:  # whoever told it to play is gone
            raise
        except UserError as error:
            env, fault = (None, str(error)) if isinstance(order, _Make) else (env, fault)
            if isinstance(order, _Play):
                pipe.send(_Failed(str(error)))
        except Exception as error:
            traceback.print_exc()
            pipe.send(_Failed(f"The process that plays a lane failed: {type(error).__name__}, {error}"))


class _Word:
    """Says now and then how far an iteration is, and hears when it is to be left."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def __call__(self, step: int) -> None:
        """Before every step."""
        if self.pipe.poll():
            self.pipe.recv()
            raise _LeftError
        if step % TOLD == 0:
            self.pipe.send(_At(step))

"""The lifelong loop (paper, Algorithms 1 and 3): one task after another, learning all the way.

Everything random comes from keys folded with (task, iteration, step), environments begin every iteration afresh, and
records hold no clock but `wall`. So a run that is stopped, by whatever, and resumed leaves the records of one that was
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from posterity.agents import lanes
from posterity.agents import method as find_method
from posterity.agents.base import Agent, Info
from posterity.errors import UserError
from posterity.experiment import checkpoint, players
from posterity.experiment.checkpoint import DamageError, Position
from posterity.experiment.collect import Collected, collect
from posterity.experiment.config import RunConfig
from posterity.experiment.folder import Moment, RunFolder
from posterity.experiment.players import Players
from posterity.experiment.progress import Progress
from posterity.experiment.truth import Truths
from posterity.families import FAMILIES, contract, make_family
from posterity.families.base import Env, Family, Prestep
from posterity.families.lookup import origin
from posterity.plugins import failing
from posterity.types import Budget, Key, Task

SPARE, LONGER = 4, 3  # tasks and iterations for which there is room besides, where boundaries are detected
AnyAgent = Agent[object, object]  # what is loaded by name: its state and snapshots are trees, and no more is known


class Outcome(NamedTuple):
    """How a session ended."""

    folder: Path
    finished: bool
    reason: str  # why it stopped before the end; empty if it did not


class Stopped(Exception):  # noqa: N818  (it is no error)
    """Raised between two steps, to leave an iteration before its end."""


class Checked(NamedTuple):
    """What can be run, and what to say before it is."""

    family: Family
    agent: AnyAgent
    notes: list[str]


def build(config: RunConfig, earlier: int = 0) -> tuple[Family, AnyAgent]:
    """The family and the agent of a run. `earlier`: tasks the agent has met in another run before this one."""
    family = make_family(config.family, config.env)
    budget = Budget(earlier + config.tasks, config.iterations, config.steps_per_iteration)
    detects = config.boundaries == "detect"
    if detects:  # tasks may be taken for others, and then there are more of them, or one lasts longer
        budget = budget._replace(tasks=budget.tasks + SPARE, iterations=LONGER * budget.iterations)
    method, spec = find_method(config.method), contract.checked_spec(family)
    method.agent_type()  # loads JAX, if the method has any use for it
    lanes.check_device()
    agent = method.build(spec, config.agent, budget)
    if not detects:
        return family, agent
    from posterity.agents.detection import detecting  # finite runs load no JAX

    return family, cast(AnyAgent, detecting(agent, config.seeds))


def check(config: RunConfig, earlier: int = 0) -> Checked:
    """Refuses what cannot be run, before anything is written. A family of one's own is drawn from and played."""
    family = make_family(config.family, config.env)
    notes = [] if config.family in FAMILIES else contract.check(family, config.tasks, config.seed)
    family, agent = build(config, earlier)
    Truths(config, family, agent)
    return Checked(family, agent, notes)


def lifelong(
    config: RunConfig,
    folder: RunFolder,
    progress: Progress,
    should_stop: Callable[[], str],
    built: tuple[Family, AnyAgent] | None = None,
) -> Outcome:
    """Runs, or goes on with, the run in `folder` until it is done or `should_stop` gives a reason.

    It is asked before every step. An iteration that is cut short is not on record, and is done again on resuming.
    """
    family, agent = built or build(config, folder.position().earlier)
    run = _Run(config, folder, family, agent)
    progress.start(config, run.position, agent.start_iterations)
    _describe(config.family, agent, folder, progress)

    def before_step(step: int) -> None:
        if reason := should_stop():
            raise Stopped(reason)
        progress.step(step)

    try:
        with lanes.compilation_told(progress), run.playing():
            while run.position.task < config.tasks:
                task = run.position.task
                with run.environments(task) as (envs, prestep):
                    if run.position.iteration == 0:
                        run.begin_task(task)
                    for iteration in range(run.position.iteration, config.iterations):
                        progress.begin(task, iteration)
                        keys = [key.fold("task", task, "iteration", iteration) for key in run.keys]
                        steps = config.steps_per_iteration
                        met = run.collect(keys, envs, prestep, before_step)
                        before_step(steps)  # learning may take longer than many steps
                        learned = agent.update([key.fold("learn") for key in keys], run.state, met.rows)
                        run.state, info = _checked(learned, len(keys))
                        run.end_iteration(task, iteration, met, info)
                        progress.advance(float(np.mean([np.mean(returns) for returns in met.returns])))
                        if run.maybe_save():
                            progress.saved()
    except Stopped as stop:
        run.take_back()
        return Outcome(folder.path, False, str(stop))
    run.save()
    return Outcome(folder.path, True, "")


def _checked(learned: object, lanes: int) -> tuple[object, Info]:
    """What `update` of a method of one's own returned, if it is a state and numbers of all lanes."""
    if not (isinstance(learned, tuple) and len(learned) == 2 and isinstance(learned[1], Mapping)):  # pyright: ignore[reportUnknownArgumentType]
        raise UserError("The method's update has to return two things: its state, and numbers for the record by name")
    state, info = cast(tuple[object, Info], learned)
    for name, values in info.items():
        if np.shape(values)[:1] != (lanes,):
            raise UserError(
                f"The method's update gave '{name}' of shape {np.shape(values)}; [{lanes}] is due, for {lanes} lanes"
            )
    return state, info


def drawn(family: Family, key: Key, count: int) -> list[Task]:
    """The tasks of one seed."""
    with failing(f"{type(family).__name__}.tasks failed"):
        tasks = family.tasks(key.fold("stream"), count)
    contract.check_tasks(family, tasks, count, key.fold("stream"))
    return tasks


class _Run:
    """Where a run stands: the state of its agent, its place in the loop, and what it writes down."""

    def __init__(self, config: RunConfig, folder: RunFolder, family: Family, agent: AnyAgent) -> None:
        self.config, self.folder, self.family, self.agent = config, folder, family, agent
        self.seeds = range(config.seed, config.seed + config.seeds)
        self.keys = [Key.of(seed) for seed in self.seeds]
        self.truths = Truths(config, family, agent)
        self.streams: list[list[Task]] = [[] for _ in self.keys]
        self.state = agent.init([key.fold("init") for key in self.keys])
        self.position = Position(tasks=config.tasks)
        if folder.checkpoint.exists():
            grow = folder.position().tasks != config.tasks
            self.state, position = load_state(folder, agent, self.state, grow)
            self.position = position._replace(tasks=config.tasks)
        else:
            self.save()  # from now on there is something to go on from
        self.began, self.saved = time.monotonic() - self.position.wall, time.monotonic()
        self.whole = self.state, folder.mark()  # after the last whole iteration
        self.players: Players | None = None

    def tasks(self, task: int) -> list[Task]:
        """[L] the task of each lane. Streams are drawn a part at a time: a longer one begins with a shorter one."""
        if task >= len(self.streams[0]):
            count = min(self.config.tasks, max(64, 2 * task))
            self.streams = [drawn(self.family, key, count) for key in self.keys]
        return [stream[task] for stream in self.streams]

    @contextmanager
    def environments(self, task: int) -> Generator[tuple[Sequence[Env], Prestep | None]]:
        """The environments of all lanes in a task, closed whatever ends it."""
        envs = [contract.made(self.family, each) for each in self.tasks(task)]
        try:
            with self.family.prestep(envs) as prestep:
                yield envs, prestep
        finally:
            with failing("Closing an environment failed"):
                for env in envs:
                    env.close()

    @contextmanager
    def playing(self) -> Generator[None]:
        """While this lasts, lanes may be played in processes of their own."""
        config = self.config
        if not players.wanted(config.family, self.family, config.seeds):
            yield
            return
        with Players(config.family, config.env, config.seeds) as self.players:
            yield

    def collect(
        self, keys: Sequence[Key], envs: Sequence[Env], prestep: Prestep | None, before_step: Callable[[int], None]
    ) -> Collected:
        """The steps of an iteration: of each lane apart, where that can be."""
        steps = self.config.steps_per_iteration
        behaviour = self.agent.behaviour(self.state) if self.players else None
        if self.players and behaviour is not None:
            return self.players.collect(self.tasks(self.position.task), behaviour, keys, steps, before_step)
        self.state, met = collect(self.agent, keys, self.state, envs, steps, prestep, before_step)
        return met

    def begin_task(self, task: int) -> None:
        """What is believed about the family becomes the prior."""
        self.state = self.agent.begin_task([key.fold("task", task, "begin") for key in self.keys], self.state)
        self._snapshot(task, "begin")
        for lane, (seed, each) in enumerate(zip(self.seeds, self.tasks(task), strict=True)):
            facts = {"name": each.name, "factors": each.factors, **self.truths.begin(each, self.state, lane)}
            self.folder.write("task", seed=seed, task=task, **facts)

    def end_iteration(self, task: int, iteration: int, met: Collected, info: Info) -> None:
        """Writes down what an iteration brought."""
        done = iteration + 1
        if done == self.agent.start_iterations and done != self.config.iterations:
            self._snapshot(task, "start")
        if done == self.config.iterations:
            self._snapshot(task, "end")
        self.position = self.position.after(self.config.iterations, wall=time.monotonic() - self.began)
        for lane, (seed, each) in enumerate(zip(self.seeds, self.tasks(task), strict=True)):
            place = {"seed": seed, "task": task, "iteration": iteration, "steps": self.config.steps_per_iteration}
            facts = {**_facts(met, lane), **{name: values[lane] for name, values in info.items()}}
            facts |= self.truths.after(each, self.state, lane)
            self.folder.write("iteration", **place, **facts, wall_seconds=round(self.position.wall, 3))
        self.whole = self.state, self.folder.mark()

    def maybe_save(self) -> bool:
        """A checkpoint, if it is time for one."""
        due = time.monotonic() - self.saved >= self.config.save_every
        if due:
            self.save()
        return due

    def save(self) -> None:
        """A checkpoint."""
        self.folder.save(self.state, self.position, self.agent.task_memory)
        self.saved = time.monotonic()

    def take_back(self) -> None:
        """Back to the end of the last whole iteration, and saved: what was cut short will be done again, the same."""
        self.state, mark = self.whole
        self.folder.rewind(mark)
        self.save()

    def _snapshot(self, task: int, moment: Moment) -> None:
        if self.config.snapshots:
            keys = [key.fold("task", task, "keep", moment) for key in self.keys]
            self.folder.write_snapshot(task, moment, self.agent.snapshot(keys, self.state))


def load_state(folder: RunFolder, agent: AnyAgent, fresh: object, grow: bool) -> tuple[object, Position]:
    """The state that the run in `folder` has saved. `fresh`: what `agent` begins with, which may have more room."""
    state, position = checkpoint.load(folder.checkpoint, fresh, agent.task_memory, grow)
    return (agent.extend(state, fresh) if grow else state), position


def _facts(met: Collected, lane: int) -> Mapping[str, float | int]:
    """What the environment of one lane gave; the share of solved episodes only where the family tells it."""
    success = met.success[lane]
    return {
        "return": float(np.mean(met.returns[lane])),
        "episodes": int(met.episodes[lane]),
        "terminated": int(met.terminated[lane]),
        "reward": float(met.reward[lane]),
        **({} if success is None else {"success": success}),
    }


def _describe(family: str, agent: AnyAgent, folder: RunFolder, progress: Progress) -> None:
    """Where the family lies, and what an agent tells of what it runs on, goes on record; the latter is said once."""
    engine, file = agent.describe(), origin(family)
    if file and folder.first_session().get("family_sha256", file["family_sha256"]) != file["family_sha256"]:
        progress.note(f"{file['family_file']} has changed since the run began")
    if engine or file:
        folder.describe({**file, **engine})
    if engine:
        progress.note("; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in engine.items()))


def guarded(folder: RunFolder, session: Callable[[], Outcome]) -> Outcome:
    """Turns what the surroundings did wrong during a session into one line that says how to go on."""
    again = f"What was saved is whole; go on with: posterity resume {folder.path}"
    try:
        return session()
    except DamageError:  # going on would meet it again
        raise
    except UserError as error:
        raise UserError(f"{error}. {again}") from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise UserError(f"The run stopped: {error.strerror or error}{where}. {again}") from error
    finally:
        folder.close()

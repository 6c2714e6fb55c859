"""The lifelong loop (paper, Algorithms 1 and 3): one task after another, learning all the way.

Everything random comes from keys folded with (task, iteration, step), environments begin every iteration afresh, and
records hold no clock but `wall`. So a run that is stopped, by whatever, and resumed leaves the records of one that was
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity.agents import method as find_method
from posterity.agents.base import Agent, Info
from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment.checkpoint import Position
from posterity.experiment.collect import Collected, collect
from posterity.experiment.config import RunConfig
from posterity.experiment.folder import Moment, RunFolder
from posterity.experiment.progress import Progress
from posterity.experiment.truth import Truths
from posterity.families import family_type
from posterity.families.base import Env, Family, Prestep
from posterity.types import Budget, Key, Task

AnyAgent = Agent[object, object]  # what is loaded by name: its state and snapshots are trees, and no more is known


class Outcome(NamedTuple):
    """How a session ended."""

    folder: Path
    finished: bool
    reason: str  # why it stopped before the end; empty if it did not


def build(config: RunConfig) -> tuple[Family, AnyAgent]:
    """The family and the agent of a run."""
    family = family_type(config.family)(config.env)
    budget = Budget(config.tasks, config.iterations, config.steps_per_iteration)
    return family, find_method(config.method).build(family.spec, config.agent, budget)


def check(config: RunConfig) -> None:
    """Refuses what cannot be run, before anything is written."""
    Truths(config, *build(config))


def lifelong(
    config: RunConfig,
    folder: RunFolder,
    progress: Progress,
    should_stop: Callable[[], str],
    built: tuple[Family, AnyAgent] | None = None,
) -> Outcome:
    """Runs, or goes on with, the run in `folder` until it is done or `should_stop` gives a reason."""
    family, agent = built or build(config)
    run = _Run(config, folder, family, agent)
    progress.start(config, run.position)
    _describe(agent, folder, progress)
    while run.position.task < config.tasks:
        task = run.position.task
        with run.environments(task) as (envs, prestep):
            if run.position.iteration == 0:
                run.begin_task(task)
            for iteration in range(run.position.iteration, config.iterations):
                keys = [key.fold("task", task, "iteration", iteration) for key in run.keys]
                run.state, met = collect(agent, keys, run.state, envs, config.steps_per_iteration, prestep)
                run.state, info = agent.update([key.fold("learn") for key in keys], run.state, met.rows)
                run.end_iteration(task, iteration, met, info)
                progress.advance(task, iteration, float(np.mean([np.mean(returns) for returns in met.returns])))
                reason = should_stop()
                run.maybe_save(now=bool(reason))
                if reason and run.position.task < config.tasks:
                    return Outcome(folder.path, False, reason)
    folder.save(run.state, run.position._replace(finished=True), agent.task_memory)
    return Outcome(folder.path, True, "")


class _Run:
    """Where a run stands: the state of its agent, its place in the loop, and what it writes down."""

    def __init__(self, config: RunConfig, folder: RunFolder, family: Family, agent: AnyAgent) -> None:
        self.config, self.folder, self.family, self.agent = config, folder, family, agent
        self.seeds = range(config.seed, config.seed + config.seeds)
        self.keys = [Key.of(seed) for seed in self.seeds]
        self.truths = Truths(config, family, agent)
        self.streams = [family.tasks(key.fold("stream"), config.tasks) for key in self.keys]
        self.state = agent.init([key.fold("init") for key in self.keys])
        self.position = Position()
        if folder.checkpoint.exists():
            self.state, self.position = checkpoint.load(folder.checkpoint, self.state, agent.task_memory)
        else:
            folder.save(self.state, self.position, agent.task_memory)  # from now on there is something to go on from
        self.began, self.saved = time.monotonic() - self.position.wall, time.monotonic()

    def tasks(self, task: int) -> list[Task]:
        """[L] the task of each lane."""
        return [stream[task] for stream in self.streams]

    @contextmanager
    def environments(self, task: int) -> Iterator[tuple[Sequence[Env], Prestep | None]]:
        """The environments of all lanes in a task, closed whatever ends it."""
        envs = [self.family.make(each) for each in self.tasks(task)]
        try:
            with self.family.prestep(envs) as prestep:
                yield envs, prestep
        finally:
            for env in envs:
                env.close()

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

    def maybe_save(self, now: bool) -> None:
        """A checkpoint, if it is time for one."""
        if now or time.monotonic() - self.saved >= self.config.save_every:
            self.folder.save(self.state, self.position, self.agent.task_memory)
            self.saved = time.monotonic()

    def _snapshot(self, task: int, moment: Moment) -> None:
        if self.config.snapshots:
            keys = [key.fold("task", task, "keep", moment) for key in self.keys]
            self.folder.write_snapshot(task, moment, self.agent.snapshot(keys, self.state))


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


def _describe(agent: AnyAgent, folder: RunFolder, progress: Progress) -> None:
    """What an agent tells of what it runs on goes on record and is said once."""
    engine = agent.describe()
    if engine:
        folder.describe(engine)
        progress.note("; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in engine.items()))


def guarded(folder: RunFolder, session: Callable[[], Outcome]) -> Outcome:
    """Turns what the surroundings did wrong during a session into one line that says how to go on."""
    again = f"What was saved is whole; go on with: posterity resume {folder.path}"
    try:
        return session()
    except UserError as error:
        raise UserError(f"{error}. {again}") from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise UserError(f"The run stopped: {error.strerror or error}{where}. {again}") from error
    finally:
        folder.close()

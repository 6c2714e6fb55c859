"""The lifelong loop (paper, Algorithms 1 and 3): one task after another, learning all the way.

Everything random comes from keys folded with (task, iteration, step), environments begin every iteration afresh, and
records hold no clock but `wall`. So a run that is stopped, by whatever, and resumed leaves the records of one that was
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posterity.agents import method as find_method
from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.experiment.checkpoint import Position
from posterity.experiment.config import RunConfig
from posterity.experiment.collect import Collected, EachLane, Learners, collect
from posterity.experiment.truth import Probe
from posterity.experiment.progress import Progress
from posterity.experiment.folder import Moment, RunFolder
from posterity.families import family_type
from posterity.families.base import Family
from posterity.types import Budget, Key


class Outcome(NamedTuple):
    """How a session ended."""

    folder: Path
    finished: bool
    reason: str  # why it stopped before the end; empty if it did not


def build(config: RunConfig) -> tuple[Family, Any]:
    """The family and the agent of a run."""
    family, method = family_type(config.family)(config.env), find_method(config.method)
    budget = Budget(config.tasks, config.iterations, config.steps)
    return family, method.agent_type()(family.spec, config.agent, budget, **method.fixed)


def together(agent: Any) -> Learners:
    """All lanes of an agent: by itself, if it speaks for all of them, or one after the other."""
    return agent if getattr(agent, "together", False) else EachLane(agent)


def _built(config: RunConfig) -> tuple[Family, Any, Learners]:
    family, agent = build(config)
    return family, agent, together(agent)


def check(config: RunConfig) -> None:
    """Refuses what cannot be run, before anything is written."""
    Probe(config, *build(config))


def lifelong(
    config: RunConfig,
    folder: RunFolder,
    progress: Progress,
    should_stop: Callable[[], str],
    built: tuple[Family, Any, Learners] | None = None,
) -> Outcome:
    """Runs, or goes on with, the run in `folder` until it is done or `should_stop` gives a reason."""
    family, agent, learners = built or _built(config)
    seeds = range(config.seed, config.seed + config.seeds)
    keys = [Key.of(seed) for seed in seeds]
    probe = Probe(config, family, agent)
    streams = [family.tasks(key.fold("stream"), config.tasks) for key in keys]
    state = learners.init([key.fold("init") for key in keys])
    position = Position()
    if folder.checkpoint.exists():
        state, position = checkpoint.load(folder.checkpoint, state)
    else:
        folder.save(state, position)  # from now on there is something to go on from

    moments: dict[int, Moment] = {learners.start: "start", config.iterations: "end"}  # iterations done

    def keep(task: int, moment: Moment | None) -> None:
        if config.keep and moment is not None:
            folder.keep(task, moment, learners.keep([key.fold("task", task, "keep", moment) for key in keys], state))

    began, saved = time.monotonic() - position.wall, time.monotonic()

    progress.start(config, position)
    _describe(agent, folder, progress)
    while position.task < config.tasks:
        task = position.task
        tasks = [stream[task] for stream in streams]
        envs = [family.make(each) for each in tasks]
        if position.iteration == 0:
            state = learners.begin_task([key.fold("task", task, "begin") for key in keys], state)
            keep(task, "begin")
            for lane, (seed, each) in enumerate(zip(seeds, tasks, strict=True)):
                facts = {"name": each.name, "factors": each.factors, **probe.begin(each, state, lane)}
                folder.write("task", seed=seed, task=task, **facts)
        with family.ahead(envs) as ahead:
            for iteration in range(position.iteration, config.iterations):
                now = [key.fold("task", task, "iteration", iteration) for key in keys]
                state, met = collect(learners, now, state, envs, config.steps, ahead)
                state, infos = learners.learn([key.fold("learn") for key in now], state, [lane.rows for lane in met])
                keep(task, moments.get(iteration + 1))
                position = position.after(config.iterations, wall=time.monotonic() - began)
                for lane, seed in enumerate(seeds):
                    place = {"seed": seed, "task": task, "iteration": iteration, "steps": config.steps}
                    facts = {"return": np.mean(met[lane].returns), "episodes": met[lane].finished, **_solved(met[lane])}
                    facts |= {**infos[lane], **probe.after(tasks[lane], state, lane)}
                    folder.write("iteration", **place, **facts, wall=round(position.wall, 3))
                progress.advance(task, iteration, float(np.mean([np.mean(lane.returns) for lane in met])))
                reason = should_stop()
                if reason or time.monotonic() - saved >= config.save_every:
                    folder.save(state, position)
                    saved = time.monotonic()
                if reason and position.task < config.tasks:
                    return Outcome(folder.path, False, reason)
        for env in envs:
            env.close()
    folder.save(state, position._replace(finished=True))
    return Outcome(folder.path, True, "")


def _solved(met: Collected) -> dict[str, float]:
    """The share of solved episodes, where the family tells it."""
    return {} if met.solved is None else {"success": met.solved}


def _describe(agent: Any, folder: RunFolder, progress: Progress) -> None:
    """What an agent tells of what it runs on goes on record and is said once."""
    engine: dict[str, str] = getattr(agent, "engine", {})
    if engine:
        folder.describe(engine)
        progress.note(f"On {engine['device']}; planner: {engine['planner']}")


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

"""Episodes of a run, or of whatever acts, as clips for a video (`film.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from posterity.agents.base import Keys, Policy, Score
from posterity.errors import UserError
from posterity.experiment.collect import Stepped, advance, reset
from posterity.experiment.evaluate import Entry, Evaluator, Plan, Rows, never, open_evaluator
from posterity.experiment.film import Clip, Forecast, Shot
from posterity.experiment.run import Stopped
from posterity.families.base import Env, Family
from posterity.families.camera import camera, frames_a_second
from posterity.types import HostArray, Key, Task

MOMENT: dict[Score, str] = {
    "zero-shot": "first episode in a task",
    "start": "when the task's own model first acts",
    "train": "when the task was learned",
    "back": "back in the task after all others",
}


class Player(Protocol):
    """What acts in a video."""

    def act(self, step: int, obs: HostArray) -> tuple[HostArray, Forecast | None]:
        """The action, and what is expected to come of it where the player has a model."""
        ...

    def observe(self, step: int, obs: HostArray, action: HostArray, stepped: Stepped) -> None:
        """The step happened."""
        ...


class Scene(NamedTuple):
    """Where an episode is played, and what is written above it."""

    family: Family
    task: Task
    start: Key  # decides everything that is random in the environment
    title: str
    should_stop: Callable[[], str]


def filmed(scene: Scene, player: Player, env: Env | None = None) -> Clip:
    """One episode, a picture before every step and one at the end."""
    env = scene.family.make(scene.task) if env is None else env
    try:
        obs = reset(env, scene.start)
        taker = camera(scene.family, scene.task, env)
        try:
            shots, total, ended = [Shot(taker.shot(), 0.0, None)], 0.0, False
            for step in range(scene.family.spec.max_episode_steps):
                if reason := scene.should_stop():
                    raise Stopped(reason)
                action, forecast = player.act(step, obs)
                shots[-1] = shots[-1]._replace(forecast=forecast)
                stepped = advance(env, action)
                player.observe(step, obs, action, stepped)
                obs, total = stepped.next_obs, total + stepped.reward
                shots.append(Shot(taker.shot(), total, None))
                ended = stepped.terminated or stepped.truncated
                if ended:
                    break
            hidden = f"task {scene.task.index + 1}: {scene.task.name}"
            return Clip(scene.title, hidden, shots, frames_a_second(env))
        finally:
            taker.close()
    finally:
        env.close()


def run_clips(
    path: Path,
    scores: Sequence[Score],
    numbers: Sequence[int],
    name: str = "",
    variant: str = "auto",
    should_stop: Callable[[], str] = never,
    trusted: bool = False,
) -> list[Clip]:
    """Episodes of the run in folder `path`. `numbers` of tasks count from 1; none: the latest that is finished."""
    evaluator = open_evaluator(path, Plan(tuple(scores), variant), should_stop, trusted)
    tasks = [number - 1 for number in numbers] or [evaluator.folder.position().task - 1]
    return clips_of(evaluator, scores, tasks, name or evaluator.config.method)


def clips_of(evaluator: Evaluator, scores: Sequence[Score], tasks: Sequence[int], name: str) -> list[Clip]:
    """The first evaluated episode of the run's first seed, for every pair of task and score.

    `tasks` count from 0. They are the episodes that `evaluate` plays: same starts, same keys.
    """
    finished = evaluator.folder.position().task
    for task in tasks:
        if not 0 <= task < finished:
            raise UserError(
                f"{evaluator.folder.path} has finished tasks 1 to {finished}, and {task + 1} is none of them"
            )
    entries: dict[Score, list[Entry]] = {}
    for score in scores:
        after = finished if score == "back" else 0
        entries[score] = [Entry(0, task, 0, after or task) for task in tasks]
    evaluator.look_for(entries)
    clips: list[Clip] = []
    for place in range(len(tasks)):
        for score in scores:
            entry = entries[score][place]
            staged = evaluator.staged(score, [entry])
            title = f"{name}, {MOMENT[score]}"
            task = evaluator.streams[0][entry.task]
            scene = Scene(evaluator.family, task, staged.starts[0], title, evaluator.should_stop)
            player = _PolicyPlayer(staged.policy, staged.keys, not evaluator.family.finite)
            clips.append(filmed(scene, player, staged.envs[0]))
    return clips


class _PolicyPlayer:
    """The policy of an evaluation, for one lane."""

    def __init__(self, policy: Policy, keys: Keys, may_plan: bool) -> None:
        self.policy, self.keys, self.may_plan = policy, keys, may_plan

    def act(self, step: int, obs: HostArray) -> tuple[HostArray, Forecast | None]:
        """As in an evaluation."""
        keys = [key.fold("step", step) for key in self.keys]
        seen = np.asarray(obs)[None].copy()
        actions = self.policy.act(keys, seen, np.array([step == 0]))
        return actions[0], self._promised(keys, seen, actions) if self.may_plan else None

    def observe(self, step: int, obs: HostArray, action: HostArray, stepped: Stepped) -> None:
        """A policy may infer which task this is."""
        rows = Rows(np.asarray(obs)[None], np.asarray(action)[None])
        rows.add(0, stepped)
        keys = [key.fold("step", step, "observe") for key in self.keys]
        self.policy.observe(keys, rows.step(np.asarray(stepped.next_obs)[None]))

    def _promised(self, keys: Keys, obs: HostArray, actions: HostArray) -> Forecast | None:
        """What the found plan will earn within its horizon, by the networks that it was found by."""
        from posterity.agents.planner import PlannedPolicy  # finite runs load no JAX

        policy = self.policy
        if not isinstance(policy, PlannedPolicy) or policy.variant or policy.random.any():
            return None
        planned, nothing = policy.planner.spec.encoded(actions), np.zeros((1, 3), np.float32)
        told = policy.planner.forecast(keys, obs, policy.models[0], planned, policy.plan, nothing)
        mean, std, _ = np.asarray(told)[0]
        return Forecast(float(mean), float(std), len(np.asarray(policy.plan.mean)[0]))

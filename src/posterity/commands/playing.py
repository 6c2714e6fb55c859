"""Machine files in `posterity evaluate`: a trained posterior plays tasks of its family, without learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from posterity.control.controller import Controller
from posterity.control.machine import read_machine
from posterity.errors import UserError
from posterity.experiment.collect import Stepped, advance, reset
from posterity.experiment.film import Clip, Forecast
from posterity.experiment.run import Stopped
from posterity.experiment.video import Scene, filmed
from posterity.families import FAMILIES, make_family
from posterity.families.base import Family
from posterity.families.lookup import default_settings
from posterity.settings import Settings
from posterity.types import Facts, HostArray, Key, Task


class MachinePlayer:
    """The controller of a machine file in tasks of the family that it was trained in."""

    def __init__(self, path: Path, trust: bool) -> None:
        if not path.is_file():
            raise UserError(f"There is no file {path}. Made by: posterity export RUN --out {path}")
        header = read_machine(path).header
        if header.family not in FAMILIES and not trust:
            raise UserError(
                f"{path} is for the family '{header.family}', which is not posterity's own; playing it would run that "
                "code. If you trust the file: --trust"
            )
        self.family: Family = make_family(header.family, _settings(header.family, header.env, path))
        self.controller = Controller.load(path, trust=trust)
        self.key = Key.of(header.seed)
        self.name = f"{header.method} ({path.name})"
        self.forecasts = True

    @property
    def own_task(self) -> int:
        """The task that the machine is, counted from 0."""
        return max(self.controller.header.tasks - 1, 0)

    def tasks(self, numbers: Sequence[int]) -> list[Task]:
        """Of the stream that the run of the file met; it goes on beyond."""
        if min(numbers) < 0:
            raise UserError("Tasks are counted from 1")
        stream = self.family.tasks(self.key.fold("stream"), max(numbers) + 1)
        return [stream[number] for number in numbers]

    def start(self, task: Task, episode: int) -> Key:
        """What an evaluation of the run begins the episode with."""
        return self.key.fold("evaluate", "task", task.index, "episode", episode)

    def act(self, step: int, obs: HostArray) -> tuple[HostArray, Forecast | None]:
        """A whole search, and what the model says of the action that it found."""
        action = self.controller.act(obs, first=step == 0)
        if not self.forecasts:
            return action, None
        try:
            told = self.controller.uncertainty(obs, action)
        except UserError:  # a method without a model
            self.forecasts = False
            return action, None
        return action, Forecast(told.reward, float(np.hypot(told.aleatoric_reward, told.epistemic_reward)), 1)

    def observe(self, step: int, obs: HostArray, action: HostArray, stepped: Stepped) -> None:
        """Adapts, where the method does that: by a latent, or by the counts of a finite task."""
        ends = stepped.terminated, stepped.truncated
        self.controller.observe(obs, action, stepped.reward, stepped.next_obs, *ends)

    def clips(self, numbers: Sequence[int], should_stop: Callable[[], str]) -> list[Clip]:
        """One episode of each task."""
        found: list[Clip] = []
        for task in self.tasks(numbers):
            self.controller.forget()
            found.append(filmed(Scene(self.family, task, self.start(task, 0), self.name, should_stop), self))
        return found

    def returns(self, task: Task, episodes: int, should_stop: Callable[[], str]) -> list[float]:
        """The return of each episode."""
        found: list[float] = []
        self.controller.forget()
        env = self.family.make(task)
        self.forecasts = False
        try:
            for episode in range(episodes):
                obs, total = reset(env, self.start(task, episode)), 0.0
                for step in range(self.family.spec.max_episode_steps):
                    if reason := should_stop():
                        raise Stopped(reason)
                    action, _ = self.act(step, obs)
                    stepped = advance(env, action)
                    self.observe(step, obs, action, stepped)
                    obs, total = stepped.next_obs, total + stepped.reward
                    if stepped.terminated or stepped.truncated:
                        break
                found.append(total)
        finally:
            env.close()
        return found


def _settings(name: str, given: Facts, path: Path) -> Settings:
    """The settings of the family that a header holds."""
    own = default_settings(name)
    try:
        return type(own).model_validate({**own.model_dump(), **given})
    except ValidationError as error:
        raise UserError(f"{path}: the settings of '{name}' in it are not those of this version") from error

"""Evaluation apart from training: the scores of the paper's Table 1, with seeds of their own.

    zero-shot   the world posterior in a task, before any of its data
    start       the task posterior, when it first acts
    train       the task posterior, when the task was over
    back        every earlier task, after all training: Algorithm 2, or `blend`, with what is known by then

A run puts aside what its agent was at these moments (`RunFolder.keep`), so everything here can be done later, again,
and otherwise: with more episodes, or with another strategy for going back. Every pair of task and episode is a lane,
and all lanes run in one program. Start states are the same for every score, so scores compare episode by episode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from posterity.agents.base import SCORES, STRATEGIES, Score, Strategy
from posterity.errors import UserError, unknown
from posterity.experiment import checkpoint
from posterity.experiment.config import RunConfig
from posterity.experiment.collect import EachLane, Learners, Successes, advance_all, reset
from posterity.experiment.folder import Moment, RunFolder, read_config
from posterity.experiment.run import build, together
from posterity.families.base import Family
from posterity.types import Key, Task

MOMENTS: dict[Score, Moment] = {"zero-shot": "begin", "start": "start", "train": "end", "back": "end"}


class Plan(NamedTuple):
    """What to evaluate."""

    scores: tuple[Score, ...] = SCORES
    strategy: Strategy | Literal["auto"] = "auto"  # of going back; auto: as the run is set
    episodes: int = 3
    every: int = 0  # go back after every so many tasks too, not only after the last
    lanes: int = 64  # episodes played together

    def check(self) -> None:
        """Refuses what cannot be played."""
        if not self.scores:
            raise UserError(f"Which scores? {', '.join(SCORES)}")
        for score in self.scores:
            if score not in SCORES:
                raise unknown("score", score, SCORES)
        if self.strategy not in ("auto", *STRATEGIES):
            raise unknown("strategy", self.strategy, ("auto", *STRATEGIES))
        if min(self.episodes, self.lanes) < 1 or self.every < 0:
            raise UserError("episodes and lanes are 1 or more, every is 0 or more")


class Entry(NamedTuple):
    """One episode to play: a lane of the evaluation."""

    lane: int  # of the run
    task: int
    episode: int
    after: int  # tasks learned by then


class Played(NamedTuple):
    """How it went."""

    total: float
    steps: int
    world: dict[str, float]  # how much the world model predicted, if there were two
    solved: bool | None  # whether a step succeeded; None: the family does not tell


def evaluate(path: Path, plan: Plan, tell: Callable[[Score, int, int], None]) -> list[dict[str, Any]]:
    """Plays the episodes of `plan` in the run's tasks and writes what came to `evaluation/` in its folder."""
    plan.check()
    config, folder = read_config(path), RunFolder(path)
    if not config.keep:
        raise UserError(f"{path} kept nothing to evaluate; run it with --keep")
    if not folder.checkpoint.exists() and any(path.glob("records.jsonl*")):
        raise UserError(f"{path} has no checkpoints to play from; what was evaluated of it is in its evaluation/")
    finished = folder.position().task
    if finished == 0:
        raise UserError(f"{path} has no finished task to evaluate yet")
    arena = Arena(config, folder, plan)
    episodes: dict[Score, list[Entry]] = {}
    for score in plan.scores:
        if score != "start" or arena.learners.start < config.iterations:  # else the task's own model never acted
            episodes[score] = _entries(score, plan, config.seeds, finished)
    arena.look_for(episodes)
    out = path / "evaluation"
    out.mkdir(exist_ok=True)
    lines: list[dict[str, Any]] = []
    for score, entries in episodes.items():
        new = arena.play_all(score, plan, entries, lambda done, total, score=score: tell(score, done, total))
        name = f"back-{arena.strategy}" if score == "back" else score
        text = "".join(json.dumps(line) + "\n" for line in new)
        checkpoint.replace(out / f"{name}.jsonl", text.encode())
        lines += new
    return lines


def _entries(score: Score, plan: Plan, lanes: int, finished: int) -> list[Entry]:
    """Every episode of a score. Back after n tasks is over all n of them."""
    if score != "back":
        return [
            Entry(lane, task, episode, task)
            for lane in range(lanes)
            for task in range(finished)
            for episode in range(plan.episodes)
        ]
    moments = {finished} | ({*range(plan.every, finished, plan.every)} if plan.every else set())
    return [
        Entry(lane, task, episode, after)
        for after in sorted(moments)
        for lane in range(lanes)
        for task in range(after)
        for episode in range(plan.episodes)
    ]


class Arena:
    """The agent of a run and what it kept, ready to play."""

    def __init__(self, config: RunConfig, folder: RunFolder, plan: Plan) -> None:
        self.config = config
        self.folder = folder
        self.family: Family
        self.family, agent = build(config)
        known: tuple[Strategy, ...] = getattr(agent, "strategies", STRATEGIES[:1])
        self.strategy: Strategy = known[0] if plan.strategy == "auto" else plan.strategy
        if self.strategy not in known:
            raise UserError(f"'{config.method}' has one way of going back, and '{plan.strategy}' is not it")
        self.learners: Learners = together(agent)
        self.keys = [Key.of(config.seed + lane) for lane in range(config.seeds)]
        self.streams: list[list[Task]] = [self.family.tasks(key.fold("stream"), config.tasks) for key in self.keys]
        self.template = self.learners.keep(self.keys, self.learners.init(self.keys))
        self.loaded: dict[Path, Any] = {}

    def look_for(self, episodes: Mapping[Score, Sequence[Entry]]) -> None:
        """Says what is missing before anything is played."""
        needed = {self.folder.kept(entry.task, MOMENTS[score]) for score, some in episodes.items() for entry in some}
        lost = sorted(path.name for path in needed if not path.exists())
        if lost:
            raise UserError(f"{self.folder.path}/checkpoints lacks {lost[0]}, so this run cannot be evaluated any more")

    def play_all(
        self, score: Score, plan: Plan, entries: Sequence[Entry], tell: Callable[[int, int], None]
    ) -> list[dict[str, Any]]:
        """A line for every entry. Parts are of one size, so that programs compile once."""
        parts = -(-len(entries) // plan.lanes)
        size = -(-len(entries) // parts)
        lines = []
        for begin in range(0, len(entries), size):
            part = list(entries[begin : begin + size])
            played = self.play(score, part + part[:1] * (size - len(part)))[: len(part)]
            for entry, result in zip(part, played, strict=True):
                place = {"score": score, "seed": self.config.seed + entry.lane, "task": entry.task}
                place |= {"episode": entry.episode, "after": entry.after}
                if score == "back":
                    place["strategy"] = self.strategy
                told = {} if result.solved is None else {"success": result.solved}
                lines.append({**place, "return": result.total, "steps": result.steps, **told, **result.world})
            tell(len(lines), len(entries))
        return lines

    def play(self, score: Score, entries: Sequence[Entry]) -> list[Played]:
        """One episode in each lane, until all have ended."""
        own = self._joined([(self._kept(entry.task, MOMENTS[score]), entry.lane) for entry in entries])
        latest = own
        if score == "back":
            latest = self._joined([(self._kept(entry.after - 1, "end"), entry.lane) for entry in entries])
        player = self.learners.player(own, latest, score, self.strategy)
        envs = [self.family.make(self.streams[entry.lane][entry.task]) for entry in entries]
        starts = [
            self.keys[entry.lane].fold("evaluate", "task", entry.task, "episode", entry.episode) for entry in entries
        ]
        obs = [reset(env, key) for env, key in zip(envs, starts, strict=True)]
        keys = [key.fold(score, entry.after) for key, entry in zip(starts, entries, strict=True)]
        going, first = [True] * len(envs), [True] * len(envs)
        total, steps = [0.0] * len(envs), [0] * len(envs)
        successes = [Successes() for _ in envs]
        chosen = Chosen(len(envs))
        number = 0
        with self.family.ahead(envs) as ahead:
            while any(going):
                player, actions = self.learners.play([key.fold("step", number) for key in keys], player, obs, first)
                chosen.add(player, going)
                lanes = [lane for lane, on in enumerate(going) if on]
                for lane, stepped in zip(lanes, advance_all(envs, lanes, actions, ahead), strict=True):
                    obs[lane] = stepped.next_obs
                    total[lane] += stepped.reward
                    steps[lane] += 1
                    successes[lane].add(stepped.success)
                    going[lane] = not (stepped.terminated or stepped.truncated)
                first = [False] * len(envs)
                number += 1
        for env in envs:
            env.close()
        solved = [None if lane.share() is None else lane.running for lane in successes]
        return [Played(*each) for each in zip(total, steps, chosen.shares(steps), solved, strict=True)]

    def _kept(self, task: int, moment: Moment) -> Any:
        path = self.folder.kept(task, moment)
        if path not in self.loaded:
            self.loaded[path] = checkpoint.load_tree(path, self.template)
        return self.loaded[path]

    def _joined(self, pieces: Sequence[tuple[Any, int]]) -> Any:
        """Lanes of several moments side by side."""
        if isinstance(self.learners, EachLane):
            return [kept[lane] for kept, lane in pieces]
        import jax

        lanes = [jax.tree.map(lambda leaf, lane=lane: np.asarray(leaf)[lane], kept) for kept, lane in pieces]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *lanes)


class Chosen:
    """Adds up how much of the plans the world model predicted, where a player tells."""

    def __init__(self, lanes: int) -> None:
        self.sums = {"world_reward": np.zeros(lanes), "world_state": np.zeros(lanes)}
        self.told = False

    def add(self, player: Any, going: Sequence[bool]) -> None:
        """One step of the lanes that are still going."""
        if len(getattr(player, "models", ())) > 1:
            self.told = True
            self.sums["world_reward"] += np.where(going, np.asarray(player.chosen.reward), 0.0)
            self.sums["world_state"] += np.where(going, np.asarray(player.chosen.state), 0.0)

    def shares(self, steps: Sequence[int]) -> list[dict[str, float]]:
        """For each lane the mean over its steps."""
        if not self.told:
            return [{} for _ in steps]
        return [
            {name: round(float(total[lane]) / max(count, 1), 6) for name, total in self.sums.items()}
            for lane, count in enumerate(steps)
        ]

"""Evaluation apart from training: the scores of the paper's Table 1, with seeds of their own.

    zero-shot   the world posterior in a task, before any of its data
    start       the task posterior, when it first acts
    train       the task posterior, when the task was over
    back        every earlier task, after all training, with what is known by then (for VBLRL: Algorithm 2)

A run takes snapshots of its agent at these moments, so everything here can be done later, again, and otherwise: with
more episodes, or with another variant of going back. Every pair of task and episode is a lane, and all lanes run in one
program. Start states are the same for every score, so scores compare episode by episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posterity import files, tree
from posterity.agents.base import SCORES, Keys, Policy, Score
from posterity.errors import UserError, unknown
from posterity.experiment import checkpoint
from posterity.experiment.collect import Stepped, Successes, advance_all, reset
from posterity.experiment.config import RunConfig
from posterity.experiment.folder import Moment, RunFolder, read_config
from posterity.experiment.records import encode_evaluation, evaluation_name
from posterity.experiment.run import Stopped, build
from posterity.families.base import Env
from posterity.types import BoolArray, FloatArray, HostArray, Key, Task, Transition

MOMENTS: dict[Score, Moment] = {"zero-shot": "begin", "start": "start", "train": "end", "back": "end"}
Line = dict[str, str | int | float | bool]  # of an evaluation's records
KEPT = 64  # snapshots held in memory


class Plan(NamedTuple):
    """What to evaluate."""

    scores: tuple[Score, ...] = SCORES
    back_variant: str = "auto"  # how the agent goes back; auto: as the run is set
    episodes: int = 3
    back_every: int = 0  # go back after every so many tasks too, not only after the last
    lanes: int = 64  # episodes played together

    def check(self) -> None:
        """Refuses what cannot be played."""
        if not self.scores:
            raise UserError(f"Which scores? {', '.join(SCORES)}")
        for score in self.scores:
            if score not in SCORES:
                raise unknown("score", score, SCORES)
        if min(self.episodes, self.lanes) < 1 or self.back_every < 0:
            raise UserError("episodes and lanes are 1 or more, back-every is 0 or more")


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
    facts: dict[str, float]  # what the policy told, as means over the episode's steps
    success: bool | None  # whether a step succeeded; None: the family does not tell


class Staged(NamedTuple):
    """Episodes that are ready to be played, one in each lane."""

    policy: Policy
    envs: list[Env]
    starts: list[Key]  # what the environments begin with
    keys: list[Key]  # what the policy draws from


def never() -> str:
    """No reason to stop."""
    return ""


def evaluate(
    path: Path,
    plan: Plan,
    tell: Callable[[Score, int, int], None],
    should_stop: Callable[[], str] = never,
    trusted: bool = False,
) -> list[Line]:
    """Plays the episodes of `plan` in the run's tasks and writes what came to `evaluation/` in its folder.

    `should_stop` is asked before every step; with a reason, `Stopped` is raised. Scores that were whole are written.
    `trusted`: code that the run names may be executed, whoever made it.
    """
    evaluator = open_evaluator(path, plan, should_stop, trusted)
    config, finished = evaluator.config, evaluator.folder.position().task
    episodes: dict[Score, list[Entry]] = {}
    for score in plan.scores:
        if score != "start" or evaluator.agent.start_iterations < config.iterations:  # else its own model never acted
            episodes[score] = entries_of(score, plan, config.seeds, finished)
    evaluator.look_for(episodes)
    out = files.own_folder(path / "evaluation")
    lines: list[Line] = []
    for score, entries in episodes.items():
        new = evaluator.play_all(score, entries, lambda done, total, score=score: tell(score, done, total))
        name = evaluation_name(score, evaluator.variant if score == "back" else "")
        files.replace_sealed(out / f"{name}.jsonl", encode_evaluation(new))
        lines += new
    return lines


def open_evaluator(path: Path, plan: Plan, should_stop: Callable[[], str] = never, trusted: bool = False) -> Evaluator:
    """What can play the run in folder `path`, if that has finished a task and kept what it takes."""
    plan.check()
    config, folder = read_config(path, trusted=trusted), RunFolder(path)
    if not config.snapshots:
        raise UserError(
            f"{path} has no snapshots to evaluate: its preset or settings save none. Run it again with --snapshots"
        )
    if not folder.checkpoint.exists() and any(path.glob("records.jsonl*")):
        raise UserError(f"{path} has no checkpoints to play from; what was evaluated of it is in its evaluation/")
    position = folder.position()
    folder.check_config(position)
    if position.task == 0:
        raise UserError(f"{path} has no finished task to evaluate yet")
    return Evaluator(config, folder, plan, should_stop)


def entries_of(score: Score, plan: Plan, lanes: int, finished: int) -> list[Entry]:
    """Every episode of a score. Back after n tasks is over all n of them."""
    if score != "back":
        return [
            Entry(lane, task, episode, task)
            for lane in range(lanes)
            for task in range(finished)
            for episode in range(plan.episodes)
        ]
    moments = {finished, *range(plan.back_every or finished, finished, plan.back_every or 1)}
    return [
        Entry(lane, task, episode, after)
        for after in sorted(moments)
        for lane in range(lanes)
        for task in range(after)
        for episode in range(plan.episodes)
    ]


class Evaluator:
    """The agent of a run and its snapshots, ready to play."""

    def __init__(
        self, config: RunConfig, folder: RunFolder, plan: Plan, should_stop: Callable[[], str] = never
    ) -> None:
        self.config, self.folder, self.plan, self.should_stop = config, folder, plan, should_stop
        self.family, self.agent = build(config)
        self.variant = _variant(plan.back_variant, self.agent.back_variants, config.method)
        self.keys = [Key.of(config.seed + lane) for lane in range(config.seeds)]
        self.streams: list[list[Task]] = [self.family.tasks(key.fold("stream"), config.tasks) for key in self.keys]
        self.template = self.agent.snapshot(self.keys, self.agent.init(self.keys))
        self.loaded: dict[Path, object] = {}  # the latest, at most KEPT: a long stream does not fit into memory

    def look_for(self, episodes: Mapping[Score, Sequence[Entry]]) -> None:
        """Says what is missing before anything is played."""
        needed = {
            self.folder.snapshot_path(entry.task, MOMENTS[score]) for score, some in episodes.items() for entry in some
        }
        lost = sorted(path.name for path in needed if not path.exists())
        if lost:
            raise UserError(f"{self.folder.path}/checkpoints lacks {lost[0]}, so this run cannot be evaluated any more")

    def play_all(self, score: Score, entries: Sequence[Entry], tell: Callable[[int, int], None]) -> list[Line]:
        """A line for every entry. Parts are of one size, so that programs compile once."""
        parts = -(-len(entries) // self.plan.lanes)
        size = -(-len(entries) // parts)
        lines: list[Line] = []
        for begin in range(0, len(entries), size):
            part = list(entries[begin : begin + size])
            played = self.play(score, part + part[:1] * (size - len(part)))[: len(part)]
            lines += [self._line(score, entry, result) for entry, result in zip(part, played, strict=True)]
            tell(len(lines), len(entries))
        return lines

    def _line(self, score: Score, entry: Entry, result: Played) -> Line:
        line: Line = {"score": score, "seed": self.config.seed + entry.lane, "task": entry.task}
        line |= {"episode": entry.episode, "after": entry.after}
        if score == "back" and self.variant:
            line["variant"] = self.variant
        line |= {"return": result.total, "steps": result.steps}
        return line | ({} if result.success is None else {"success": result.success}) | result.facts

    def play(self, score: Score, entries: Sequence[Entry]) -> list[Played]:
        """One episode in each lane, until all have ended."""
        staged = self.staged(score, entries)
        try:
            return self._played(*staged)
        finally:
            for env in staged.envs:
                env.close()

    def staged(self, score: Score, entries: Sequence[Entry]) -> Staged:
        """All that it takes to play the episodes, one in each lane."""
        own = self._joined([(entry.task, MOMENTS[score], entry.lane) for entry in entries])
        back = score == "back"
        latest = self._joined([(entry.after - 1, "end", entry.lane) for entry in entries]) if back else own
        policy = self.agent.policy(own, latest, score, self.variant if back else "")
        envs = [self.family.make(self.streams[entry.lane][entry.task]) for entry in entries]
        starts = [
            self.keys[entry.lane].fold("evaluate", "task", entry.task, "episode", entry.episode) for entry in entries
        ]
        keys = [key.fold(score, entry.after) for key, entry in zip(starts, entries, strict=True)]
        return Staged(policy, envs, starts, keys)

    def _played(self, policy: Policy, envs: Sequence[Env], starts: Keys, keys: Keys) -> list[Played]:
        """The episodes that begin with the keys `starts`. One that never ends is left after the spec's most steps."""
        obs = np.stack([reset(env, key) for env, key in zip(envs, starts, strict=True)])
        tally, number = Tally(len(envs)), 0
        with self.family.prestep(envs) as prestep:
            while tally.going.any() and number < self.family.spec.max_episode_steps:
                if reason := self.should_stop():
                    raise Stopped(reason)
                first = np.full(len(envs), number == 0)
                actions = policy.act([key.fold("step", number) for key in keys], obs, first)
                tally.tell(policy.facts())
                lanes = [int(lane) for lane in np.flatnonzero(tally.going)]
                rows = Rows(obs, actions)
                for lane, stepped in zip(lanes, advance_all(envs, lanes, actions, prestep), strict=True):
                    obs[lane] = stepped.next_obs
                    rows.add(lane, stepped)
                    tally.add(lane, stepped.reward, stepped.success, stepped.terminated or stepped.truncated)
                policy.observe([key.fold("step", number, "observe") for key in keys], rows.step(obs))
                number += 1
        return tally.played()

    def _joined(self, pieces: Sequence[tuple[int, Moment, int]]) -> object:
        """Lanes of the snapshots of several tasks and moments side by side."""
        return tree.stack([tree.lane(self._snapshot(task, moment), lane) for task, moment, lane in pieces])

    def _snapshot(self, task: int, moment: Moment) -> object:
        path = self.folder.snapshot_path(task, moment)
        found = self.loaded.pop(path, None)
        self.loaded[path] = checkpoint.load_tree(path, self.template) if found is None else found  # now the latest
        if len(self.loaded) > KEPT:
            del self.loaded[next(iter(self.loaded))]
        return self.loaded[path]


def _variant(asked: str, known: tuple[str, ...], method: str) -> str:
    """The variant of going back that is meant; empty for an agent that has one way."""
    if asked == "auto":
        return known[0] if known else ""
    if not known:
        raise UserError(f"'{method}' has one way of going back, and no variant '{asked}' of it")
    if asked not in known:
        raise unknown("variant", asked, ("auto", *known))
    return asked


class Rows:
    """One step of all lanes; those whose episode is over stand still."""

    def __init__(self, obs: HostArray, actions: HostArray) -> None:
        lanes = len(obs)
        self.obs, self.actions, self.reward = obs.copy(), actions, np.zeros(lanes)
        self.terminated, self.truncated = np.zeros(lanes, bool), np.zeros(lanes, bool)

    def add(self, lane: int, stepped: Stepped) -> None:
        """What one lane's step gave."""
        self.reward[lane] = stepped.reward
        self.terminated[lane], self.truncated[lane] = stepped.terminated, stepped.truncated

    def step(self, next_obs: HostArray) -> Transition:
        """The step [L, ...]."""
        return Transition(self.obs, self.actions, self.reward, next_obs.copy(), self.terminated, self.truncated)


class Tally:
    """Adds up what the episodes of all lanes bring until each has ended."""

    def __init__(self, lanes: int) -> None:
        self.going: BoolArray = np.ones(lanes, dtype=bool)
        self.total, self.steps = [0.0] * lanes, [0] * lanes
        self.successes = [Successes() for _ in range(lanes)]
        self.sums: dict[str, FloatArray] = {}

    def tell(self, facts: Mapping[str, HostArray]) -> None:
        """What the policy has to say of this step, of the lanes that are still going."""
        for name, values in facts.items():
            self.sums[name] = self.sums.get(name, np.zeros(len(self.going))) + np.where(self.going, values, 0.0)

    def add(self, lane: int, reward: float, success: bool | None, ended: bool) -> None:
        """One step of a lane."""
        self.total[lane] += reward
        self.steps[lane] += 1
        self.successes[lane].add(success)
        self.going[lane] = not ended

    def played(self) -> list[Played]:
        """How the episodes went."""
        return [
            Played(
                self.total[lane],
                steps,
                {name: round(float(total[lane]) / steps, 6) for name, total in self.sums.items()},
                None if self.successes[lane].share() is None else self.successes[lane].running,
            )
            for lane, steps in enumerate(self.steps)
        ]

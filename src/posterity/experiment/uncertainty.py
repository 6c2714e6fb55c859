"""What the doubt of a dynamics model is worth: measured on transitions of random play, without any planning.

A doubt that means something
    falls with data                  the deviation between networks, after 200 to 10,000 transitions of one task
    is large where there were none   the same deviation, for observations four times as far from their mean
    holds                            90 % of outcomes lie inside the 90 % intervals, in a new task too
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from posterity.agents import method as find_method
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlState
from posterity.errors import UserError
from posterity.experiment.collect import advance, reset
from posterity.experiment.config import RunConfig
from posterity.experiment.run import drawn
from posterity.families import contract, make_family
from posterity.families.base import Env, Family
from posterity.types import Budget, HostArray, Key, Record, Spec, Task, Transition

COUNTS = (200, 1000, 3000, 10_000)  # transitions of the first task
EARLIER = 5  # tasks before the new one, the first of COUNTS[-1] transitions, the others of OTHERS
OTHERS = 1000
MET = (0, 16, 200)  # transitions of the new task
HELD_OUT = 1000
FAR = 4.0  # how many times as far from the mean an observation is that is out of distribution
NETWORKS = 20  # drawn to tell a doubt


class Kind(NamedTuple):
    """A world posterior. That of vblrl is one of these too; its task posterior begins from it."""

    name: str
    method: str
    members: int
    latent: int


KINDS = (
    Kind("mean field (paper)", "pooled", 1, 0),
    Kind("ensemble", "pooled", 5, 0),
    Kind("mean field, latent", "hip-mdp", 1, 4),
    Kind("ensemble, latent", "hip-mdp", 5, 4),
)


class Data(NamedTuple):
    """Random play [L, B, ...] in several tasks."""

    first: Transition  # of the first task
    others: list[Transition]  # of the other earlier tasks
    new: Transition
    held_out: Transition  # of the first task
    held_out_new: Transition


def bench_uncertainty(config: RunConfig) -> list[Record]:
    """Error, coverage and both kinds of doubt of every kind of posterior: with n, out of distribution, between tasks.

    Deviations and errors are in units of what varies in the first task. ± is one standard deviation over lanes.
    """
    family = make_family(config.family, config.env)
    spec = contract.checked_spec(family)
    if not isinstance(spec, Spec):
        raise UserError(f"{config.family} is finite: its beliefs are exact. Name a family with real observations")
    keys = [Key.of(config.seed + lane) for lane in range(config.seeds)]
    data = _play(family, keys)
    return [record for kind in KINDS for record in _measured(kind, config, spec, keys, data)]


def _measured(kind: Kind, config: RunConfig, spec: Spec, keys: list[Key], data: Data) -> Iterator[Record]:
    agent = _agent(kind, config, spec)
    state = agent.begin_task(keys, agent.init(keys))
    before = 0
    for count in COUNTS:
        state, _ = agent.update(_named(keys, count), state, _part(data.first, before, count))
        before = count
        near, far = (_told(agent, keys, state, rows) for rows in (data.held_out, _moved(data.held_out, data.first)))
        yield _record(kind, "in distribution", count, near)
        yield _record(kind, "out of distribution", count, {"epistemic_std": far["epistemic_std"]})
    for number, rows in enumerate(data.others):
        state = agent.begin_task(_named(keys, "begin", number), state)
        state, _ = agent.update(_named(keys, "others", number), state, rows)
    state = agent.begin_task(_named(keys, "begin new"), state)
    for met in range(MET[-1] + 1):
        if met:
            step = Transition(*(np.asarray(part)[:, met - 1] for part in data.new))
            state = agent.observe(_named(keys, "observe", met), state._replace(step=met), step)
        if met in MET:
            yield _record(kind, "new task", met, _told(agent, keys, state, data.held_out_new))
    state, _ = agent.update(_named(keys, "new"), state, data.new)
    yield _record(kind, "new task, fitted", MET[-1], _told(agent, keys, state, data.held_out_new))


def _agent(kind: Kind, config: RunConfig, spec: Spec) -> Vblrl:
    """A learner with this kind of posterior, whose own model predicts as soon as it is fitted."""
    chosen = find_method(kind.method)
    settings = config.agent.model_dump()
    settings |= {"members": kind.members, "latent": {"size": kind.latent}, "world_iterations": 1}
    settings |= {"task_min_transitions": 1, "value": {"gradient_steps": 0}}
    settings["planner"] |= {"particles": NETWORKS}
    budget = Budget(EARLIER + 1, 1, COUNTS[-1])
    agent = chosen.build(spec, chosen.settings_type().model_validate(settings), budget)
    assert isinstance(agent, Vblrl)
    return agent


def _told(agent: Vblrl, keys: list[Key], state: VblrlState, rows: Transition) -> dict[str, HostArray]:
    """[L] each, of the model that would plan now."""
    single = Transition(*(np.asarray(part).astype(np.float32) for part in rows))
    single = single._replace(action=agent.spec.encoded(rows.action))
    told = agent.programs.check(_named(keys, "told"), agent.acting(state), single)
    return {name: np.asarray(values) for name, values in told.items()}


def _record(kind: Kind, where: str, transitions: int, told: dict[str, HostArray]) -> Record:
    lanes = len(next(iter(told.values())))
    facts: Record = {"posterior": kind.name, "where": where, "transitions": transitions, "lanes": lanes}
    for name, values in told.items():
        facts[name] = float(values.mean())
        if len(values) > 1:
            facts[f"{name}_spread"] = float(values.std(ddof=1))
    return facts


def _named(keys: Sequence[Key], *words: str | int) -> list[Key]:
    return [key.fold(*words) for key in keys]


def _part(rows: Transition, first: int, last: int) -> Transition:
    return Transition(*(np.asarray(part)[:, first:last] for part in rows))


def _moved(rows: Transition, known: Transition) -> Transition:
    """The same transitions with observations further from the mean of those that are known."""
    middle = np.asarray(known.obs).mean(axis=1, keepdims=True)
    return rows._replace(obs=middle + FAR * (np.asarray(rows.obs) - middle))


def _play(family: Family, keys: Sequence[Key]) -> Data:
    streams = [drawn(family, key, EARLIER + 1) for key in keys]

    def play(task: int, count: int, name: str) -> Transition:
        each = [_random(family, stream[task], key.fold(name), count) for stream, key in zip(streams, keys, strict=True)]
        return Transition(*(np.stack(part) for part in zip(*each, strict=True)))

    others = [play(task, OTHERS, "others") for task in range(1, EARLIER)]
    held_out = play(0, HELD_OUT, "held out"), play(EARLIER, HELD_OUT, "held out")
    return Data(play(0, COUNTS[-1], "first"), others, play(EARLIER, MET[-1], "new"), *held_out)


def _random(family: Family, task: Task, key: Key, count: int) -> Transition:
    """[B, ...] steps with random actions in one task."""
    env = contract.made(family, task)
    try:
        rows = list(_steps(env, family.spec, key, count))
    finally:
        env.close()
    return Transition(*(np.stack(part) for part in zip(*rows, strict=True)))


def _steps(env: Env, spec: Spec, key: Key, count: int) -> Iterator[Transition]:
    generator = np.random.default_rng(key.seed())
    obs, episode = reset(env, key.fold("episode", 0)), 0
    for _ in range(count):
        action = spec.random_action(generator)
        after = advance(env, action)
        ended = np.array(after.terminated), np.array(after.truncated)
        yield Transition(obs, action, np.array(after.reward), after.next_obs, *ended)
        obs = after.next_obs
        if after.terminated or after.truncated:
            episode += 1
            obs = reset(env, key.fold("episode", episode))

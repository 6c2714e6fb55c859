"""From a learner in a run to a machine file: one lane of it with a bounded memory, or only what acts of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posterity import tree
from posterity.control import building, familiarity
from posterity.control.building import AnyAgent, AnySpec
from posterity.control.finite import encoded_finite
from posterity.control.machine import FORMAT, Calibration, Header, Machine, encoded
from posterity.control.network import policy_only
from posterity.control.pilots import pilot_for
from posterity.errors import UserError
from posterity.settings import Settings
from posterity.types import Budget, Facts, FiniteSpec, Key, Record


class Learned(NamedTuple):
    """A learner, as a run leaves it."""

    family: str
    env: Settings
    method: str
    settings: Settings
    spec: AnySpec
    budget: Budget
    agent: AnyAgent
    state: object  # of all lanes
    lane: int
    seed: int  # of that lane
    tasks: int  # that were met


def exported(learned: Learned, made: Facts, memory: int, room: int, begin_task: bool) -> Machine:
    """One lane of a learner as a machine file, with room for `room` further tasks.

    `memory`: how many transitions of each task it may hold. `begin_task`: the machine is a task that was not met yet.
    """
    steps = learned.budget.steps_per_iteration
    if learned.agent.task_memory and memory < 2 * steps:
        raise UserError(f"A memory of {memory} transitions is less than two iterations of {steps}")
    key = Key.of(learned.seed).fold("export")
    state = _one_lane(learned)
    pilot = pilot_for(learned.agent)
    try:
        agent, budget, tasks = learned.agent, learned.budget, learned.tasks
        if agent.task_memory:
            budget = Budget(tasks + room, -(-memory // steps), steps)
            state = pilot.bounded(state, (budget.iterations - 1) * steps)
            agent = building.rebuilt(learned.method, learned.spec, learned.settings, budget)
            state = building.laid(building.fresh_state(agent, learned.seed), state)
        else:
            state = building.on_device(building.fresh_state(agent, learned.seed), state)
        calibration = familiarity.calibrated(pilot, key, state)
        if begin_task:
            state, tasks = agent.begin_task([key.fold("begin")], state), tasks + 1
    finally:
        pilot.close()
    return Machine(_header(learned, made, budget, tasks, calibration), building.named(state))


def exported_policy(learned: Learned, made: Facts, begin_task: bool) -> Machine:
    """What acts of one lane, where that is one small network. `begin_task` as above."""
    agent, state, tasks = learned.agent, _one_lane(learned), learned.tasks
    if begin_task:
        key = Key.of(learned.seed).fold("export", "begin")
        state, tasks = agent.begin_task([key], building.on_device(learned.state, state)), tasks + 1
    header = _header(learned, made, learned.budget, tasks, None)
    return policy_only(Machine(header, building.named(state)), "This run")


def _one_lane(learned: Learned) -> object:
    return tree.map_leaves(
        lambda leaf: leaf if tree.is_number(leaf) else np.asarray(leaf)[learned.lane : learned.lane + 1], learned.state
    )


def _header(learned: Learned, made: Facts, budget: Budget, tasks: int, calibration: Calibration | None) -> Header:
    return Header(
        format=FORMAT,
        method=learned.method,
        family=learned.family,
        env=_json(learned.env),
        agent=_json(learned.settings),
        spec=encoded_finite(learned.spec) if isinstance(learned.spec, FiniteSpec) else encoded(learned.spec),
        budget=(budget.tasks, budget.iterations, budget.steps_per_iteration),
        tasks=tasks,
        seed=learned.seed,
        calibration=calibration,
        made=dict(made),
    )


def _json(settings: Settings) -> Record:
    return settings.model_dump(mode="json")

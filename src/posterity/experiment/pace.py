"""How long the planner of a run will take: a slow one is announced before the run.

Whether it may be slow is reckoned from the sizes of a plan. If so, one plan is compiled and timed. The run would have
compiled it later anyhow; nothing is compiled twice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from posterity.agents import method
from posterity.agents.base import Agent
from posterity.experiment.config import RunConfig
from posterity.experiment.sizes import operations, weights
from posterity.types import Key

if TYPE_CHECKING:  # a finite run does not load JAX
    from posterity.agents.vblrl import Vblrl

SLOW = 600.0  # seconds of planning in a run, from which it is announced
SPEED = 5e9  # operations a second that two slow cores do


def may_be_slow(config: RunConfig, agent: Agent[object, object]) -> bool:
    """Whether the plans of a run could take longer than `SLOW`, by their sizes."""
    planning = _planning(config, agent)
    if planning is None:
        return False
    planner, size = planning.settings.planner, weights(planning.spec, planning.settings.network.hidden)
    sizes = (planner.candidates, planner.particles, planner.horizon, planner.cem_iterations)
    return operations(size, *sizes) / SPEED * config.seeds * _plans(config) > SLOW


def plan_seconds(config: RunConfig, agent: Agent[object, object]) -> float:
    """Seconds that one action of all lanes takes to plan; 0 for an agent that does not plan."""
    planning = _planning(config, agent)
    if planning is None:
        return 0.0
    keys = [Key.of(config.seed + lane).fold("pace") for lane in range(config.seeds)]
    state = planning.begin_task(keys, planning.init(keys))._replace(iteration=planning.start_iterations)
    obs, first = np.zeros((len(keys), planning.spec.obs_dim)), np.zeros(len(keys), dtype=bool)
    took = 0.0
    for _ in range(2):  # the first one compiles
        began = time.perf_counter()
        state, _ = planning.act(keys, state, obs, first)
        took = time.perf_counter() - began
    return took


def announcement(config: RunConfig, plan: float) -> str:
    """What to say before the run if a plan takes so many seconds; empty if that is quick."""
    whole = plan * _plans(config)
    if whole < SLOW:
        return ""
    long = f"{whole / 3600:.1f} hours" if whole >= 5400 else f"{whole / 60:.0f} minutes"
    return (
        f"Slow: one plan takes {plan * 1e3:.0f} ms on this machine, so {config.tasks} tasks x {config.iterations} "
        f"iterations x {config.steps_per_iteration} steps are about {long} of planning. Quicker: --preset quick, or "
        "less of --planner.candidates, .particles, .horizon and .cem-iterations, --iterations and --tasks"
    )


def _plans(config: RunConfig) -> int:
    return config.tasks * config.iterations * config.steps_per_iteration


def _planning(config: RunConfig, agent: Agent[object, object]) -> Vblrl | None:
    """The agent as one that plans, if it is one."""
    if not method(config.method).agent.startswith("posterity.agents.vblrl:"):
        return None
    from posterity.agents.vblrl import Vblrl

    found: object = agent
    return found if isinstance(found, Vblrl) else None

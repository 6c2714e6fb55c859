"""How fast this machine plans, learns and simulates: measured, never asserted.

Times are medians over repeats after one call that compiles. The state is that of a run in its second iteration; what is
in it does not change the time, only its sizes do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from posterity.errors import UserError
from posterity.experiment.config import RunConfig
from posterity.experiment.run import build
from posterity.types import Key, Spec, Transition

REPEATS = 20


def bench_planner(config: RunConfig) -> dict[str, Any]:
    """Milliseconds for one action of every lane."""
    agent, state, keys, rows = _ready(config)
    obs, first = [row.obs[0] for row in rows], [False] * len(keys)

    def act(number: int) -> None:
        agent.act([key.fold(number) for key in keys], state, obs, first)

    planner = agent.settings.planner
    size = (planner.candidates, planner.particles, planner.horizon, planner.rounds)
    compiled, each = _timed(act)
    return {
        "plan": " x ".join(map(str, size)),
        "hidden": list(agent.settings.network.hidden),
        "lanes": len(keys),
        "ms": each * 1e3,
        "ms_per_lane": each * 1e3 / len(keys),
        "compile_seconds": compiled,
    }


def bench_fit(config: RunConfig) -> dict[str, Any]:
    """Microseconds for one gradient step, task and world posterior together in the proportion of an iteration."""
    agent, state, keys, rows = _ready(config)
    learner = agent.settings.learner

    def learn(number: int) -> None:
        nonlocal state
        state, _ = agent.learn([key.fold(number) for key in keys], state._replace(iteration=1), rows)
        state = state._replace(replay=state.replay._replace(filled=state.replay.filled * 0))

    compiled, each = _timed(learn, repeats=3)
    steps = learner.task_steps + learner.world_steps
    return {
        "steps": steps,
        "rows": [learner.task_rows, learner.world_tasks * learner.world_rows],
        "hidden": list(agent.settings.network.hidden),
        "lanes": len(keys),
        "us_per_step": each / steps * 1e6,
        "us_per_step_and_lane": each / steps * 1e6 / len(keys),
        "compile_seconds": compiled,
    }


def bench_env(config: RunConfig) -> dict[str, Any]:
    """Environment steps a second of one environment, under random actions."""
    family, _ = build(config)
    env = family.make(family.tasks(Key.of(config.seed).fold("stream"), 1)[0])
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(2000)]
    began = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return {"steps_per_second": len(actions) / (time.perf_counter() - began)}


def _ready(config: RunConfig) -> tuple[Any, Any, list[Key], list[Transition]]:
    """An agent that has begun a task, and made-up steps for it."""
    family, agent = build(config)
    if not isinstance(family.spec, Spec):
        raise UserError(f"There is no network to bench for '{config.method}'; name a family with real observations")
    keys = [Key.of(config.seed + lane) for lane in range(config.seeds)]
    generator, spec = np.random.default_rng(0), family.spec
    shape = (config.steps, spec.obs_dim)
    action = generator.uniform(spec.low, spec.high, (config.steps, len(spec.low)))
    made_up = Transition(
        generator.normal(size=shape), action, generator.normal(size=config.steps), generator.normal(size=shape), None
    )
    rows = [made_up._replace(terminated=np.zeros(config.steps))] * len(keys)
    state = agent.begin_task(keys, agent.init(keys))
    return agent, state._replace(iteration=1), keys, rows


def _timed(function: Callable[[int], None], repeats: int = REPEATS) -> tuple[float, float]:
    """Seconds of the first call, and the median of those after it."""
    took = []
    for number in range(repeats + 1):
        began = time.perf_counter()
        function(number)
        took.append(time.perf_counter() - began)
    return took[0], float(np.median(took[1:]))

"""How punctual a controller is on this machine, and what a budget of time is worth.

    latency    a control loop in real time: `act` is called at a fixed rate, with half the period as its budget
    return     episodes of the task that was learned last, played with several budgets

Other programs on the machine delay a controller as they delay everything. So the time by which a bare wait of the same
length is late is measured too, in turns with the actions.
"""

from __future__ import annotations

import threading
import time

import numpy as np

from posterity.control.controller import SLACK_MS, Controller
from posterity.errors import UserError
from posterity.families import FAMILIES, family_type
from posterity.families.base import Env, Family
from posterity.types import Key, Record, Task

RATES = (50, 100)  # Hz
BUDGETS: tuple[float | None, ...] = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, None)  # ms; None: a whole search
EDGES = (0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 30, 50, 100)  # of the histogram, in ms


def bench_control(controller: Controller, steps: int, episodes: int) -> list[Record]:
    """Both measurements."""
    family = _family(controller)
    header = controller.header
    task = family.tasks(Key.of(header.seed).fold("stream"), header.tasks)[-1]
    return [
        *(_latency(controller, family, task, rate, steps) for rate in RATES),
        *(_return(controller, family, task, budget, episodes) for budget in BUDGETS),
    ]


def _family(controller: Controller) -> Family:
    """The family that a file was learned on: one of posterity's own, since no code is run for a file's sake."""
    name = controller.header.family
    if name not in FAMILIES:
        raise UserError(f"This file is for '{name}'; only posterity's own families can be benched")
    kind = family_type(name)
    return kind(kind.settings_type.model_validate(controller.header.env))


def _latency(controller: Controller, family: Family, task: Task, rate: int, steps: int) -> Record:
    """Milliseconds from observation to action, at `rate` actions a second."""
    budget = 500.0 / rate
    env = family.make(task)
    took: list[float] = []
    late: list[float] = []
    silence = threading.Condition()
    obs, begins = env.reset(seed=0)[0], True
    due = time.perf_counter()
    for step in range(steps):
        began = time.perf_counter()
        action = controller.act(obs, budget, first=begins)
        took.append(1e3 * (time.perf_counter() - began))
        obs, begins = _advance(controller, env, obs, action, step)
        due = max(due + 1.0 / rate, time.perf_counter())
        with silence:
            began = time.perf_counter()
            wanted = due - began
            silence.wait(wanted)
            late.append(1e3 * (time.perf_counter() - began - wanted))
    env.close()
    return {
        "measured": "latency",
        "rate_hz": rate,
        "budget_ms": budget,
        "slack_ms": SLACK_MS,
        "actions": steps,
        **{f"p{level}_ms": float(np.percentile(took, level)) for level in (50, 90, 99)},
        "max_ms": float(np.max(took)),
        "share_within_budget_and_slack": float(np.mean(np.array(took) <= budget + SLACK_MS)),
        "bare_wait_late_p99_ms": float(np.percentile(late, 99)),
        "bare_wait_late_max_ms": float(np.max(late)),
        "histogram_edges_ms": [0, *EDGES],
        "histogram": np.histogram(took, [0, *EDGES])[0].tolist(),
    }


def _advance(controller: Controller, env: Env, obs: object, action: object, step: int) -> tuple[object, bool]:
    """The next observation, and whether it begins an episode."""
    following, reward, terminated, truncated, _ = env.step(action)
    controller.observe(obs, action, float(reward), following, terminated, truncated)
    return (env.reset(seed=1 + step)[0], True) if terminated or truncated else (following, False)


def _return(controller: Controller, family: Family, task: Task, budget: float | None, episodes: int) -> Record:
    """Mean return of episodes that begin alike for every budget. The environment waits for the action."""
    env = family.make(task)
    totals: list[float] = []
    iterations: list[int] = []
    for number in range(episodes):
        obs, over, total, begins = env.reset(seed=number)[0], False, 0.0, True
        while not over:
            obs, reward, terminated, truncated, _ = env.step(controller.act(obs, budget, first=begins))
            begins, over, total = False, terminated or truncated, total + float(reward)
            iterations.append(controller.iterations)
        totals.append(total)
    env.close()
    return {
        "measured": "return",
        "budget_ms": "whole search" if budget is None else budget,
        "episodes": episodes,
        "mean_return": float(np.mean(totals)),
        "returns": [round(total, 1) for total in totals],
        "mean_cem_iterations": float(np.mean(iterations)),
    }

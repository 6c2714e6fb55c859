"""How fast this machine plans, learns and simulates: measured, never asserted.

Times are medians over repeats after one call that compiles. The state is that of a run in its second iteration; what is
in it does not change the time, only its sizes do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from posterity.errors import UserError
from posterity.experiment.config import RunConfig
from posterity.experiment.collect import Learners, advance_all
from posterity.experiment.progress import Quiet
from posterity.experiment.folder import RunFolder
from posterity.experiment.run import build, lifelong, together
from posterity.families.base import Family
from posterity.types import Key, Spec, Transition

REPEATS = 20
PLANS = 16  # timed together
PATIENCE = 10.0  # seconds after which nothing is repeated any more


def bench_planner(config: RunConfig) -> list[dict[str, Any]]:
    """Milliseconds for one action of every lane: on the plain path, by the kernel where there is one, going back."""
    return [*(_path(_changed(config, "planner", fused), name) for name, fused in _paths(config)), _ceiling()]


def _path(config: RunConfig, name: str) -> dict[str, Any]:
    """One way of planning."""
    agent, state, keys, rows = _ready(config)
    obs, first = [row.obs[0] for row in rows], [False] * len(keys)
    strategy = agent.strategies[0]
    models = (4 if strategy == "blend" else 2) if name == "backward" else 1  # networks that predict a particle's step
    kept = agent.keep(keys, state)
    player = agent.player(kept, kept, "back" if models > 1 else "train", strategy)

    def act(number: int) -> None:
        going, back = state, player
        for step in range(PLANS):  # as many as it takes for all that is not done in every step
            now = [key.fold(number, step) for key in keys]
            if models > 1:
                back, _ = agent.play(now, back, obs, first)
            else:
                going, _ = agent.act(now, going, obs, first)

    compiled, each = _timed(act, repeats=8)
    each /= PLANS
    alone = {}
    if models == 1:  # and without what the host does: the observation is on the device, the action stays there
        program = agent.program(keys, state, obs, first)
        _, took = _timed(lambda _: _wait(program()))
        alone = {"program_ms": took * 1e3}
    return {
        "path": name,
        "plan": " x ".join(map(str, _size(agent))),
        "hidden": list(agent.settings.network.hidden),
        "lanes": len(keys),
        "ms": each * 1e3,
        "ms_per_lane": each * 1e3 / len(keys),
        **alone,
        "tflops": _operations(agent, models) * len(keys) / each / 1e12,
        "compile_seconds": compiled,
    }


def _paths(config: RunConfig) -> list[tuple[str, str]]:
    """Which ways of planning there are here, and the setting that chooses each."""
    agent = _deep(config)[1]
    ways = [("plain", "off"), ("backward", "off")]
    return ways if agent.imagination.why_plain else [("fused", "auto"), *ways]


def _changed(config: RunConfig, part: str, fused: str) -> RunConfig:
    """The same with another path in the agent's `part`."""
    agent: Any = config.agent
    changed = getattr(agent, part).model_copy(update={"fused": fused})
    return config.model_copy(update={"agent": agent.model_copy(update={part: changed})})


def _size(agent: Any) -> tuple[int, ...]:
    planner = agent.settings.planner
    return (planner.candidates, planner.particles, planner.horizon, planner.rounds)


def _operations(agent: Any, models: int) -> float:
    """Floating-point operations of one plan's matrix products, by their true sizes, without padding."""
    spec, shape = agent.spec, agent.settings.network
    sizes = (spec.obs_dim + len(spec.low), *shape.hidden, 2 * (1 + spec.obs_dim))
    return 2.0 * math.prod(_size(agent)) * sum(map(math.prod, pairwise(sizes))) * models


def _ceiling() -> dict[str, Any]:
    """What one large matrix product of this machine reaches: bfloat16 on a GPU, float32 on a CPU."""
    import jax
    import jax.numpy as jnp

    gpu = jax.default_backend() == "gpu"
    side, kind = (8192, jnp.bfloat16) if gpu else (1024, jnp.float32)
    matrix = jax.random.normal(jax.random.key(0), (side, side)).astype(kind)
    product = jax.jit(lambda x: x @ x)
    _, each = _timed(lambda _: product(matrix).block_until_ready())
    return {"path": "matrix product", "side": side, "ms": each * 1e3, "tflops": 2.0 * side**3 / each / 1e12}


def bench_fit(config: RunConfig) -> list[dict[str, Any]]:
    """Microseconds for one gradient step of the world posterior, and of both in one scan: plain and by the kernel."""
    return [fact for name, fused in _fits(config) for fact in _fit(_changed(config, "learner", fused), name)]


def _fits(config: RunConfig) -> list[tuple[str, str]]:
    """Which ways of fitting there are here, and the setting that chooses each."""
    _deep(config)
    by_kernel = not build(_changed(config, "learner", "auto"))[1].lessons.why_plain
    return [*([("fused", "on")] if by_kernel else []), ("plain", "off")]


def _fit(config: RunConfig, name: str) -> list[dict[str, Any]]:
    """One way of fitting."""
    agent, state, keys, rows = _ready(config)
    learner = agent.settings.learner
    state, _ = agent.learn(keys, state, rows)
    data = np.stack([key.words(2) for key in keys])
    learned = {"task": state.task, "world": state.world}
    groups = [("world",), *([("task", "world")] if learner.task_steps == learner.world_steps else [])]
    facts = []
    for who in groups:
        program = partial(agent._fit[who], data, learned, state.prior, state.units, state.replay, np.int32(0))
        compiled, each = _timed(lambda _, program=program: _wait(program()), repeats=5)
        steps = (learner.task_steps if "task" in who else learner.world_steps) * len(who)
        facts.append(
            {
                "path": name,
                "posterior": " and ".join(who),
                "steps": steps,
                "rows": [
                    {"task": learner.task_rows, "world": learner.world_tasks * learner.world_rows}[n] for n in who
                ],
                "hidden": list(agent.settings.network.hidden),
                "lanes": len(keys),
                "us_per_step": each / steps * 1e6,
                "us_per_step_and_lane": each / steps * 1e6 / len(keys),
                "compile_seconds": compiled,
            }
        )
    return facts


def _wait(tree: Any) -> None:
    import jax

    jax.block_until_ready(tree)


def bench_run(config: RunConfig, iterations: int) -> list[dict[str, Any]]:
    """Seconds an iteration of the whole loop takes, where they go, and what a whole run would take at that pace.

    It is the loop itself, with records and checkpoints, in a folder of its own. The first iterations compile and
    explore at random; they are not counted.
    """
    family, agent = build(config)
    clock: Any = Clock(together(agent))
    skipped = min(clock.start + 2, config.iterations - 1)
    marks: list[dict[str, float]] = []

    def stop() -> str:
        marks.append({"all": time.perf_counter(), **clock.spent})
        return "enough" if len(marks) > skipped + iterations else ""

    with TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place) / "run", config, "posterity bench run")
        try:
            lifelong(config, folder, Quiet(), stop, (family, agent, clock))
        finally:
            folder.close()
    first, last = marks[min(skipped, len(marks) - 2)], marks[-1]
    count = len(marks) - 1 - min(skipped, len(marks) - 2)
    each = {name: (last[name] - first[name]) / count for name in last}
    whole = each["all"] * config.tasks * config.iterations
    return [
        {
            "lanes": config.seeds,
            "tasks": config.tasks,
            "iterations": config.iterations,
            "steps": config.steps,
            "measured_iterations": count,
            "seconds_per_iteration": each["all"],
            "planning": each["act"],
            "learning": each["learn"],
            "simulation_and_the_rest": each["all"] - each["act"] - each["learn"],
            "whole_run_minutes": whole / 60.0,
            "whole_run_hours": whole / 3600.0,
            **getattr(agent, "engine", {}),
        }
    ]


class Clock:
    """Learners, and how long they took to act and to learn."""

    def __init__(self, learners: Learners) -> None:
        self.learners = learners
        self.spent = {"act": 0.0, "learn": 0.0}

    def __getattr__(self, name: str) -> Any:
        """Everything else is the learners'."""
        return getattr(self.learners, name)

    def act(self, *args: Any) -> Any:
        """Timed. The actions are on the host when it returns, so nothing is left to wait for."""
        return self._time("act", self.learners.act, args)

    def learn(self, *args: Any) -> Any:
        """Timed. Its numbers are on the host when it returns."""
        return self._time("learn", self.learners.learn, args)

    def _time(self, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        began = time.perf_counter()
        result = function(*args)
        self.spent[name] += time.perf_counter() - began
        return result


def bench_env(config: RunConfig) -> list[dict[str, Any]]:
    """Environment steps a second of one environment, and what a step of all lanes takes, under random actions."""
    family, _ = build(config)
    task = family.tasks(Key.of(config.seed).fold("stream"), 1)[0]
    env = family.make(task)
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(2000)]
    began = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    single = {"steps_per_second": len(actions) / (time.perf_counter() - began)}
    return [{**single, "lanes": config.seeds, **_lanes([family.make(task) for _ in range(config.seeds)], family)}]


def _lanes(envs: Sequence[Any], family: Family) -> dict[str, float]:
    """Microseconds for one step of all lanes, without resets; the ways take turns."""
    lanes = range(len(envs))
    for lane in lanes:
        envs[lane].action_space.seed(lane)
        envs[lane].reset(seed=lane)
    with family.ahead(envs) as ahead:
        ways = {"us_one_after_the_other": None, **({} if ahead is None else {"us_ahead": ahead})}
        took: dict[str, list[float]] = {name: [] for name in ways}
        for name in [*ways] * 500:
            actions = [env.action_space.sample() for env in envs]
            began = time.perf_counter()
            stepped = advance_all(envs, lanes, actions, ways[name])
            took[name].append(time.perf_counter() - began)
            for lane in lanes:
                if stepped[lane].terminated or stepped[lane].truncated:
                    envs[lane].reset()
    return {name: 1e6 * float(np.median(each)) for name, each in took.items()}


def _deep(config: RunConfig) -> tuple[Any, Any]:
    """Family and agent, where there are networks."""
    family, agent = build(config)
    if not isinstance(family.spec, Spec):
        raise UserError(f"There is no network to bench for '{config.method}'; name a family with real observations")
    return family, agent


def _ready(config: RunConfig) -> tuple[Any, Any, list[Key], list[Transition]]:
    """An agent that has begun a task, and made-up steps for it."""
    family, agent = _deep(config)
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
    """Seconds of the first call, and the median of those after it: fewer than `repeats` if they take long."""
    took: list[float] = []
    for number in range(repeats + 1):
        began = time.perf_counter()
        function(number)
        took.append(time.perf_counter() - began)
        if sum(took[1:]) > PATIENCE:
            break
    return took[0], float(np.median(took[1:]))

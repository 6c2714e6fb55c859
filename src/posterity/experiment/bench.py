"""How fast this machine plans, learns and simulates: measured, never asserted.

Times are medians over repeats after one call that compiles. The state is that of a run in its second iteration; what is
in it does not change the time, only its sizes do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

import numpy as np

from posterity.agents.base import Agent, Behaviour, Info, Keys, Policy, Score
from posterity.agents.training import Who
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlState
from posterity.errors import UserError
from posterity.experiment.collect import advance_all
from posterity.experiment.config import RunConfig
from posterity.experiment.folder import RunFolder
from posterity.experiment.progress import Quiet
from posterity.experiment.run import AnyAgent, build, lifelong
from posterity.families.base import Env, Family
from posterity.models import elbo
from posterity.types import BoolArray, HostArray, Key, Transition

REPEATS = 20
PLANS = 16  # timed together
PATIENCE = 10.0  # seconds after which nothing is repeated any more
Measurement = dict[str, str | int | float | list[int]]
Result = TypeVar("Result")


class Ready:
    """An agent with networks that has begun a task, and made-up steps for it."""

    def __init__(self, config: RunConfig) -> None:
        self.agent = _vblrl(config)
        self.keys = [Key.of(config.seed + lane) for lane in range(config.seeds)]
        generator, spec, lanes = np.random.default_rng(0), self.agent.spec, len(self.keys)
        steps = config.steps_per_iteration
        obs, next_obs = generator.normal(size=(2, steps, spec.obs_dim))
        action = np.stack([spec.random_action(generator) for _ in range(steps)])
        none = np.zeros(steps, dtype=bool)
        one = Transition(obs, action, generator.normal(size=steps), next_obs, none, none)
        self.rows = Transition(*(np.repeat(np.asarray(part)[None], lanes, axis=0) for part in one))
        self.obs, self.first = np.asarray(self.rows.obs)[:, 0], np.zeros(lanes, dtype=bool)
        self.state: VblrlState = self.agent.begin_task(self.keys, self.agent.init(self.keys))._replace(iteration=1)


def _vblrl(config: RunConfig) -> Vblrl:
    """The agent of a configuration whose networks can be timed."""
    _, agent = build(config)
    if not isinstance(agent, Vblrl):
        raise UserError(
            f"There is no dynamics model to bench for '{config.method}'; name a family with real observations"
        )
    return agent


def bench_planner(config: RunConfig) -> list[Measurement]:
    """Milliseconds for one action of every lane: on the plain path, by the kernel where there is one, going back."""
    fused = [] if _vblrl(config).planner.rollouts.fallback_reason else [_plan("fused", Ready(config))]
    plain = _with_kernels(config, "off")
    return [*fused, _plan("plain", Ready(plain)), _plan_backward(Ready(plain)), _ceiling()]


def _with_kernels(config: RunConfig, mode: str) -> RunConfig:
    """The same configuration with fused kernels on or off."""
    return config.model_copy(update={"agent": config.agent.model_copy(update={"kernels": mode})})


def _plan(path: str, ready: Ready) -> Measurement:
    """Planning with one model, with and without what the host does."""
    agent, state = ready.agent, ready.state

    def act(number: int) -> None:
        now = state
        for step in range(PLANS):  # as many as it takes for all that is not done in every step
            now, _ = agent.act([key.fold(number, step) for key in ready.keys], now, ready.obs, ready.first)

    timed = _timed(act, repeats=8)
    program = agent.planner.plan.on_device(ready.keys, ready.obs, ready.first, agent.acting(state), state.plan)
    _, alone = _timed(lambda _: _wait(program()))  # the observation is on the device, the action stays there
    return _plan_facts(path, ready, *timed, networks=1) | {"program_ms": alone * 1e3}


def _plan_backward(ready: Ready) -> Measurement:
    """Planning with a task's model and the world's, as the run is set to go back."""
    agent, variant = ready.agent, ready.agent.back_variants[0]
    snapshot = agent.snapshot(ready.keys, ready.state)
    policy = agent.policy(snapshot, snapshot, "back", variant)

    def act(number: int) -> None:
        for step in range(PLANS):
            policy.act([key.fold(number, step) for key in ready.keys], ready.obs, ready.first)

    return _plan_facts("backward", ready, *_timed(act, repeats=8), networks=4 if variant == "blend" else 2)


def _plan_facts(path: str, ready: Ready, compiled: float, took: float, networks: int) -> Measurement:
    """`networks` predict each step of a particle."""
    settings, spec, lanes = ready.agent.settings, ready.agent.spec, len(ready.keys)
    planner, each = settings.planner, took / PLANS
    size = (planner.candidates, planner.particles, planner.horizon, planner.cem_iterations)
    sizes = settings.network.sizes(spec.obs_dim, len(spec.low))
    operations = 2.0 * math.prod(size) * sum(map(math.prod, pairwise(sizes))) * networks  # without padding
    return {
        "path": path,
        "plan": " x ".join(map(str, size)),
        "hidden": list(settings.network.hidden),
        "lanes": lanes,
        "ms": each * 1e3,
        "ms_per_lane": each * 1e3 / lanes,
        "tflops": operations * lanes / each / 1e12,
        "compile_seconds": compiled,
    }


def _ceiling() -> Measurement:
    """What one large matrix product of this machine reaches: bfloat16 on a GPU, float32 on a CPU."""
    import jax
    import jax.numpy as jnp

    gpu = jax.default_backend() == "gpu"
    side, kind = (8192, jnp.bfloat16) if gpu else (1024, jnp.float32)
    matrix = jax.random.normal(jax.random.key(0), (side, side)).astype(kind)
    product = cast(Callable[[object, object], object], jax.jit(jnp.matmul))  # pyright: ignore[reportUnknownMemberType]
    _, each = _timed(lambda _: _wait(product(matrix, matrix)))
    return {"path": "matrix product", "side": side, "ms": each * 1e3, "tflops": 2.0 * side**3 / each / 1e12}


def bench_fit(config: RunConfig) -> list[Measurement]:
    """Microseconds for one gradient step of the world posterior, and of both in one scan: plain and by the kernel.

    With latents the task posterior is fitted by itself.
    """
    fused = [] if _vblrl(config).training.fallback_reason else [("fused", config)]
    ways = [*fused, ("plain", _with_kernels(config, "off"))]
    both: tuple[Who, ...] = ("task",) if _vblrl(config).inference else ("task", "world")
    groups: tuple[tuple[Who, ...], ...] = (("world",), both)
    return [_fit(path, Ready(way), group) for path, way in ways for group in groups]


def _fit(path: str, ready: Ready, group: tuple[Who, ...]) -> Measurement:
    """One way of fitting."""
    agent, lanes = ready.agent, len(ready.keys)
    state, _ = agent.update(ready.keys, ready.state, ready.rows)
    learned = {"task": state.task, "world": state.world}
    priors = {"task": state.prior, "world": state.world_prior}
    arguments = (ready.keys, learned, priors, state.normaliser, state.replay, 0, state.task_latents)
    compiled, each = _timed(lambda _: _wait(agent.programs.fit[group](*arguments)), repeats=5)
    learner = agent.settings.learner
    rows = {"task": learner.task_batch_size, "world": elbo.WORLD_BATCH_TASKS * learner.world_batch_size}
    steps = learner.gradient_steps * len(group)
    return {
        "path": path,
        "posterior": " and ".join(group),
        "steps": steps,
        "rows": [rows[who] for who in group],
        "hidden": list(agent.settings.network.hidden),
        "lanes": lanes,
        "us_per_step": each / steps * 1e6,
        "us_per_step_and_lane": each / steps * 1e6 / lanes,
        "compile_seconds": compiled,
    }


def _wait(result: object) -> None:
    import jax

    jax.block_until_ready(result)  # pyright: ignore[reportUnknownMemberType]


def bench_run(config: RunConfig, iterations: int) -> list[Measurement]:
    """Seconds an iteration of the whole loop takes, where they go, and what a whole run would take at that pace.

    It is the loop itself, with records and checkpoints, in a folder of its own. The first iterations compile and
    explore at random; they are not counted.
    """
    family, agent = build(config)
    timed = TimedAgent(agent)
    skipped = min(agent.start_iterations + 2, config.iterations - 1)
    clock = _Clock(timed)
    enough = skipped + iterations

    with TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place) / "run", config, "posterity bench run")
        try:
            lifelong(config, folder, clock, lambda: "enough" if len(clock.marks) > enough else "", (family, timed))
        finally:
            folder.close()
    marks = clock.marks
    first, last = marks[min(skipped, len(marks) - 2)], marks[-1]
    count = len(marks) - 1 - min(skipped, len(marks) - 2)
    each = {name: (last[name] - first[name]) / count for name in last}
    whole = each["all"] * config.tasks * config.iterations
    return [
        {
            "lanes": config.seeds,
            "tasks": config.tasks,
            "iterations": config.iterations,
            "steps_per_iteration": config.steps_per_iteration,
            "measured_iterations": count,
            "seconds_per_iteration": each["all"],
            "planning": each["act"],
            "learning": each["update"],
            "simulation_and_the_rest": each["all"] - each["act"] - each["update"],
            "whole_run_minutes": whole / 60.0,
            "whole_run_hours": whole / 3600.0,
            **agent.describe(),
        }
    ]


class _Clock(Quiet):
    """What had been spent when each iteration began."""

    def __init__(self, agent: TimedAgent) -> None:
        self.agent = agent
        self.marks: list[dict[str, float]] = []

    def begin(self, task: int, iteration: int) -> None:
        """Looks at the clock."""
        self.marks.append({"all": time.perf_counter(), **self.agent.spent})


class TimedAgent(Agent[object, object]):
    """An agent, and how long it took to act and to update. Its actions and numbers are on the host when they return."""

    def __init__(self, agent: AnyAgent) -> None:
        self.agent = agent
        self.spent = {"act": 0.0, "update": 0.0}

    def init(self, keys: Keys) -> object:
        """Not timed."""
        return self.agent.init(keys)

    def begin_task(self, keys: Keys, state: object) -> object:
        """Not timed."""
        return self.agent.begin_task(keys, state)

    def act(self, keys: Keys, state: object, obs: HostArray, first: BoolArray) -> tuple[object, HostArray]:
        """Timed."""
        return self._time("act", partial(self.agent.act, keys, state, obs, first))

    def behaviour(self, state: object) -> Behaviour | None:
        """Not timed."""
        return self.agent.behaviour(state)

    def observe(self, keys: Keys, state: object, step: Transition) -> object:
        """Not timed."""
        return self.agent.observe(keys, state, step)

    def update(self, keys: Keys, state: object, rows: Transition) -> tuple[object, Info]:
        """Timed."""
        return self._time("update", partial(self.agent.update, keys, state, rows))

    def snapshot(self, keys: Keys, state: object) -> object:
        """Not timed."""
        return self.agent.snapshot(keys, state)

    def policy(self, own: object, latest: object, score: Score, variant: str) -> Policy:
        """Not timed."""
        return self.agent.policy(own, latest, score, variant)

    @property
    def start_iterations(self) -> int:
        """The agent's."""
        return self.agent.start_iterations

    def describe(self) -> Mapping[str, str]:
        """The agent's."""
        return self.agent.describe()

    def _time(self, name: str, call: Callable[[], Result]) -> Result:
        began = time.perf_counter()
        result = call()
        self.spent[name] += time.perf_counter() - began
        return result


def bench_env(config: RunConfig) -> list[Measurement]:
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


def _lanes(envs: Sequence[Env], family: Family) -> dict[str, float]:
    """Microseconds for one step of all lanes, without resets; the ways take turns."""
    lanes = range(len(envs))
    for lane in lanes:
        envs[lane].action_space.seed(lane)
        envs[lane].reset(seed=lane)
    with family.prestep(envs) as prestep:
        ways = {"us_one_after_the_other": None, **({} if prestep is None else {"us_with_prestep": prestep})}
        took: dict[str, list[float]] = {name: [] for name in ways}
        for name in [*ways] * 500:
            actions = np.stack([env.action_space.sample() for env in envs])
            began = time.perf_counter()
            stepped = advance_all(envs, lanes, actions, ways[name])
            took[name].append(time.perf_counter() - began)
            for lane in lanes:
                if stepped[lane].terminated or stepped[lane].truncated:
                    envs[lane].reset()
    return {name: 1e6 * float(np.median(each)) for name, each in took.items()}


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

"""The fused planner on one GPU: is it right, how fast is it, and where does the time go?

    PYTHONPATH=src python benchmarks/fused_sweep.py [--seconds 225] [--out FILE]
    PYTHONPATH=src python benchmarks/fused_sweep.py --tiny --interpret           (no GPU: does the script work?)

One JSON line for each thing measured, the most important first. What fails says so and the rest goes on; after
`--seconds` nothing new is begun. `ms` is the median of single calls, each waited for; `queued_ms` is the time of a call
among many that are waited for together.

It needs JAX, pydantic and the sources beside it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from posterity import kernels
from posterity.models import network, normaliser
from posterity.models.network import Layer, NetworkSettings
from posterity.models.normaliser import Normaliser
from posterity.planning import cem, folding, fused, imagine
from posterity.planning.cem import Plan, PlannerSettings

BEGAN = time.perf_counter()


class Size(NamedTuple):
    """A planning problem."""

    name: str
    particles: int
    candidates: int
    horizon: int
    rounds: int
    obs_dim: int
    action_dim: int
    ends: bool
    hidden: tuple[int, ...] = (128, 128)


HOPPER = Size("hopper", 20, 500, 30, 5, 11, 3, True)
CHEETAH = Size("cheetah", 50, 500, 20, 5, 18, 6, False)


class Config(NamedTuple):
    """How the kernel is launched."""

    block: int = 64
    warps: int = 4
    stages: int = 1
    extras: tuple[str, ...] = ()
    precision: str = "bf16"


class Bench:
    """Measures, prints, and knows when to stop."""

    def __init__(self, seconds: float, out: str | None, interpret: bool, repeats: int) -> None:
        self.seconds, self.interpret, self.repeats = seconds, interpret, repeats
        self.file = Path(out).open("w", encoding="utf-8") if out else None  # noqa: SIM115

    def say(self, **facts: Any) -> None:
        """One line."""
        line = json.dumps(facts | {"at": round(time.perf_counter() - BEGAN, 1)})
        print(line, flush=True)
        if self.file:
            self.file.write(line + "\n")
            self.file.flush()

    def tried(self, what: str, function: Callable[[], dict[str, Any]], **facts: Any) -> dict[str, Any]:
        """The function's facts, or why there are none."""
        if time.perf_counter() - BEGAN > self.seconds:
            return {}
        try:
            found = function()
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            self.say(what=what, **facts, failed=type(error).__name__, why=(lines[0] + " ... " + lines[-1])[:500])
            return {}
        self.say(what=what, **facts, **found)
        return found

    def timed(self, function: Callable[..., Any], *args: Any) -> dict[str, float]:
        """Time of a jitted call in milliseconds."""
        begin = time.perf_counter()
        jax.block_until_ready(function(*args))
        compiling = time.perf_counter() - begin
        jax.block_until_ready(function(*args))
        single = []
        for _ in range(self.repeats):
            begin = time.perf_counter()
            jax.block_until_ready(function(*args))
            single.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        jax.block_until_ready([function(*args) for _ in range(self.repeats)])
        queued = (time.perf_counter() - begin) / self.repeats
        return {
            "ms": round(1e3 * statistics.median(single), 4),
            "queued_ms": round(1e3 * queued, 4),
            "compile_s": round(compiling, 1),
        }


# The planning problem ---------------------------------------------------------------------------------------------


def problem(size: Size, lanes: int) -> tuple[Any, ...]:
    """Key data, networks, units, observation and candidates of every lane. Noise and networks are mild."""
    generator = np.random.default_rng(0)

    def normal(*shape: int, scale: float = 1.0) -> Any:
        return np.float32(scale) * generator.standard_normal((lanes, *shape), dtype=np.float32)

    inputs, targets = size.obs_dim + size.action_dim, 1 + size.obs_dim
    sizes = (inputs, *size.hidden, 2 * targets)
    networks = tuple(
        Layer(normal(size.particles, first, second, scale=first**-0.5), normal(size.particles, second, scale=0.1))
        for first, second in itertools.pairwise(sizes)
    )
    raw = networks[-1].bias
    raw[:, :, targets:] -= 3.0  # deviations near 0.2, as a fitted model's
    units = Normaliser(
        normal(inputs),
        np.exp(normal(inputs, scale=0.3)),
        normal(targets, scale=0.02),
        0.1 * np.exp(normal(targets, scale=0.3)),
    )
    obs = units.input_mean[:, : size.obs_dim] + normal(size.obs_dim, scale=0.3)
    shape = (lanes, size.candidates, size.horizon, size.action_dim)
    candidates = generator.uniform(-1.0, 1.0, shape).astype(np.float32)
    words = generator.integers(0, 2**32, (lanes, 2), dtype=np.uint32)
    return jax.device_put((words, networks, units, obs, candidates))


def box(size: Size, obs: jax.Array) -> imagine.Box | None:
    """Wide enough that few rollouts end."""
    return (obs - 3.0, obs + 3.0) if size.ends else None


def plain_ready(size: Size, sample: bool, networks: Any, units: Normaliser, obs: jax.Array) -> Callable[..., jax.Array]:
    """(key words, candidates) -> [P, N] for one lane, as the agent does it without the kernel."""
    shape = NetworkSettings(hidden=size.hidden)

    def step(key: jax.Array, place: jax.Array, action: jax.Array) -> imagine.Imagined:
        actions = jnp.broadcast_to(action, (place.shape[0], *action.shape))
        taken = normaliser.inputs(units, place, actions)
        mean, log_variance = jax.vmap(lambda w, x: network.forward(w, x, shape))(networks, taken)
        if sample:
            mean = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        return imagine.Imagined(*normaliser.outcome(units, place, mean))

    def returns(words: jax.Array, candidates: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(words)
        return imagine.imagined_returns(key, step, obs, candidates, size.particles, box(size, obs))[0]

    return returns


def fused_ready(
    size: Size, sample: bool, config: Config, interpret: bool, networks: Any, units: Normaliser, obs: jax.Array
) -> Callable[..., jax.Array]:
    """(key words, candidates) -> [P, N] for one lane, by the kernel."""
    shape = NetworkSettings(hidden=size.hidden)
    options: dict[str, Any] = config._asdict()
    return fused.ready(
        networks,
        units,
        obs,
        box(size, obs),
        activation="elu",
        log_variance_low=shape.log_variance_low,
        log_variance_high=shape.log_variance_high,
        sample=sample,
        interpret=interpret,
        **options,
    )


def lanes_of(made: Callable[..., Callable[..., jax.Array]]) -> Callable[..., jax.Array]:
    """Returns [L, P, N] of all lanes, jitted."""

    def one(words: jax.Array, networks: Any, units: Normaliser, obs: jax.Array, candidates: jax.Array) -> jax.Array:
        return made(networks, units, obs)(words, candidates)

    return jax.jit(jax.vmap(one))


# The search, and cheaper ways of its parts ------------------------------------------------------------------------


def ranks(scores: jax.Array) -> jax.Array:
    """[N] how many candidates are better: one reduction over all pairs instead of a sort."""
    index = jnp.arange(scores.shape[0])
    ahead = (scores[None] > scores[:, None]) | ((scores[None] == scores[:, None]) & (index[None] < index[:, None]))
    return ahead.sum(axis=1)


def lean(
    key: jax.Array,
    score: Callable[[jax.Array, jax.Array], jax.Array],
    begin: Plan,
    low: jax.Array,
    high: jax.Array,
    settings: PlannerSettings,
    ways: tuple[str, ...],
) -> Plan:
    """The search of planning.cem with other parts.

    `predraw`: the noise of all rounds at once; `unroll`: no loop; `rank`: elites by counting, their moments as a
    weighted sum over all candidates; `uniform`: uniform noise, to see what the truncated normal costs.
    """
    shape = (settings.candidates, *begin.mean.shape)

    def drawn(k: jax.Array, *lead: int) -> jax.Array:
        if "uniform" in ways:
            return jax.random.uniform(k, (*lead, *shape), minval=-2.0, maxval=2.0)
        return jax.random.truncated_normal(k, -2.0, 2.0, (*lead, *shape))

    def search(plan: Plan, now: tuple[jax.Array, jax.Array]) -> tuple[Plan, None]:
        k, noise = now
        draw_key, score_key = jax.random.split(k)
        if "predraw" not in ways:
            noise = drawn(draw_key)
        room = jnp.minimum(plan.mean - low, high - plan.mean) / 2.0
        scale = jnp.minimum(jnp.sqrt(plan.variance), jnp.maximum(room, 0.0))
        candidates = jnp.clip(plan.mean + scale * noise, low, high)
        scores = score(score_key, candidates)
        ranked = jnp.where(jnp.isfinite(scores), scores, -jnp.inf)
        if "rank" in ways:
            good = (ranks(ranked) < settings.elites) & jnp.isfinite(ranked)
            elites = candidates
        else:
            values, order = jax.lax.top_k(ranked, settings.elites)
            good, elites = jnp.isfinite(values), candidates[order]
        weight = (good / jnp.maximum(good.sum(), 1))[:, None, None]
        mean = (elites * weight).sum(axis=0)
        variance = ((elites - mean) ** 2 * weight).sum(axis=0)
        keep = jnp.where(good.any(), settings.smoothing, 1.0)
        return Plan(keep * plan.mean + (1.0 - keep) * mean, keep * plan.variance + (1.0 - keep) * variance), None

    noise_key, key = jax.random.split(key)
    keys = jax.random.split(key, settings.rounds)
    noises = drawn(noise_key, settings.rounds) if "predraw" in ways else jnp.zeros(settings.rounds)
    if "unroll" in ways:
        plan = begin
        for index in range(settings.rounds):
            plan, _ = search(plan, (keys[index], noises[index]))
        return plan
    return jax.lax.scan(search, begin, (keys, noises))[0]


def planner(size: Size, made: Callable[..., Any] | None, ways: tuple[str, ...] | None) -> Callable[..., Any]:
    """The jitted search for all lanes. With nothing made, the score is free: the search alone is left."""
    elites = max(1, size.candidates // 10)
    settings = PlannerSettings(
        horizon=size.horizon,
        candidates=size.candidates,
        elites=elites,
        rounds=size.rounds,
        particles=size.particles,
    )
    low, high = -jnp.ones(size.action_dim), jnp.ones(size.action_dim)

    def one(words: jax.Array, networks: Any, units: Normaliser, obs: jax.Array, _: jax.Array) -> jax.Array:
        returns = made(networks, units, obs) if made else None  # before the search: the weights are folded once

        def score(key: jax.Array, candidates: jax.Array) -> jax.Array:
            return returns(jax.random.key_data(key), candidates).mean(axis=0) if returns else candidates[:, 0, 0]

        key, begin = jax.random.wrap_key_data(words), cem.start(size.horizon, low, high)
        if ways is None:
            return cem.cem(key, score, begin, low, high, settings)[0].mean
        return lean(key, score, begin, low, high, settings, ways).mean

    return jax.jit(jax.vmap(one))


# What is measured -------------------------------------------------------------------------------------------------


def check(bench: Bench, size: Size, config: Config) -> None:
    """Agreement with the plain rollout."""
    args = problem(size, 2)

    def exact() -> dict[str, Any]:
        with jax.default_matmul_precision("highest"):
            want = lanes_of(partial(plain_ready, size, False))(*args)
        got = lanes_of(partial(fused_ready, size, False, config, bench.interpret))(*args)
        error, spread = jnp.abs(got - want), want.std()
        tolerance = {"f32": 1e-3, "tf32": 0.03, "bf16": 0.2}[config.precision]
        return {
            "max_error": float(error.max()),
            "mean_error": float(error.mean()),
            "spread": float(spread),
            "correlation": float(jnp.corrcoef(got.ravel(), want.ravel())[0, 1]),
            "ok": bool(jnp.quantile(error, 0.99) < tolerance * spread),  # a rollout may end a step apart
        }

    bench.tried("check-mean", exact, size=size.name, config=config)


def check_noise(bench: Bench, size: Size, config: Config) -> None:
    """Mean and deviation of returns with noise, beside the plain rollout's: ratios and distances in standard errors."""
    words, networks, units, obs, candidates = problem(size, 2)
    args = (words, networks, units, obs, jnp.broadcast_to(candidates[:, :1], candidates.shape))

    def noisy() -> dict[str, Any]:
        want = lanes_of(partial(plain_ready, size, True))(*args)
        got = lanes_of(partial(fused_ready, size, True, config, bench.interpret))(*args)
        error = jnp.sqrt((want.var(axis=-1) + got.var(axis=-1)) / size.candidates)
        apart = (got.mean(axis=-1) - want.mean(axis=-1)) / error
        ratio = got.std(axis=-1) / want.std(axis=-1)
        return {
            "apart_rms": float(jnp.sqrt((apart**2).mean())),
            "apart_max": float(jnp.abs(apart).max()),
            "ratio_mean": float(ratio.mean()),
            "ratio_low": float(ratio.min()),
            "ratio_high": float(ratio.max()),
            "ok": bool(
                (jnp.sqrt((apart**2).mean()) < 2.0)  # bf16 moves the mean by a little
                & (jnp.abs(ratio.mean() - 1.0) < 4.0 / math.sqrt(size.candidates * ratio.size))
            ),
        }

    bench.tried("check-noise", noisy, size=size.name, config=config)


def check_nan(bench: Bench, size: Size, config: Config) -> None:
    """A broken particle gives no number, the others do."""
    words, networks, units, obs, candidates = problem(size, 1)
    broken = Layer(networks[0].weight.at[:, 0, 0, 0].set(jnp.nan), networks[0].bias)

    def nan() -> dict[str, Any]:
        function = lanes_of(partial(fused_ready, size, True, config, bench.interpret))
        got = function(words, (broken, *networks[1:]), units, obs, candidates)
        return {"ok": bool(~jnp.isfinite(got[:, 0]).any() & jnp.isfinite(got[:, 1:]).all())}

    bench.tried("check-nan", nan, size=size.name, config=config)


def plan(bench: Bench, size: Size, lanes: int, config: Config | None, ways: tuple[str, ...] | None = None) -> None:
    """A whole search."""
    made: Callable[..., Any] = partial(plain_ready, size, True)
    if config is not None:
        made = partial(fused_ready, size, True, config, bench.interpret)
    facts = {"size": size.name, "lanes": lanes, "config": config or "plain", "ways": ways}
    bench.tried("plan", lambda: bench.timed(planner(size, made, ways), *problem(size, lanes)), **facts)


def kernel(bench: Bench, size: Size, lanes: int, config: Config, sample: bool = True) -> float:
    """One round of the kernel alone."""
    args = problem(size, lanes)
    function = lanes_of(partial(fused_ready, size, sample, config, bench.interpret))

    def measured() -> dict[str, Any]:
        found = bench.timed(function, *args)
        sizes = (size.obs_dim + size.action_dim, *size.hidden, 2 * (1 + size.obs_dim))
        products = sum(first * second for first, second in itertools.pairwise(sizes))
        steps = lanes * size.particles * size.candidates * size.horizon
        return found | {"tflops": round(2.0 * products * steps / found["queued_ms"] / 1e9, 1)}

    facts = {"size": size.name, "lanes": lanes, "config": config, "sample": sample}
    return bench.tried("kernel", measured, **facts).get("queued_ms", math.inf)


def search_parts(bench: Bench, size: Size, lanes: int) -> None:
    """What the search costs beside the kernel: the whole of it, then its parts for one round."""
    args = problem(size, lanes)
    facts = {"size": size.name, "lanes": lanes}
    all_ways: list[tuple[str, ...] | None] = [
        None,
        ("predraw",),
        ("predraw", "unroll"),
        ("predraw", "unroll", "rank"),
        ("unroll",),
        ("unroll", "rank"),
        ("predraw", "unroll", "rank", "uniform"),
    ]
    for ways in all_ways:
        bench.tried("search-only", lambda ways=ways: bench.timed(planner(size, None, ways), *args), **facts, ways=ways)
    shape = (size.candidates, size.horizon, size.action_dim)
    elites = max(1, size.candidates // 10)
    scores = args[4][:, :, 0, 0]
    parts: dict[str, Callable[[jax.Array, jax.Array], Any]] = {
        "nothing": lambda words, scores: scores + 1.0,
        "bits": lambda words, scores: jax.random.bits(jax.random.wrap_key_data(words), shape),
        "uniform": lambda words, scores: jax.random.uniform(jax.random.wrap_key_data(words), shape),
        "truncated-normal": lambda words, scores: jax.random.truncated_normal(
            jax.random.wrap_key_data(words), -2.0, 2.0, shape
        ),
        "top-k": lambda words, scores: jax.lax.top_k(scores, elites),
        "sort": lambda words, scores: jax.lax.sort(scores),
        "rank": lambda words, scores: ranks(scores) < elites,
        "approx-max": lambda words, scores: jax.lax.approx_max_k(scores, elites),
    }
    for name, part in parts.items():
        bench.tried("part", lambda part=part: bench.timed(jax.jit(jax.vmap(part)), args[0], scores), **facts, part=name)


def prepared(bench: Bench, size: Size, lanes: int) -> None:
    """What is done once a call outside the kernel: weights folded, padded and cut, actions padded."""
    args = problem(size, lanes)

    def one(words: jax.Array, networks: Any, units: Normaliser, obs: jax.Array, candidates: jax.Array) -> Any:
        layers = folding.layers(networks, units, size.obs_dim, size.action_dim, kernels.LOG2E, 2.0)
        columns = folding.columns(units, obs, box(size, obs), size.action_dim, -9.0, 2.0)
        return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), layers), columns

    bench.tried("part", lambda: bench.timed(jax.jit(jax.vmap(one)), *args), size=size.name, lanes=lanes, part="folding")


def ceiling(bench: Bench, side: int) -> None:
    """A large product in bf16: what the chip gives at best."""

    def measured() -> dict[str, Any]:
        matrix = jnp.ones((side, side), jnp.bfloat16)
        found = bench.timed(jax.jit(lambda a, b: a @ b), matrix, matrix)
        return found | {"tflops": round(2.0 * side**3 / found["queued_ms"] / 1e9, 1)}

    bench.tried("ceiling", measured, side=side)


def best_of(
    bench: Bench, size: Size, many: tuple[int, ...], configs: list[Config], times: dict[Config, float]
) -> Config:
    """The quickest launch for one lane and for three together. `times` remembers what was measured."""
    for config in configs:
        times[config] = kernel(bench, size, many[0], config)
        if times[config] < 2.0 * min(times.values()):
            times[config] += kernel(bench, size, many[1], config)
        else:
            times[config] = math.inf
    best = min(times, key=lambda config: times[config])
    bench.say(what="best", config=best, ms_of_one_and_three_lanes=times[best] if times[best] < math.inf else None)
    return best


def sweep(bench: Bench, hopper: Size, cheetah: Size, many: tuple[int, ...], side: int) -> None:
    """All of it, the most important first. What may end the process itself comes last."""
    default, asm = Config(), () if bench.interpret else ("no-asm",)  # an interpreter has no instructions
    check(bench, hopper, default)
    check_noise(bench, hopper, default)
    check_nan(bench, hopper, default)
    for lanes in many[:2]:
        plan(bench, hopper, lanes, default)
        plan(bench, hopper, lanes, None)

    times: dict[Config, float] = {}
    best = best_of(bench, hopper, many, [default, Config(128, 8), Config(128, 4), Config(64, 8)], times)
    changes = ({"extras": asm}, {"extras": ("reload",)}, {"stages": 2}, {"extras": ("reload",), "stages": 2})
    best = best_of(bench, hopper, many, [best._replace(**change) for change in changes], times)
    for extras in (("no-noise",), ("no-variance",), ("no-activation",), ("no-noise", "no-activation")):
        kernel(bench, hopper, many[1], best._replace(extras=(*best.extras, *extras)))
    kernel(bench, hopper._replace(name="hopper-endless", ends=False), many[1], best)
    search_parts(bench, hopper, many[0])
    prepared(bench, hopper, many[0])
    for size in (hopper, cheetah):
        check(bench, size, best)
        for lanes in many:
            plan(bench, size, lanes, best)
            plan(bench, size, lanes, best, ("predraw", "unroll", "rank"))
    check_noise(bench, cheetah, best)
    ceiling(bench, side)
    plan(bench, cheetah, many[0], None)
    plan(bench, hopper, many[-1], None)
    for block, count in ((64, 4), (128, 8), (128, 4), (64, 8)):
        kernel(bench, cheetah, many[0], Config(block, count, extras=best.extras))
    small = best_of(bench, hopper, many, [Config(block, count, extras=best.extras) for block, count in SMALL], times)
    if small != best:
        plan(bench, hopper, many[0], small)
    for hidden in ((64, 64), (200, 200), (128,), (128, 128, 128)):
        narrow = tuple(min(units, max(hopper.hidden)) if side < 8192 else units for units in hidden)
        other = hopper._replace(hidden=narrow, name=f"hopper-{'x'.join(map(str, hidden))}")
        check(bench, other, best)
        kernel(bench, other, many[0], best)
    plan(bench, cheetah, many[1], None)
    plan(bench, cheetah, many[-1], None)
    for precision in ("tf32", "f32"):
        check(bench, hopper, Config(precision=precision))
        kernel(bench, hopper, many[0], Config(precision=precision))
    search_parts(bench, hopper, many[1])


SMALL = ((64, 2), (32, 4), (32, 2), (16, 2), (16, 4), (128, 2), (32, 8), (16, 8))


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=225.0, help="After this nothing new is begun.")
    parser.add_argument("--out", help="The lines go to this file too.")
    parser.add_argument("--tiny", action="store_true", help="Sizes for a check of the script.")
    parser.add_argument("--interpret", action="store_true", help="Without a GPU.")
    options = parser.parse_args()
    bench = Bench(options.seconds, options.out, options.interpret, 2 if options.tiny else 20)
    device = jax.devices()[0]
    bench.say(what="device", jax=jax.__version__, device=device.device_kind, platform=device.platform)
    if options.tiny:
        tiny = {"particles": 2, "candidates": 50, "horizon": 3, "rounds": 2, "hidden": (16, 16)}
        sweep(bench, HOPPER._replace(**tiny), CHEETAH._replace(**tiny), (1, 2), 64)
    else:
        sweep(bench, HOPPER, CHEETAH, (1, 3, 8), 8192)
    bench.say(what="end")


if __name__ == "__main__":
    main()

"""The lanes' environments: stepped one after the other, in threads, or all by one call of `mujoco.rollout`?

    PYTHONPATH=src python benchmarks/env_sweep.py [--family hopper-gravity] [--lanes 1 3 8] [--pause 0] [--out FILE]

One JSON line for each thing measured. First the differences: how far a way's observations are from the ordinary
environment's after 1 and after 50 steps, from the same states with the same actions. Then the times: `us` is what one
step of all lanes takes in microseconds, the median of repeats that take turns with the other ways'. A step gives what
`collect` needs; resets are not timed. With `--pause` the loop sleeps before every step, as it does while a GPU plans.

    one after the other     `advance` lane by lane, as `collect` does it where there are few lanes or cores
    physics ahead           the same after one call for the physics of all lanes (`Bodies`), as `collect` does elsewhere
    threads                 the same in a ThreadPoolExecutor with a worker for every lane
    rollout                 one call for all lanes, with at most as many threads as there are cores; no warm starts
    rollout kept warm       with a thread for every lane, and warm starts taken from the threads' data
    mj_step                 lane by lane, but without Gymnasium; observations and rewards of all lanes at once
    mj_step in threads      the same in a ThreadPoolExecutor with a worker for every lane

A call of `rollout` takes warm starts but returns none. They are left in the data of the thread that stepped the lane,
unless that thread took another lane after it: then the lane is stepped again, for its warm start alone. `redone` is
the number of such lanes in a step.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from posterity.experiment.lanes import Stepped, advance, advance_all
from posterity.families import family_type
from posterity.families.mujoco import Bodies
from posterity.types import FloatArray, Key

mujoco: Any = importlib.import_module("mujoco")  # it has no types
rollout: Any = importlib.import_module("mujoco.rollout")
PHYSICS = mujoco.mjtState.mjSTATE_FULLPHYSICS.value  # time, positions, velocities: no warm start
CONTROL = mujoco.mjtState.mjSTATE_CTRL.value
FAMILIES = ("hopper-gravity", "cheetah-gravity")


# The ways -----------------------------------------------------------------------------------------------------------


class InTurn:
    """One after the other: what `collect` does with few lanes. The other ways inherit environments and resets."""

    name = "one after the other"
    threads = 0
    pool: Any = None  # of Python's threads

    def __init__(self, family: str, lanes: int) -> None:
        made = family_type(family)()
        task = made.tasks(Key.of(0), 1)[0]
        self.envs = [made.make(task) for _ in range(lanes)]
        self.bare: list[Any] = [env.unwrapped for env in self.envs]
        self.skip, self.dt, self.limit = self.bare[0].frame_skip, self.bare[0].dt, made.spec.steps
        self.hopper, self.lanes, self.redone = family.startswith("hopper"), lanes, 0

    def reset(self, lane: int, key: Key) -> None:
        """A fresh episode."""
        self.envs[lane].reset(seed=key.seed())

    def step(self, actions: list[Any]) -> list[Stepped]:
        """One step of every lane."""
        return [advance(env, action) for env, action in zip(self.envs, actions, strict=True)]

    def close(self) -> None:
        """Ends the threads, if there are any."""
        if self.pool is not None:
            self.pool.shutdown()


class Cold(InTurn):
    """Ordinary environments that forget their warm starts before every step. Only to compare with."""

    name = "without warm starts"

    def step(self, actions: list[Any]) -> list[Stepped]:
        """One step of every lane."""
        for bare in self.bare:
            bare.data.qacc_warmstart[:] = 0.0
        return super().step(actions)


class Ahead(InTurn):
    """Ordinary environments whose physics is done when they step, with a thread for every lane."""

    name = "physics ahead"

    def __init__(self, family: str, lanes: int) -> None:
        super().__init__(family, lanes)
        self.threads, self.bodies = lanes, Bodies(self.envs, lanes)

    def step(self, actions: list[Any]) -> list[Stepped]:
        """One step of every lane."""
        return advance_all(self.envs, range(self.lanes), actions, self.bodies)

    def close(self) -> None:
        """Ends the threads."""
        self.bodies.pool.close()


class Threads(InTurn):
    """A worker for every lane."""

    name = "threads"

    def __init__(self, family: str, lanes: int) -> None:
        super().__init__(family, lanes)
        self.threads, self.pool = lanes, ThreadPoolExecutor(lanes)

    def step(self, actions: list[Any]) -> list[Stepped]:
        """One step of every lane."""
        return list(self.pool.map(advance, self.envs, actions))


class Batched(InTurn):
    """Without Gymnasium: lane by lane only the physics, then what the environments make of it for all lanes at once."""

    name = "mj_step"

    def __init__(self, family: str, lanes: int) -> None:
        super().__init__(family, lanes)
        self.models, self.datas = [bare.model for bare in self.bare], [bare.data for bare in self.bare]
        self.low, self.high = self.bare[0].action_space.low, self.bare[0].action_space.high
        self.counts = np.zeros(lanes, np.int64)
        self.views = [(data.ctrl, data.qpos, data.qvel) for data in self.datas]  # made once
        self.place, self.speed = np.zeros((lanes, self.models[0].nq)), np.zeros((lanes, self.models[0].nv))

    def reset(self, lane: int, key: Key) -> None:
        """A fresh episode."""
        super().reset(lane, key)
        _, self.place[lane], self.speed[lane] = self.views[lane]
        self.counts[lane] = 0

    def step(self, actions: list[Any]) -> list[Stepped]:
        """One step of every lane."""
        control = np.clip(np.stack(actions), self.low, self.high)
        before = self.place[:, 0].copy()
        self.physics(control)
        return self.told(before, control)

    def physics(self, control: Any) -> None:
        """From `place` and `speed` to those of the next step."""
        for lane, (ctrl, qpos, qvel) in enumerate(self.views):
            ctrl[:] = control[lane]
            mujoco.mj_step(self.models[lane], self.datas[lane], nstep=self.skip)
            self.place[lane], self.speed[lane] = qpos, qvel

    def told(self, before: FloatArray, control: Any) -> list[Stepped]:
        """Rewards, observations and ends as the environments have them, from where the bodies were and are."""
        place, speed = self.place, self.speed
        velocity, effort = (place[:, 0] - before) / self.dt, np.square(control).sum(axis=1)
        if self.hopper:
            obs = np.concatenate([place[:, 1:], np.clip(speed, -10.0, 10.0) / 5.0], axis=1)
            sane = (np.abs(place[:, 2:]) < 100.0).all(axis=1) & (np.abs(speed) < 100.0).all(axis=1)
            alive = sane & (place[:, 1] > 0.7) & (np.abs(place[:, 2]) < 0.2)
            reward = velocity + alive - 1e-3 * effort
        else:
            pitch = place[:, 2:3]
            obs = np.concatenate([place[:, 1:2], np.sin(pitch), np.cos(pitch), place[:, 3:], speed], axis=1)
            alive = np.ones(self.lanes, np.bool_)
            reward = velocity - 0.1 * effort
        if not (np.isfinite(reward).all() and np.isfinite(obs).all()):
            raise FloatingPointError(f"rewards {reward}, observations {obs}")
        self.counts += 1
        columns = (reward.tolist(), obs, (~alive).tolist(), (self.counts >= self.limit).tolist())
        return [Stepped(*lane, None) for lane in zip(*columns, strict=True)]


class BatchedThreads(Batched):
    """The physics of the lanes in threads: little Python is left to wait for Python's lock."""

    name = "mj_step in threads"

    def __init__(self, family: str, lanes: int) -> None:
        super().__init__(family, lanes)
        self.threads, self.pool = lanes, ThreadPoolExecutor(lanes)
        self.skips = [self.skip] * lanes

    def physics(self, control: Any) -> None:
        """From `place` and `speed` to those of the next step."""
        for lane, (ctrl, _, _) in enumerate(self.views):
            ctrl[:] = control[lane]
        list(self.pool.map(mujoco.mj_step, self.models, self.datas, self.skips))
        for lane, (_, qpos, qvel) in enumerate(self.views):
            self.place[lane], self.speed[lane] = qpos, qvel


class Rolled(Batched):
    """One call for the physics of all lanes. Every call begins without warm starts."""

    name = "rollout"

    def __init__(self, family: str, lanes: int) -> None:
        super().__init__(family, lanes)
        model = self.models[0]
        self.threads = self.wanted() if lanes > 1 else 0  # 0: on the calling thread
        self.caller = rollout.Rollout(nthread=self.threads)
        self.workers = [mujoco.MjData(model) for _ in range(max(1, self.threads))]
        self.state = np.zeros((lanes, mujoco.mj_stateSize(model, PHYSICS)))
        self.after = np.zeros((lanes, self.skip, self.state.shape[1]))
        self.control = np.zeros((lanes, self.skip, model.nu))
        self.warm: Any = None
        self.place, self.speed = self.state[:, 1 : 1 + model.nq], self.state[:, 1 + model.nq :]  # views

    def wanted(self) -> int:
        """Threads for more than one lane."""
        return min(self.lanes, os.cpu_count() or 1)

    def physics(self, control: Any) -> None:
        """From `state` to that of the next step."""
        self.control[:] = control[:, None]
        self.call()
        self.state[:] = self.after[:, -1]

    def call(self) -> None:
        """From `state` and `control` to `after`."""
        self.caller.rollout(
            self.models,
            self.workers,
            self.state,
            self.control,
            control_spec=CONTROL,
            skip_checks=True,  # all arrays have their final shape
            nstep=self.skip,
            initial_warmstart=self.warm,
            state=self.after,
        )

    def close(self) -> None:
        """Ends the threads."""
        self.caller.close()


class RolledWarm(Rolled):
    """With warm starts, from the data of the threads. A lane's number is its time, so that data tells whose it is."""

    name = "rollout kept warm"

    def __init__(self, family: str, lanes: int) -> None:
        super().__init__(family, lanes)
        self.spare = mujoco.MjData(self.models[0])
        self.warm = np.zeros((lanes, self.models[0].nv))

    def wanted(self) -> int:
        """Threads for more than one lane."""
        return self.lanes

    def reset(self, lane: int, key: Key) -> None:
        """A fresh episode."""
        super().reset(lane, key)
        self.warm[lane] = self.datas[lane].qacc_warmstart

    def call(self) -> None:
        """From `state` and `control` to `after`; then the warm starts."""
        self.state[:, 0] = range(self.lanes)
        for data in self.workers:
            data.time = -1.0
        super().call()
        lost = set(range(self.lanes))
        for data in self.workers:
            if data.time >= 0.0:
                lane = int(data.time)
                self.warm[lane] = data.qacc_warmstart
                lost.remove(lane)
        for lane in lost:
            model, data = self.models[lane], self.spare
            mujoco.mj_setState(model, data, self.state[lane], PHYSICS)
            data.ctrl[:], data.qacc_warmstart[:] = self.control[lane, 0], self.warm[lane]
            mujoco.mj_step(model, data, nstep=self.skip)
            self.warm[lane] = data.qacc_warmstart
        self.redone += len(lost)


WAYS: tuple[type[InTurn], ...] = (InTurn, Ahead, Threads, Rolled, RolledWarm, Batched, BatchedThreads)


# What is measured ---------------------------------------------------------------------------------------------------


def random_actions(way: InTurn, steps: int, seed: int) -> Any:
    """[steps, L, A] as planners give them: float32."""
    shape = (steps, way.lanes, *(way.envs[0].action_space.shape or ()))
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype(np.float32)


def trace(way: InTurn, steps: int) -> list[Any]:
    """Observations, rewards and ends, one array each, of episodes that go on when they have ended."""
    for lane in range(way.lanes):
        way.reset(lane, Key.of(lane))
    met = [way.step(list(row)) for row in random_actions(way, steps, 0)]
    way.close()
    return [
        np.array([[one.next_obs for one in row] for row in met]),
        np.array([[one.reward for one in row] for row in met]),
        np.array([[(one.terminated, one.truncated) for one in row] for row in met]),
    ]


def difference(
    family: str, kind: type[InTurn], against: type[InTurn], lanes: int = 8, steps: int = 50
) -> dict[str, Any]:
    """How far a way is from the environments it stands for."""
    found, wanted = trace(kind(family, lanes), steps), trace(against(family, lanes), steps)
    apart = np.abs(found[0] - wanted[0]).max(axis=(1, 2))
    return {
        "what": "difference",
        "family": family,
        "way": kind.name,
        "against": against.name,
        "lanes": lanes,
        "after_1": float(apart[0]),
        f"after_{steps}": float(apart[-1]),
        "first_apart": int(np.flatnonzero(apart)[0]) + 1 if apart.any() else None,  # step
        "rewards_apart": float(np.abs(found[1] - wanted[1]).max()),
        "same_ends": bool((found[2] == wanted[2]).all()),
    }


def timed(way: InTurn, steps: int, repeat: int, pause: float) -> float:
    """Seconds for one step of all lanes. An episode that ends is followed by another."""
    actions = [list(row) for row in random_actions(way, steps, repeat)]
    for lane in range(way.lanes):
        way.reset(lane, Key.of(lane).fold(repeat))
    total = 0.0
    for step, now in enumerate(actions):
        if pause:
            time.sleep(pause)
        begin = time.perf_counter()
        following = way.step(now)
        total += time.perf_counter() - begin
        for lane, one in enumerate(following):
            if one.terminated or one.truncated:
                way.reset(lane, Key.of(lane).fold(repeat, step))
    return total / steps


def times(family: str, lanes: int, steps: int, repeats: int, pause: float) -> list[dict[str, Any]]:
    """All ways by turns, each repeat beginning with another one."""
    ways = [kind(family, lanes) for kind in WAYS]
    found: list[list[float]] = [[] for _ in ways]
    for way in ways:
        timed(way, 20, 0, 0.0)
        way.redone = 0
    for repeat in range(repeats):
        for turn in range(len(ways)):
            index = (repeat + turn) % len(ways)
            found[index].append(1e6 * timed(ways[index], steps, 1 + repeat, pause))
    for way in ways:
        way.close()
    return [
        {
            "what": "time",
            "family": family,
            "way": way.name,
            "lanes": lanes,
            "threads": way.threads,
            "us": round(statistics.median(us), 1),
            "least": round(min(us), 1),
            "most": round(max(us), 1),
            "redone": round(way.redone / (steps * repeats), 2),
            "pause_ms": 1e3 * pause,
        }
        for way, us in zip(ways, found, strict=True)
    ]


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=["hopper-gravity"])
    parser.add_argument("--lanes", nargs="+", type=int, default=[1, 3, 8])
    parser.add_argument("--steps", type=int, default=200, help="Of one repeat.")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--pause", type=float, default=0.0, help="Milliseconds of sleep before every step.")
    parser.add_argument("--out", type=Path, help="The lines go to this file too.")
    options = parser.parse_args()
    lines: list[str] = []

    def say(facts: dict[str, Any]) -> None:
        lines.append(json.dumps(facts))
        print(lines[-1], flush=True)
        if options.out:
            options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")

    say({"what": "machine", "mujoco": mujoco.__version__, "numpy": np.__version__, "cores": os.cpu_count()})
    for family in options.family:
        for kind in WAYS[1:]:
            say(difference(family, kind, InTurn))
        say(difference(family, Rolled, Cold))
        for lanes in options.lanes:
            for facts in times(family, lanes, options.steps, options.repeats, options.pause / 1e3):
                say(facts)


if __name__ == "__main__":
    main()

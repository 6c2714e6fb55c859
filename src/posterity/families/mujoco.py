"""The six MuJoCo families: half-cheetah, hopper and walker, with another gravity or other body parts in every task.

    gravity     g = -9.81 f,  f ~ U(0.5, 1.5)
    bodyparts   the sizes of four geoms times f_1 .. f_4 ~ U(0.5, 1.5); masses follow through the density

Tasks, reward, termination and resets are those of the published experiments as far as today's MuJoCo has them; the task
lists are the published ones, the same for every seed. A task's model is edited as a specification and compiled, never
patched afterwards. docs/families/mujoco.md lists every choice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from posterity.families.base import RECURRING, Env, Family, Prestep
from posterity.families.mujoco_threads import BatchedPhysics, loaded
from posterity.families.streams import recurring
from posterity.settings import Settings, setting
from posterity.types import FloatArray, Key, Spec, Task


class Body(NamedTuple):
    """What sets one of the three bodies apart."""

    module: str  # of Gymnasium
    environment: str
    xml: str
    seed: int  # of the published task lists
    horizon: int
    obs_dim: dict[str, int]
    actions: int
    parts: dict[str, int]  # geom, and how many of its leading sizes are scaled
    alive: dict[int, tuple[float, float]]  # observation index, and the range outside which an episode ends


_LEG: dict[str, int] = {"torso_geom": 1, "thigh_geom": 1, "leg_geom": 1, "foot_geom": 1}
BODIES = {
    "cheetah": Body(
        module="half_cheetah_v5",
        environment="HalfCheetahEnv",
        xml="half_cheetah.xml",
        seed=500,
        horizon=100,
        obs_dim={"paper": 18, "gym": 17},
        actions=6,
        parts={"torso": 1, "fthigh": 2, "fshin": 2, "ffoot": 2},
        alive={},
    ),
    "hopper": Body(
        module="hopper_v5",
        environment="HopperEnv",
        xml="hopper.xml",
        seed=600,
        horizon=400,
        obs_dim={"paper": 11, "gym": 11},
        actions=3,
        parts=_LEG,
        alive={0: (0.7, np.inf), 1: (-0.2, 0.2)},
    ),
    "walker": Body(
        module="walker2d_v5",
        environment="Walker2dEnv",
        xml="walker2d.xml",  # v5's own file has other feet than the published one
        seed=700,
        horizon=400,
        obs_dim={"paper": 17, "gym": 17},
        actions=6,
        parts=_LEG,
        alive={0: (0.8, 2.0), 1: (-1.0, 1.0)},
    ),
}


FEWEST = 4  # threads from which physics ahead of the steps should pay: reckoned, not timed (docs/speed.md)


class MujocoSettings(Settings):
    """What can vary between uses of one family."""

    observation: Literal["paper", "gym"] = setting(
        "paper",
        "paper: velocities / 5, or sine and cosine of the cheetah's pitch; gym: as Gymnasium has it.",
    )
    max_episode_steps: int = setting(0, "Steps after which an episode is cut off; 0: the paper's 100 or 400.", ge=0)
    recurring: float = setting(0.0, RECURRING, ge=0, le=1)
    prestep: Literal["auto", "off"] = setting(
        "auto",
        "Physics of all lanes in threads before they step: auto (with 4 lanes or more and cores for them) or off.",
    )


class MujocoFamily(Family):
    """One body, and one thing about it that changes."""

    simulated = True
    settings_type: ClassVar[type[Settings]] = MujocoSettings
    body: ClassVar[str]
    hidden: ClassVar[str]  # "gravity" or "bodyparts"

    def __init__(self, settings: MujocoSettings | None = None) -> None:
        super().__init__(settings)
        loaded()
        body = BODIES[self.body]
        size = body.obs_dim[self.settings.observation]
        low, high = np.full(size, -np.inf), np.full(size, np.inf)
        for index, (least, most) in body.alive.items():
            low[index], high[index] = least, most
        limit = np.ones(body.actions)
        horizon = self.settings.max_episode_steps or body.horizon
        self.spec = Spec(size, -limit, limit, horizon, (low, high) if body.alive else None)

    def tasks(self, key: Key, count: int) -> list[Task]:
        """The first of the published list, whatever the seed; which of them recur depends on it."""
        tasks = [
            Task(index, f"{self.hidden} x {'/'.join(f'{f:.3f}' for f in np.atleast_1d(factor))}", {self.hidden: factor})
            for index, factor in enumerate(factors(self.body, self.hidden, count))
        ]
        return recurring(key, tasks, self.settings.recurring)

    def make(self, task: Task) -> Env:
        """Gymnasium's environment around the task's own model."""
        gravity = task.factors.get("gravity", 1.0)
        sizes = task.factors.get("bodyparts", (1.0, 1.0, 1.0, 1.0))
        model = build_model(self.body, gravity, sizes)
        env = _environment(self.body)(model, self.settings.observation)
        return TimeLimit(env, self.spec.max_episode_steps)

    def prestep(self, envs: Sequence[Env]) -> AbstractContextManager[Prestep | None]:
        """Physics in threads, each with a core to itself; with fewer than four of either there is little to gain."""
        threads = min(len(envs), _cores() - 1)  # one is left to the loop
        wanted = self.settings.prestep == "auto" and threads >= FEWEST
        return BatchedPhysics(envs, threads) if wanted else super().prestep(envs)


def factors(body: str, hidden: str, count: int) -> list[float] | list[list[float]]:
    """The published factors: legacy NumPy streams of the published seeds, one number or four floored ones a task."""
    stream = np.random.RandomState(BODIES[body].seed)
    if hidden == "gravity":
        return [float(stream.rand() + 0.5) for _ in range(count)]
    return [(np.floor((stream.rand(4) + 0.5) * 1e4) / 1e4).tolist() for _ in range(count)]


def build_model(body: str, gravity: float = 1.0, sizes: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> Any:
    """The MjModel of a task: Gymnasium's XML, edited and compiled."""
    mujoco = loaded()
    from gymnasium.envs.mujoco.mujoco_env import expand_model_path

    spec = mujoco.MjSpec.from_file(expand_model_path(BODIES[body].xml))
    spec.option.gravity = [0.0, 0.0, -9.81 * gravity]
    if body == "hopper" and _version(mujoco) >= (3, 5):
        for geom in spec.geoms:
            geom.margin = 0.0005  # from 3.5 on the margins of two geoms add up; before, the larger one counted
    for (name, scaled), factor in zip(BODIES[body].parts.items(), sizes, strict=True):
        geom = spec.geom(name)
        size = np.array(geom.size)
        size[:scaled] *= factor
        geom.size = size
    if body == "cheetah":
        spec.compiler.settotalmass = -1  # deprecated in the XML; done by hand below, to the same numbers
    model = spec.compile()
    if body == "cheetah":
        mujoco.mj_setTotalmass(model, 14.0)
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


@cache
def _environment(body: str) -> Any:
    """Gymnasium's class, on a model of ours, with our observation, and actions clipped before they cost anything."""
    mujoco = loaded()
    import importlib

    base = getattr(importlib.import_module(f"gymnasium.envs.mujoco.{BODIES[body].module}"), BODIES[body].environment)

    class TaskEnv(base):
        handed: tuple[FloatArray, FloatArray] | None = (
            None  # by `BatchedPhysics`: control of the next step, and state after it
        )

        def __init__(self, model: Any, observation: str) -> None:
            self._task_model, self._paper = model, observation == "paper"
            super().__init__(xml_file=BODIES[body].xml)
            size = BODIES[body].obs_dim[observation]
            self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
            self._seconds = self.dt  # of a step
            self._low, self._high = self.action_space.low, self.action_space.high

        def _initialize_simulation(self) -> tuple[Any, Any]:
            return self._task_model, mujoco.MjData(self._task_model)

        def step(self, action: FloatArray) -> Any:
            """Gymnasium's step to the bit, without what nobody here reads: it tells nothing but the step itself."""
            place = self.data.qpos
            control = np.minimum(np.maximum(action, self._low), self._high)
            before = place[0]
            self._step_mujoco_simulation(control, self.frame_skip)
            reward = self._forward_reward_weight * ((place[0] - before) / self._seconds)
            cost = self._ctrl_cost_weight * np.square(control).sum()
            if not BODIES[body].alive:
                return self._get_obs(), reward - cost, False, False, {}
            healthy = _is_up(self, body)
            return self._get_obs(), reward + healthy * self._healthy_reward - cost, not healthy, False, {}

        def set_state(self, qpos: FloatArray, qvel: FloatArray) -> None:
            self.handed = None  # every reset comes by here
            super().set_state(qpos, qvel)

        def _step_mujoco_simulation(self, ctrl: FloatArray, n_frames: int) -> None:
            handed, self.handed = self.handed, None
            if handed is not None and (ctrl == handed[0]).all():
                mujoco.mj_setState(self.model, self.data, handed[1], mujoco.mjtState.mjSTATE_INTEGRATION.value)
            else:
                self.data.ctrl[:] = ctrl
                mujoco.mj_step(self.model, self.data, nstep=n_frames)

        def _get_obs(self) -> FloatArray:
            if not self._paper:
                return super()._get_obs()
            return _observed(body, self.data.qpos, self.data.qvel)

    return TaskEnv


def _is_up(env: Any, body: str) -> bool:
    """Gymnasium's `is_healthy`."""
    place = env.data.qpos
    (low, high), (least, most) = env._healthy_z_range, env._healthy_angle_range
    if not (low < place[1] < high and least < place[2] < most):
        return False
    if body != "hopper":
        return True
    low, high = env._healthy_state_range
    state = (*place[2:].tolist(), *env.data.qvel.tolist())  # so few are compared faster by Python
    return low < min(state) and max(state) < high


def _observed(body: str, place: FloatArray, speed: FloatArray) -> FloatArray:
    """What the paper's environments observe."""
    if body == "cheetah":
        return np.concatenate([place[1:2], [np.sin(place[2]), np.cos(place[2])], place[3:], speed])
    return np.concatenate([place[1:], np.minimum(np.maximum(speed, -10.0), 10.0) / 5.0])


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(mujoco: ModuleType) -> tuple[int, ...]:
    return tuple(int(part) for part in mujoco.__version__.split(".")[:2])


class CheetahGravity(MujocoFamily):
    """Half-cheetah under another gravity."""

    summary, body, hidden = "half-cheetah under another gravity in every task", "cheetah", "gravity"


class CheetahBodyparts(MujocoFamily):
    """Half-cheetah with other body parts."""

    summary, body, hidden = "half-cheetah with other body parts in every task", "cheetah", "bodyparts"


class HopperGravity(MujocoFamily):
    """Hopper under another gravity."""

    summary, body, hidden = "hopper under another gravity in every task", "hopper", "gravity"


class HopperBodyparts(MujocoFamily):
    """Hopper with other body parts."""

    summary, body, hidden = "hopper with other body parts in every task", "hopper", "bodyparts"


class WalkerGravity(MujocoFamily):
    """Walker under another gravity."""

    summary, body, hidden = "walker under another gravity in every task", "walker", "gravity"


class WalkerBodyparts(MujocoFamily):
    """Walker with other body parts."""

    summary, body, hidden = "walker with other body parts in every task", "walker", "bodyparts"

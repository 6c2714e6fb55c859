"""Pictures of an environment as it is now, without a display: what a video is made of.

a family's own picture    `Family.picture`: all families of posterity but MuJoCo's
MuJoCo                    any environment with a MuJoCo model, drawn by EGL (a GPU's or Mesa's driver) or OSMesa
Gymnasium                 any environment that can render as "rgb_array"
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import gymnasium
import numpy as np

from posterity.errors import UserError
from posterity.families.base import Env, Family
from posterity.families.drawing import HEIGHT, WIDTH
from posterity.types import HostArray, Task

NO_RENDERER = (
    "MuJoCo finds nothing to draw with. Without a display it takes EGL or OSMesa: on Debian or Ubuntu, "
    "apt install libegl1 libgl1-mesa-dri (or libosmesa6, and MUJOCO_GL=osmesa)"
)
SECONDS = 60.0  # that a try of a renderer may take
CORNER = "corner"  # the name of a camera that Meta-World's models have; their own pictures are upside down
TABLE = (0.0, 0.55, 0.15)  # where Meta-World's things are
SIDE_ON = 90.0  # degrees: walkers go to the right


class Camera(ABC):
    """Takes pictures of one environment."""

    @abstractmethod
    def shot(self) -> HostArray:
        """[H, W, 3] the environment as it is now, in bytes."""

    def close(self) -> None:  # noqa: B027 - most cameras hold nothing
        """Gives back what it holds."""


def camera(family: Family, task: Task, env: Env) -> Camera:
    """A camera for an environment of a family."""
    if type(family).picture is not Family.picture:
        return _Painter(family, task, env)
    if "mujoco" in sys.modules and isinstance(vars(env.unwrapped).get("model"), sys.modules["mujoco"].MjModel):
        return _MujocoCamera(env)
    if "rgb_array" in env.unwrapped.metadata.get("render_modes", ()):
        return _GymnasiumCamera(env)
    raise UserError(
        f"{type(env.unwrapped).__name__} cannot be filmed: it has no MuJoCo model, does not render as 'rgb_array', and "
        "its family has no `picture(task, env)`"
    )


def frames_a_second(env: Env) -> float:
    """Steps in a second of the world, as far as the environment tells."""
    told = env.unwrapped.metadata.get("render_fps")
    return float(told) if told else 10.0


class _Painter(Camera):
    """The family draws by itself."""

    def __init__(self, family: Family, task: Task, env: Env) -> None:
        self.family, self.task, self.env = family, task, env

    def shot(self) -> HostArray:
        picture = self.family.picture(self.task, self.env)
        if picture is None or np.ndim(picture) != 3 or np.shape(picture)[2] != 3:
            raise UserError(f"{type(self.family).__name__}.picture gives [H, W, 3] in bytes, and not this")
        return np.asarray(picture, np.uint8)


class _GymnasiumCamera(Camera):
    """The environment draws by itself."""

    def __init__(self, env: Env) -> None:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame opens no window
        self.env = env.unwrapped
        self.env.render_mode = "rgb_array"  # environments look it up when they draw

    def shot(self) -> HostArray:
        try:
            picture = self.env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise UserError(
                f"{type(self.env).__name__} draws itself with a package that is missing: {error}"
            ) from error
        if not isinstance(picture, np.ndarray):
            raise UserError(f"{type(self.env).__name__} gave no picture, though it says that it renders 'rgb_array'")
        return picture


class _MujocoCamera(Camera):
    """MuJoCo draws the model from the side; the camera follows the body."""

    def __init__(self, env: Env) -> None:
        mujoco = sys.modules["mujoco"]
        self.mujoco = mujoco
        inner: Any = env.unwrapped
        self.model, self.data = inner.model, inner.data
        self.context = _context()
        self.context.make_current()
        self.model.vis.global_.offwidth = max(WIDTH, self.model.vis.global_.offwidth)
        self.model.vis.global_.offheight = max(HEIGHT, self.model.vis.global_.offheight)
        self.drawing = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self.drawing)
        self.scene, self.option = mujoco.MjvScene(self.model, maxgeom=2000), mujoco.MjvOption()
        self.view = self._view()

    def _view(self) -> Any:
        """Over Meta-World's table; else beside the first body that moves freely, or fixed where none does."""
        mujoco, view = self.mujoco, self.mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(self.model, view)
        if mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_CAMERA.value, CORNER) >= 0:
            view.lookat[:] = TABLE
            view.azimuth, view.elevation, view.distance = 225.0, -25.0, 1.6
            return view
        slides = [
            joint
            for joint in range(self.model.njnt)
            if self.model.jnt_type[joint] in (mujoco.mjtJoint.mjJNT_SLIDE.value, mujoco.mjtJoint.mjJNT_FREE.value)
            and not self.model.jnt_limited[joint]
        ]
        if slides:
            view.type = mujoco.mjtCamera.mjCAMERA_TRACKING.value
            view.trackbodyid = int(self.model.jnt_bodyid[slides[0]])
            view.azimuth, view.elevation, view.distance = SIDE_ON, -12.0, 4.2
        return view

    def shot(self) -> HostArray:
        mujoco, rectangle = self.mujoco, self.mujoco.MjrRect(0, 0, WIDTH, HEIGHT)
        self.context.make_current()  # another camera may have drawn since
        mujoco.mj_kinematics(self.model, self.data)  # physics in threads hands over no places of geoms
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
        every = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self.model, self.data, self.option, None, self.view, every, self.scene)
        picture = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        mujoco.mjr_render(rectangle, self.scene, self.drawing)
        mujoco.mjr_readPixels(picture, None, rectangle, self.drawing)
        return picture[::-1].copy()

    def close(self) -> None:
        self.drawing.free()
        self.context.free()


def _context() -> Any:
    """Something to draw on: what MUJOCO_GL names, or EGL, or OSMesa."""
    name = renderer()
    module = "mujoco.gl_context" if name == "mujoco" else f"mujoco.{name}"
    try:
        return importlib.import_module(module).GLContext(WIDTH, HEIGHT)
    except Exception as error:  # PyOpenGL and the drivers raise all kinds
        raise UserError(f"{NO_RENDERER}. MUJOCO_GL is now '{os.environ.get('MUJOCO_GL', '')}'") from error


@cache
def renderer() -> str:
    """The module of MuJoCo that has a context; "mujoco": whichever it chooses itself."""
    if os.environ.get("MUJOCO_GL") or sys.platform != "linux":
        return "mujoco"
    for name in ("egl", "osmesa"):
        if _works(name):
            return name
    raise UserError(NO_RENDERER)


def _works(name: str) -> bool:
    """Whether a renderer draws, tried in a process of its own: a failed try leaves PyOpenGL set to it."""
    code = f"from mujoco.{name} import GLContext; c = GLContext(8, 8); c.make_current(); c.free()"
    apart = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"}
    try:
        return (
            subprocess.run(
                [sys.executable, "-c", code], env=apart, capture_output=True, timeout=SECONDS, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.SubprocessError):
        return False

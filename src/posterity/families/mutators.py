"""What can be changed about any MuJoCo environment, by a factor on what it has.

A mutator changes the model of an environment that was made but not yet played. Mass is changed with inertia, so that a
body twice as heavy is twice as hard to turn. Sizes are changed in the XML and compiled, since mass, inertia and centre
of mass follow from them; what the compiler then says differently is written into the model. In the end MuJoCo works out
what depends on it all (`mj_setConst`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from posterity.errors import UserError, did_you_mean
from posterity.families.base import Env
from posterity.types import HostArray

Model: TypeAlias = Any  # of MuJoCo, which is loaded only where it is needed
Rows: TypeAlias = "HostArray | list[int] | slice"
_SIZES: WeakKeyDictionary[Env, dict[str, float]] = WeakKeyDictionary()  # by which sizes were changed so far


class Mutator(NamedTuple):
    """A change by a factor."""

    what: str  # for tables and docs
    target: str  # the kind of thing that can be named after a colon; empty: none
    apply: Callable[[Env, str, float], None]  # environment, target (empty: all), factor


def mujoco_model(env: Env) -> Model:
    """The MuJoCo model of an environment, or None if it has none. Loads no MuJoCo."""
    model = getattr(env.unwrapped, "model", None)
    return model if type(model).__name__ == "MjModel" else None


def mutate(env: Env, name: str, target: str, factor: object) -> None:
    """Applies the mutator called `name`."""
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 <= factor < np.inf:
        raise UserError(f"vary: '{name}' drew {factor}; expected a factor, a number of 0 or more")
    mutator = MUTATORS[name]
    if target and not mutator.target:
        raise UserError(f"vary: '{name}:{target}': {name} has no target; write '{name}'")
    mutator.apply(env, target, float(factor))


def _gravity(env: Env, target: str, factor: float) -> None:
    model = mujoco_model(env)
    _scale("gravity", model.opt.gravity, slice(None), factor)


def _viscosity(env: Env, target: str, factor: float) -> None:
    model = mujoco_model(env)
    if model.opt.viscosity == 0:
        raise _nothing("viscosity")
    model.opt.viscosity *= factor


def _fluid_density(env: Env, target: str, factor: float) -> None:
    model = mujoco_model(env)
    if model.opt.density == 0:
        raise _nothing("fluid_density")
    model.opt.density *= factor


def _mass(env: Env, target: str, factor: float) -> None:
    """Mass and inertia together: the same body of a denser material."""
    if factor == 0:
        raise UserError("vary: 'mass' drew 0; a mass is above 0")
    model = mujoco_model(env)
    rows = _rows(model, "body", target) if target else slice(None)
    _scale("mass", model.body_mass, rows, factor)
    model.body_inertia[rows] *= factor
    _settle(model)


def _friction(env: Env, target: str, factor: float) -> None:
    """Sliding, torsional and rolling friction. A contact has the larger one of its two geoms."""
    model = mujoco_model(env)
    rows = _geoms(model, target) if target else slice(None)
    _scale("friction", model.geom_friction, rows, factor)
    if not target:
        model.pair_friction[:] *= factor


def _damping(env: Env, target: str, factor: float) -> None:
    model = mujoco_model(env)
    if target:
        (joint,) = _rows(model, "joint", target)
        first = model.jnt_dofadr[joint]
        rows: Rows = np.flatnonzero(model.dof_jntid == joint) if first >= 0 else slice(0)
    else:
        rows = slice(None)
    _scale("damping", model.dof_damping, rows, factor)


def _actuator_gain(env: Env, target: str, factor: float) -> None:
    """Gain and bias together, so that a position servo keeps its set point."""
    model = mujoco_model(env)
    rows = _rows(model, "actuator", target) if target else slice(None)
    _scale("actuator_gain", model.actuator_gainprm, rows, factor)
    model.actuator_biasprm[rows] *= factor


def _size(env: Env, target: str, factor: float) -> None:
    """Sizes as the XML gives them; of a capsule between two points (`fromto`) that is the radius.

    What the compiler says differently is written over the model, so that sizes come before other changes, and all sizes
    of an environment are compiled together.
    """
    import mujoco

    if factor == 0:
        raise UserError("vary: 'size' drew 0; a size is above 0")
    model, file = mujoco_model(env), getattr(env.unwrapped, "fullpath", None)
    if not isinstance(file, str):
        raise UserError("vary: 'size' needs the XML of the model, and the environment does not say where it lies")
    sizes = _SIZES.setdefault(env.unwrapped, {})
    sizes[target] = sizes.get(target, 1.0) * factor
    before = mujoco.MjSpec.from_file(file).compile()  # pyright: ignore[reportAttributeAccessIssue]
    spec = mujoco.MjSpec.from_file(file)  # pyright: ignore[reportAttributeAccessIssue]
    for where, scale in sizes.items():
        for number in _sized(before, where):
            spec.geoms[number].size = np.array(spec.geoms[number].size) * scale
    after = spec.compile()
    for name in _arrays(model):
        new, own = getattr(after, name), getattr(model, name)
        changed = getattr(before, name) != new
        if np.any(changed):
            own[changed] = new[changed]
    _settle(model)


def _sized(model: Model, target: str) -> HostArray:
    """The geoms whose size changes: those of `target`, or all but the floor."""
    import mujoco

    rows = _geoms(model, target) if target else np.flatnonzero(model.geom_bodyid > 0)
    mesh = mujoco.mjtGeom.mjGEOM_MESH.value  # pyright: ignore[reportAttributeAccessIssue]
    if (model.geom_type[rows] == mesh).any():
        raise UserError(f"vary: 'size{':' * bool(target)}{target}': a mesh has no size to change")
    return rows


MUTATORS = {
    "gravity": Mutator("gravity", "", _gravity),
    "mass": Mutator("mass and inertia of all bodies, or of one", "body", _mass),
    "size": Mutator("size of all geoms but the floor, or of one; mass and inertia follow", "geom or body", _size),
    "friction": Mutator("friction of all geoms, or of one", "geom or body", _friction),
    "damping": Mutator("damping of all joints, or of one", "joint", _damping),
    "actuator_gain": Mutator("strength of all actuators, or of one", "actuator", _actuator_gain),
    "viscosity": Mutator("viscosity of the fluid around", "", _viscosity),
    "fluid_density": Mutator("density of the fluid around", "", _fluid_density),
}


def _settle(model: Model) -> None:
    """What MuJoCo derives from masses and places, worked out again."""
    import mujoco

    mujoco.mj_setConst(model, mujoco.MjData(model))  # pyright: ignore[reportAttributeAccessIssue]


def _scale(name: str, values: HostArray, rows: Rows, factor: float) -> None:
    """Scales rows of a table in place; a table of zeros would not change."""
    if not np.any(values[rows]):
        raise _nothing(name)
    values[rows] *= factor


def _nothing(name: str) -> UserError:
    return UserError(f"vary: '{name}' is 0 in this environment, so that a factor changes nothing")


def _arrays(model: Model) -> list[str]:
    """The names of a model's tables of numbers."""
    names = [name for name in dir(model) if not name.startswith("_")]
    return [name for name in names if isinstance(getattr(model, name), np.ndarray)]


def _rows(model: Model, what: str, name: str) -> list[int]:
    """The number of the body, geom, joint or actuator called `name`; a number may stand for a name."""
    counts = {"body": model.nbody, "geom": model.ngeom, "joint": model.njnt, "actuator": model.nu}
    named = {"body": model.body, "geom": model.geom, "joint": model.joint, "actuator": model.actuator}[what]
    names = [named(number).name for number in range(counts[what])]
    if name in names:
        return [names.index(name)]
    if name.isdigit() and int(name) < counts[what]:
        return [int(name)]
    raise _unknown(what, name, names)


def _geoms(model: Model, name: str) -> HostArray:
    """The geom of this name; if there is none, all geoms of the body of this name."""
    geoms = [model.geom(number).name for number in range(model.ngeom)]
    bodies = [model.body(number).name for number in range(model.nbody)]
    if name in geoms:
        return np.array([geoms.index(name)])
    if name in bodies:
        return np.flatnonzero(model.geom_bodyid == bodies.index(name))
    raise _unknown("geom or body", name, [*geoms, *bodies])


def _unknown(what: str, name: str, names: Sequence[str]) -> UserError:
    known = [each for each in dict.fromkeys(names) if each]
    return UserError(
        f"vary: the model has no {what} '{name}'.{did_you_mean(name, known)} It has: {', '.join(known) or 'none named'}"
    )

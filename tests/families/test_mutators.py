"""What is changed about a MuJoCo model, against what MuJoCo's compiler says of an XML that is changed so."""

from typing import Any

import gymnasium
import numpy as np
import pytest

mujoco: Any = pytest.importorskip("mujoco")

from posterity.errors import UserError  # noqa: E402
from posterity.families.mutators import MUTATORS, mutate  # noqa: E402

TABLES = (
    "body_mass",
    "body_inertia",
    "body_ipos",
    "body_subtreemass",
    "body_invweight0",
    "dof_invweight0",
    "geom_size",
)


def environment(name: str = "Hopper-v5") -> Any:
    return gymnasium.make(name, disable_env_checker=True)


def compiled(env: Any, edit: Any) -> Any:
    """The model of an environment's XML, edited."""
    spec = mujoco.MjSpec.from_file(env.unwrapped.fullpath)
    edit(spec)
    return spec.compile()


def double_density(spec: Any) -> None:
    for geom in spec.geoms:
        geom.density *= 2


def test_twice_the_mass_is_twice_the_inertia_as_if_all_were_twice_as_dense():
    env = environment()
    before = env.unwrapped.model.body_inertia.copy()
    mutate(env, "mass", "", 2.0)
    np.testing.assert_allclose(env.unwrapped.model.body_inertia, 2 * before)
    wanted = compiled(env, double_density)
    for name in TABLES:
        np.testing.assert_allclose(getattr(env.unwrapped.model, name), getattr(wanted, name), err_msg=name)


def test_the_mass_of_one_body_leaves_the_others():
    env = environment()
    before = env.unwrapped.model.body_mass.copy()
    mutate(env, "mass", "torso", 3.0)
    ratio = env.unwrapped.model.body_mass[1:] / before[1:]
    np.testing.assert_allclose(ratio, [3.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("name", ["Hopper-v5", "HalfCheetah-v5", "Ant-v5"])
def test_sizes_change_mass_and_inertia_as_the_compiler_does(name: str):
    """The half-cheetah's compiler keeps its total mass: that too."""
    env = environment(name)
    geom = "torso" if name == "HalfCheetah-v5" else "torso_geom"

    def edit(spec: Any) -> None:
        spec.geom(geom).size = np.array(spec.geom(geom).size) * 1.4

    mutate(env, "size", geom, 1.4)
    wanted = compiled(env, edit)
    for table in TABLES:
        np.testing.assert_allclose(getattr(env.unwrapped.model, table), getattr(wanted, table), err_msg=table)
    assert env.unwrapped.model.stat.meaninertia == pytest.approx(wanted.stat.meaninertia)


def test_two_sizes_go_together():
    one, two = environment(), environment()
    mutate(one, "size", "thigh_geom", 1.3)
    mutate(one, "size", "leg_geom", 0.7)
    mutate(two, "size", "leg_geom", 0.7)
    mutate(two, "size", "thigh_geom", 1.3)

    def edit(spec: Any) -> None:
        for geom, factor in (("thigh_geom", 1.3), ("leg_geom", 0.7)):
            spec.geom(geom).size = np.array(spec.geom(geom).size) * factor

    wanted = compiled(one, edit)
    for env in (one, two):
        np.testing.assert_allclose(env.unwrapped.model.body_mass, wanted.body_mass)


@pytest.mark.parametrize("name", [name for name in MUTATORS if name not in ("viscosity", "fluid_density")])
def test_a_factor_of_one_changes_nothing(name: str):
    env, other = environment(), environment()
    mutate(env, name, "", 1.0)
    for table in (*TABLES, "dof_damping", "geom_friction", "actuator_gainprm", "actuator_biasprm"):
        np.testing.assert_allclose(getattr(env.unwrapped.model, table), getattr(other.unwrapped.model, table))
    np.testing.assert_array_equal(env.unwrapped.model.opt.gravity, other.unwrapped.model.opt.gravity)


def test_gravity_damping_friction_gain_and_fluid_are_scaled():
    env = environment("Swimmer-v5")
    model = env.unwrapped.model
    before = {name: getattr(model, name).copy() for name in ("geom_friction", "actuator_gainprm")}
    viscosity, density, gravity = model.opt.viscosity, model.opt.density, model.opt.gravity.copy()
    for name in ("viscosity", "fluid_density", "gravity", "friction", "actuator_gain"):
        mutate(env, name, "", 3.0)
    assert (model.opt.viscosity, model.opt.density) == (3 * viscosity, 3 * density)
    np.testing.assert_allclose(model.opt.gravity, 3 * gravity)
    for name, values in before.items():
        np.testing.assert_allclose(getattr(model, name), 3 * values)
    hopper = environment()
    damping = hopper.unwrapped.model.dof_damping.copy()
    mutate(hopper, "damping", "foot_joint", 2.0)
    np.testing.assert_allclose(hopper.unwrapped.model.dof_damping / np.where(damping, damping, 1), [0, 0, 0, 1, 1, 2])


@pytest.mark.parametrize(
    ("name", "target", "factor", "says"),
    [
        ("mass", "tors", 1.0, "no body 'tors'. Did you mean 'torso'"),
        ("mass", "", 0.0, "a mass is above 0"),
        ("mass", "", "heavy", "expected a factor"),
        ("gravity", "moon", 1.0, "gravity has no target"),
        ("viscosity", "", 2.0, "is 0 in this environment"),
        ("friction", "hand", 2.0, "no geom or body 'hand'"),
    ],
)
def test_what_cannot_be_changed_is_said_in_one_line(name: str, target: str, factor: object, says: str):
    with pytest.raises(UserError, match=says) as refused:
        mutate(environment(), name, target, factor)
    assert "\n" not in str(refused.value)

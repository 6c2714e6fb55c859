"""The six MuJoCo families against the published numbers and formulas."""

import builtins
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.families import family_type
from posterity.families.mujoco import BODIES, HopperGravity, MujocoSettings, build_model, factors
from posterity.families.mujoco_threads import BatchedPhysics
from posterity.types import Key

mujoco: Any = importlib.import_module("mujoco")  # its names are made at run time, so the type checker sees none
FAMILIES = [f"{body}-{hidden}" for body in BODIES for hidden in ("gravity", "bodyparts")]


def env_of(name: str, number: int = 0, observation: str = "paper") -> Any:
    family = family_type(name)(MujocoSettings.model_validate({"observation": observation}))
    return family.make(family.tasks(Key.of(0), number + 1)[number])


def test_factor_lists_are_the_published_ones():
    np.testing.assert_allclose(factors("hopper", "gravity", 4), [0.53237, 1.04241, 1.30292, 0.55516], atol=5e-6)
    np.testing.assert_allclose(factors("walker", "gravity", 2), [0.65655, 0.91687], atol=5e-6)
    np.testing.assert_allclose(factors("cheetah", "gravity", 2), [1.19368, 0.56172], atol=5e-6)
    assert factors("hopper", "bodyparts", 1) == [[0.5323, 1.0424, 1.3029, 0.5551]]
    assert all(0.5 <= f <= 1.5 for body in BODIES for f in np.ravel(factors(body, "bodyparts", 40)))


def test_the_list_is_the_same_for_every_seed():
    assert HopperGravity().tasks(Key.of(0), 5) == HopperGravity().tasks(Key.of(9), 5)


def test_an_episode_is_as_long_as_the_papers_or_as_one_says():
    """By truncation, and the spec says the same."""
    for settings, steps in (({}, 100), ({"max_episode_steps": 7}, 7)):
        family = family_type("cheetah-gravity")(MujocoSettings.model_validate(settings))
        env = family.make(family.tasks(Key.of(0), 1)[0])
        env.reset(seed=0)
        ends = [env.step(np.zeros(6))[2:4] for _ in range(steps)]
        assert ends == [(False, False)] * (steps - 1) + [(False, True)]
        assert family.spec.max_episode_steps == steps


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("factor", [0.5, 1.3])
def test_bodies_fall_as_the_changed_gravity_says(body: str, factor: float):
    """Lifted high and let go, the centre of mass falls f g t^2 / 2; 6 % for the cheetah's Euler step of 0.01."""
    model = build_model(body, gravity=factor)
    data = mujoco.MjData(model)
    data.qpos[1] += 50.0
    mujoco.mj_forward(model, data)
    before = data.subtree_com[0, 2]
    while data.time < 0.2 - 1e-9:
        mujoco.mj_step(model, data)
    mujoco.mj_forward(model, data)
    assert before - data.subtree_com[0, 2] == pytest.approx(0.5 * 9.81 * factor * 0.2**2, rel=0.06)


@pytest.mark.parametrize("body", ["hopper", "walker"])
def test_radii_are_scaled_lengths_are_not_and_masses_follow_by_volume(body: str):
    plain, changed = build_model(body), build_model(body, sizes=(0.5, 1.5, 1.0, 1.2))
    for (name, _), factor in zip(BODIES[body].parts.items(), (0.5, 1.5, 1.0, 1.2), strict=True):
        one, other = plain.geom(name), changed.geom(name)
        np.testing.assert_allclose(other.size[:2], [one.size[0] * factor, one.size[1]], rtol=1e-12)
        radius, half = other.size[:2]
        volume = np.pi * radius**2 * 2 * half + 4 / 3 * np.pi * radius**3
        assert changed.body(int(other.bodyid[0])).mass[0] == pytest.approx(1000 * volume, rel=1e-9)


def test_the_cheetah_keeps_its_weight_whatever_its_parts():
    changed = build_model("cheetah", sizes=(0.6, 1.4, 1.4, 0.7))
    assert changed.body_mass.sum() == pytest.approx(14.0)
    one, other = build_model("cheetah").geom("fthigh").size, changed.geom("fthigh").size
    np.testing.assert_allclose(other[:2], 1.4 * one[:2])  # radius and half-length
    assert changed.geom("bthigh").size[0] == build_model("cheetah").geom("bthigh").size[0]  # the back leg is left alone


def test_walker_has_the_published_feet():
    model = build_model("walker")
    assert model.geom("foot_geom").friction[0] == pytest.approx(0.9)
    assert model.geom("foot_left_geom").friction[0] == pytest.approx(1.9)


@pytest.mark.parametrize("name", FAMILIES)
def test_reward_is_speed_less_effort_with_actions_clipped_before_the_cost(name: str):
    env = env_of(name)
    inner = env.unwrapped
    env.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(5):
        before = inner.data.qpos[0]
        action = generator.uniform(-3, 3, inner.action_space.shape)
        _, reward, terminated, _, _ = env.step(action)
        speed = (inner.data.qpos[0] - before) / inner.dt
        effort = (np.clip(action, -1, 1) ** 2).sum()
        bonus, cost = (0.0, 0.1) if "cheetah" in name else (0.0 if terminated else 1.0, 1e-3)
        assert reward == pytest.approx(speed + bonus - cost * effort, rel=1e-6)
        if terminated:
            break


@pytest.mark.parametrize("name", FAMILIES)
def test_an_episode_ends_just_when_the_observation_leaves_the_box(name: str):
    """Termination is data: the planner's box and the simulator's rule agree on 40 random episodes."""
    family = family_type(name)()
    alive, ended = family.spec.alive, 0
    for number, task in enumerate(family.tasks(Key.of(0), 8)):
        env = family.make(task)
        env.action_space.seed(number)
        for episode in range(5):
            env.reset(seed=episode)
            terminated = truncated = False
            while not (terminated or truncated):
                obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
                inside = alive is None or bool(((obs > alive[0]) & (obs < alive[1])).all())
                assert terminated == (not inside)
            ended += terminated
    assert ended == (0 if alive is None else 40)


def test_observations_are_the_papers_or_gymnasiums():
    for body, plain in (("hopper", 5), ("walker", 8)):
        paper, gym = env_of(f"{body}-gravity"), env_of(f"{body}-gravity", observation="gym")
        for env in (paper, gym):
            env.reset(seed=3)
            for _ in range(4):
                env.step(np.full(env.action_space.shape or 1, 0.5))
        seen, other = paper.unwrapped._get_obs(), gym.unwrapped._get_obs()
        np.testing.assert_allclose(seen[:plain], other[:plain])
        np.testing.assert_allclose(5 * seen[plain:], other[plain:])
    env = env_of("cheetah-gravity")
    obs, _ = env.reset(seed=0)
    pitch = env.unwrapped.data.qpos[2]
    np.testing.assert_allclose(obs[1:3], [np.sin(pitch), np.cos(pitch)])


# Physics of all lanes before they step ------------------------------------------------------------------------------


def lanes_of(name: str, observation: str, count: int) -> list[Any]:
    """A task of its own in every lane, cut off soon, so that there are resets."""
    family = family_type(name)(MujocoSettings.model_validate({"observation": observation, "max_episode_steps": 23}))
    envs = [family.make(task) for task in family.tasks(Key.of(0), count)]
    for lane, env in enumerate(envs):
        env.reset(seed=lane)
    return envs


STATE = ("time", "qpos", "qvel", "ctrl", "qacc_warmstart")


@pytest.mark.parametrize(
    ("name", "observation", "lanes", "threads"),
    [
        ("cheetah-gravity", "paper", 3, 3),
        ("cheetah-bodyparts", "gym", 5, 2),
        ("hopper-gravity", "gym", 1, 1),
        ("hopper-bodyparts", "paper", 3, 1),
        ("walker-gravity", "paper", 5, 5),
        ("walker-bodyparts", "gym", 3, 2),
    ],
)
def test_batched_physics_is_to_the_bit_what_environments_do(
    name: str, observation: str, lanes: int, threads: int, monkeypatch: pytest.MonkeyPatch
):
    """Whatever the tasks, with resets, with lanes that leave steps out, with actions out of bounds and the same."""
    plain, handed = lanes_of(name, observation, lanes), lanes_of(name, observation, lanes)
    alone: list[Any] = []  # the data of those that did their physics themselves
    simulate = mujoco.mj_step
    monkeypatch.setattr(
        mujoco, "mj_step", lambda model, data, nstep: (alone.append(data), simulate(model, data, nstep=nstep))
    )
    generator = np.random.default_rng(0)
    with BatchedPhysics(handed, threads) as physics:
        for step in range(150):
            shape = (lanes, *plain[0].action_space.shape)
            actions = generator.uniform(-1.3, 1.3, shape).astype(np.float32 if step % 2 else np.float64)
            actions = actions if step % 4 else np.tile(actions[:1], (lanes, 1))
            now = range(lanes) if step % 3 else [*range(lanes)][-2:]
            physics(now, actions)
            done = [lane for lane in range(lanes) if handed[lane].unwrapped.handed is not None]
            assert set(done) <= set(now)
            assert len(done) == len(now) if threads == 1 else done, "a worker alone loses no lane, and several not all"
            for lane in now:
                one, other = plain[lane].step(actions[lane]), handed[lane].step(actions[lane])
                assert (alone[-1] is handed[lane].unwrapped.data) == (lane not in done), "what is handed is used"
                np.testing.assert_equal(other, one)
                if one[2] or one[3]:
                    np.testing.assert_equal(handed[lane].reset(seed=step), plain[lane].reset(seed=step))
            for one, other in zip(plain, handed, strict=True):
                for each in STATE:
                    got, expected = (getattr(env.unwrapped.data, each) for env in (other, one))
                    np.testing.assert_array_equal(got, expected, each)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_is_gymnasiums_to_the_bit(name: str):
    """Ours leaves out what nobody reads. Actions out of bounds are clipped before they cost anything."""
    ours, theirs = env_of(name, 2).unwrapped, env_of(name, 2).unwrapped
    step = type(theirs).__bases__[0].step
    generator, falls, falls_now = np.random.default_rng(1), 0, False
    for number in range(200):
        if number % 50 == 0 or falls_now:
            np.testing.assert_array_equal(ours.reset(seed=number)[0], theirs.reset(seed=number)[0])
        action = generator.uniform(-1.2, 1.2, ours.action_space.shape)
        one, other = ours.step(action), step(theirs, np.clip(action, -1.0, 1.0))
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:4] == other[1:4]
        falls_now = one[2]
        falls += falls_now
    assert bool(falls) == (not name.startswith("cheetah"))


def test_what_was_handed_is_for_one_action_and_one_state():
    plain, handed = lanes_of("hopper-gravity", "paper", 2), lanes_of("hopper-gravity", "paper", 2)
    actions = np.array([[0.5] * 3, [-0.5] * 3])
    with BatchedPhysics(handed, 1) as physics:
        physics([0, 1], actions)
        np.testing.assert_equal(handed[0].step(actions[1]), plain[0].step(actions[1]))  # another action
        np.testing.assert_equal(handed[0].step(actions[0]), plain[0].step(actions[0]))  # not the next step either
        np.testing.assert_equal(handed[1].reset(seed=7), plain[1].reset(seed=7))
        np.testing.assert_equal(handed[1].step(actions[1]), plain[1].step(actions[1]))  # another state
        physics([0, 1], actions[[0, 0]])
        physics([0], actions)  # what was handed before is forgotten
        assert handed[1].unwrapped.handed is None


def test_lanes_in_one_state_may_share_a_worker():
    """As those do that fill up an evaluation."""
    family = HopperGravity()
    plain, *envs = lanes = [family.make(family.tasks(Key.of(0), 1)[0]) for _ in range(4)]
    for env in lanes:
        env.reset(seed=0)
    with BatchedPhysics(envs, 3) as physics:
        for _ in range(10):
            physics(range(3), np.full((3, 3), 0.1))
            assert all(getattr(env.unwrapped, "handed", None) is not None for env in envs), "any worker has it"
            expected = plain.step(np.full(3, 0.1))
            for env in envs:
                np.testing.assert_equal(env.step(np.full(3, 0.1)), expected)


def test_batched_physics_can_be_refused_and_cores_are_counted_everywhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    for prestep, kind in (("auto", BatchedPhysics), ("off", type(None))):
        family = HopperGravity(MujocoSettings.model_validate({"prestep": prestep}))
        with family.prestep(lanes_of("hopper-gravity", "paper", 4)) as made:
            assert isinstance(made, kind)


def test_frames_that_mujoco_left_out_after_a_warning_are_done_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings there
    plain, handed = lanes_of("hopper-gravity", "paper", 2), lanes_of("hopper-gravity", "paper", 2)
    for envs in (plain, handed):
        envs[0].unwrapped.data.qvel[:] = 1e11
    actions = np.full((2, 3), 0.5)
    with BatchedPhysics(handed, 1) as physics:
        physics([0, 1], actions)
        assert [env.unwrapped.handed is not None for env in handed] == [False, True]
        for one, other in zip(plain, handed, strict=True):
            np.testing.assert_equal(other.step(actions[0]), one.step(actions[0]))
    assert (tmp_path / "MUJOCO_LOG.TXT").exists()


@pytest.mark.parametrize(
    ("lanes", "cores", "threads"), [(1, 64, 0), (3, 64, 0), (4, 4, 0), (4, 5, 4), (5, 64, 5), (6, 5, 4)]
)
def test_physics_is_batched_where_there_are_lanes_and_cores_for_it(
    lanes: int, cores: int, threads: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("posterity.families.mujoco._cores", lambda: cores)
    with HopperGravity().prestep(lanes_of("hopper-gravity", "paper", lanes)) as physics:
        assert isinstance(physics, BatchedPhysics) == (threads > 0)
        if isinstance(physics, BatchedPhysics):
            assert len(physics.workers) == threads
    if physics is not None:
        with pytest.raises(RuntimeError, match="shutdown"):
            physics([0], np.zeros((lanes, 3)))


def test_without_mujoco_the_family_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def absent(name: str, *rest):
        if name == "mujoco":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match=r"pip install 'posterity\[mujoco\]'"):
        HopperGravity()

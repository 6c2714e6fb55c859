"""The learner of a run in a program of one's own."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import posterity
from posterity import tree
from posterity.errors import UserError
from posterity.experiment.learner import Learner
from posterity.families.pendulum import PendulumGravity, PendulumSettings
from posterity.types import Key

STEPS = 8
# The same as in the other tests of short runs on the pendulum, so that what is compiled is compiled once.
AGENT = {
    "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
    "learner": {"gradient_steps": 3, "task_batch_size": 8, "world_batch_size": 4},
    "network": {"hidden": [8, 8]},
    "task_min_transitions": 8,
    "world_iterations": 1,
}


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    changes: dict[str, Any] = {"tasks": 2, "iterations": 2, "steps_per_iteration": STEPS, "seeds": 2, "agent": AGENT}
    posterity.run("pendulum-gravity", out=path, env={"max_episode_steps": 8}, **changes)
    return path


def pendulum() -> gymnasium.Env[Any, Any]:
    family = PendulumGravity(PendulumSettings(max_episode_steps=5))
    return family.make(family.tasks(Key.of(9), 1)[0])


def live(learner: Learner, iterations: int) -> list[np.ndarray]:
    """A program of one's own: a task of so many iterations, and the actions it took."""
    env, actions, done = pendulum(), [], 0
    learner.begin_task()
    obs, _ = env.reset(seed=0)
    while done < iterations:
        actions.append(learner.act(obs))
        obs, reward, terminated, truncated, _ = env.step(actions[-1])
        if learner.observe(float(reward), obs, terminated, truncated):
            info = learner.update()
            assert all(value.shape == () for value in info.values())
            done += 1
        if terminated or truncated:
            obs, _ = env.reset()
    return actions


def test_it_acts_observes_and_learns_and_the_folder_is_only_read(run: Path):
    before = files(run)
    learner = posterity.load(run)
    old = tree.copied(learner.state)
    actions = live(learner, 2)
    assert len(actions) == 2 * STEPS
    assert all(action.shape == (1,) and np.abs(action) <= 2 for action in actions)
    changed = [
        name
        for (name, one), (_, other) in zip(tree.leaves(old), tree.leaves(learner.state), strict=True)
        if not np.array_equal(np.asarray(one), np.asarray(other))
    ]
    assert any("world" in name for name in changed)
    assert files(run) == before


def test_the_same_program_acts_the_same_again_warmed_up_or_not(run: Path):
    plain, warm = posterity.load(run, lane=1), posterity.load(run, lane=1)
    warm.warm_up()
    for one, other in zip(live(plain, 2), live(warm, 2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_all_lanes_act_side_by_side(run: Path):
    learner = posterity.load(run, lane=None)
    learner.begin_task()
    assert learner.lanes == 2
    actions = learner.act(np.ones((2, 3)))
    assert actions.shape == (2, 1)
    assert not learner.observe([0.0, 1.0], np.ones((2, 3)), [False, True])
    with pytest.raises(UserError, match="There are 2 lanes"):
        learner.act(np.ones((3, 3)))


def test_room_is_what_was_asked_for_and_is_said_when_it_is_used_up(run: Path):
    learner = posterity.load(run, tasks=1, iterations=3)
    with pytest.raises(UserError, match="between two tasks"):
        learner.act(np.ones(3))
    live(learner, 3)
    with pytest.raises(UserError, match="has had all its iterations"):
        learner.act(np.ones(3))
    with pytest.raises(UserError, match=r"posterity\.load\(\.\.\., tasks=N\)"):
        learner.begin_task()


def test_a_misstep_is_said_in_one_line(run: Path):
    learner = posterity.load(run)
    learner.begin_task()
    with pytest.raises(UserError, match="act first"):
        learner.observe(0.0, np.ones(3), False)
    learner.act(np.ones(3))
    learner.observe(0.0, np.ones(3), False)
    with pytest.raises(UserError, match=f"has {STEPS} steps, and 1 were observed"):
        learner.update()
    for load in (
        lambda: posterity.load(run, lane=2),
        lambda: posterity.load(run, tasks=0),
        lambda: posterity.load(run, iterations=1),
    ):
        with pytest.raises(UserError):
            load()


def test_a_run_stopped_within_a_task_goes_on_with_it(iterate, tmp_path: Path):
    from posterity.experiment.config import resolve
    from posterity.experiment.folder import RunFolder

    config = resolve("item-search", "blrl", "quick", {"tasks": 2, "iterations": 3, "steps_per_iteration": 4})
    folder = RunFolder.create(tmp_path / "run", config, "test")
    iterate(config, folder, 1)
    folder.close()
    learner = posterity.load(tmp_path / "run")
    assert learner.iterations_left == 2
    action = learner.act(0)
    assert action.shape == ()
    assert not learner.observe(0.0, 1, False)

"""A controller acts, adapts, learns and keeps what it learned."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import posterity
from posterity import tree
from posterity.control import familiarity
from posterity.control.controller import Controller
from posterity.control.machine import read_machine
from posterity.control.pilots import ModelPilot
from posterity.errors import UserError
from posterity.families.pendulum import PendulumGravity
from posterity.types import Task, Transition

OBS = np.array([1.0, 0.0, 0.0], np.float32)


@pytest.fixture(scope="module")
def controller(machine_file: Path):
    """One that does not learn, so that tests may share it."""
    with posterity.Controller.load(machine_file) as loaded:
        loaded.warm_up()
        yield loaded


def play(controller: Controller, steps: int, gravity: float = 1.0, budget_ms: float | None = None) -> None:
    env = PendulumGravity().make(Task(0, "", {"gravity": gravity}))
    obs = env.reset(seed=0)[0]
    for _ in range(steps):
        action = controller.act(obs, budget_ms)
        following, reward, terminated, truncated, _ = env.step(action)
        controller.observe(obs, action, float(reward), following, terminated, truncated)
        obs = env.reset()[0] if terminated or truncated else following


def numbers(controller: Controller) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in tree.leaves(controller._state)}  # pyright: ignore[reportPrivateUsage]


def test_an_action_is_within_the_bounds_whatever_the_budget(controller: Controller):
    for budget in (None, 0.0, 1.0, 50.0):
        action = controller.act(OBS, budget, first=True)
        assert action.shape == (1,)
        assert action.dtype == np.float32
        assert -2.0 <= action[0] <= 2.0


def test_with_time_enough_the_search_is_the_one_of_the_training(controller: Controller):
    controller.act(OBS, None, first=True)
    pilot = controller._pilot  # pyright: ignore[reportPrivateUsage]
    assert isinstance(pilot, ModelPilot)
    assert controller.iterations == 3
    assert pilot.search.rungs[-1].planner.candidates == 32


def test_nothing_is_traced_again_after_the_warm_up(controller: Controller):
    pilot = controller._pilot  # pyright: ignore[reportPrivateUsage]
    assert isinstance(pilot, ModelPilot)
    programs = [*(rung.improve for rung in pilot.search.rungs), pilot._forecast, pilot._explains]  # pyright: ignore[reportPrivateUsage]
    assert [program.traces for program in programs] == [1] * len(programs)
    play(controller, 12, budget_ms=5.0)
    controller.act(OBS, None)
    controller.uncertainty(OBS, [0.5])
    controller.is_familiar()
    assert [program.traces for program in programs] == [1] * len(programs)


@pytest.mark.parametrize(
    ("obs", "says"),
    [
        ([1.0, 0.0], r"The observation has shape \(2,\); this machine's has \(3,\)"),
        ([[1.0, 0.0, 0.0]], r"has shape \(1, 3\)"),
        ([1.0, np.nan, 0.0], "not finite"),
        ([1.0, np.inf, 0.0], "not finite"),
        (["a", "b", "c"], "not an array of numbers"),
        (None, r"has shape \(\)"),
    ],
)
def test_a_wrong_observation_is_one_line(controller: Controller, obs: object, says: str):
    with pytest.raises(UserError, match=says):
        controller.act(obs)
    with pytest.raises(UserError, match=says.replace("The observation", "The next observation")):
        controller.observe(OBS, [0.0], 0.0, obs)


def test_wrong_actions_rewards_and_budgets_are_one_line(controller: Controller):
    with pytest.raises(UserError, match=r"The action has shape \(2,\)"):
        controller.observe(OBS, [0.0, 0.0], 0.0, OBS)
    with pytest.raises(UserError, match="The reward is nan"):
        controller.observe(OBS, [0.0], float("nan"), OBS)
    for budget in (-1.0, float("nan")):
        with pytest.raises(UserError, match="budget_ms is"):
            controller.act(OBS, budget)


def test_uncertainty_is_in_the_units_of_the_environment(controller: Controller):
    told = controller.uncertainty(OBS, [0.5])
    assert told.next_obs.shape == told.aleatoric_obs.shape == told.epistemic_obs.shape == (3,)
    assert min(told.aleatoric_reward, told.epistemic_reward, *told.aleatoric_obs, *told.epistemic_obs) > 0
    assert abs(told.next_obs - OBS).max() < 2.0


def test_far_from_all_experience_it_knows_less_and_chance_is_not_taken_for_ignorance(controller: Controller):
    near, far = controller.uncertainty(OBS, [0.0]), controller.uncertainty(20.0 * OBS, [0.0])
    assert (far.epistemic_obs > near.epistemic_obs).all()


def test_a_machine_unlike_all_before_is_told(controller: Controller):
    """Gravity of the training is 0.5 to 1.5. With ten times as much the pendulum does what no task did."""
    assert controller.is_familiar(), "before there are steps to judge by"
    play(controller, 60, budget_ms=1.0)
    usual = controller.surprise()
    assert controller.is_familiar()
    play(controller, 60, gravity=10.0, budget_ms=1.0)
    assert controller.surprise() > usual
    assert not controller.is_familiar()


def test_steps_may_come_from_several_threads(controller: Controller):
    errors: list[BaseException] = []

    def work() -> None:
        try:
            play(controller, 10, budget_ms=1.0)
            controller.uncertainty(OBS, [0.0])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_learning_goes_on_beside_acting_and_is_kept(machine_file: Path, tmp_path: Path):
    with Controller.load(machine_file, learn=True) as controller:
        before = numbers(controller)
        play(controller, 35, budget_ms=1.0)
        assert controller.wait_for_learning(300.0)
        assert controller.progress == (1, 0, "")
        after = numbers(controller)
        assert after["state.iteration"] == before["state.iteration"] + 1
        assert any((after[name] != before[name]).any() for name in after if name.startswith("state.task.posterior"))
        filled = "state.replay.filled"
        assert (after[filled] - before[filled]).tolist() == [[0, 30, 0]]
        controller.save(tmp_path / "kept")
    kept = read_machine(tmp_path / "kept")
    assert kept.header.updates == 1
    assert kept.header.made["saved"]
    with Controller.load(tmp_path / "kept") as again:
        for name, value in numbers(again).items():
            np.testing.assert_array_equal(value, kept.arrays[name])


def test_a_full_memory_is_thinned_and_learning_goes_on(machine_file: Path):
    """It has room for 120 transitions of a task, of which 90 came with the file."""
    with Controller.load(machine_file, learn=True) as controller:
        for _ in range(3):
            play(controller, 30, budget_ms=0.0)
            assert controller.wait_for_learning(300.0)
        assert controller.progress.updates == 3
        filled = numbers(controller)["state.replay.filled"][0]
        assert filled[1] <= 120
        assert filled[0] == 90, "earlier tasks are not forgotten"


def test_another_machine_begins_with_the_world_posterior_while_there_is_room(machine_file: Path):
    with Controller.load(machine_file, room=1) as controller:
        controller.begin_task()
        state = numbers(controller)
        for name in (name for name in state if name.startswith("state.task.posterior")):
            np.testing.assert_array_equal(state[name], state[name.replace("state.task", "state.world")])
        assert controller.header.tasks == 3
        controller.act(OBS, 0.0)
        with pytest.raises(UserError, match="no memory for another task"):
            controller.begin_task()


def test_more_room_can_be_asked_for_when_a_file_is_loaded(machine_file: Path):
    with Controller.load(machine_file, room=4) as controller:
        memory, kept = numbers(controller), read_machine(machine_file).arrays
        assert memory["state.replay.reward"].shape == (1, 6, 120)
        np.testing.assert_array_equal(memory["state.replay.obs"][:, :2], kept["state.replay.obs"][:, :2])
        for _ in range(4):
            controller.begin_task()


def test_before_anything_is_compiled_an_action_comes_at_once(machine_file: Path):
    """A search takes seconds to compile, so a second tells the two apart on any machine."""
    with Controller.load(machine_file) as controller:
        began = time.perf_counter()
        controller.act(OBS, 10.0)
        assert time.perf_counter() - began < 1.0


def test_a_short_window_is_filled_up_with_its_oldest_step():
    step = [np.array(number, np.float32) for number in range(6)]
    rows = familiarity.padded([Transition(*step)] * 3)
    assert np.asarray(rows.reward).tolist() == [2.0] * familiarity.WINDOW

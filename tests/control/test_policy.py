"""What acts, by itself: on NumPy alone, and in a file of its own."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import posterity
from posterity.agents.host_actor import HostActor
from posterity.agents.vblrl_state import VblrlState
from posterity.cli import main
from posterity.commands.playing import MachinePlayer
from posterity.control.machine import FUNCTION, Machine, read_machine, write_machine
from posterity.control.server import Session, Step
from posterity.errors import UserError
from posterity.experiment.evaluate import never
from posterity.types import Key, Spec

METHODS = ["vblrl", "actor-critic", "npg", "lpg-ftw"]
OBS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Files = dict[str, tuple[Path, Path]]


def rewritten(path: Path, machine: Machine, arrays: dict[str, np.ndarray], **header: object) -> Path:
    """A file with some arrays and fields changed, and the right checksum."""
    fields = machine.header.model_copy(update=header)
    write_machine(path, Machine(fields, machine.arrays | arrays))
    return path


@pytest.mark.parametrize("method", METHODS)
def test_a_policy_acts_as_the_controller_of_the_whole_learner_does(policy_files: Files, method: str):
    whole, alone = policy_files[method]
    with posterity.Controller.load(whole) as controller, posterity.Controller.load(alone) as small:
        controller.warm_up(1.0)
        wanted = [controller.act(obs, 1.0) for obs in OBS]
        assert np.ptp(wanted) > 1e-3, "it depends on what is observed"
        for actor in (posterity.PlainPolicy.load(whole), posterity.PlainPolicy.load(alone), small):
            np.testing.assert_allclose([actor.act(obs) for obs in OBS], wanted, rtol=1e-5, atol=1e-6)


def test_the_actor_that_the_guard_lets_play_acts(policy_files: Files, tmp_path: Path):
    """Not the learning one, which steps aside when it has become worse. So it is when a run is evaluated."""
    machine = read_machine(policy_files["vblrl"][0])
    kept = {name: 0.5 * array for name, array in machine.arrays.items() if name.startswith("state.guard.playing")}
    path = rewritten(tmp_path / "m", machine, kept)
    policy = posterity.PlainPolicy.load(path)
    assert not np.allclose(policy.act(OBS[0]), posterity.PlainPolicy.load(policy_files["vblrl"][0]).act(OBS[0]))
    with posterity.Controller.load(path) as controller:
        np.testing.assert_allclose(policy.act(OBS[0]), controller.act(OBS[0]), rtol=1e-5)


def test_a_task_that_was_not_met_begins_with_the_learning_actor(policy_runs: dict[str, Path], tmp_path: Path):
    for flags in ([], ["--policy"]):
        path = str(tmp_path / f"m{len(flags)}")
        assert main(["export", str(policy_runs["vblrl"]), "--out", path, "--task", "new", *flags]) == 0
    whole, alone = tmp_path / "m0", tmp_path / "m1"
    arrays = read_machine(whole).arrays
    learning = {name: array for name, array in arrays.items() if name.startswith("state.actor.now.actor.")}
    assert learning
    for name, array in learning.items():
        np.testing.assert_array_equal(arrays[name.replace("actor.now.actor", "guard.playing")], array)
    one, other = (posterity.PlainPolicy.load(path).act(OBS[0]) for path in (whole, alone))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", METHODS)
def test_acting_loads_no_jax(policy_files: Files, method: str):
    for path in policy_files[method]:
        code = (
            f"import sys, posterity; policy = posterity.PlainPolicy.load({str(path)!r}); "
            "assert policy.act([1, 0, 0]).shape == (1,); "
            "assert not {'jax', 'gymnasium', 'optax', 'scipy'} & {*sys.modules}"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_says_that_it_holds_a_policy_only(policy_files: Files):
    whole, alone = (read_machine(path) for path in policy_files["vblrl"])
    assert (whole.header.policy, alone.header.policy) == (None, "actor")
    assert {name: array.shape for name, array in alone.arrays.items()} == {
        "state.0.weight": (3, 128),
        "state.0.bias": (128,),
        "state.1.weight": (128, 128),
        "state.1.bias": (128,),
        "state.2.weight": (128, 2),
        "state.2.bias": (2,),
    }
    assert policy_files["vblrl"][1].stat().st_size < 100 * 2**10
    same = ("method", "family", "env", "agent", "spec", "tasks", "seed")
    assert all(whole.header.model_dump()[name] == alone.header.model_dump()[name] for name in same)
    assert {"commit", "command"} <= alone.header.made.keys()


def test_an_actor_goes_on_learning_where_the_whole_learner_is_there(policy_files: Files, tmp_path: Path):
    whole = policy_files["vblrl"][0]
    with posterity.Controller.load(whole, learn=True) as controller:
        before, count = controller.act(OBS[0], 1.0), controller.header.budget[2]
        for step in range(count):
            controller.observe(OBS[step % 20], [0.5], -1.0, OBS[(step + 1) % 20], truncated=step == count - 1)
        assert controller.wait_for_learning(timeout=120)
        assert (controller.progress.updates, controller.progress.error) == (1, "")
        after = controller.act(OBS[0], 1.0)
        controller.save(tmp_path / "after")
    assert not np.array_equal(before, after)
    np.testing.assert_allclose(posterity.PlainPolicy.load(tmp_path / "after").act(OBS[0]), after, rtol=1e-5)


def test_what_takes_a_learner_is_refused_in_one_line(policy_file: Path):
    with pytest.raises(UserError, match=r"Learning .* holds only what acts: export the run without --policy"):
        posterity.Controller.load(policy_file, learn=True)
    with posterity.Controller.load(policy_file) as controller:
        asked = {
            "uncertainty": lambda: controller.uncertainty(OBS[0], [0.0]),
            "is_familiar": controller.is_familiar,
            "begin_task": controller.begin_task,
        }
        for what, call in asked.items():
            with pytest.raises(UserError, match=f"^{what} needs the whole learner"):
                call()


def test_a_controller_of_a_policy_saves_it_as_it_was(policy_file: Path, tmp_path: Path):
    with posterity.Controller.load(policy_file) as controller:
        controller.warm_up()
        controller.observe(OBS[0], [0.0], 1.0, OBS[1])
        controller.save(tmp_path / "saved")
    before, after = read_machine(policy_file).arrays, read_machine(tmp_path / "saved").arrays
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])


def test_a_policy_plays_the_tasks_of_its_family(policy_file: Path, capfd: pytest.CaptureFixture[str]):
    player = MachinePlayer(policy_file, trust=False)
    player.family.spec = player.family.spec._replace(max_episode_steps=6)
    [clip] = player.clips([1], never)
    assert len(clip.shots) == 7
    assert all(shot.forecast is None for shot in clip.shots), "it has no model to expect anything with"
    assert main(["evaluate", str(policy_file), "--episodes", "1"]) == 0
    assert "task 2, gravity x" in capfd.readouterr().out


def test_a_policy_is_served(policy_file: Path):
    with posterity.Controller.load(policy_file) as controller:
        session = Session(controller, budget_ms=1.0)
        reply = session.step(Step(obs=(1.0, 0.0, 0.0), first=True))
        assert (reply["uncertainty"], reply["familiar"]) == (None, None)
        np.testing.assert_allclose(reply["action"], posterity.PlainPolicy.load(policy_file).act([1, 0, 0]))
        assert session.step(Step(obs=(1.0, 0.0, 0.0), reward=0.0, truncated=True))["action"] is None


def test_a_learner_that_plans_has_no_policy_to_export(learned_run: Path, tmp_path: Path, capfd):
    assert main(["export", str(learned_run), "--out", str(tmp_path / "m"), "--policy"]) == 2
    said = capfd.readouterr().err
    assert "'vblrl', which acts by planning with all it knows, and has no policy to export alone" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ["--task", "new"],
            "its actor has learned nothing yet, because 'actor-critic' begins every task with a new one",
        ),
        (["--memory", "60"], "--memory and --room are for a file that can go on learning"),
    ],
)
def test_a_policy_that_cannot_be_exported_is_one_line(policy_runs, tmp_path: Path, capfd, flags, says):
    assert main(["export", str(policy_runs["actor-critic"]), "--out", str(tmp_path / "m"), "--policy", *flags]) == 2
    assert says in capfd.readouterr().err
    assert not (tmp_path / "m").exists()


def test_an_actor_that_learned_nothing_is_not_taken_for_a_policy(policy_files: Files, tmp_path: Path):
    count = {"state.training.actor_optimiser.count": np.zeros(1, np.int32)}
    path = rewritten(tmp_path / "m", read_machine(policy_files["actor-critic"][0]), count)
    with pytest.raises(UserError, match="has learned nothing yet"):
        posterity.PlainPolicy.load(path)


def test_a_known_reward_is_not_needed_to_act(policy_files: Files, tmp_path: Path):
    machine = read_machine(policy_files["actor-critic"][0])
    path = rewritten(tmp_path / "m", machine, {}, spec={**machine.header.spec, "reward": FUNCTION})
    with pytest.raises(UserError, match="load it with reward="):
        posterity.Controller.load(path)
    wanted = posterity.PlainPolicy.load(policy_files["actor-critic"][0]).act(OBS[0])
    np.testing.assert_array_equal(posterity.PlainPolicy.load(path).act(OBS[0]), wanted)


def test_no_code_of_its_method_runs_for_a_policy(policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "planted.py").write_text("raise RuntimeError('this code ran')\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    path = rewritten(tmp_path / "m", read_machine(policy_file), {}, method="planted:Method")
    with posterity.Controller.load(path, trust=True) as controller:
        assert controller.act(OBS[0]).shape == (1,)


@pytest.mark.parametrize("obs", [[1.0, 0.0], [1.0, 0.0, np.nan], [[1.0, 0.0, 0.0]]])
def test_a_wrong_observation_is_one_line(policy_file: Path, obs: object):
    with pytest.raises(UserError, match="this machine's has 3 finite numbers"):
        posterity.PlainPolicy.load(policy_file).act(obs)


def test_a_controller_takes_no_functions_for_a_policy(policy_file: Path):
    with pytest.raises(UserError, match="load it without reward= and terminated="):
        posterity.Controller.load(policy_file, reward=lambda obs, action, following: obs[:, 0])


def test_an_actor_beside_a_plan_acts_at_once_and_the_search_goes_on_from_it(proposing_file: Path):
    """Without time the action is the actor's. With time the search begins, in a new episode, from what it proposes."""
    obs = np.array([1.0, 0.0, 0.0], np.float32)
    with posterity.Controller.load(proposing_file) as controller:
        at_once = controller.act(obs, budget_ms=0.0, first=True)
        whole = controller.act(obs, first=True)
        again = controller.act(obs, budget_ms=0.0)
        state = controller._state
        assert isinstance(state, VblrlState)
        assert state.actor is not None
        keys, actor = [Key.of(0)], state.actor.now.actor
        assert isinstance(controller.spec, Spec)
        its_own = HostActor(controller.spec).act(keys, obs[None], actor, state.normaliser, explores=False)[0]
    np.testing.assert_allclose(at_once, its_own, rtol=1e-6)
    np.testing.assert_allclose(again, its_own, rtol=1e-6)
    assert whole != at_once


def test_an_actor_that_is_told_the_latent_follows_the_machine_and_its_policy_does_not(told_files: tuple[Path, Path]):
    """A controller's action in one place changes with what it has observed; without that it is the policy's."""
    plain = [posterity.PlainPolicy.load(path) for path in told_files]
    for path, policy in zip(told_files, plain, strict=True):
        with posterity.Controller.load(path) as controller:
            before = np.stack([controller.act(obs) for obs in OBS])
            for here, there in pairwise(OBS):
                controller.observe(here, [0.5], -1.0, there)
            after = np.stack([controller.act(obs) for obs in OBS])
        assert (before != after).any() == (path == told_files[0])
        np.testing.assert_allclose([policy.act(obs) for obs in OBS], before, rtol=1e-5, atol=1e-6)
    for obs in OBS:
        np.testing.assert_array_equal(plain[0].act(obs), plain[1].act(obs))

"""`posterity export`: one learner of a run, with a bounded memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posterity
from posterity.cli import main
from posterity.control.controller import Controller
from posterity.control.machine import read_machine
from posterity.errors import UserError
from posterity.experiment import checkpoint
from posterity.types import FiniteSpec


def test_a_file_holds_the_lane_that_was_asked_for(learned_run: Path, machine_file: Path):
    machine = read_machine(machine_file)
    state = checkpoint.safe_open(learned_run / "checkpoints" / "state.safetensors", framework="numpy")  # pyright: ignore[reportPrivateImportUsage]
    name = "state.task.posterior.mean.0.weight"
    with state as file:
        np.testing.assert_array_equal(machine.arrays[name][0], file.get_tensor(name)[1])
    header = machine.header
    assert (header.seed, header.tasks, header.method, header.family) == (1, 2, "vblrl", "pendulum-gravity")
    assert header.calibration is not None
    assert {"commit", "jax", "posterity", "command"} <= header.made.keys()


def test_memory_of_each_task_is_bounded_and_there_is_room_for_another(machine_file: Path):
    arrays = read_machine(machine_file).arrays
    assert arrays["state.replay.reward"].shape == (1, 3, 120)
    assert arrays["state.replay.filled"].tolist() == [[90, 90, 0]]


def test_what_does_not_fit_is_thinned_evenly(learned_run: Path, tmp_path: Path):
    assert main(["export", str(learned_run), "--out", str(tmp_path / "m"), "--memory", "60"]) == 0
    arrays = read_machine(tmp_path / "m").arrays
    assert arrays["state.replay.filled"].tolist() == [[30, 30, 0]]


def test_a_machine_that_was_not_met_begins_with_the_world_posterior(learned_run: Path, tmp_path: Path):
    assert main(["export", str(learned_run), "--out", str(tmp_path / "m"), "--task", "new", "--memory", "120"]) == 0
    machine = read_machine(tmp_path / "m")
    assert machine.header.tasks == 3
    assert machine.arrays["state.task_number"] == 2
    for name in (name for name in machine.arrays if name.startswith("state.task.posterior")):
        np.testing.assert_array_equal(machine.arrays[name], machine.arrays[name.replace("state.task.", "state.world.")])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--seed", "5"], "has no seed 5; it has 0 to 1"),
        (["--memory", "40"], "less than two iterations of 30"),
        (["--out", "nowhere/m"], "There is no folder nowhere"),
        (["--task", "third"], "--task: input should be 'latest' or 'new'"),
    ],
)
def test_what_cannot_be_exported_is_one_line(learned_run: Path, tmp_path: Path, monkeypatch, capfd, args, says):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(learned_run), *args]) == 2
    assert says in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_not_overwritten_unasked(learned_run: Path, machine_file: Path, capfd):
    assert main(["export", str(learned_run), "--out", str(machine_file)]) == 2
    assert "--force replaces it" in capfd.readouterr().err


def test_a_finite_task_is_acted_in_and_learned_from_at_every_step(tmp_path: Path):
    """The counts of the file's own task grow by what is observed, and `save` keeps them."""
    posterity.run("random-mdp", out=tmp_path / "run", tasks=2, iterations=1)
    path = tmp_path / "m.posterity"
    assert main(["export", str(tmp_path / "run"), "--out", str(path)]) == 0
    with posterity.Controller.load(path) as controller:
        assert isinstance(controller.spec, FiniteSpec)
        states, actions = controller.spec.states, controller.spec.actions
        for step in range(20):
            action = controller.act(step % states)
            assert 0 <= action < actions
            controller.observe(step % states, action, float(controller.spec.levels[0]), (step + 1) % states)
        controller.save(tmp_path / "after.posterity")
        with pytest.raises(UserError, match="0 to"):
            controller.act(states)
    before, after = (read_machine(tmp_path / name).arrays for name in ("m.posterity", "after.posterity"))
    assert any(not np.array_equal(before[name], after[name]) for name in before)


def test_a_policy_is_played_too_and_says_what_it_cannot(tmp_path: Path):
    posterity.run(
        "pendulum-gravity",
        method="npg",
        out=tmp_path / "run",
        tasks=1,
        iterations=2,
        steps_per_iteration=40,
        agent={"hidden": [8]},
    )
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "m"), "--memory", "80"]) == 0
    with Controller.load(tmp_path / "m") as controller:
        controller.warm_up()
        obs = [1.0, 0.0, 0.0]
        action = controller.act(obs, 1.0)
        np.testing.assert_array_equal(action, controller.act(obs, 1.0))
        np.testing.assert_allclose(posterity.PlainPolicy.load(tmp_path / "m").act(obs), action, rtol=1e-5)
        controller.observe(obs, action, 0.0, obs)
        for asked in (lambda: controller.uncertainty(obs, action), controller.is_familiar):
            with pytest.raises(posterity.errors.UserError):
                asked()
    with pytest.raises(posterity.errors.UserError, match="'npg' cannot go on learning"):
        Controller.load(tmp_path / "m", learn=True)
    code = (
        f"import sys, posterity; policy = posterity.PlainPolicy.load({str(tmp_path / 'm')!r}); "
        "assert policy.act([1, 0, 0]).shape == (1,); assert not {'jax', 'gymnasium', 'optax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plain_policy_refuses_what_it_cannot_play(machine_file: Path):
    with pytest.raises(posterity.errors.UserError, match="plans and has no policy: use Controller"):
        posterity.PlainPolicy.load(machine_file)

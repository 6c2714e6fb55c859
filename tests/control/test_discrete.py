"""Discrete actions and a learned termination, from a run to a machine."""

import json
from pathlib import Path

import numpy as np
import pytest

import posterity
from posterity.cli import main
from posterity.errors import UserError

FAMILY = f"{Path(__file__).parents[2] / 'examples' / 'cartpole_masses.py'}:family"
AGENT = {
    "planner": {"horizon": 5, "candidates": 16, "elites": 4, "cem_iterations": 2, "particles": 2},
    "learner": {"gradient_steps": 20, "task_batch_size": 16, "world_batch_size": 8},
    "network": {"hidden": [8, 8]},
    "task_min_transitions": 40,
    "world_iterations": 1,
}


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("discrete") / "run"
    posterity.run(FAMILY, out=out, agent=AGENT, tasks=2, iterations=3, steps_per_iteration=40)
    return out


def test_a_run_with_discrete_actions_learns_when_episodes_end(cartpole: Path):
    records = [json.loads(line) for line in (cartpole / "records.jsonl").read_text().splitlines()]
    iterations = [line for line in records if line["kind"] == "iteration"]
    assert len({line["factors"]["pole"] for line in records if line["kind"] == "task"}) == 2
    assert all(0.5 <= line["termination_accuracy"] <= 1.0 for line in iterations)
    assert np.isfinite([line["world_loss"] for line in iterations]).all()


def test_a_controller_acts_with_numbers_and_goes_on_learning(cartpole: Path):
    out = cartpole.parent / "machine.posterity"
    assert main(["export", str(cartpole), "--out", str(out), "--memory", "120"]) == 0
    with posterity.Controller.load(out, learn=True) as controller:
        obs = np.zeros(4)
        for step in range(40):
            action = controller.act(obs)
            assert action.shape == ()
            assert action in (0, 1)
            controller.observe(obs, action, 1.0, obs + 0.01, terminated=step == 20)
        assert controller.wait_for_learning(120.0)
        assert controller.progress.updates == 1, controller.progress
        assert np.isfinite(controller.uncertainty(obs, 1).next_obs).all()
        for wrong in (2, -1, 0.5, [1.0, 0.0]):
            with pytest.raises(UserError, match="this machine's are the numbers 0 to 1"):
                controller.uncertainty(obs, wrong)


def test_model_free_baselines_refuse_discrete_actions_in_one_line(tmp_path: Path):
    with pytest.raises(UserError, match="this family's actions are discrete; use vblrl"):
        posterity.run(FAMILY, method="npg", out=tmp_path / "run")

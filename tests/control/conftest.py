"""A machine file of a small learner that has met two tasks."""

from pathlib import Path

import pytest

AGENT = {
    "planner": {"horizon": 5, "candidates": 32, "elites": 6, "cem_iterations": 3, "particles": 4},
    "learner": {"gradient_steps": 20, "task_batch_size": 16, "world_batch_size": 8},
    "network": {"hidden": [16, 16]},
    "task_min_transitions": 30,
    "world_iterations": 1,
}


@pytest.fixture(scope="session")
def learned_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two lanes on the pendulum."""
    import posterity

    out = tmp_path_factory.mktemp("control") / "run"
    posterity.run("pendulum-gravity", out=out, agent=AGENT, tasks=2, iterations=3, steps_per_iteration=30, seeds=2)
    return out


@pytest.fixture(scope="session")
def machine_file(learned_run: Path) -> Path:
    """Its second lane as a machine file."""
    from posterity.cli import main

    out = learned_run.parent / "machine.posterity"
    assert main(["export", str(learned_run), "--out", str(out), "--seed", "1", "--memory", "120"]) == 0
    return out

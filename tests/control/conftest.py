"""Machine files of small learners that have met two tasks."""

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


@pytest.fixture(scope="session")
def policy_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each method in which a network acts, on the pendulum."""
    import posterity

    folder = tmp_path_factory.mktemp("policies")
    planner = AGENT["planner"] | {"cem_iterations": 0}
    agents = {
        "vblrl": AGENT | {"planner": planner, "policy": {"updates_per_step": 1}},
        "actor-critic": {"hidden": [16, 16], "updates_per_step": 1},
        "npg": {"hidden": [8]},
        "lpg-ftw": {},
    }
    for method, agent in agents.items():
        out = folder / method
        posterity.run(
            "pendulum-gravity", method=method, out=out, agent=agent, tasks=2, iterations=2, steps_per_iteration=30
        )
    return {method: folder / method for method in agents}


@pytest.fixture(scope="session")
def policy_files(policy_runs: dict[str, Path]) -> dict[str, tuple[Path, Path]]:
    """Of each of these runs the whole learner and its policy, as machine files."""
    from posterity.cli import main

    made: dict[str, tuple[Path, Path]] = {}
    for method, run in policy_runs.items():
        whole, alone = made[method] = run.with_suffix(".posterity"), run.with_suffix(".policy.posterity")
        assert main(["export", str(run), "--out", str(whole), "--memory", "60"]) == 0
        assert main(["export", str(run), "--out", str(alone), "--policy"]) == 0
    return made


@pytest.fixture(scope="session")
def policy_file(policy_files: dict[str, tuple[Path, Path]]) -> Path:
    """The policy of vblrl."""
    return policy_files["vblrl"][1]


@pytest.fixture(scope="session")
def proposing_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner whose actor proposes to a search."""
    import posterity
    from posterity.cli import main

    run = tmp_path_factory.mktemp("proposing") / "run"
    agent = AGENT | {"policy": {"updates_per_step": 1}}
    posterity.run("pendulum-gravity", out=run, agent=agent, tasks=1, iterations=2, steps_per_iteration=30)
    out = run.with_suffix(".posterity")
    assert main(["export", str(run), "--out", str(out), "--memory", "60"]) == 0
    return out


@pytest.fixture(scope="session")
def told_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A learner whose actor acts alone and is told the task's latent, and its policy."""
    import posterity
    from posterity.cli import main

    run = tmp_path_factory.mktemp("told") / "run"
    agent = AGENT | {
        "planner": AGENT["planner"] | {"cem_iterations": 0},
        "policy": {"updates_per_step": 2},
        "latent": {"size": 2},
    }
    posterity.run("pendulum-gravity", out=run, agent=agent, tasks=2, iterations=2, steps_per_iteration=30)
    whole, alone = run.with_suffix(".posterity"), run.with_suffix(".policy.posterity")
    assert main(["export", str(run), "--out", str(whole), "--task", "new", "--memory", "60"]) == 0
    assert main(["export", str(run), "--out", str(alone), "--task", "new", "--policy"]) == 0
    return whole, alone

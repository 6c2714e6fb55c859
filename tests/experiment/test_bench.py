import pytest

from posterity.experiment.bench import bench_env, bench_planner, bench_run
from posterity.experiment.config import resolve

AGENT = {
    "planner": {"horizon": 4, "candidates": 12, "elites": 3, "rounds": 2, "particles": 2},
    "learner": {"world_steps": 4, "task_steps": 4, "task_rows": 8, "world_rows": 4, "world_tasks": 2},
    "network": {"hidden": [8, 8]},
}


def test_the_forecast_of_a_run_is_its_iterations_at_the_measured_pace():
    config = resolve("pendulum-gravity", "vblrl", "quick", {"tasks": 7, "iterations": 50, "steps": 10, "agent": AGENT})
    [facts] = bench_run(config, 3)
    assert facts["measured_iterations"] == 3
    assert facts["whole_run_minutes"] * 60 == facts["seconds_per_iteration"] * 350
    parts = facts["planning"] + facts["learning"] + facts["simulation_and_the_rest"]
    assert abs(parts - facts["seconds_per_iteration"]) < 1e-9
    assert min(facts["planning"], facts["learning"]) > 0


def test_a_plan_is_timed_with_and_without_what_the_host_does():
    changes = {"tasks": 1, "iterations": 2, "steps": 10, "agent": AGENT}
    plain, backward, product = bench_planner(resolve("pendulum-gravity", "vblrl", "quick", changes))
    assert plain["program_ms"] > 0
    assert plain["ms"] > 0
    assert "program_ms" not in backward, "going back is timed as a whole"
    assert product["path"] == "matrix product"


def test_a_step_of_all_lanes_is_timed_in_every_way_there_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("posterity.families.mujoco._cores", lambda: 5)
    for family, lanes, ways in (("item-search", 2, 1), ("hopper-gravity", 1, 1), ("hopper-gravity", 4, 2)):
        [facts] = bench_env(resolve(family, None, "quick", {"tasks": 1, "iterations": 2, "seeds": lanes}))
        assert facts["lanes"] == lanes
        times = [value for name, value in facts.items() if name.startswith("us_")]
        assert len(times) == ways
        assert min(*times, facts["steps_per_second"]) > 0

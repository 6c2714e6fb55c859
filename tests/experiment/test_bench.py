"""Benches: what is timed, and that the numbers fit together. How fast anything is, no test says."""

from collections.abc import Callable

import pytest

from posterity.errors import UserError
from posterity.experiment.bench import Measurement, bench_env, bench_fit, bench_planner, bench_run
from posterity.experiment.config import RunConfig, resolve

# The same as in the other tests of short runs on the pendulum, so that what is compiled is compiled once.
AGENT = {
    "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
    "learner": {"gradient_steps": 3, "task_batch_size": 8, "world_batch_size": 4},
    "network": {"hidden": [8, 8]},
    "task_min_transitions": 8,
    "world_iterations": 1,
}
SMALL = {"tasks": 3, "iterations": 2, "steps_per_iteration": 8, "seeds": 2, "agent": AGENT}
SMALL["env"] = {"max_episode_steps": 8}


def number(facts: Measurement, name: str) -> float:
    """One of the facts that are numbers."""
    value = facts[name]
    assert isinstance(value, int | float)
    return value


def test_the_forecast_of_a_run_is_its_iterations_at_the_measured_pace():
    [facts] = bench_run(resolve("pendulum-gravity", "vblrl", "quick", SMALL), 3)
    assert facts["measured_iterations"] == 3
    each = number(facts, "seconds_per_iteration")
    assert number(facts, "whole_run_minutes") * 60 == pytest.approx(each * 6)
    parts = [number(facts, name) for name in ("planning", "learning", "simulation_and_the_rest")]
    assert sum(parts) == pytest.approx(each)
    assert min(parts) > 0


def test_a_run_of_an_agent_without_networks_is_timed_too():
    """It has no more iterations than are to be measured; the first is not counted."""
    [facts] = bench_run(resolve("item-search", "blrl", "quick", {"tasks": 1, "iterations": 3}), 9)
    assert facts["measured_iterations"] == 1
    assert facts["steps_per_iteration"] == 21
    assert number(facts, "planning") > 0


def test_a_plan_is_timed_with_and_without_what_the_host_does():
    plain, backward, product = bench_planner(resolve("pendulum-gravity", "vblrl", "quick", SMALL))
    assert [plain["path"], backward["path"], product["path"]] == ["plain", "backward", "matrix product"]
    assert plain["plan"] == "8 x 2 x 3 x 1"
    assert min(number(plain, "program_ms"), number(plain, "ms"), number(backward, "ms")) > 0
    assert "program_ms" not in backward, "going back is timed as a whole"


@pytest.mark.parametrize("bench", [bench_planner, bench_fit])
def test_an_agent_without_networks_has_no_plan_and_no_fit_to_time(bench: Callable[[RunConfig], list[Measurement]]):
    with pytest.raises(UserError, match="There is no dynamics model to bench for 'blrl'"):
        bench(resolve("item-search", "blrl", "quick"))


@pytest.mark.parametrize(
    ("family", "lanes", "ways"),
    [
        ("item-search", 2, {"us_one_after_the_other"}),
        ("hopper-gravity", 1, {"us_one_after_the_other"}),
        ("hopper-gravity", 4, {"us_one_after_the_other", "us_with_prestep"}),
    ],
)
def test_a_step_of_all_lanes_is_timed_in_every_way_there_is(
    family: str, lanes: int, ways: set[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("posterity.families.mujoco._cores", lambda: 5)
    [facts] = bench_env(resolve(family, None, "quick", {"tasks": 1, "iterations": 2, "seeds": lanes}))
    assert facts["lanes"] == lanes
    assert {name for name in facts if name.startswith("us_")} == ways
    assert all(number(facts, name) > 0 for name in (*ways, "steps_per_second"))

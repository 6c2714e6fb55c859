"""A slow planner is announced before the run."""

import pytest

from posterity.experiment import pace
from posterity.experiment.config import resolve
from posterity.experiment.run import build

TINY = {
    "network": {"hidden": (8, 8)},
    "planner": {"horizon": 4, "candidates": 12, "elites": 3, "particles": 2, "cem_iterations": 2},
}


def test_only_large_plans_are_timed():
    for preset, slow in (("quick", False), ("paper", True)):
        config = resolve("pendulum-gravity", "vblrl", preset)
        assert pace.may_be_slow(config, build(config)[1]) == slow


@pytest.mark.parametrize("method", ["vblrl", "single-task"])
def test_a_plan_is_timed_also_where_a_task_begins_with_random_actions(method: str):
    config = resolve("pendulum-gravity", method, "quick", {"agent": TINY})
    assert 0.0 < pace.plan_seconds(config, build(config)[1]) < 5.0


def test_a_method_that_does_not_plan_is_not_timed():
    config = resolve("item-search", "blrl", "quick")
    agent = build(config)[1]
    assert not pace.may_be_slow(config, agent)
    assert pace.plan_seconds(config, agent) == 0.0


def test_the_announcement_says_how_long_and_what_to_do():
    config = resolve("pendulum-gravity", "vblrl", "quick")  # 6400 plans
    assert pace.announcement(config, 0.01) == ""
    assert "one plan takes 500 ms on this machine, so 4 tasks x 8 iterations x 200 steps are about 53 minutes" in (
        pace.announcement(config, 0.5)
    )
    assert "3.6 hours" in pace.announcement(config, 2.0)
    assert "--preset quick" in pace.announcement(config, 2.0)

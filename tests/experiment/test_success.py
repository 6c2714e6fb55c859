"""Success on record, from the environment to the report, with a method that plans and one that has a policy.

What others ask of a family, these do too (agents/test_contract.py has all methods).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posterity
from posterity.experiment.evaluate import Plan, evaluate
from posterity.report.metrics import solved

pytest.importorskip("metaworld", reason="the extra is not installed: pip install 'posterity[metaworld]'")

POLICY = {"hidden": [4, 4], "value": {"epochs": 1}}
AGENTS: dict[str, Any] = {
    "vblrl": {
        "planner": {"horizon": 2, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
        "learner": {"gradient_steps": 2, "task_batch_size": 8, "world_batch_size": 4},
        "network": {"hidden": [8, 8]},
        "value": {"gradient_steps": 2},
        "task_min_transitions": 20,
        "world_iterations": 1,
    },
    "npg": POLICY,
}


@pytest.mark.parametrize("method", AGENTS)
def test_a_method_runs_on_kinds_of_tasks_in_turn_and_success_is_on_record(method: str, tmp_path: Path):
    budget: dict[str, Any] = {"tasks": 2, "iterations": 2, "steps_per_iteration": 20}
    budget["env"] = {"observation": "moving", "max_episode_steps": 10}
    run = posterity.run("mt10", out=tmp_path / "run", method=method, agent=AGENTS[method], **budget)
    assert np.isfinite(run.returns).all()
    assert set(np.unique(run.success)) <= {0.0, 0.5, 1.0}
    assert solved(run) is not None
    names = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert [line["name"] for line in names if line["kind"] == "task"] == ["reach", "push"]
    lines = evaluate(tmp_path / "run", Plan(scores=("train",), episodes=1), lambda *_: None)
    assert [line["success"] for line in lines] == [False] * 2, "nothing is reached in ten steps"


def test_a_family_that_does_not_tell_has_no_success_on_record(tmp_path: Path):
    budget = {"tasks": 1, "iterations": 1, "steps_per_iteration": 20, "agent": POLICY, "env": {"max_episode_steps": 10}}
    run = posterity.run("pendulum-gravity", out=tmp_path / "run", method="npg", **budget)
    assert solved(run) is None
    assert '"success"' not in (tmp_path / "run" / "records.jsonl").read_text()

"""The notebooks run from top to bottom, with tiny budgets, and have their outputs stored."""

import importlib.util
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
PLANS = {"horizon": 4, "candidates": 12, "elites": 3, "particles": 2, "cem_iterations": 1}
FITS: dict[str, Any] = {"network": {"hidden": [8, 8]}, "task_min_transitions": 10, "world_iterations": 1}
TINY: dict[str, dict[str, Any]] = {
    "first_lifelong_learner": {"TASKS": 4, "SEEDS": 2},
    "own_machine": {
        "BUDGET": {"tasks": 1, "iterations": 2, "steps_per_iteration": 60},
        "AGENT": {"planner": PLANS, "learner": {"gradient_steps": 4}, **FITS},
        "STEPS": 12,
    },
}


def read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def test_every_notebook_is_executed_below():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(TINY)


@pytest.mark.parametrize("name", TINY)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    assert spec is not None
    assert spec.loader is not None
    execute = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execute)
    monkeypatch.chdir(tmp_path)
    stored = read(name)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # a reader sees them, and goes on
        made = execute.executed(read(name), TINY[name])
    for cell, kept in zip(made["cells"], stored["cells"], strict=True):
        if cell["cell_type"] == "code":
            kinds = [output["output_type"] for output in cell["outputs"]]
            assert kinds == [output["output_type"] for output in kept["outputs"]], "stored outputs are of these cells"
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("name", TINY)
def test_a_notebook_has_its_outputs_stored_and_no_path_of_a_machine(name: str):
    text, cells = json.dumps(read(name)), read(name)["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"])
    assert len(text) < 500_000
    for place in ("/home/", "/work/", "/root/", "/tmp/"):
        assert place not in text

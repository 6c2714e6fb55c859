"""The soak tests in short: `make soak` runs them for long."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_killed_run_is_resumed_to_what_an_unbroken_one_leaves(capfd: pytest.CaptureFixture[str]):
    assert script("kills").soak(2, ["blrl"], seed=5, chain=2) == 0


def test_damaged_input_is_refused_in_one_line_or_harmless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert script("fuzz").fuzz(60, seed=7).found == []


def test_commands_of_the_pages_about_finite_families_run(tmp_path: Path):
    """In a process of its own: commands are forked from one in which nothing has been computed."""
    program = Path(__file__).with_name("printed.py")
    told = subprocess.run(
        [sys.executable, str(program), "--short", "--out", str(tmp_path / "told.json")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    ran = [
        each["printed"] for page in json.loads((tmp_path / "told.json").read_text())["pages"].values() for each in page
    ]
    assert {command.split()[1] for command in ran} >= {
        "run",
        "resume",
        "evaluate",
        "report",
        "export",
        "sweep",
        "theory",
    }

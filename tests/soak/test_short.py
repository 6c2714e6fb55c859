"""The soak tests in short: `make soak` runs them for long."""

import importlib.util
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

"""Latency and return against the budget are measured, never asserted."""

import json
from pathlib import Path

import pytest

from posterity.cli import main
from posterity.control.bench import bench_control
from posterity.control.controller import Controller
from posterity.errors import UserError


def test_every_action_is_counted_and_every_budget_is_played(machine_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("posterity.control.bench.BUDGETS", (0.0, None))
    with Controller.load(machine_file) as controller:
        facts = bench_control(controller, steps=12, episodes=1)
    assert [fact["measured"] for fact in facts] == ["latency", "latency", "return", "return"]
    for fact in facts[:2]:
        assert fact["budget_ms"] == 500.0 / fact["rate_hz"]
        assert 0 < fact["p50_ms"] <= fact["p99_ms"] <= fact["max_ms"]
    assert [fact["budget_ms"] for fact in facts[2:]] == [0.0, "whole search"]
    assert [fact["mean_cem_iterations"] for fact in facts[2:]] == [0.0, 3.0]
    assert all(len(fact["returns"]) == 1 and fact["mean_return"] < 0 for fact in facts[2:])


def test_code_is_not_run_for_a_files_sake(machine_file: Path):
    with Controller.load(machine_file) as controller:
        controller.header = controller.header.model_copy(update={"family": "os:system"})
        with pytest.raises(UserError, match="only posterity's own families"):
            bench_control(controller, 10, 1)


def test_the_machine_must_be_named(capfd):
    assert main(["bench", "control"]) == 2
    assert "Which machine?" in capfd.readouterr().err


def test_the_record_names_the_family_and_the_method_of_the_file(told_files: tuple[Path, Path], monkeypatch, capfd):
    monkeypatch.setattr("posterity.control.bench.BUDGETS", (0.0,))
    whole = str(told_files[0])
    command = ["bench", "control", "--machine", whole, "--steps", "10", "--episodes", "1", "--family", "point-goal"]
    assert main([*command, "--json"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert (record["subject"], record["family"], record["method"]) == ("control", "pendulum-gravity", "vblrl")
    assert "preset" not in record

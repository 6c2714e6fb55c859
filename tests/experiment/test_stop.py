"""Stopping: the clock and signals end a run between two steps, and what was cut short is played again."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import posterity
from posterity.experiment.config import resolve
from posterity.experiment.folder import RunFolder
from posterity.experiment.progress import Quiet
from posterity.experiment.run import lifelong
from posterity.experiment.stop import Stop

SMALL: dict[str, Any] = {"tasks": 3, "iterations": 3, "steps_per_iteration": 20, "seeds": 2}


def records(path: Path) -> list[dict[str, Any]]:
    """All records without the clock."""
    lines = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall_seconds"} for line in lines]


class Steps:
    """Gives a reason to stop after it was asked so often."""

    def __init__(self, count: int) -> None:
        self.left = count

    def reason(self) -> str:
        self.left -= 1
        return "enough" if self.left < 0 else ""


def test_stopped_at_any_step_the_records_are_those_of_whole_iterations_and_then_of_an_unbroken_run(tmp_path: Path):
    """Every session is nine steps longer than the one before, so it ends elsewhere in an iteration of 20."""
    posterity.run("random-mdp", out=tmp_path / "whole", **SMALL)
    whole = records(tmp_path / "whole")
    config = resolve("random-mdp", "blrl", "quick", SMALL)
    folder = RunFolder.create(tmp_path / "run", config, "test")
    stops = 0
    while not lifelong(config, folder, Quiet(), Steps(9 * (stops + 1)).reason).finished:
        folder.close()
        lines = records(tmp_path / "run")
        assert lines == whole[: len(lines)]
        assert (len(lines) - 1) % 2 == 0, "both lanes or none"
        assert "iteration" in lines[-1] or len(lines) == 1, "a task that was only begun is not on record"
        folder, config = RunFolder.reopen(tmp_path / "run", "test")
        stops += 1
    folder.close()
    assert stops >= 4
    assert records(tmp_path / "run") == whole


def test_the_clock_is_a_reason_when_its_time_has_come():
    assert Stop(None).reason() == ""
    assert Stop(1000).reason() == ""
    assert Stop(0).reason() == "time limit"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_reason_and_later_signals_are_for_whoever_had_them(number: signal.Signals):
    heard: list[int] = []
    old = signal.signal(number, lambda got, _: heard.append(got))
    try:
        with Stop() as stop:
            os.kill(os.getpid(), number)
            for _ in range(200):
                if stop.reason():
                    break
                time.sleep(0.01)
            assert stop.reason() == "interrupted"
        assert heard == []
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        assert heard == [number]
    finally:
        signal.signal(number, old)


def test_outside_the_main_thread_only_the_clock_counts():
    reasons: list[str] = []

    def work() -> None:
        with Stop(0) as stop:
            reasons.append(stop.reason())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reasons == ["time limit"]


def test_a_second_signal_ends_the_program_even_in_a_step_that_never_ends():
    """As XLA does when it compiles, the step does not come back to Python: it waits in C, signals blocked or not."""
    code = """
        import ctypes, time
        from posterity.experiment.stop import Stop
        with Stop():
            print("ready", flush=True)
            while True:
                ctypes.CDLL(None).sleep(100)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None, "the first is only heard"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 128 + signal.SIGTERM
    process.stdout.close()


def test_a_time_limit_ends_an_iteration_of_a_billion_steps(tmp_path: Path):
    command = ["run", "item-search", "--steps-per-iteration", str(10**9), "--tasks", str(10**9), "--time-limit", "1s"]
    done = subprocess.run(
        [sys.executable, "-m", "posterity", *command, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("Stopped (time limit)")

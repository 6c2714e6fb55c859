"""Ray and Slurm do what processes of this machine do: the cells, from wherever they stand."""

import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from posterity.errors import UserError
from posterity.experiment.sweep.drive import drive
from posterity.experiment.sweep.executors import Execution, Executor, memory_share
from posterity.experiment.sweep.folder import Status, SweepFolder
from posterity.experiment.sweep.on_ray import OnRay
from posterity.experiment.sweep.on_slurm import OnSlurm
from posterity.experiment.sweep.plan import cells_of, checked_sweep
from posterity.experiment.sweep.table import Display

SMALL = {"tasks": 1, "iterations": 2, "steps_per_iteration": 5}


def planned(path: Path, methods: tuple[str, ...] = ("blrl", "boss")) -> SweepFolder:
    plan, folder = (
        checked_sweep({"families": ["item-search"], "methods": methods, "settings": SMALL}),
        SweepFolder(path),
    )
    path.mkdir()
    folder.write(plan, cells_of(plan))
    return folder


def driven(folder: SweepFolder, executor: Executor, retries: int = 3) -> dict[str, Status]:
    return drive(folder, folder.names(), lambda: executor, Display(Console(quiet=True)), lambda: "", retries)


def lost(_: object) -> str:
    raise RuntimeError("The worker died\n\nunexpectedly")


class FakeRay:
    """The functions of Ray that are used, done at once in this process. `lose`: tasks that end with a lost worker."""

    def __init__(self, lose: int = 0) -> None:
        self.lose, self.options, self.began, self.cancelled = lose, dict[str, Any](), dict[str, Any](), list[object]()

    def init(self, **options: object) -> None:
        self.began = options

    def remote(self, **options: object) -> Callable[[Callable[..., str]], Any]:
        self.options = options
        fake = self

        class Task:
            def __init__(self, function: Callable[..., str]) -> None:
                self.function = function

            def remote(self, *args: Any) -> Callable[[], str]:
                fake.lose -= 1
                return partial(lost, args) if fake.lose >= 0 else partial(self.function, *args)

        return Task

    def wait(self, refs: list[object], **_: object) -> tuple[list[object], list[object]]:
        return refs[:1], refs[1:]

    def get(self, ref: Any) -> object:
        return ref()

    def cancel(self, ref: object) -> None:
        self.cancelled.append(ref)

    def shutdown(self) -> None:
        pass


def test_ray_is_asked_for_retries_resources_and_a_process_for_each_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    folder, ray = planned(tmp_path / "sweep"), FakeRay()
    executor = OnRay(folder, Execution(executor="ray", gpus=0.25, cpus=2, retries=7), ray)
    assert {status.state for status in driven(folder, executor).values()} == {"done"}
    assert ray.began["address"] == "local"
    assert ray.options == {"num_cpus": 2.0, "num_gpus": 0.25, "max_retries": 7, "max_calls": 1}
    assert os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION") == memory_share(0.25)


def test_a_task_that_ray_gives_up_is_handed_to_it_again(tmp_path: Path):
    folder, ray = planned(tmp_path / "sweep"), FakeRay(lose=2)
    executor = OnRay(folder, Execution(executor="ray", address="auto"), ray)
    assert ray.began["address"] == "auto"
    assert "num_cpus" not in ray.began, "a cluster that is there has what it has"
    assert {status.state for status in driven(folder, executor).values()} == {"done"}
    ray.lose = 9
    (folder.run(folder.names()[0]) / "checkpoints" / "state.safetensors").unlink()
    ended = driven(folder, executor, retries=1)
    assert "RuntimeError: unexpectedly" in ended[folder.names()[0]].reason


def test_the_cluster_that_ray_job_submit_names_is_joined_and_one_where_nobody_listens_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, ray = planned(tmp_path / "sweep"), FakeRay()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        OnRay(folder, Execution(executor="ray"), ray)
    assert ray.began["address"] == address
    with pytest.raises(UserError, match=f"There is no Ray cluster at {address}"):
        OnRay(folder, Execution(executor="ray"), ray)


def test_tasks_that_have_not_begun_are_taken_back_from_ray(tmp_path: Path):
    folder, ray = planned(tmp_path / "sweep"), FakeRay()
    executor = OnRay(folder, Execution(executor="ray"), ray)
    for name in folder.names():
        executor.submit(name)
    folder.say(folder.names()[0], Status("running"))
    executor.withdraw()
    assert len(ray.cancelled) == len(folder.names()) - 1


def test_slurm_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = planned(tmp_path / "sweep")
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(UserError, match=r"needs (submitit|Slurm)"):
        OnSlurm(folder, Execution(executor="slurm"))


def test_submitit_does_the_cells(tmp_path: Path):
    pytest.importorskip("submitit", reason="submitit is not installed")
    folder = planned(tmp_path / "sweep", ("boss",))
    executor = OnSlurm(folder, Execution(executor="slurm", slurm=("timeout_min=5", "partition=any")), cluster="local")
    assert {status.state for status in driven(folder, executor).values()} == {"done"}

"""Cells as tasks of Ray: on this machine, or on a cluster whose machines share the sweep's folder.

Ray runs a lost worker's task again, on whatever machine has room, and the cell goes on from its folder. Five functions
of Ray core are used, and no more of Ray.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from posterity.errors import UserError
from posterity.experiment.sweep.executors import Ended, Execution, Executor, memory_share
from posterity.experiment.sweep.folder import SweepFolder

CONNECT = 10.0  # seconds in which a cluster has to answer
QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}  # a lost worker is no news: its cell is resumed


class Ray(Protocol):
    """What is used of the package."""

    def init(self, **options: object) -> object:
        """Starts or joins a cluster."""

    def remote(self, **options: object) -> Callable[[Callable[..., str]], Any]:
        """Makes a function one that runs somewhere in the cluster."""
        ...

    def wait(self, refs: list[object], **options: object) -> tuple[list[object], list[object]]:
        """Those that have ended, and the others."""
        ...

    def get(self, ref: object) -> object:
        """What one has returned, or raises."""

    def cancel(self, ref: object) -> None:
        """Takes one back."""

    def shutdown(self) -> None:
        """Leaves the cluster; ends it, if it was started here."""


def load_ray() -> Ray:
    """The package, or how to get it."""
    try:
        return cast(Ray, importlib.import_module("ray"))
    except ImportError as error:
        raise UserError("The executor 'ray' needs Ray: pip install 'posterity[ray]'") from error


def work(path: str, name: str, gpus: float) -> str:
    """A cell, in a worker of Ray."""
    if 0 < gpus < 1:  # before JAX is loaded
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", memory_share(gpus))
    from posterity.experiment.sweep.cell import run_cell

    if not (Path(path) / "sweep.toml").is_file():
        raise FileNotFoundError(f"{path} is not there on this machine: all machines have to share the sweep's folder")
    return run_cell(Path(path), name)


class OnRay(Executor):
    """Hands all cells to Ray, which starts as many as there is room for."""

    def __init__(self, folder: SweepFolder, execution: Execution, ray: Ray | None = None) -> None:
        self.folder, self.gpus = folder, execution.gpus
        self.ray = ray or load_ray()
        self.most = execution.workers
        address = execution.address or os.environ.get("RAY_ADDRESS")  # which `ray job submit` sets
        try:
            if address:
                _check_reachable(address)
                self.ray.init(address=address, **QUIET)
            else:
                given = {"num_cpus": max(1, round(self.most * execution.cpus))} if self.most else {}
                self.ray.init(address="local", include_dashboard=False, **QUIET, **given)
        except (OSError, RuntimeError, ValueError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"There is no Ray cluster at {address or 'local'}: {said}") from error
        options = {"num_cpus": execution.cpus, "num_gpus": execution.gpus, "max_retries": execution.retries}
        self.task = self.ray.remote(**options, max_calls=1)(work)  # a process for each: JAX gives back no memory
        self.refs: dict[object, str] = {}

    def room(self) -> int:
        """No end of it, unless so many workers were asked for: Ray keeps what has to wait."""
        return (self.most or 1_000_000) - len(self.refs)

    def busy(self) -> int:
        """Tasks that Ray has."""
        return len(self.refs)

    def submit(self, name: str) -> None:
        """Hands over a cell."""
        self.refs[self.task.remote(str(self.folder.path), name, self.gpus)] = name

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended."""
        if not self.refs:
            time.sleep(seconds)
            return []
        done, _ = self.ray.wait([*self.refs], num_returns=1, timeout=seconds)
        return [Ended(self.refs.pop(ref), self._lost(ref)) for ref in done]

    def _lost(self, ref: object) -> str:
        """What went wrong outside the cell; empty if nothing did."""
        try:
            self.ray.get(ref)
        except Exception as error:  # Ray has many kinds, and a task of ours raises nothing by itself
            lines = [line for line in str(error).splitlines() if line.strip()]
            return f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"
        return ""

    def withdraw(self) -> None:
        """Takes back tasks that have not begun."""
        for ref, name in self.refs.items():
            if self.folder.said(name).state != "running":
                self.ray.cancel(ref)

    def close(self) -> None:
        """Leaves the cluster."""
        self.ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises at once where nobody listens: Ray itself would go on trying for many minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT).close()

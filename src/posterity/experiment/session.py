"""What is on record of a session: when, by which command, with which versions and on which machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import posterity
from posterity.types import Facts

PACKAGES = ("numpy", "scipy", "gymnasium", "safetensors")
ALSO = ("jax", "jaxlib", "optax", "mujoco", "metaworld")  # where they are in use


def session(command: str) -> Facts:
    """When, by which command, with which versions and on which machine."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": command,
        "posterity": posterity.__version__,
        **_commit(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in (*PACKAGES, *_loaded(*ALSO))},
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _loaded(*packages: str) -> list[str]:
    """Those of the packages that this run uses."""
    return [package for package in packages if package in sys.modules]


def _processor() -> str:
    """The name of the CPU, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> dict[str, str]:
    """The commit of this code, with a plus sign if its files were changed since; nothing where git does not tell."""
    here = Path(__file__).resolve()
    apart = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # as hooks set them

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=here.parents[1], env=apart, capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", str(here))  # installed code may lie in a folder of another checkout
        return {"commit": git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")}
    except (OSError, subprocess.SubprocessError):
        return {}

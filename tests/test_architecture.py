"""The import rule of the design: data flows one way, and so do imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import posterity

SOURCE = Path(posterity.__file__).parent
LAYERS = [
    {"types", "errors", "settings"},
    {"files", "plugins", "tree"},
    {"families", "tabular", "models", "planning"},
    {"kernels"},
    {"agents"},
    {"experiment", "control"},
    {"report"},
    {"api", "commands"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(file: Path):
    """The posterity modules a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}: a relative import hides where it leads"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parts(file: Path) -> list[str]:
    return list(file.relative_to(SOURCE).with_suffix("").parts)


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if parts(file) != ["__init__"]]


def test_every_module_has_a_place_in_the_rule():
    assert {parts(file)[0] for file in FILES} == set(LEVEL)


@pytest.mark.parametrize("file", FILES, ids=lambda file: ".".join(parts(file)))
def test_imports_go_only_towards_the_ground(file: Path):
    here = parts(file)[0]
    for name in imports(file):
        words = name.split(".")
        if words[0] != "posterity" or len(words) < 2 or words[1] not in LEVEL:
            continue
        below, same = LEVEL[words[1]] < LEVEL[here], words[1] == here
        assert below or same, f"{here} may not import {name}"


def test_report_reads_records_and_knows_no_learner():
    allowed = {"types", "errors", "files", "report", "experiment.records"}
    for file in (SOURCE / "report").glob("*.py"):
        for name in imports(file):
            words = name.split(".")
            if words[0] == "posterity":
                used = ".".join(words[1:3]) if words[1] == "experiment" else words[1]
                assert used in allowed, f"{file.name}: {name}"


def loaded_after(code: str) -> set[str]:
    listing = f"import sys; {code}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("code", ["import posterity", "from posterity.cli import main; main(['--help'])"])
def test_importing_and_help_load_nothing_heavy(code: str):
    """Not even NumPy: that is what makes `--help` answer at once."""
    assert not loaded_after(code) & {"jax", "mujoco", "gymnasium", "numpy", "scipy", "matplotlib", "pydantic"}


def test_a_finite_run_loads_neither_jax_nor_mujoco(tmp_path: Path):
    code = f"import posterity; posterity.run('random-mdp', out={str(tmp_path / 'run')!r}, tasks=1, iterations=1)"
    assert not loaded_after(code) & {"jax", "mujoco"}


def test_a_report_needs_neither_learners_nor_simulators():
    code = "import posterity.report.report, posterity.report.join"
    assert not loaded_after(code) & {"jax", "mujoco", "gymnasium"}

"""Families are found by name, by file, as a class and as an object."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

import posterity
from posterity.cli import main
from posterity.errors import UserError
from posterity.experiment.folder import read_config
from posterity.families import family_name, find_family, make_family
from posterity.families.base import Family
from posterity.families.pendulum import PendulumGravity

TEXT = """
import posterity
from posterity.families.pendulum import PendulumGravity

family = posterity.Family.from_gymnasium("Pendulum-v1", vary={"g": posterity.uniform(5, 15)}, max_episode_steps=10)

class Mine(PendulumGravity):
    budget = {"tasks": 2, "iterations": 2, "steps_per_iteration": 10}
"""
SMALL = ["--method", "npg", "--tasks", "2", "--iterations", "2", "--steps-per-iteration", "10"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with families, in a folder that is not the present one."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    path = home / "machines.py"
    path.write_text(TEXT)
    return path


def test_an_object_and_a_class_of_a_file_are_found_from_any_folder(file: Path):
    assert family_name(f"../home/{file.name}:family") == "machines.py:family"
    assert isinstance(find_family("machines.py:family"), Family)
    assert make_family(family_name(f"{file}:Mine")).spec.obs_dim == 3


def test_a_run_of_a_file_records_it_and_resumes_from_any_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
):
    out = tmp_path / "run"
    assert main(["run", f"../home/{file.name}:family", *SMALL, "--out", str(out), "--time-limit", "0s"]) == 0
    first = json.loads((out / "versions.json").read_text())["sessions"][0]
    assert first["family_file"] == str(file.resolve())
    assert first["family_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert read_config(out).family == "machines.py:family"
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    assert main(["resume", str(out)]) == 0
    assert "has changed" not in capfd.readouterr().out


def test_a_file_that_has_changed_since_the_run_began_is_said_so(file: Path, tmp_path: Path, capfd):
    out = tmp_path / "run"
    assert main(["run", f"{file}:family", *SMALL, "--out", str(out), "--time-limit", "0s"]) == 0
    file.write_text(TEXT + "# a change\n")
    assert main(["resume", str(out)]) == 0
    assert "machines.py has changed since the run began" in capfd.readouterr().out


def test_objects_and_classes_are_run_from_python(file: Path, tmp_path: Path):
    loaded = find_family(family_name(f"{file}:family"))
    small = {"method": "npg", "tasks": 1, "iterations": 1, "steps_per_iteration": 10}
    for number, family in enumerate((loaded, PendulumGravity)):
        run = posterity.run(family, out=tmp_path / str(number), **small)
        assert run.returns.shape == (1, 1, 1)
    assert read_config(tmp_path / "0").family == "machines.py:family"
    assert read_config(tmp_path / "1").family == "pendulum-gravity"


def test_an_object_that_no_file_defines_is_run_and_resumed_by_handing_it_over(tmp_path: Path):
    family = posterity.Family.from_gymnasium("Pendulum-v1", vary={"g": posterity.uniform(5, 15)}, max_episode_steps=10)
    run = posterity.run(family, out=tmp_path / "run", method="npg", tasks=1, iterations=1, steps_per_iteration=10)
    assert run.family == "live:GymnasiumFamily"
    assert posterity.resume(tmp_path / "run", family=family).returns.shape == (1, 1, 1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("machines.py:familly", "machines.py has no 'familly'. Did you mean 'family'"),
        ("machines.py", "Which family of .*machines.py"),
        ("machine.py:family", "there is no file"),
        ("no_such_machines:family", "no module '.*' .* From another folder name the file: path/to/"),
        ("machines.py:posterity", "nor an object of one, but"),
    ],
)
def test_what_is_not_found_is_said_with_a_hint(file: Path, name: str, says: str):
    typed = name if ".py" not in name else f"{file.parent}/{name}"
    with pytest.raises(UserError, match=says) as refused:
        find_family(family_name(typed))
    assert "\n" not in str(refused.value)


def test_what_is_no_family_is_refused():
    with pytest.raises(UserError, match="not a value of type int"):
        family_name(3)  # pyright: ignore[reportArgumentType]


def test_presets_and_bench_take_a_file(file: Path, capfd):
    assert main(["presets", f"{file}:family"]) == 0
    assert "--planner.candidates 100" in capfd.readouterr().out
    assert main(["bench", "env", "--family", f"{file}:family"]) == 0
    assert "steps per second" in capfd.readouterr().out

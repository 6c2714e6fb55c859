"""The trained models that are published: small, readable, and made by a command that is on record."""

import re
from pathlib import Path

import pytest

from posterity.cli import main
from posterity.control.machine import read_machine
from posterity.families import FAMILIES, family_type

FOLDER = Path(__file__).parents[1] / "results" / "models"
MODELS = sorted(FOLDER.glob("*.posterity"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_published_model_is_whole_and_says_how_it_was_made(path: Path):
    machine = read_machine(path)  # the checksum holds
    header = machine.header
    assert header.family == path.stem
    assert header.family in FAMILIES
    assert f"posterity export runs/{path.stem} " in str(header.made["command"])
    assert not re.search(r"\s/|=/", str(header.made["command"])), "no path of a machine"
    told = (FOLDER / f"{path.stem}.txt").read_text()
    assert re.search(rf"^task {header.tasks}, .*mean return", told, flags=re.MULTILINE)
    page = (FOLDER / "README.md").read_text()
    mean = re.search(r"mean return (\S+)", told)
    assert mean is not None
    assert f"({path.name})" in page
    assert f"| {mean[1]} |" in page, "the page has the number that was measured"


def test_every_finite_family_has_a_model_and_it_plays_a_task_that_it_has_not_met(capfd: pytest.CaptureFixture[str]):
    finite = {name for name in FAMILIES if family_type(name).finite}
    assert finite <= {path.stem for path in MODELS}
    assert main(["evaluate", str(FOLDER / "item-search.posterity"), "--episodes", "5"]) == 0
    told = capfd.readouterr().out
    assert told.startswith("task 301, ")
    assert "(1 1 1 1 1)" in told, "300 houses have taught it where to look"


def test_published_models_are_a_few_megabytes_in_all():
    assert len(MODELS) >= 3
    assert sum(path.stat().st_size for path in MODELS) < 12 * 2**20


def test_a_machine_file_of_a_family_of_ones_own_is_not_played_without_trust(tmp_path: Path, capfd):
    from posterity.control.machine import write_machine

    machine = read_machine(MODELS[0])
    header = machine.header.model_copy(update={"family": "mine.py:family"})
    write_machine(tmp_path / "mine.posterity", machine._replace(header=header))
    assert main(["evaluate", str(tmp_path / "mine.posterity")]) == 2
    assert "--trust" in capfd.readouterr().err
    assert main(["evaluate", str(tmp_path / "none.posterity")]) == 2
    assert "There is no file" in capfd.readouterr().err
    assert main(["evaluate", str(MODELS[0]), "--scores", "train"]) == 2
    assert "knows one moment" in capfd.readouterr().err

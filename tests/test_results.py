"""What is published can be read, says how it was made, and gives the numbers that are published with it."""

import csv
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from posterity.experiment.config import RunConfig
from posterity.experiment.folder import read_config
from posterity.experiment.records import read_run
from posterity.report.differences import between, within
from posterity.report.pool import pooled
from posterity.report.report import Plan, make_report
from posterity.report.scores import known
from posterity.report.tables import View

RESULTS = Path(__file__).parents[1] / "results"
RUNS = sorted(str(path.parent.relative_to(RESULTS)) for path in RESULTS.glob("**/config.toml"))


@pytest.mark.parametrize("name", RUNS)
def test_a_published_run_can_be_read_and_names_its_command_and_versions(name: str):
    run = read_run(RESULTS / name)
    assert np.isfinite(run.returns[:, 0, 0]).all()
    assert run.sessions
    for session in run.sessions:
        assert session["command"].startswith(("posterity run", "posterity resume", "posterity sweep"))
        assert not re.search(r"\s/|=/", session["command"]), "no path of a machine"
        assert {"posterity", "python", "numpy", "started"} <= session.keys()


@pytest.mark.parametrize("name", RUNS)
def test_the_configuration_of_a_published_run_is_one_that_can_be_run(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(RESULTS.parent / "examples")  # where families of one's own lie; their code is ours
    config = read_config(RESULTS / name, trusted=True)
    assert isinstance(config, RunConfig)
    assert config.method == tomllib.loads((RESULTS / name / "config.toml").read_text())["method"]


@pytest.mark.parametrize("name", ["baselines/hopper-gravity", "pendulum-gravity", "finite/random-mdp", "box-jump"])
def test_published_tables_are_those_that_the_records_give(name: str, tmp_path: Path):
    with (RESULTS / name / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    paths = list(dict.fromkeys(RESULTS.parent / line["run"] for line in lines))
    early = next(int(line["score"].removeprefix("first_")) for line in lines if line["score"].startswith("first_"))
    make_report(Plan(paths, View(int(lines[0]["first_task"]), None, early), figures=False), tmp_path)
    for made in sorted(tmp_path.glob("*.csv")):
        published = (RESULTS / name / made.name).read_text()
        assert made.read_text().replace(f"{RESULTS.parent}/", "") == published, made.name


def test_runs_of_one_method_are_told_as_one_and_a_seed_counts_once():
    """As docs/results.md and the lab notes have it."""
    table1 = RESULTS / "table1"
    [vblrl] = pooled([read_run(table1 / f"cheetah-gravity-vblrl{number}") for number in ("", "-2", "-3")])
    other = read_run(table1 / "cheetah-gravity-pooled")
    [train] = [d for d in between(vblrl, other, View(1, 17)) if (d.score, d.how) == ("train", "Welch")]
    assert (str(train.value), train.seeds) == ("38.0 ± 24.8", (12, 4))
    [both] = pooled([read_run(table1 / f"cheetah-gravity-vblrl-{name}") for name in ("3", "every")])
    blend = {d.against_score: str(d.value) for d in within(both, View(1, 18)) if d.score == "back-blend"}
    assert blend == {"train": "13.9 ± 20.3", "back": "10.8 ± 7.3"}
    assert len(both.seeds) == 4
    assert np.isfinite(known(both)["back-blend"].returns).all()


def test_what_one_policy_forgets_has_an_interval_over_seeds():
    run = read_run(RESULTS / "baselines" / "hopper-gravity-fine-tune")
    [lost] = within(run, View())
    assert (lost.score, lost.against_score, str(lost.value)) == ("back", "train", "-86.4 ± 143.3")

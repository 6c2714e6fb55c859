"""The paper's layout for any runs: its numbers beside ours only where the budget is the same."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from posterity.experiment.records import Run, Scores, read_run
from posterity.report import table1
from posterity.report.tables import View

MakeUp = Callable[..., Path]


def evaluated(run: Run, tasks: int, **config: int) -> Run:
    """The run with score Train in so many tasks, each 300."""
    returns = np.full((len(run.seeds), tasks), 300.0)
    none = np.full_like(returns, np.nan)
    scores = {"train": Scores(returns, tasks, none, none, none, np.full((len(run.seeds), 0, 0), np.nan), (1,))}
    wide = np.zeros((len(run.seeds), tasks, 2))
    return run._replace(config={**run.config, **config}, scores=scores, returns=wide)


def test_the_papers_number_stands_only_beside_the_same_budget(made_up: MakeUp, tmp_path: Path):
    run = read_run(made_up(tmp_path / "run", "vblrl", family="hopper-gravity"))
    paper = {"iterations": 100, "steps_per_iteration": 400}

    def beside(tasks: int, first: int = 1, **config: int) -> str:
        view = View(first)
        made = table1.sheet(table1.cells([evaluated(run, tasks, **{**paper, **config})], view))
        assert made is not None
        assert made.head == ("family", "score", "vblrl", "vblrl, paper")
        assert made.rows[0][:3] == ("hopper-gravity", "Train", "300 ± 0")
        return made.rows[0][3]

    assert beside(20) == "333 ± 24"
    assert beside(19) == table1.OTHER, "a task is lacking"
    assert beside(20, iterations=50) == table1.OTHER
    assert beside(20, steps_per_iteration=800) == table1.OTHER
    assert beside(20, first=2) == table1.OTHER


def test_policy_gradients_have_twice_the_samples_in_the_paper_too(made_up: MakeUp, tmp_path: Path):
    run = read_run(made_up(tmp_path / "run", "ewc", family="hopper-gravity"))
    for steps, word in ((400, table1.OTHER), (800, "same budget")):
        cells = table1.cells([evaluated(run, 20, iterations=100, steps_per_iteration=steps)], View())
        table1.write_csv(cells, tmp_path / "table1.csv")
        [line] = csv.DictReader((tmp_path / "table1.csv").read_text().splitlines())
        assert line["paper"] == word
        assert bool(line["paper_mean"]) == (word == "same budget")


def test_families_that_the_paper_has_not_have_no_column_of_its(whole: MakeUp, tmp_path: Path):
    runs = [read_run(whole(tmp_path / name, name)) for name in ("vblrl", "pooled")]
    made = table1.sheet(table1.cells(runs, View()))
    assert made is not None
    assert made.head == ("family", "score", "vblrl", "pooled")
    assert [row[1] for row in made.rows] == ["Start", "Train", "Back"]
    assert table1.sheet([]) is None


def test_two_runs_of_one_method_have_a_column_each(whole: MakeUp, tmp_path: Path):
    runs = [read_run(whole(tmp_path / name, "vblrl")) for name in ("a", "b")]
    made = table1.sheet(table1.cells(runs, View()))
    assert made is not None
    assert made.head[2:] == ("vblrl (a)", "vblrl (b)")

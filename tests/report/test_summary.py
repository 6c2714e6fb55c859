"""The table of metrics: which tasks a number is about."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from posterity.experiment.records import read_run
from posterity.report import summary
from posterity.report.metrics import Interval
from posterity.report.pool import pooled
from posterity.report.tables import View

MakeUp = Callable[..., Path]


def test_back_in_some_tasks_is_after_all_of_the_run_and_pooled_runs_have_it_too(whole: MakeUp, tmp_path: Path):
    """Task 1 of 3 has lost 2 by the end, task 2 has lost 1, also where only these two are looked at."""
    runs = [read_run(whole(tmp_path / name, tasks=3, seed=seed)) for name, seed in (("a", 0), ("b", 3))]
    for run in (runs[0], *pooled(runs)):
        [found] = [m for m in summary.metrics([run], View(1, 2)) if m.name == "backward transfer (GEM)"]
        assert found.value.mean == -1.5
        [late] = [m for m in summary.metrics([run], View(2)) if m.name == "forgetting (Continual World)"]
        assert late.value.mean == 0.5, "1 in the second task, 0 in the last"


def test_transfer_is_against_a_run_of_the_same_family_and_budget(whole: MakeUp, tmp_path: Path):
    run = read_run(whole(tmp_path / "run"))
    single, other, longer = (
        read_run(whole(tmp_path / name, "single-task", **more))
        for name, more in {"a": {}, "b": {"family": "other"}, "c": {"iterations": 6}}.items()
    )
    assert summary.reference_of(run, [run, other, longer]) is None
    assert summary.reference_of(run, [run, other, longer, single]) is single
    assert summary.reference_of(single, [run, single]) is None, "it is the reference itself"


def test_a_median_that_is_never_reached_says_so():
    assert summary.shown(Interval(7.0, 5.0, 11.5, "quartiles")) == "7 (quartiles 5 and 11.5)"
    assert summary.shown(Interval(np.inf, 5.0, np.inf, "quartiles")) == "never (quartiles 5 and never)"
    assert summary._quartiles(np.array([5.0, 7.0, np.inf, np.inf, np.inf])) == (7.0, np.inf, np.inf)

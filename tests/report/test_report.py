"""Metrics, tables and figures, on records made up for the purpose."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from posterity.cli import main
from posterity.errors import UserError
from posterity.experiment.records import encode, read_run
from posterity.report import drawing, figures, scores
from posterity.report.drawing import named
from posterity.report.metrics import band, called, interval, rolling, solved, suboptimal_steps, welch
from posterity.report.report import Plan, make_report
from posterity.report.tables import View, returns_sheet, rows, solved_sheet

MakeUp = Callable[..., Path]


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]


def evaluated(path: Path, tasks: int) -> Path:
    """A run with its score Train: task 0, 1, ... has 10, 11, ..., solved up to the middle of the third."""
    (path / "evaluation").mkdir()
    lines = [
        {"score": "train", "seed": 7 + seed, "task": task, "episode": episode, "after": task}
        | {"return": 10.0 + task, "steps": 5, "world_reward": task / 2.0}
        | {"success": task < 2 or (task == 2 and episode == 0)}
        for seed in range(3)
        for task in range(tasks)
        for episode in range(2)
    ]
    (path / "evaluation" / "train.jsonl").write_bytes(b"".join(map(encode, lines)))
    return path


def test_an_interval_is_students_over_seeds():
    values = np.array([[1.0, 3.0], [4.0, 6.0], [9.0, 11.0]])  # seed means 2, 5, 10
    got = interval(values)
    low, high = stats.t.interval(0.95, 2, loc=17 / 3, scale=stats.sem([2, 5, 10]))
    assert (got.mean, got.low, got.high) == pytest.approx((17 / 3, low, high))
    assert got.over == "seeds"


def test_with_one_seed_the_interval_is_over_tasks():
    got = interval(np.array([[1.0, 2.0, 6.0, np.nan]]))
    low, high = stats.t.interval(0.95, 2, loc=3.0, scale=stats.sem([1, 2, 6]))
    assert (got.mean, got.low, got.high) == pytest.approx((3.0, low, high))
    assert got.over == "tasks"


def test_what_is_not_on_record_is_left_out_and_not_zero():
    sample = np.array([[1.0, np.nan], [3.0, np.nan]])
    low, high = band(sample)
    assert low[0] < 2.0 < high[0]
    assert np.isnan(low[1])
    assert np.isnan(band(sample[:1])[0]).all(), "one value has no interval"
    np.testing.assert_allclose(rolling(np.array([[1.0, np.nan, 5.0]]), 2), [[1.0, 1.0, 5.0]])


def test_the_band_of_95_percent_holds_the_mean_95_times_in_100():
    """4000 samples of five: 4 standard errors are 0.014."""
    sample = np.random.default_rng(0).normal(3.0, 2.0, (5, 4000))
    low, high = band(sample)
    assert abs(((low < 3.0) & (high > 3.0)).mean() - 0.95) < 0.014


def test_welch_is_the_t_test_of_unequal_variances():
    ours, theirs = np.array([1.0, 4.0, 2.0, 7.0]), np.array([3.0, 9.0, 30.0])
    low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    assert welch(ours, theirs)[:3] == pytest.approx((3.5 - 14.0, low, high))
    assert welch(np.ones(3), np.zeros(2))[:3] == (1.0, 1.0, 1.0), "without any spread there is no doubt"
    assert np.isnan(welch(ours, theirs[:1]).low), "one value tells of no spread"


def test_the_table_looks_at_the_tasks_it_is_asked_for(made_up: MakeUp, tmp_path: Path):
    run = read_run(made_up(tmp_path / "run"))
    (row,) = rows([run], View(2, 3, early=2))
    tens = 15.0  # tasks 2 and 3 have returns 10 and 20 above
    assert row.first.mean == pytest.approx(100 + tens + 0.0)
    assert row.early.mean == pytest.approx(100 + tens + 0.5)
    assert row.late.mean == pytest.approx(100 + tens + 3.5)
    assert row.overall.mean == pytest.approx(100 + tens + 2.0)
    assert "tasks 2-3" in returns_sheet([row], View(2, 3)).title


def test_steps_that_were_not_optimal_are_counted(made_up: MakeUp, tmp_path: Path):
    run = read_run(made_up(tmp_path / "run", measured=True))
    np.testing.assert_array_equal(suboptimal_steps(run, 0.5)[0], [30, 20, 10, 0])


def test_a_report_of_two_methods_is_a_table_and_figures(made_up: MakeUp, tmp_path: Path):
    paths = [made_up(tmp_path / name, name, measured=True) for name in ("blrl", "boss")]
    made = make_report(Plan(paths), tmp_path / "report")
    names = sorted(path.name for path in made.files)
    assert names == [
        "made-up-learning.png",
        "made-up-learning.svg",
        *(f"made-up-{name}.{kind}" for name in ("stream", "transfer", "within") for kind in ("csv", "png", "svg")),
        *(f"{name}.{kind}" for name in ("metrics", "table", "transfer") for kind in ("csv", "md", "tex")),
    ]
    assert all(path.stat().st_size > 200 for path in made.files)
    lines = list(csv.DictReader((tmp_path / "report" / "table.csv").read_text().splitlines()))
    assert [line["score"] for line in lines] == ["first", "first_3", "last_3", "all"] * 2
    assert float(lines[0]["mean"]) == pytest.approx(115.0)


def test_curves_end_where_a_run_ends_and_those_within_a_task_are_over_tasks_that_all_have_finished(
    made_up: MakeUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    paths = [made_up(tmp_path / name, name) for name in ("vblrl", "pooled")]
    lines = (paths[1] / "records.jsonl").read_text().splitlines()
    kept = [line for line in lines if (record := json.loads(line)).get("task", 0) < 2 or record.get("iteration", 0) < 1]
    kept = [line for line in kept if json.loads(line).get("task", 0) < 3]
    (paths[1] / "records.jsonl").write_text("".join(line + "\n" for line in kept))
    drawn: list[tuple[str, int]] = []
    samples: list[np.ndarray] = []
    curve = drawing.curve

    def note(axes, across, sample, each):
        drawn.append((each.label, len(across)))
        samples.append(sample)
        return curve(axes, across, sample, each)

    monkeypatch.setattr(drawing, "curve", note)
    runs = [read_run(path) for path in paths]
    figures.learning_curves(runs, View(), tmp_path / "curves")
    iterations = runs[0].returns.shape[2]
    assert drawn == [("vblrl", 4), ("pooled", 3), ("vblrl", iterations), ("pooled", iterations)]
    first_two = runs[0].returns[:, :2].mean(axis=1)
    np.testing.assert_allclose(samples[2], first_two)
    np.testing.assert_allclose(samples[3], first_two)


def solving(path: Path) -> Path:
    """The same run, telling of success: task k is solved from iteration k on, task 0 not in the last one."""
    lines = lines_of(path)
    for line in lines:
        if line["kind"] == "iteration":
            lost = line["task"] == 0 and line["iteration"] == 4
            line["success"] = float(line["iteration"] >= line["task"] and not lost)
    (path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_solved_tasks_are_counted_by_iteration(made_up: MakeUp, tmp_path: Path):
    run = read_run(solving(made_up(tmp_path / "run", "vblrl")))
    counted = solved(run)
    assert counted is not None
    np.testing.assert_array_equal(counted.over, [[1, 2, 3, 4, 3]] * 3)
    np.testing.assert_array_equal(counted.most, [4] * 3)
    np.testing.assert_allclose(counted.last, [(3 + 4 + 3) / 3] * 3)
    np.testing.assert_array_equal(counted.ever, [4] * 3)
    part = solved(View(2, 3).of(run))
    assert part is not None
    np.testing.assert_array_equal(part.over[0], [0, 1, 2, 2, 2])
    assert solved(read_run(made_up(tmp_path / "silent"))) is None


def test_a_report_counts_solved_tasks_where_a_family_tells(made_up: MakeUp, tmp_path: Path):
    paths = [solving(made_up(tmp_path / "telling", "vblrl")), made_up(tmp_path / "silent")]
    made = make_report(Plan(paths), tmp_path / "report")
    assert {"made-up-solved.png", "made-up-solved.svg"} <= {path.name for path in made.files}
    lines = list(csv.DictReader((tmp_path / "report" / "table.csv").read_text().splitlines()))
    counts = {line["score"]: float(line["mean"]) for line in lines if line["score"].startswith("solved")}
    assert counts == pytest.approx({"solved_most": 4.0, "solved_last": 10 / 3, "solved_ever": 4.0}, rel=1e-5)
    found = rows([read_run(path) for path in paths], View())
    sheet = solved_sheet(found, View())
    assert sheet is not None
    assert sheet in made.sheets
    assert sheet.cells("ever") == ["4 ± 0", "-"]
    assert solved_sheet(found[1:], View()) is None


def test_scores_are_of_the_tasks_that_were_asked_for(made_up: MakeUp, tmp_path: Path):
    run = read_run(evaluated(made_up(tmp_path / "run", "vblrl"), 4))
    assert scores.intervals(run)["train"].mean == 11.5
    assert scores.intervals(run, View(2, 3))["train"].mean == 11.5
    assert scores.intervals(run, View(3))["train"].mean == 12.5
    assert scores.solved(scores.known(run, View(2, 3)))["train"].mean == 1.5
    sheet = scores.sheet([run], View(2, 3))
    assert sheet is not None
    assert "tasks 2-3" in sheet.title
    scores.write_csv([run], tmp_path / "scores.csv", View(1, 2))
    (line,) = csv.DictReader((tmp_path / "scores.csv").read_text().splitlines())
    assert (float(line["mean"]), float(line["solved"])) == (10.5, 2.0)
    assert float(line["world_reward"]) == pytest.approx(0.25), "of the first two tasks, not of all"
    assert [line[name] for name in ("seeds", "first_task", "last_task", "run")] == ["3", "1", "2", str(run.path)]


def test_a_run_that_has_not_come_to_the_tasks_asked_for_leaves_the_others_their_curves(
    made_up: MakeUp, tmp_path: Path, monkeypatch
):
    long, short = (made_up(tmp_path / name, name) for name in ("vblrl", "pooled"))
    lines = (short / "records.jsonl").read_text().splitlines(keepends=True)
    (short / "records.jsonl").write_text("".join(line for line in lines if json.loads(line).get("task", 0) < 2))
    drawn: list[tuple[str, np.ndarray]] = []
    curve = drawing.curve
    monkeypatch.setattr(drawing, "curve", lambda *args: (drawn.append((args[3].label, args[2])), curve(*args))[1])
    runs = [read_run(long), read_run(short)]
    figures.learning_curves(runs, View(3), tmp_path / "curves")
    assert [name for name, _ in drawn] == ["vblrl", "pooled", "vblrl"]  # of the second only what is over all tasks
    np.testing.assert_allclose(drawn[2][1], runs[0].returns[:, 2:].mean(axis=1))
    assert returns_sheet(rows(runs, View(3)), View(3)).cells("tasks") == ["3-4", "-"]


def test_the_figure_of_solved_tasks_is_over_tasks_that_all_have_finished(made_up: MakeUp, tmp_path: Path, monkeypatch):
    runs = [read_run(solving(made_up(tmp_path / name, "vblrl"))) for name in ("one", "other")]
    runs[1] = runs[1]._replace(returns=runs[1].returns.copy())
    runs[1].returns[:, 3, 2:] = np.nan
    drawn: list[np.ndarray] = []
    curve = drawing.curve
    monkeypatch.setattr(drawing, "curve", lambda *args: (drawn.append(args[2]), curve(*args))[1])
    figures.solved_tasks(runs, View())
    np.testing.assert_allclose(drawn, [np.nansum(run.success[:, :3], axis=1) for run in runs])
    nothing = [run._replace(returns=np.full_like(run.returns, np.nan)) for run in runs]
    assert figures.solved_tasks(nothing, View()) is None


def test_what_was_not_evaluated_in_those_tasks_has_no_scores(made_up: MakeUp, tmp_path: Path):
    run = read_run(evaluated(made_up(tmp_path / "run", "vblrl"), 2))
    assert scores.intervals(run, View(3)) == {}
    assert scores.sheet([run], View(3)) is None


def test_runs_of_different_length_say_which_tasks_each_line_is_about(made_up: MakeUp, tmp_path: Path):
    short, long = (evaluated(made_up(tmp_path / f"{n}", "vblrl", tasks=n), n) for n in (2, 4))
    made = make_report(Plan([short, long], figures=False), tmp_path / "report")
    of_runs = [sheet.cells("tasks") for sheet in made.sheets if "run" in sheet.head]
    assert of_runs == [["1-2", "1-4"], ["1-2", "", "1-4", ""], ["1-2", "1-4"]]  # in the second, solved is below
    shared = make_report(Plan([short, long], View(1, 2), figures=False), tmp_path / "report")
    for sheet in (sheet for sheet in shared.sheets if "run" in sheet.head):
        assert "tasks 1-2" in sheet.title
        assert "tasks" not in sheet.head


def test_evaluated_tasks_that_are_solved_are_counted(made_up: MakeUp, tmp_path: Path):
    run = read_run(evaluated(solving(made_up(tmp_path / "run", "vblrl")), 4))
    assert scores.solved(scores.known(run))["train"].mean == 2.5
    sheet = scores.sheet([run])
    assert sheet is not None
    assert sheet.cells("run") == ["made-up vblrl", "  tasks solved"]
    scores.write_csv([run], tmp_path / "scores.csv")
    (line,) = csv.DictReader((tmp_path / "scores.csv").read_text().splitlines())
    assert float(line["solved"]) == 2.5


def test_a_run_that_has_only_begun_can_be_reported(made_up: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run")
    text = (path / "records.jsonl").read_text().splitlines(keepends=True)
    (path / "records.jsonl").write_text("".join(text[:12]))
    make_report(Plan([path]), tmp_path / "report")
    (row,) = rows([read_run(path)], View())
    assert row.last_task == 1
    assert str(row.late) == "-"


def test_two_runs_of_one_method_can_be_told_apart(made_up: MakeUp, tmp_path: Path):
    runs = [read_run(made_up(tmp_path / name)) for name in ("one", "two")]
    assert called(runs) == ["made-up blrl (one)", "made-up blrl (two)"]
    assert called([runs[0], read_run(made_up(tmp_path / "three", "boss"))]) == ["made-up blrl", "made-up boss"]


def test_a_folder_called_as_its_method_is_not_named_beside_it(made_up: MakeUp, tmp_path: Path):
    """So the arms of a sweep are called vblrl and vblrl (deterministic)."""
    runs = [read_run(made_up(tmp_path / name)) for name in ("blrl", "psrl")]
    assert called(runs) == ["made-up blrl", "made-up blrl (psrl)"]
    assert [each.label for each in named(runs)] == ["blrl", "blrl (psrl)"]


def test_tasks_beyond_the_run_are_refused(made_up: MakeUp, tmp_path: Path):
    with pytest.raises(UserError, match="has 4 tasks; there is no task 9"):
        make_report(Plan([made_up(tmp_path / "run")], View(9)), tmp_path / "report")
    assert not (tmp_path / "report").exists()


def markdown_rows(text: str) -> list[list[str]]:
    """The lines of the tables in a Markdown text, without heads and rules."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [cells for cells in lines if not cells[0].startswith(("---", "run"))]


def test_markdown_has_the_numbers_of_the_csv(made_up: MakeUp, tmp_path: Path):
    paths = [evaluated(made_up(tmp_path / name, name), 4) for name in ("vblrl", "ewc")]
    make_report(Plan(paths, figures=False), tmp_path / "report")

    def written(name: str) -> list[list[str]]:
        """Each run's cells as the CSV has them, rounded as for people."""
        table = list(csv.DictReader((tmp_path / "report" / f"{name}.csv").read_text().splitlines()))
        texts = [f"{float(r['mean']):.0f} ± {float(r['high']) - float(r['mean']):.0f}" for r in table]
        if name == "scores":
            texts = [f"{float(r['mean']):.1f} ± {float(r['high']) - float(r['mean']):.1f}" for r in table]
        count = len(texts) // 2
        return [texts[:count], texts[count:]]

    for name, labels in (("table", ["made-up vblrl", "made-up ewc"]), ("scores", ["made-up vblrl", "made-up ewc"])):
        shown = markdown_rows((tmp_path / "report" / f"{name}.md").read_text())
        shown = [cells for cells in shown if "solved" not in cells[0]]
        assert [cells[0] for cells in shown] == labels
        assert [cells[1:] for cells in shown] == written(name)


def test_a_report_without_figures_draws_none(made_up: MakeUp, tmp_path: Path):
    made = make_report(Plan([made_up(tmp_path / "run")], figures=False), tmp_path / "report")
    names = {"table.csv", "table.md", "table.tex"}
    assert {path.name for path in made.files} == {path.name for path in (tmp_path / "report").iterdir()} == names


def test_what_was_measured_is_a_table(made_up: MakeUp, tmp_path: Path):
    """Radius 2 / (task + 1); 30, 20, 10, 0 steps of tasks 1 to 4 were not optimal (see above)."""
    make_report(Plan([made_up(tmp_path / "run", measured=True)], View(2), epsilon=0.5, figures=False), tmp_path / "out")
    table = list(csv.DictReader((tmp_path / "out" / "transfer.csv").read_text().splitlines()))
    found = {line["score"]: float(line["mean"]) for line in table}
    assert found["radius"] == pytest.approx((1 + 2 / 3 + 1 / 2) / 3, rel=1e-5)
    assert found["suboptimal_steps"] == 10.0
    assert found["last_value_gap"] == 0.0


def test_runs_that_cannot_be_read_are_named_and_left_out(
    whole: MakeUp, made_up: MakeUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    good = whole(tmp_path / "good", tasks=2)
    broken, old, empty, short = (made_up(tmp_path / name) for name in ("broken", "old", "empty", "short"))
    lines = (broken / "records.jsonl").read_text().splitlines(keepends=True)
    (broken / "records.jsonl").write_text("".join([*lines[:5], "{not json\n", *lines[5:]]))
    (old / "records.jsonl").write_text("".join(lines[1:]))
    (empty / "records.jsonl").write_text("".join(lines[:2]))
    (short / "records.jsonl").write_text("".join(lines[:24]))
    (short / "versions.json").write_text(json.dumps({"sessions": [{"command": "x", "posterity": "0.3"}]}))
    (good / "versions.json").write_text(json.dumps({"sessions": [{"command": "x", "posterity": "0.2"}]}))
    words = [str(path) for path in (good, tmp_path / "none", broken, old, empty, short)]
    assert main(["report", *words, "--page", "--no-figures", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    told = " ".join((said.out + said.err).split())
    text = (tmp_path / "out" / "index.html").read_text()
    for reason in (
        f"Left out: {tmp_path / 'none'} holds no run",
        f"Left out: {broken}/records.jsonl, line 6, is not a record",
        f"Left out: {old}/records.jsonl is in record format 1",
        f"Left out: {empty} has no finished iteration to report yet",
        f"Unfinished: {short} has 1 of 4 tasks",
        "The runs are of different versions of posterity: 0.2, 0.3",
    ):
        assert reason in told
        assert reason in text
    assert "short" in (tmp_path / "out" / "table.csv").read_text()
    with pytest.raises(UserError, match="holds no run"):
        make_report(Plan([tmp_path / "none"]), tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()

"""Metrics, tables and figures, on records made up for the purpose."""

import csv
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table
from scipy import stats

from posterity.errors import UserError
from posterity.report import figures, scores
from posterity.report.metrics import band, called, interval, read_run, rolling, solved, suboptimal_steps
from posterity.report.report import make_report
from posterity.report.tables import View, rows, terminal, terminal_solved


def made_up(path: Path, method: str = "blrl", seeds: int = 3, tasks: int = 4, iterations: int = 5, probe: bool = False):
    """A run folder whose return is 100 seed + 10 task + iteration."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(
        f'family = "made-up"\nmethod = "{method}"\npreset = "quick"\nseed = 7\nseeds = {seeds}\n'
        f"tasks = {tasks}\niterations = {iterations}\nsteps = 10\n"
    )
    (path / "versions.json").write_text(json.dumps({"sessions": [{"command": "none"}]}))
    lines = []
    for task in range(tasks):
        for seed in range(seeds):
            facts = {"radius": 2.0 / (task + 1)} if probe else {}
            lines.append({"kind": "task", "seed": 7 + seed, "task": task, **facts})
        for iteration in range(iterations):
            for seed in range(seeds):
                facts = {"gap": float(iteration < 3 - task)} if probe else {}
                place = {"kind": "iteration", "seed": 7 + seed, "task": task, "iteration": iteration}
                lines.append({**place, "return": 100.0 * seed + 10 * task + iteration, **facts, "wall": 60.0})
    (path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_records_become_arrays(tmp_path: Path):
    run = read_run(made_up(tmp_path / "run"))
    seed, task, iteration = np.meshgrid(range(3), range(4), range(5), indexing="ij")
    np.testing.assert_array_equal(run.returns, 100 * seed + 10 * task + iteration)
    assert run.seeds == [7, 8, 9]
    assert np.isnan(run.radius).all()


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


def test_the_table_looks_at_the_tasks_it_is_asked_for(tmp_path: Path):
    run = read_run(made_up(tmp_path / "run"))
    (row,) = rows([run], View(2, 3, early=2))
    tens = 15.0  # tasks 2 and 3 have returns 10 and 20 above
    assert row.first.mean == pytest.approx(100 + tens + 0.0)
    assert row.early.mean == pytest.approx(100 + tens + 0.5)
    assert row.late.mean == pytest.approx(100 + tens + 3.5)
    assert row.overall.mean == pytest.approx(100 + tens + 2.0)
    assert row.minutes == 1.0
    assert "tasks 2-3" in str(terminal([row], View(2, 3)).title)


def test_steps_that_were_not_optimal_are_counted(tmp_path: Path):
    run = read_run(made_up(tmp_path / "run", probe=True))
    np.testing.assert_array_equal(suboptimal_steps(run, 0.5)[0], [30, 20, 10, 0])


def test_a_report_of_two_methods_is_a_table_and_figures(tmp_path: Path):
    paths = [made_up(tmp_path / name, name, probe=True) for name in ("blrl", "boss")]
    made = make_report(paths, tmp_path / "report", View(), 1.0)
    names = sorted(path.name for path in made.files)
    assert names == [
        "made-up-learning.png",
        "made-up-learning.svg",
        "made-up-transfer.png",
        "made-up-transfer.svg",
        "table.csv",
    ]
    assert all(path.stat().st_size > 500 for path in made.files)
    lines = list(csv.DictReader((tmp_path / "report" / "table.csv").read_text().splitlines()))
    assert [line["score"] for line in lines] == ["first", "first_3", "last_3", "all"] * 2
    assert float(lines[0]["mean"]) == pytest.approx(115.0)


def test_curves_end_where_a_run_ends_and_those_within_a_task_are_over_tasks_that_all_have_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    paths = [made_up(tmp_path / name, name) for name in ("vblrl", "hip-mdp")]
    lines = (paths[1] / "records.jsonl").read_text().splitlines()
    kept = [line for line in lines if (record := json.loads(line))["task"] < 2 or record.get("iteration", 0) < 1]
    kept = [line for line in kept if json.loads(line)["task"] < 3]
    (paths[1] / "records.jsonl").write_text("".join(line + "\n" for line in kept))
    drawn: list[tuple[str, int]] = []
    samples: list[np.ndarray] = []
    curve = figures._curve

    def note(axes, across, sample, name, colour):
        drawn.append((name, len(across)))
        samples.append(sample)
        return curve(axes, across, sample, name, colour)

    monkeypatch.setattr(figures, "_curve", note)
    runs = [read_run(path) for path in paths]
    figures.learning_curves(runs, View(), tmp_path / "curves")
    iterations = runs[0].returns.shape[2]
    assert drawn == [("vblrl", 4), ("vblrl", iterations), ("hip-mdp", 3), ("hip-mdp", iterations)]
    first_two = runs[0].returns[:, :2].mean(axis=1)
    np.testing.assert_allclose(samples[1], first_two)
    np.testing.assert_allclose(samples[3], first_two)


def solving(path: Path) -> Path:
    """The made-up run, telling of success: task k is solved from iteration k on, task 0 not in the last one."""
    path = made_up(path, "vblrl")
    lines = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "iteration":
            lost = line["task"] == 0 and line["iteration"] == 4
            line["success"] = float(line["iteration"] >= line["task"] and not lost)
    (path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_solved_tasks_are_counted_by_iteration(tmp_path: Path):
    run = read_run(solving(tmp_path / "run"))
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


def test_a_report_counts_solved_tasks_where_a_family_tells(tmp_path: Path):
    paths = [solving(tmp_path / "telling"), made_up(tmp_path / "silent")]
    made = make_report(paths, tmp_path / "report", View(), 1.0)
    assert {"made-up-solved.png", "made-up-solved.svg"} <= {path.name for path in made.files}
    lines = list(csv.DictReader((tmp_path / "report" / "table.csv").read_text().splitlines()))
    counts = {line["score"]: float(line["mean"]) for line in lines if line["score"].startswith("solved")}
    assert counts == pytest.approx({"solved_most": 4.0, "solved_last": 10 / 3, "solved_ever": 4.0}, rel=1e-5)
    table = terminal_solved(made.rows, View())
    assert table is not None
    assert list(table.columns[-1].cells) == ["4 ± 0", "-"]
    assert terminal_solved(made.rows[1:], View()) is None


def played(path: Path, tasks: int):
    """The same run with its score Train: task 0, 1, ... has 10, 11, ..., solved up to the middle of the third."""
    (path / "evaluation").mkdir()
    lines = [
        {"score": "train", "seed": 7 + seed, "task": task, "episode": episode, "after": task}
        | {
            "return": 10.0 + task,
            "steps": 5,
            "world_reward": task / 2.0,
            "success": task < 2 or (task == 2 and episode == 0),
        }
        for seed in range(3)
        for task in range(tasks)
        for episode in range(2)
    ]
    (path / "evaluation" / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def cells(table: Table | None) -> list[list[str]]:
    """A table's columns."""
    assert table is not None
    return [[str(cell) for cell in column.cells] for column in table.columns]


def test_scores_are_of_the_tasks_that_were_asked_for(tmp_path: Path):
    run = read_run(played(made_up(tmp_path / "run", "vblrl"), 4))
    assert scores.intervals(run)["train"].mean == 11.5
    assert scores.intervals(run, View(2, 3))["train"].mean == 11.5
    assert scores.intervals(run, View(3))["train"].mean == 12.5
    assert scores.solved(run, View(2, 3))["train"].mean == 1.5
    assert "tasks 2-3" in str(getattr(scores.table([run], View(2, 3)), "title", ""))
    scores.write_csv([run], tmp_path / "scores.csv", View(1, 2))
    (line,) = csv.DictReader((tmp_path / "scores.csv").read_text().splitlines())
    assert (float(line["mean"]), float(line["solved"])) == (10.5, 2.0)
    assert float(line["world_reward"]) == pytest.approx(0.25), "of the first two tasks, not of all"
    assert [line[name] for name in ("seeds", "first_task", "last_task", "run")] == ["3", "1", "2", str(run.path)]


def test_a_run_that_has_not_come_to_the_tasks_asked_for_leaves_the_others_their_curves(tmp_path: Path, monkeypatch):
    long, short = (made_up(tmp_path / name, name) for name in ("vblrl", "hip-mdp"))
    lines = (short / "records.jsonl").read_text().splitlines(keepends=True)
    (short / "records.jsonl").write_text("".join(line for line in lines if json.loads(line)["task"] < 2))
    drawn: list[tuple[str, np.ndarray]] = []
    curve = figures._curve
    monkeypatch.setattr(figures, "_curve", lambda *args: (drawn.append((args[3], args[2])), curve(*args))[1])
    runs = [read_run(long), read_run(short)]
    figures.learning_curves(runs, View(3), tmp_path / "curves")
    assert [name for name, _ in drawn] == ["vblrl", "vblrl", "hip-mdp"]  # of the second only what is over all tasks
    np.testing.assert_allclose(drawn[1][1], runs[0].returns[:, 2:].mean(axis=1))
    assert cells(terminal(rows(runs, View(3)), View(3)))[1] == ["3-4", "-"]


def test_the_figure_of_solved_tasks_is_over_tasks_that_all_have_finished(tmp_path: Path, monkeypatch):
    runs = [read_run(solving(tmp_path / name)) for name in ("one", "other")]
    runs[1] = runs[1]._replace(returns=runs[1].returns.copy())
    runs[1].returns[:, 3, 2:] = np.nan
    drawn: list[np.ndarray] = []
    curve = figures._curve
    monkeypatch.setattr(figures, "_curve", lambda *args: (drawn.append(args[2]), curve(*args))[1])
    figures.solved_tasks(runs, View(), tmp_path / "solved")
    np.testing.assert_allclose(drawn, [np.nansum(run.success[:, :3], axis=1) for run in runs])
    nothing = [run._replace(returns=np.full_like(run.returns, np.nan)) for run in runs]
    assert figures.solved_tasks(nothing, View(), tmp_path / "none") == []


def test_what_was_not_evaluated_in_those_tasks_has_no_scores(tmp_path: Path):
    run = read_run(played(made_up(tmp_path / "run", "vblrl"), 2))
    assert scores.intervals(run, View(3)) == {}
    assert scores.table([run], View(3)) is None


def test_runs_of_different_length_say_which_tasks_each_line_is_about(tmp_path: Path):
    short, long = (played(made_up(tmp_path / f"{n}", "vblrl", tasks=n), n) for n in (2, 4))
    made = make_report([short, long], tmp_path / "report", View(), 1.0)
    assert cells(terminal(made.rows, View()))[1] == ["1-2", "1-4"]
    assert cells(scores.table(made.scored))[1] == ["1-2", "", "1-4", ""]  # below each how many were solved
    shared = make_report([short, long], tmp_path / "report", View(1, 2), 1.0)
    for table in (terminal(shared.rows, View(1, 2)), scores.table(shared.scored, View(1, 2))):
        assert "tasks 1-2" in str(getattr(table, "title", ""))
        assert "1-2" not in cells(table)[1]


def test_evaluated_tasks_that_are_solved_are_counted(tmp_path: Path):
    run = read_run(played(solving(tmp_path / "run"), 4))
    assert scores.solved(run)["train"].mean == 2.5
    assert cells(scores.table([run]))[0] == ["made-up vblrl", "  tasks solved"]
    scores.write_csv([run], tmp_path / "scores.csv")
    (line,) = csv.DictReader((tmp_path / "scores.csv").read_text().splitlines())
    assert float(line["solved"]) == 2.5


def test_a_run_that_has_only_begun_can_be_reported(tmp_path: Path):
    path = made_up(tmp_path / "run")
    text = (path / "records.jsonl").read_text().splitlines(keepends=True)
    (path / "records.jsonl").write_text("".join(text[:12]))
    made = make_report([path], tmp_path / "report", View(), 1.0)
    assert made.rows[0].last_task == 1
    assert str(made.rows[0].late) == "-"


def test_published_records_may_be_compressed(tmp_path: Path):
    path = made_up(tmp_path / "run")
    plain = read_run(path).returns
    (path / "records.jsonl.xz").write_bytes(lzma.compress((path / "records.jsonl").read_bytes()))
    (path / "records.jsonl").unlink()
    np.testing.assert_array_equal(read_run(path).returns, plain)


def test_a_run_that_went_on_after_it_was_packed_is_read_as_it_is_now(tmp_path: Path):
    path = made_up(tmp_path / "run")
    plain = read_run(path).returns
    half = (path / "records.jsonl").read_bytes().splitlines(keepends=True)[:12]
    (path / "records.jsonl.xz").write_bytes(lzma.compress(b"".join(half)))
    np.testing.assert_array_equal(read_run(path).returns, plain)


def test_records_cut_in_half_are_refused(tmp_path: Path):
    path = made_up(tmp_path / "run") / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="last line, number 72, is not whole"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.toml", ("seed = 7", "seed = 8")),
        ("config.toml", ("seed = 7", "")),
        ("config.toml", ("tasks = 4", "tasks = 2")),
        ("config.toml", ('family = "made-up"', "family = ")),
        ("versions.json", ("{", "[")),
        ("records.jsonl", ('"seed": 7, ', "")),
    ],
)
def test_files_that_do_not_fit_together_are_refused_in_one_line(tmp_path: Path, file: str, change: tuple[str, str]):
    path = made_up(tmp_path / "run") / file
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match=r"holds no readable run|do not fit together") as refused:
        read_run(tmp_path / "run")
    assert "\n" not in str(refused.value)


def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path: Path):
    path = made_up(tmp_path / "run") / "checkpoints"
    path.mkdir()
    for content in (b"", b"12345", b"\x05\0\0\0\0\0\0\0{}{}{"):
        (path / "state.safetensors").write_bytes(content)
        with pytest.raises(UserError, match="holds no readable run"):
            read_run(tmp_path / "run")


def test_two_runs_of_one_method_can_be_told_apart(tmp_path: Path):
    table = terminal(rows([read_run(made_up(tmp_path / name)) for name in ("one", "two")], View()), View())
    assert list(table.columns[0].cells) == ["made-up blrl (one)", "made-up blrl (two)"]


def test_a_line_that_is_no_record_is_named(tmp_path: Path):
    path = made_up(tmp_path / "run") / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:5], "what?\n", *lines[5:]]))
    with pytest.raises(UserError, match="line 6, is not a record"):
        read_run(tmp_path / "run")


def test_tasks_beyond_the_run_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match="has 4 tasks; there is no task 9"):
        make_report([made_up(tmp_path / "run")], tmp_path / "report", View(9), 1.0)


@pytest.mark.parametrize("missing", ["config.toml", "versions.json", "records.jsonl"])
def test_a_folder_without_a_run_is_refused(tmp_path: Path, missing: str):
    (made_up(tmp_path / "run") / missing).unlink()
    with pytest.raises(UserError, match="holds no run"):
        read_run(tmp_path / "run")


def test_runs_that_family_and_method_do_not_tell_apart_are_called_by_their_folders_too():
    runs = [("hopper", "npg", Path("runs/a")), ("hopper", "npg", Path("runs/b")), ("hopper", "ewc", Path("runs/c"))]
    assert called(runs) == ["hopper npg (a)", "hopper npg (b)", "hopper ewc"]

"""Figures: what is in the frame, and that the numbers beside a figure are those that are drawn."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from posterity.experiment.records import Run, read_run
from posterity.report import backward_figures, drawing, figures, model_figures, run_figures
from posterity.report.drawing import Drawing, Named, curve, frame
from posterity.report.lifelong import transfer_matrix
from posterity.report.tables import View

MakeUp = Callable[..., Path]
RESULTS = Path(__file__).parents[2] / "results"


def framed(sample: np.ndarray) -> tuple[float, float, bool]:
    axes = Figure().subplots()
    look: Any = Named("vblrl", "#000000", "-", "", read_run(RESULTS / "pendulum-gravity" / "vblrl"))
    cut = frame(axes, [curve(axes, np.arange(sample.shape[1], dtype=float), sample, look)])
    low, high = axes.get_ylim()
    return low, high, cut


def test_intervals_over_two_seeds_do_not_flatten_the_curve():
    """They are 12.7 standard errors wide: here from about -170 to 270, for a mean that rises from 0 to 100."""
    rise = np.linspace(0, 100, 20)
    low, high, cut = framed(np.stack([rise - 18, rise + 18]))
    assert high - low <= 3.4 * 100
    assert low < 0
    assert high > 100
    assert cut


def test_narrow_intervals_are_whole_in_the_frame():
    rise = np.linspace(0, 100, 20)
    low, high, cut = framed(rise + np.linspace(-3, 3, 10)[:, None])
    assert not cut
    assert -20 < low < 0
    assert 100 < high < 120


def test_a_flat_mean_and_a_single_seed_have_a_frame():
    low, high, _ = framed(np.array([[1.0, 1.0], [2.0, 2.0]]))
    assert low < 1.5 < high
    low, high, cut = framed(np.array([[1.0, 3.0]]))
    assert low < 1
    assert high > 3
    assert not cut


@pytest.fixture
def pair(whole: MakeUp, tmp_path: Path) -> list[Run]:
    """vblrl and single-task, with everything on record."""
    names = {"vblrl": 3.0, "single-task": 0.0}
    return [read_run(whole(tmp_path / name, name, better=better)) for name, better in names.items()]


DRAW: dict[str, Callable[[list[Run]], Drawing | None]] = {
    "stream": lambda runs: figures.stream(runs, View()),
    "within": lambda runs: figures.within_task(runs, View()),
    "backward": lambda runs: backward_figures.backward(runs, View()),
    "scores": lambda runs: figures.scores(runs, View()),
    "solved": lambda runs: figures.solved_tasks(runs, View()),
    "transfer": lambda runs: figures.prior_mass(runs, View(), 0.5),
    "uncertainty": lambda runs: model_figures.uncertainty(runs, View()),
    "forecast": lambda runs: model_figures.forecasts(runs, View()),
    "calibration": lambda runs: model_figures.calibration(runs, View()),
    "going-back": lambda runs: model_figures.whose_prediction(runs, View()),
    "latent": lambda runs: model_figures.latent(runs, View()),
    "particles": lambda runs: run_figures.particles(runs, View()),
    "vblrl-matrix": lambda runs: run_figures.matrix(drawing.named(runs)[0], transfer_matrix(runs[0]), View()),
}
NEED_MORE = {"transfer", "particles"}  # runs measured against the truth, or with different particles


@pytest.mark.parametrize("name", DRAW)
def test_a_figure_is_a_png_an_svg_and_its_numbers_and_is_as_wide_as_a_column(name: str, whole: MakeUp, tmp_path: Path):
    more: dict[str, object] = {"measured": True} if name == "transfer" else {}
    runs = [read_run(whole(tmp_path / n, "vblrl", particles=n_particles, tasks=3, **more)) for n, n_particles in PAIR]
    if name == "vblrl-matrix":
        runs = runs[:1]
    drawn = DRAW[name](runs)
    assert drawn is not None
    assert drawn.name == f"made-up-{name}"
    assert drawn.figure.get_size_inches()[0] == drawing.WIDTH
    assert drawn.caption.endswith(".")
    files = drawing.save(drawn, tmp_path)
    assert [file.suffix for file in files] == [".png", ".svg", ".csv"]
    table = list(csv.reader(files[2].read_text().splitlines()))
    assert tuple(table[0]) == drawn.columns
    assert len(table) == 1 + len(drawn.rows) > 1
    assert {len(row) for row in table} == {len(drawn.columns)}


PAIR = (("a", 1), ("b", 8))


@pytest.mark.parametrize("name", DRAW)
def test_what_is_not_on_record_makes_no_figure(name: str, made_up: MakeUp, tmp_path: Path):
    runs = [read_run(made_up(tmp_path / "run", seeds=2, tasks=2))]
    made = DRAW[name](runs)
    assert (made is None) == (name not in {"stream", "within"})


def test_the_numbers_beside_a_figure_are_those_of_its_curves(pair: list[Run]):
    """The made-up mean over seeds 0, 100, 200 is 100 + 10 task + iteration, and 3 more for vblrl."""
    made = figures.stream(pair, View())
    assert made is not None
    assert [(row[0], row[1], row[2]) for row in made.rows[:2]] == [("vblrl", 1.0, 104.0), ("vblrl", 2.0, 114.0)]
    axes = made.figure.axes[0]
    listed = [float(row[2]) for row in made.rows if row[0] == "vblrl"]
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_ydata(), dtype=float), listed)


def test_a_latent_is_turned_to_rise_and_the_better_dimension_is_shown(pair: list[Run]):
    """The first dimension is constant, the second is minus the factor."""
    made = model_figures.latent(pair[:1], View())
    assert made is not None
    assert all(row[4] == pytest.approx(row[3]) for row in made.rows)
    assert made.columns[3] == "gravity"
    labels = made.figure.axes[0].get_legend_handles_labels()[1]
    assert labels == ["vblrl, rank correlation 1.00"]


def test_back_is_a_flat_line_beside_the_curves_over_the_same_tasks(pair: list[Run]):
    """Back of task j of 4, from 0, is 5 + j - (3 - j) = 2 + 2 j, and 3 more for vblrl."""
    made = backward_figures.backward(pair, View())
    assert made is not None
    names = list(dict.fromkeys(str(row[0]) for row in made.rows))
    assert names == ["vblrl", "single-task", "vblrl, Back", "single-task, Back"]
    assert [row[2] for row in made.rows if row[0] == "vblrl, Back"] == [(2 + 4 + 6 + 8) / 4 + 3]
    later = backward_figures.backward(pair, View(first_task=3))
    assert later is not None
    assert [row[2] for row in later.rows if row[0] == "vblrl, Back"] == [(6 + 8) / 2 + 3]


def test_a_method_with_one_way_of_going_back_has_no_line(whole: MakeUp, tmp_path: Path):
    path = whole(tmp_path / "run", "npg")
    (path / "evaluation" / "back-confidence.jsonl").rename(path / "evaluation" / "back.jsonl")
    assert backward_figures.backward([read_run(path)], View()) is None


def test_every_way_of_going_back_is_a_line_if_there_are_several(whole: MakeUp, tmp_path: Path):
    path = whole(tmp_path / "run", "vblrl")
    [each] = drawing.named([read_run(path)])
    assert backward_figures.ways_back(each, View()) is None
    lines = (path / "evaluation" / "back-confidence.jsonl").read_text()
    (path / "evaluation" / "back-task-only.jsonl").write_text(re.sub(r'"return": [-\d.]+', '"return": 4.5', lines))
    [each] = drawing.named([read_run(path)])
    made = backward_figures.ways_back(each, View())
    assert made is not None
    flat = {row[0]: row[2] for row in made.rows if str(row[0]).startswith("Back")}
    assert flat == {"Back, confidence": 5.0, "Back, task-only": 4.5}


@pytest.mark.parametrize(("tasks", "label"), [((3, 3), "hours of a run"), ((3, 2), "seconds / 1,000 steps")])
def test_particles_are_shown_against_hours_where_all_runs_took_as_many_steps(
    tasks: tuple[int, int], label: str, whole: MakeUp, tmp_path: Path
):
    pairs = zip(PAIR, tasks, strict=True)
    runs = [read_run(whole(tmp_path / n, particles=count, tasks=some)) for (n, count), some in pairs]
    made = run_figures.particles(runs, View())
    assert made is not None
    assert made.figure.axes[1].get_ylabel() == label
    hours, seconds = (made.columns.index(name) for name in ("hours", "seconds_per_1000_steps"))
    for row, run in zip(made.rows, runs, strict=True):
        assert row[hours] == pytest.approx(run.wall_seconds / 3600)
    drawn = [float(line.get_ydata()[0]) for line in made.figure.axes[1].lines]  # type: ignore[index]
    assert drawn[0] == pytest.approx(made.rows[0][hours if label.startswith("hours") else seconds])


def test_the_transfer_matrix_is_drawn_as_it_was_played(pair: list[Run]):
    made = DRAW["vblrl-matrix"](pair)
    assert made is not None
    found = {(row[0], row[1]): row[2] for row in made.rows}
    assert (found[1.0, 1.0], found[2.0, 1.0], found[1.0, 2.0], found[4.0, 1.0]) == (8.0, 7.0, 4.0, 5.0)
    assert (1.0, 3.0) not in found


def test_methods_differ_by_more_than_colour_and_no_look_comes_twice(made_up: MakeUp, tmp_path: Path):
    methods = ("vblrl", "vblrl", "hip-mdp", "ewc", "single-task", "own:Method")
    looks = drawing.named([read_run(made_up(tmp_path / f"{n}", name)) for n, name in enumerate(methods)])
    assert len({each.colour for each in looks}) == len(looks)
    assert len({str(each.line) for each in looks}) == len(looks)
    assert len({each.label for each in looks}) == len(looks)
    assert looks[-1].gid == "method-own-Method"


def test_names_with_a_dollar_or_a_bracket_are_drawn_as_they_are(whole: MakeUp, tmp_path: Path):
    runs = [read_run(whole(tmp_path / f"$x^{n}$ <b>", "vblrl", tasks=2)) for n in (1, 2)]
    made = figures.stream(runs, View())
    assert made is not None
    text = drawing.save(made, tmp_path)[1].read_text()
    assert re.search(r"vblrl \(\$x\^1\$ &lt;b&gt;\)", text)

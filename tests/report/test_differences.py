"""Differences by seed, against numbers worked out by hand, and seeds that are pooled."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from posterity.cli import main
from posterity.errors import UserError
from posterity.experiment.records import Run, read_run
from posterity.report.differences import Difference, between, compare, sheets, within
from posterity.report.paper import beside, sheet, table1
from posterity.report.pool import pooled
from posterity.report.tables import View

MakeUp = Callable[..., Path]
T_OF_2 = 4.302652729911275  # the 97.5 % point of Student's t with 2 degrees of freedom


@pytest.fixture
def scored(made_up: MakeUp, played: MakeUp, tmp_path: Path) -> Callable[..., Run]:
    """A run with evaluation scores: name -> seed -> the return of one episode in each task."""

    def make(name: str, method: str, seed: int = 7, more: float = 0.0, **scores: dict[int, list[float]]) -> Run:
        path = made_up(tmp_path / name, method, seed=seed, tasks=2, iterations=4, more=more)
        for score, seeds in scores.items():
            file = score.replace("_", "-")
            played(path, file, {each: [[value] for value in values] for each, values in seeds.items()})
        return read_run(path)

    return make


def one(found: list[Difference], score: str, how: str = "paired", minus: str = "") -> Difference:
    """The one difference of that name."""
    [each] = [d for d in found if (d.score, d.how, d.against_score) == (score, how, minus or score)]
    return each


def test_a_paired_difference_is_students_over_seeds_and_not_over_pairs(scored: Callable[..., Run]):
    """By seed, over both tasks: (1 + 3) / 2, (4 + 4) / 2, (8 + 10) / 2 = 2, 4, 9: mean 5, deviation sqrt(13)."""
    ours = scored("a", "vblrl", train={7: [11, 23], 8: [14, 24], 9: [18, 30]})
    theirs = scored("b", "ewc", train={7: [10, 20], 8: [10, 20], 9: [10, 20]})
    each = one(between(ours, theirs, View()), "train")
    width = T_OF_2 * np.sqrt(13.0 / 3)
    assert each.value[:3] == pytest.approx((5.0, 5.0 - width, 5.0 + width))
    assert (each.value.over, each.seeds, list(each.tasks)) == ("seeds", (3, 3), [1, 2])
    assert not [d for d in between(ours, theirs, View()) if d.how == "Welch"], "their seeds are the same"


def test_where_seeds_differ_it_is_by_welch_too_over_all_of_them(scored: Callable[..., Run]):
    ours = scored("a", "vblrl", 7, train={7: [1, 3], 8: [4, 4], 9: [8, 10]})  # by seed 2, 4, 9
    theirs = scored("b", "ewc", 8, train={8: [0, 2], 9: [5, 7], 10: [6, 6]})  # by seed 1, 6, 6
    found = between(ours, theirs, View())
    low, high = stats.ttest_ind([2, 4, 9], [1, 6, 6], equal_var=False).confidence_interval()
    assert one(found, "train", "Welch").value[:3] == pytest.approx((5 - 13 / 3, low, high))
    paired = one(found, "train")  # of seeds 8 and 9, which both have: 4 - 1 and 9 - 6
    assert (paired.value.mean, paired.value.low, paired.seeds) == (3.0, 3.0, (2, 2))


def test_only_tasks_that_both_have_finished_count(made_up: MakeUp, tmp_path: Path):
    long = read_run(made_up(tmp_path / "long", "vblrl", more=5.0))
    path = made_up(tmp_path / "short", "ewc")
    lines = (path / "records.jsonl").read_bytes().splitlines(keepends=True)
    (path / "records.jsonl").write_bytes(b"".join(lines[:-20]))  # in the third task, and not at its end
    found = between(long, read_run(path), View())
    assert [each.score for each in found] == ["first", "first_3", "last_3", "all"]
    for each in found:
        assert list(each.tasks) == [1, 2]
        assert each.value[:3] == pytest.approx((5.0, 5.0, 5.0))
    assert list(between(long, read_run(path), View(2))[0].tasks) == [2]


def test_a_single_seed_is_compared_over_tasks_and_says_so(made_up: MakeUp, tmp_path: Path):
    ours, theirs = (read_run(made_up(tmp_path / name, name, seeds=1)) for name in ("vblrl", "ewc"))
    found = between(ours, theirs, View())
    assert one(found, "all").value.over == "tasks"
    assert "one seed, over its tasks" in sheets(found)[0].cells("how")[0]


def test_seeds_that_have_nothing_in_common_are_compared_by_welch_alone(made_up: MakeUp, tmp_path: Path):
    ours = read_run(made_up(tmp_path / "a", "vblrl", seed=0))
    found = between(ours, read_run(made_up(tmp_path / "b", "ewc", seed=50)), View())
    assert {each.how for each in found} == {"Welch"}
    assert {each.seeds for each in found} == {(3, 3)}
    assert sheets(found)[0].cells("how")[0] == "Welch, 3 and 3 seeds"


def test_what_is_forgotten_is_back_minus_train_by_seed(scored: Callable[..., Run]):
    """By seed -1, -2, -6: mean -3, deviation sqrt(7). Over the six pairs the interval would be narrower."""
    run = scored("a", "ewc", train={7: [10, 20], 8: [10, 20], 9: [10, 20]}, back={7: [9, 19], 8: [10, 16], 9: [4, 14]})
    each = one(within(run, View()), "back", minus="train")
    width = T_OF_2 * np.sqrt(7.0 / 3)
    assert each.value[:3] == pytest.approx((-3.0, -3.0 - width, -3.0 + width))
    assert sheets([each])[0].rows[0][1] == "Back - Train"


def test_ways_of_playing_back_are_set_against_the_one_a_run_is_set_to(scored: Callable[..., Run]):
    same = {7: [1.0, 2.0], 8: [3.0, 4.0], 9: [5.0, 9.0]}
    blend = {seed: [value + 2 for value in values] for seed, values in same.items()}
    run = scored("a", "vblrl", train=same, back_confidence=same, back_blend=blend)
    found = within(run, View())
    assert one(found, "back", minus="train").value.mean == 0.0
    assert one(found, "back-blend", minus="train").value.mean == 2.0
    assert one(found, "back-blend", minus="back").value.mean == 2.0
    other = scored("b", "ewc", back=same)
    assert one(between(run, other, View()), "back").value.mean == 0.0, (
        "Back by confidence is compared with the one Back"
    )


def test_a_seed_that_several_runs_have_counts_once_with_its_mean(scored: Callable[..., Run]):
    first = scored("a", "vblrl", 7, train={7: [1, 1], 8: [2, 2], 9: [3, 3]})
    second = scored("b", "vblrl", 9, more=100.0, train={9: [5, 7], 10: [4, 4], 11: [6, 6]})
    other = scored("c", "ewc", 7, train={7: [0, 0], 8: [0, 0], 9: [0, 0]})
    both, alone = pooled([first, second, other])
    assert alone is other
    assert both.seeds == [7, 8, 9, 10, 11]
    np.testing.assert_array_equal(both.scores["train"].returns, [[1, 1], [2, 2], [4, 5], [4, 4], [6, 6]])
    np.testing.assert_array_equal(both.returns[2], (first.returns[2] + second.returns[0]) / 2)
    assert both.folders == f"{first.path} + {second.path}"
    low, high = stats.ttest_ind([1, 2, 4.5, 4, 6], [0, 0, 0], equal_var=False).confidence_interval()
    each = one(between(both, other, View()), "train", "Welch")
    assert each.value[:3] == pytest.approx((3.5, low, high))
    assert each.seeds == (5, 3)


def test_pooled_runs_are_over_the_tasks_that_all_have_finished(made_up: MakeUp, tmp_path: Path):
    long, short = (read_run(made_up(tmp_path / f"{tasks}", "ewc", seed=tasks, tasks=tasks)) for tasks in (4, 2))
    [both] = pooled([long, short])
    assert both.returns.shape[1] == 2
    with pytest.raises(UserError, match="differ in iterations"):
        pooled([long, read_run(made_up(tmp_path / "other", "ewc", iterations=3))])


def test_what_is_of_another_family_is_not_compared(made_up: MakeUp, tmp_path: Path):
    ours = read_run(made_up(tmp_path / "a"))
    theirs = read_run(made_up(tmp_path / "b", family="other"))
    with pytest.raises(UserError, match="nothing to compare"):
        compare([ours], [theirs], View())


def test_the_command_writes_and_prints_differences(made_up: MakeUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The made-up returns of the second run are 5 more, in every seed, task and iteration."""
    runs = [made_up(tmp_path / "a", "vblrl"), made_up(tmp_path / "b", "vblrl", seed=9)]
    other = made_up(tmp_path / "c", "ewc", more=5.0)
    out = tmp_path / "out"
    words = ["report", str(runs[0]), "--against", str(other), "--no-figures", "--out", str(out)]
    assert main(words) == 0
    table = list(csv.DictReader((out / "differences.csv").read_text().splitlines()))
    assert [line["score"] for line in table] == ["first", "first_3", "last_3", "all"]
    assert {(line["mean"], line["low"], line["high"], line["how"], line["seeds"]) for line in table} == {
        ("-5", "-5", "-5", "paired", "3")
    }
    shown = capsys.readouterr().out
    assert "made-up vblrl minus made-up ewc" in shown
    text = (out / "differences.md").read_text()
    assert "| last 3 | paired, 3 seeds | 1-4 | -5.000 ± 0.000 |" in text
    words[1:2] = map(str, runs)
    assert main([*words, "--pool"]) == 0
    assert "Welch, 5 and 3 seeds" in (out / "differences.md").read_text()
    assert "made-up blrl" not in (out / "table.md").read_text()
    assert main(["report", str(runs[0]), "--against", str(tmp_path / "none")]) == 2


def test_our_scores_stand_beside_the_papers(made_up: MakeUp, played: MakeUp, tmp_path: Path):
    ours = {7: [[300.0], [320.0]], 8: [[310.0], [330.0]], 9: [[320.0], [340.0]]}
    paths = [made_up(tmp_path / method, method, family="hopper-gravity", tasks=2) for method in ("vblrl", "pooled")]
    runs = [read_run(played(path, name, ours)) for path, name in zip(paths, ("train", "back"), strict=True)]
    found = beside([*runs, read_run(made_up(tmp_path / "no"))], View())
    made = sheet(found, View())
    assert made.head == ("run", "tasks", "Train", "paper", "Back", "paper")
    width = T_OF_2 * 10 / np.sqrt(3)
    assert made.rows[0] == ("hopper-gravity vblrl", "2", f"320 ± {width:.0f}", "333 ± 24", "-", "361 ± 8")
    assert made.rows[1] == ("hopper-gravity pooled", "2", "-", "286 ± 41", f"320 ± {width:.0f}", "312 ± 55")
    notes = " ".join(made.notes)
    assert "20 tasks in hopper-gravity" in notes
    assert "ours has no latent" in notes
    assert len(table1()) == 84
    with pytest.raises(UserError, match="No run was evaluated in a family of the paper's"):
        beside([read_run(made_up(tmp_path / "another"))], View())


def test_a_run_is_not_compared_with_itself(made_up: MakeUp, tmp_path: Path):
    ours, theirs = (read_run(made_up(tmp_path / name, name)) for name in ("vblrl", "ewc"))
    found = compare([ours, theirs], [theirs], View())
    assert {(each.run.method, each.against.method) for each in found} == {("vblrl", "ewc")}


def test_a_comparison_that_is_not_like_for_like_says_so(made_up: MakeUp, tmp_path: Path):
    ours = read_run(made_up(tmp_path / "a", "vblrl"))
    path = made_up(tmp_path / "b", "ewc")
    config = path / "config.toml"
    config.write_text(config.read_text().replace("steps_per_iteration = 10", "steps_per_iteration = 20"))
    [made] = sheets(compare([ours], [read_run(path)], View()))
    assert "They have 10 and 20 steps an iteration" in made.notes

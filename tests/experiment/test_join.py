"""Seeds that were run apart are one experiment when they are joined."""

import json

import numpy as np
import pytest

from posterity.cli import main
from posterity.report.metrics import read_run
from posterity.report.scores import read_scores

SMALL = ["item-search", "--tasks", "3", "--iterations", "2"]


def ran(folder, *options):
    assert main(["run", *SMALL, *options, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    place = tmp_path_factory.mktemp("parts")
    return ran(place / "a", "--seeds", "2"), ran(place / "b", "--seed", "2"), ran(place / "all", "--seeds", "3")


def joined(out, *folders):
    return main(["join", *map(str, folders), "--out", str(out)])


def test_two_runs_are_the_run_of_all_their_seeds(parts, tmp_path):
    one, other, whole = parts
    assert joined(tmp_path / "both", other, one) == 0
    both, all_three = read_run(tmp_path / "both"), read_run(whole)
    assert both.seeds == [0, 1, 2]
    np.testing.assert_array_equal(both.returns, all_three.returns)
    assert (tmp_path / "both" / "config.toml").read_text() == (whole / "config.toml").read_text()
    assert [session["command"] for session in both.sessions] == [
        session["command"] for path in (other, one) for session in read_run(path).sessions
    ]

    def lines(path):
        records = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
        return [{name: value for name, value in record.items() if name != "wall"} for record in records]

    assert lines(tmp_path / "both") == lines(whole)


def test_what_differs_in_more_than_seeds_stays_apart(parts, tmp_path, capsys):
    other = ran(tmp_path / "other", "--seed", "2", "--known", "3")
    assert joined(tmp_path / "both", parts[0], other) == 2
    assert "differ in agent" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_no_seed_is_counted_twice_or_left_out(parts, tmp_path, capsys):
    assert joined(tmp_path / "both", parts[0], parts[2]) == 2
    assert "0, 0, 1, 1, 2" in capsys.readouterr().err
    far = ran(tmp_path / "far", "--seed", "7")
    assert joined(tmp_path / "both", parts[0], far) == 2
    assert "none in between be missing" in capsys.readouterr().err


def test_back_is_each_seed_s_own_last(parts, tmp_path):
    """Runs that were stopped by the clock come to different tasks."""
    one, other = parts[:2]
    for folder, finished, seeds in ((one, 2, (0, 1)), (other, 3, (2,))):
        (folder / "evaluation").mkdir(exist_ok=True)
        place = {"score": "back", "episode": 0, "steps": 1}
        lines = [
            {**place, "seed": seed, "task": task, "after": finished, "return": float(10 * seed + task)}
            for seed in seeds
            for task in range(finished)
        ]
        (folder / "evaluation" / "back-confidence.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert joined(tmp_path / "both", one, other) == 0
    scores = read_scores(read_run(tmp_path / "both"), "back-confidence")
    assert scores is not None
    np.testing.assert_array_equal(scores.returns, [[0, 1, np.nan], [10, 11, np.nan], [20, 21, 22]])


@pytest.mark.parametrize(
    "args", [["join"], ["join", "a", "--out", "b"], ["join", "a", "b"], ["join", "a", "b", "--out", "c"]]
)
def test_what_cannot_be_joined_is_said_in_one_line(args, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

"""Seeds that were run apart are one experiment when they are joined."""

import json
import lzma
import shutil

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


@pytest.fixture
def copies(parts, tmp_path):
    """Two parts that a test may change."""
    return [shutil.copytree(part, tmp_path / part.name) for part in parts[:2]]


def evaluated(folder, seeds, *moments, episodes=1):
    """Scores of going back after each of the `moments`."""
    lines = [
        {"score": "back", "seed": seed, "task": task, "episode": episode, "after": after, "return": 10.0 * seed + task}
        for seed in seeds
        for after in moments
        for task in range(after)
        for episode in range(episodes)
    ]
    (folder / "evaluation").mkdir()
    (folder / "evaluation" / "back-confidence.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_back_is_each_seed_s_own_last(copies, tmp_path):
    """Runs that were stopped by the clock come to different tasks."""
    evaluated(copies[0], (0, 1), 1, 2)
    evaluated(copies[1], (2,), 3)
    assert joined(tmp_path / "both", *copies) == 0
    scores = read_scores(read_run(tmp_path / "both"), "back-confidence")
    assert scores is not None
    np.testing.assert_array_equal(scores.returns, [[0, 1, np.nan], [10, 11, np.nan], [20, 21, 22]])
    assert scores.tasks == 2, "all of them have been evaluated on"


def test_scores_that_a_part_lacks_or_has_otherwise_are_asked_for(copies, tmp_path, capsys):
    evaluated(copies[0], (0, 1), 3)
    assert joined(tmp_path / "both", *copies) == 2
    assert "lacks the scores back-confidence; evaluate it too" in capsys.readouterr().err
    evaluated(copies[1], (2,), 3, episodes=2)
    assert joined(tmp_path / "both", *copies) == 2
    assert "different numbers of episodes" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_a_torn_line_is_left_out_and_a_cut_file_is_refused(copies, tmp_path, capsys):
    records = copies[1] / "records.jsonl"
    whole = records.read_text()
    records.write_text(whole + '{"kind": "itera')
    assert joined(tmp_path / "both", *copies) == 0
    records.write_text(whole[: len(whole) // 2])
    assert joined(tmp_path / "again", *copies) == 2
    assert "was cut" in capsys.readouterr().err


def test_what_is_joined_can_be_joined_again_and_not_be_resumed(copies, tmp_path, capsys):
    """Published parts have their records compressed, and no checkpoints."""
    both, more = tmp_path / "both", ran(tmp_path / "more", "--seed", "3", "--save-every", "99")
    for copy in copies:
        text = (copy / "records.jsonl").read_bytes()
        (copy / "records.jsonl.xz").write_bytes(lzma.compress(text))
        (copy / "records.jsonl").unlink()
        shutil.rmtree(copy / "checkpoints")
    assert joined(both, *copies) == 0
    assert joined(tmp_path / "all", both, more) == 0
    assert read_run(tmp_path / "all").seeds == [0, 1, 2, 3]
    assert main(["resume", str(both)]) == 2
    assert "no checkpoint to go on from" in capsys.readouterr().err
    assert joined(both, *copies) == 2
    assert "is in the way" in capsys.readouterr().err


def test_the_wall_time_is_that_of_the_slowest_part(copies, tmp_path):
    records = copies[0] / "records.jsonl"
    slow = [json.loads(line) for line in records.read_text().splitlines()]
    text = "".join(json.dumps({**record, **({"wall": 5000.0} if "wall" in record else {})}) + "\n" for record in slow)
    shutil.rmtree(copies[0] / "checkpoints")
    records.write_text(text)
    assert joined(tmp_path / "both", *copies) == 0
    assert read_run(tmp_path / "both").wall == 5000.0


@pytest.mark.parametrize(
    "args", [["join"], ["join", "a", "--out", "b"], ["join", "a", "b"], ["join", "a", "b", "--out", "c"]]
)
def test_what_cannot_be_joined_is_said_in_one_line(args, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

"""Seeds that were run apart are one experiment when they are joined; a compact copy is what is published."""

import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posterity.cli import main
from posterity.experiment.records import HEADER, encode, read_records, read_run
from posterity.report.tables import View, rows

MakeUp = Callable[..., Path]


@pytest.fixture
def parts(made_up: MakeUp, tmp_path: Path) -> list[Path]:
    """Seeds 0 and 1, and seed 2."""
    return [made_up(tmp_path / "a", seed=0, seeds=2), made_up(tmp_path / "b", seed=2, seeds=1)]


def joined(out: Path, *folders: Path, options: tuple[str, ...] = ()) -> int:
    return main(["join", *map(str, folders), "--out", str(out), *options])


def test_two_runs_are_the_run_of_all_their_seeds(parts: list[Path], made_up: MakeUp, tmp_path: Path):
    whole = made_up(tmp_path / "whole", seed=0, seeds=3)
    assert joined(tmp_path / "both", parts[1], parts[0]) == 0
    both = read_run(tmp_path / "both")
    assert both.seeds == [0, 1, 2]
    np.testing.assert_array_equal(both.returns[:2], read_run(whole).returns[:2])
    np.testing.assert_array_equal(both.returns[2], read_run(parts[1]).returns[0])
    assert (tmp_path / "both" / "config.toml").read_text() == (whole / "config.toml").read_text()
    assert len(both.sessions) == 2

    def places(path: Path) -> list[tuple[str, int, int, int]]:
        return [(r["kind"], r["seed"], r["task"], r.get("iteration", -1)) for r in read_records(path)]

    assert places(tmp_path / "both") == places(whole), "the order in which one run would have written them"
    assert (tmp_path / "both" / "records.jsonl").read_bytes().startswith(HEADER)


def test_what_differs_in_more_than_seeds_stays_apart(
    parts: list[Path], made_up: MakeUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert joined(tmp_path / "both", parts[0], made_up(tmp_path / "other", "boss", seed=2)) == 2
    assert "differ in method" in capsys.readouterr().err
    config = parts[1] / "config.toml"
    config.write_text("# version 0.1 setting: world_every = 10\n" + config.read_text())
    assert joined(tmp_path / "both", *parts) == 2
    assert "comments in their config.toml differ" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_no_seed_is_counted_twice_or_left_out(
    parts: list[Path], made_up: MakeUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert joined(tmp_path / "both", *parts, made_up(tmp_path / "again", seed=0, seeds=1)) == 2
    assert "0, 0, 1, 2" in capsys.readouterr().err
    assert joined(tmp_path / "both", parts[0], made_up(tmp_path / "far", seed=7)) == 2
    assert "none in between be missing" in capsys.readouterr().err


def test_back_is_each_seed_s_own_last(parts: list[Path], played: MakeUp, tmp_path: Path):
    """Runs that were stopped by the clock come to different tasks."""
    played(parts[0], "back", {seed: [[10.0 * seed], [10.0 * seed + 1]] for seed in (0, 1)})
    played(parts[1], "back", {2: [[20.0], [21.0], [22.0], [23.0]]})
    assert joined(tmp_path / "both", *parts) == 0
    scores = read_run(tmp_path / "both").scores["back"]
    nothing = np.nan
    expected = [[0, 1, nothing, nothing], [10, 11, nothing, nothing], [20, 21, 22, 23]]
    np.testing.assert_array_equal(scores.returns, expected)
    assert scores.tasks == 2, "all of them have been evaluated on"


def test_each_run_has_the_mean_over_its_own_episodes(parts: list[Path], played: MakeUp, tmp_path: Path):
    played(parts[0], "train", {0: [[1.0, 3.0]], 1: [[5.0, 7.0]]})
    played(parts[1], "train", {2: [[10.0]]})
    assert joined(tmp_path / "both", *parts) == 0
    np.testing.assert_array_equal(read_run(tmp_path / "both").scores["train"].returns[:, 0], [2.0, 6.0, 10.0])


def test_scores_that_a_part_lacks_are_asked_for(
    parts: list[Path], played: MakeUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    played(parts[0], "back", {0: [[1.0]], 1: [[1.0]]})
    assert joined(tmp_path / "both", *parts) == 2
    assert "lacks the scores back; evaluate it too" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_what_is_joined_can_be_joined_again_and_is_not_written_over(
    parts: list[Path], made_up: MakeUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Published parts have their records compressed, and no checkpoints."""
    for part in parts:
        (part / "records.jsonl.xz").write_bytes(lzma.compress((part / "records.jsonl").read_bytes()))
        (part / "records.jsonl").unlink()
    assert joined(tmp_path / "both", *parts) == 0
    assert joined(tmp_path / "all", tmp_path / "both", made_up(tmp_path / "more", seed=3)) == 0
    assert read_run(tmp_path / "all").seeds == [0, 1, 2, 3, 4, 5]
    assert joined(tmp_path / "both", *parts) == 2
    assert "is in the way" in capsys.readouterr().err


def test_the_wall_time_is_that_of_the_slowest_part(parts: list[Path], tmp_path: Path):
    records = parts[0] / "records.jsonl"
    records.write_text(records.read_text().replace('"wall_seconds": 60.0', '"wall_seconds": 5000.0'))
    assert joined(tmp_path / "both", *parts) == 0
    assert read_run(tmp_path / "both").wall_seconds == 5000.0


def test_a_compact_copy_keeps_returns_to_five_digits_factors_exactly_and_no_folders(
    made_up: MakeUp, played: MakeUp, tmp_path: Path
):
    run = made_up(tmp_path / "run", seeds=1, tasks=1, iterations=1)
    (run / "config.toml").write_text("# version 0.1 setting: world_every = 10\n" + (run / "config.toml").read_text())
    (run / "versions.json").write_text(
        json.dumps({"sessions": [{"command": "posterity run x --out ../some/where/runs/mine"}]})
    )
    task = {"kind": "task", "seed": 7, "task": 0, "factors": {"gravity": 0.5323672751778389}}
    place = {"kind": "iteration", "seed": 7, "task": 0, "iteration": 0, "steps": 400}
    iteration = {**place, "return": 401.52467807, "model_rmse": 0.327269, "wall_seconds": 104.842}
    (run / "records.jsonl").write_bytes(HEADER + encode(task) + encode(iteration))
    (run / "checkpoints").mkdir()
    played(run, "train", {7: [[1 / 3]]})
    out = tmp_path / "published"
    assert joined(out, run, options=("--compact",)) == 0
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "config.toml",
        "evaluation/train.jsonl.xz",
        "records.jsonl.xz",
        "versions.json",
    ]
    assert read_records(out) == [task, {**iteration, "return": 401.52, "model_rmse": 0.327, "wall_seconds": 105}]
    assert read_run(out).sessions == [{"command": "posterity run x --out runs/mine"}]
    assert json.loads(lzma.decompress((out / "evaluation" / "train.jsonl.xz").read_bytes()))["return"] == 0.33333
    assert (out / "config.toml").read_text().startswith("# version 0.1 setting: world_every = 10\n")


def test_published_parts_are_joined_with_their_compressed_scores(parts: list[Path], played: MakeUp, tmp_path: Path):
    for index, part in enumerate(parts):
        played(part, "train", {seed: [[float(seed)]] for seed in read_run(part).seeds})
        assert joined(tmp_path / f"published-{index}", part, options=("--compact",)) == 0
    assert joined(tmp_path / "from-parts", *parts) == 0
    assert joined(tmp_path / "from-published", *(tmp_path / f"published-{i}" for i in range(len(parts)))) == 0
    whole, again = (read_run(tmp_path / f"from-{name}").scores["train"] for name in ("parts", "published"))
    np.testing.assert_array_equal(whole.returns, again.returns)


def test_one_run_is_copied_as_it_is(parts: list[Path], tmp_path: Path):
    assert joined(tmp_path / "copy", parts[0]) == 0
    for name in ("records.jsonl", "config.toml"):
        assert (tmp_path / "copy" / name).read_bytes() == (parts[0] / name).read_bytes()
    assert joined(tmp_path / "compact", *parts, options=("--compact",)) == 0
    before, after = (rows([read_run(tmp_path / name)], View())[0] for name in ("copy", "compact"))
    assert before.run.seeds == [0, 1]
    assert after.run.seeds == [0, 1, 2]
    np.testing.assert_array_equal(before.run.returns, after.run.returns[:2])


def test_what_lies_beside_the_new_folder_is_left_alone(parts: list[Path], tmp_path: Path):
    shutil.copytree(parts[0], tmp_path / "both.part")
    before = {file.name for file in tmp_path.iterdir()}
    assert joined(tmp_path / "both", *parts) == 0
    assert (tmp_path / "both.part" / "records.jsonl").exists()
    assert {file.name for file in tmp_path.iterdir()} - before == {"both"}


@pytest.mark.parametrize(
    "args", [["join"], ["join", "a", "--out", "b"], ["join", "a", "b"], ["join", "a", "b", "--out", "c"]]
)
def test_what_cannot_be_joined_is_said_in_one_line(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

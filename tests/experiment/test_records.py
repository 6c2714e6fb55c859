"""The record format: what is written can be read, and what cannot be read is refused in one line."""

import json
import lzma
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.experiment.records import (
    FORMAT,
    HEADER,
    check_format,
    encode,
    encode_evaluation,
    evaluation_name,
    read_records,
    read_run,
    read_sessions,
)

MakeUp = Callable[..., Path]


def test_numbers_have_six_digits_but_for_factors_and_the_clock():
    facts = {"return": 1 / 3, "steps": 400, "list": np.array([123456.789, 1.0]), "one": np.float32(0.1)}
    exact = {"factors": {"gravity": 0.5323672751778389}, "wall_seconds": 1234567.891}
    line = json.loads(encode({"kind": "iteration", **facts, **exact}))
    assert line == {"kind": "iteration", "return": 0.333333, "steps": 400, "list": [123457.0, 1.0], "one": 0.1, **exact}


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float64(-np.inf), np.array([1.0, np.nan])])
def test_a_number_that_is_not_finite_is_left_out(value: object):
    assert json.loads(encode({"kind": "iteration", "return": 1.0, "model_rmse": value})) == {
        "kind": "iteration",
        "return": 1.0,
    }


def test_the_first_line_names_the_format(made_up: MakeUp, tmp_path: Path):
    assert json.loads(HEADER) == {"kind": "header", "format": FORMAT}
    path = made_up(tmp_path / "run")
    assert (path / "records.jsonl").read_bytes().startswith(HEADER)
    assert all(record["kind"] != "header" for record in read_records(path))
    check_format(path)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"", r"is in record format 1 \(posterity 0.1\); this version reads and writes format 2"),
        (b'{"kind": "header", "format": 3}\n', "is in record format 3; this version reads and writes format 2"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_records_of_another_format_are_refused_in_one_line(
    made_up: MakeUp, tmp_path: Path, first: bytes, said: str, packed: bool
):
    path = made_up(tmp_path / "run")
    plain = path / "records.jsonl"
    content = plain.read_bytes().replace(HEADER, first)
    plain.write_bytes(content)
    if packed:
        (path / "records.jsonl.xz").write_bytes(lzma.compress(content))
        plain.unlink()
    for read in (read_run, read_records, check_format):
        with pytest.raises(UserError, match=said) as refused:
            read(path)
        assert "\n" not in str(refused.value)


def test_a_folder_without_records_has_no_wrong_format(tmp_path: Path):
    check_format(tmp_path)
    (tmp_path / "records.jsonl").write_bytes(HEADER[:5])  # killed while it wrote the header
    check_format(tmp_path)


def test_records_become_arrays(made_up: MakeUp, tmp_path: Path):
    run = read_run(made_up(tmp_path / "run"))
    seed, task, iteration = np.meshgrid(range(3), range(4), range(5), indexing="ij")
    np.testing.assert_array_equal(run.returns, 100 * seed + 10 * task + iteration)
    assert run.seeds == [7, 8, 9]
    assert run.wall_seconds == 60.0
    assert np.isnan(run.radius).all()


def test_published_records_may_be_compressed(made_up: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run")
    plain = read_run(path).returns
    (path / "records.jsonl.xz").write_bytes(lzma.compress((path / "records.jsonl").read_bytes()))
    (path / "records.jsonl").unlink()
    np.testing.assert_array_equal(read_run(path).returns, plain)


def test_a_run_that_went_on_after_it_was_packed_is_read_as_it_is_now(made_up: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run")
    plain = read_run(path).returns
    half = (path / "records.jsonl").read_bytes().splitlines(keepends=True)[:12]
    (path / "records.jsonl.xz").write_bytes(lzma.compress(b"".join(half)))
    np.testing.assert_array_equal(read_run(path).returns, plain)


def test_records_cut_in_half_are_refused(made_up: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run") / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="last line, number 73, is not whole"):
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
def test_files_that_do_not_fit_together_are_refused_in_one_line(
    made_up: MakeUp, tmp_path: Path, file: str, change: tuple[str, str]
):
    path = made_up(tmp_path / "run") / file
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match=r"holds no readable run|cannot be read|expected") as refused:
        read_run(tmp_path / "run")
    assert "\n" not in str(refused.value)


def test_a_damaged_checkpoint_is_refused_in_one_line(made_up: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run") / "checkpoints"
    path.mkdir()
    for content in (b"", b"12345", b"\x05\0\0\0\0\0\0\0{}{}{"):
        (path / "state.safetensors").write_bytes(content)
        with pytest.raises(UserError, match="holds no readable run"):
            read_run(tmp_path / "run")


def test_a_line_that_is_no_record_is_named(made_up: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run") / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:5], "what?\n", *lines[5:]]))
    with pytest.raises(UserError, match="line 6, is not a record"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize("missing", ["config.toml", "versions.json", "records.jsonl"])
def test_a_folder_without_a_run_is_refused(made_up: MakeUp, tmp_path: Path, missing: str):
    (made_up(tmp_path / "run") / missing).unlink()
    with pytest.raises(UserError, match="holds no run"):
        read_run(tmp_path / "run")


def test_reading_needs_neither_jax_nor_an_environment():
    code = "import sys, posterity.experiment.records; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "gymnasium", "mujoco", "matplotlib", "pydantic"} & set(done.stdout.split())


def test_scores_are_means_over_the_episodes_that_each_seed_has(made_up: MakeUp, played: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run", seeds=2, tasks=2)
    played(path, "train", {7: [[1.0, 3.0], [5.0]], 8: [[4.0], []]})
    scores = read_run(path).scores["train"]
    np.testing.assert_array_equal(scores.returns, [[2.0, 5.0], [4.0, np.nan]])
    assert scores.tasks == 1, "all seeds have been evaluated on the first"
    assert np.isnan(scores.success).all()
    assert np.isnan(scores.world_reward).all()


def test_back_is_after_the_last_task(made_up: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run", seeds=1, tasks=2)
    lines = [
        {"score": "back", "seed": 7, "task": task, "episode": 0, "after": after, "return": 10.0 * after + task}
        for after in (1, 2)
        for task in range(after)
    ]
    (path / "evaluation").mkdir()
    (path / "evaluation" / "back.jsonl").write_bytes(encode_evaluation(lines))
    run = read_run(path)
    np.testing.assert_array_equal(run.scores["back"].returns, [[20.0, 21.0]])
    assert run.back == "back"


def test_the_back_of_a_run_is_played_in_the_way_it_is_set_to(made_up: MakeUp, played: MakeUp, tmp_path: Path):
    path = made_up(tmp_path / "run", "vblrl", seeds=1)
    for variant in ("confidence", "blend"):
        played(path, evaluation_name("back", variant), {7: [[1.0]] * 4})
    assert read_run(path).back == "back-confidence"
    (path / "config.toml").write_text((path / "config.toml").read_text() + '[agent.backward]\nvariant = "blend"\n')
    assert read_run(path).back == "back-blend"
    assert evaluation_name("train") == "train"


def test_a_damaged_evaluation_is_refused_in_one_line(made_up: MakeUp, played: MakeUp, tmp_path: Path):
    path = played(made_up(tmp_path / "run"), "train", {7: [[1.0]]})
    file = path / "evaluation" / "train.jsonl"
    whole = file.read_text()
    for damaged in ("", whole[:-10], whole.replace('"seed": 7', '"seed": 99'), whole.replace('"return"', '"retrun"')):
        file.write_text(damaged)
        with pytest.raises(UserError, match=r"train\.jsonl") as refused:
            read_run(path)
        assert "\n" not in str(refused.value)


def test_published_scores_may_be_compressed_and_damage_to_them_is_refused(
    made_up: MakeUp, played: MakeUp, tmp_path: Path
):
    path = played(made_up(tmp_path / "run"), "train", {7: [[1.0]]})
    before = read_run(path).scores["train"].returns
    file = path / "evaluation" / "train.jsonl"
    small = lzma.compress(file.read_bytes())
    file.unlink()
    file.with_name("train.jsonl.xz").write_bytes(small)
    np.testing.assert_array_equal(read_run(path).scores["train"].returns, before)
    for damaged in (b"", small[:-10], small[:20], b"\0" + small):
        file.with_name("train.jsonl.xz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"train\.jsonl") as refused:
            read_run(path)
        assert "\n" not in str(refused.value)


def test_sessions_are_read_and_a_folder_without_any_has_none(made_up: MakeUp, tmp_path: Path):
    assert read_sessions(made_up(tmp_path / "run")) == [{"command": "none"}]
    assert read_sessions(tmp_path) == []


def test_factors_latents_and_back_after_every_task_become_arrays(made_up: MakeUp, tmp_path: Path):
    """Names of objects and keys are no factors; the latent is that of a task's last iteration."""
    path = made_up(tmp_path / "run", seeds=2, tasks=2, iterations=2)
    lines = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()][1:]
    for line in lines:
        if line["kind"] == "task":
            line["factors"] = {"mass": [1.0 + line["task"], 3], "key": [5], "name": "red", "gravity": 9.5}
        else:
            line["latent"] = [line["task"], line["iteration"]]
    (path / "records.jsonl").write_bytes(HEADER + b"".join(map(encode, lines)))
    (path / "evaluation").mkdir()
    back = [(7, 0, 1, 10.0), (7, 0, 2, 20.0), (7, 1, 2, 30.0), (8, 0, 2, 40.0)]  # seed, task, after, return
    shares = {"world_reward": 0.5, "world_state": 0.25}
    played = [{"seed": s, "task": k, "after": n, "return": value, **shares} for s, k, n, value in back]
    (path / "evaluation" / "back.jsonl").write_bytes(b"".join(map(encode, played)))
    run = read_run(path)
    assert run.factor_names == ("mass 1", "mass 2", "gravity")
    np.testing.assert_array_equal(run.factors[1], [[1.0, 3.0, 9.5], [2.0, 3.0, 9.5]])
    np.testing.assert_array_equal(run.latent[0], [[0.0, 1.0], [1.0, 1.0]])
    assert run.same_tasks
    after = run.scores["back"].after
    np.testing.assert_array_equal(after[0], [[10.0, np.nan], [20.0, 30.0]])
    np.testing.assert_array_equal(after[1], [[np.nan, np.nan], [40.0, np.nan]])
    assert run.scores["back"].world_state[0, 0] == 0.25
    plain = read_run(made_up(tmp_path / "plain"))
    assert (plain.latent.shape[2], plain.factors.shape[2], plain.same_tasks) == (0, 0, False)

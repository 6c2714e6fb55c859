"""A run in pieces: what is unpacked is the run to the bit, in place of nothing else, and nothing in it is believed."""

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import posterity
from posterity.cli import main
from posterity.errors import UserError
from posterity.experiment.folder import RunFolder, in_hand
from posterity.experiment.packing import CONTENTS, contents_of, pack, unpack

VBLRL: dict[str, Any] = {
    "iterations": 2,
    "steps_per_iteration": 8,
    "seeds": 2,
    "snapshots": True,
    "env": {"max_episode_steps": 8},
    "agent": {
        "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
        "learner": {"gradient_steps": 3, "task_batch_size": 8, "world_batch_size": 4},
        "network": {"hidden": [8, 8]},
        "task_min_transitions": 8,
        "world_iterations": 1,
    },
}
FINITE: dict[str, Any] = {"iterations": 2, "seeds": 2, "snapshots": True}
BIG = 1 << 30


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run by its name, but the lock."""
    found = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if name != "run.lock"}


def records(path: Path) -> list[dict[str, Any]]:
    """All records without the clock."""
    lines = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall_seconds"} for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two tasks, evaluated."""
    path = tmp_path_factory.mktemp("finished") / "run"
    posterity.run("random-mdp", out=path, tasks=2, **FINITE)
    posterity.evaluate(path, episodes=1)
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize("most", [1000, 4096, BIG])
def test_what_is_unpacked_is_the_run_to_the_bit_in_pieces_no_larger_than_asked(run: Path, tmp_path: Path, most: int):
    done = pack(run, tmp_path / "packed", most)
    sizes = [path.stat().st_size for path in (tmp_path / "packed").glob("piece-*")]
    assert max(sizes) <= most
    assert len(sizes) == done.pieces
    assert sum(sizes) == done.written < done.run
    unpack([tmp_path / "packed"], tmp_path / "back")
    assert contents(tmp_path / "back") == contents(run)


def test_a_run_that_moved_goes_on_to_the_records_of_one_that_stayed(tmp_path: Path):
    """Of vblrl, whose checkpoints hold weights, memory and generators; its snapshots and tasks' rows are equal too."""
    posterity.run("pendulum-gravity", method="vblrl", out=tmp_path / "stays", tasks=3, **VBLRL)
    pack(tmp_path / "stays", tmp_path / "packed", 10_000)
    posterity.resume(tmp_path / "stays", tasks=5)
    unpack([tmp_path / "packed"], tmp_path / "moved")
    posterity.resume(tmp_path / "moved", tasks=5)
    assert records(tmp_path / "moved") == records(tmp_path / "stays")
    stayed, moved = contents(tmp_path / "stays"), contents(tmp_path / "moved")
    tasks = [name for name in stayed if name.startswith("checkpoints/task-")]
    assert len(tasks) == 5 * 4
    assert [moved[name] for name in tasks] == [stayed[name] for name in tasks]


def test_arrays_of_every_kind_come_back_as_they_were(run: Path, tmp_path: Path):
    """Among them states that run on, whose next ones are told by them: these take next to nothing."""
    chance = np.random.default_rng(0)
    walk = chance.normal(size=(2, 4001, 3)).astype(np.float32)
    arrays = {
        "memory.obs": walk[:, :-1],
        "memory.next_obs": walk[:, 1:],
        "other.next_obs": walk[:, :7],
        "half.obs": walk[:, :7].astype(np.float16),
        "half.next_obs": walk[:, :7],
        "empty": np.zeros((0, 3)),
        "scalar": np.array(3),
        "mask": chance.random(5) > 0.5,
        "key": chance.integers(0, 2**32, 7, np.uint32),
    }
    (run / "checkpoints" / "extra.safetensors").write_bytes(
        save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    )
    pack(run, tmp_path / "packed", BIG)
    unpack([tmp_path / "packed"], tmp_path / "back")
    assert contents(tmp_path / "back") == contents(run)
    [entry] = [each for each in contents_of(tmp_path / "packed").files if "extra" in each.name]
    assert entry.packed is not None
    assert entry.packed < 0.6 * entry.size


def test_a_later_pack_leaves_out_what_an_earlier_one_holds(run: Path, tmp_path: Path):
    """It is unpacked with the earlier one, or over the run that came of it, and not without either."""
    pack(run, tmp_path / "one", BIG)
    unpack([tmp_path / "one"], tmp_path / "theirs")
    posterity.resume(run, tasks=3)
    done = pack(run, tmp_path / "two", BIG, since=[tmp_path / "one"])
    assert done.left_out > 0
    assert done.written < pack(run, tmp_path / "whole", BIG).written
    unpack([tmp_path / "two"], tmp_path / "theirs")
    unpack([tmp_path / "one", tmp_path / "two"], tmp_path / "anew")
    for place in ("theirs", "anew"):
        assert contents(tmp_path / place) == contents(run)
    with pytest.raises(UserError, match="packed before"):
        unpack([tmp_path / "two"], tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_the_contents_of_an_earlier_pack_are_enough_to_pack_by(run: Path, tmp_path: Path):
    """The pieces were carried away and lie here no more."""
    pack(run, tmp_path / "one", BIG)
    shutil.copy(tmp_path / "one" / CONTENTS, tmp_path / "kept.json")
    assert pack(run, tmp_path / "two", BIG, since=[tmp_path / "kept.json"]).written == 0


def test_without_snapshots_a_run_goes_on_all_the_same(run: Path, tmp_path: Path):
    pack(run, tmp_path / "packed", BIG, snapshots=False)
    unpack([tmp_path / "packed"], tmp_path / "moved")
    assert not list((tmp_path / "moved" / "checkpoints").glob("task-*-start*"))
    for path in (run, tmp_path / "moved"):
        posterity.resume(path, tasks=3)
    assert records(tmp_path / "moved") == records(run)


def test_a_run_that_has_gone_on_is_not_put_back(run: Path, tmp_path: Path):
    pack(run, tmp_path / "packed", BIG)
    posterity.resume(run, tasks=3)
    before = contents(run)
    with pytest.raises(UserError, match="has gone on"):
        unpack([tmp_path / "packed"], run)
    assert contents(run) == before


def test_another_run_is_not_written_over(run: Path, tmp_path: Path):
    other = tmp_path / "other"
    posterity.run("random-mdp", out=other, tasks=2, seed=7, **FINITE)
    pack(run, tmp_path / "packed", BIG)
    before = contents(other)
    with pytest.raises(UserError, match="another run"):
        unpack([tmp_path / "packed"], other)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("dear")
    with pytest.raises(UserError, match=r"dear\.txt"):
        unpack([tmp_path / "packed"], tmp_path / "letters")
    assert contents(other) == before
    assert contents(tmp_path / "letters") == {"dear.txt": b"dear"}


def test_a_run_that_is_going_on_is_neither_packed_nor_unpacked_over(run: Path, tmp_path: Path):
    pack(run, tmp_path / "packed", BIG)
    with in_hand(run):
        with pytest.raises(UserError, match="in use"):
            pack(run, tmp_path / "again", BIG)
        with pytest.raises(UserError, match="in use"):
            unpack([tmp_path / "packed"], run)


def test_a_run_cut_off_before_its_checkpoint_can_be_packed_too(run: Path, tmp_path: Path):
    """What it wrote after the last checkpoint goes along, and is cut off when it goes on, as at home."""
    with (run / "records.jsonl").open("ab") as file:
        file.write(b'{"kind": "half a li')
    pack(run, tmp_path / "packed", BIG)
    unpack([tmp_path / "packed"], tmp_path / "moved")
    posterity.resume(tmp_path / "moved", tasks=3)
    pack(tmp_path / "moved", tmp_path / "home", BIG)
    unpack([tmp_path / "home"], run)
    assert contents(run) == contents(tmp_path / "moved")


# What somebody sent ---------------------------------------------------------------------------------------------------


@pytest.fixture
def sent(run: Path, tmp_path: Path) -> Path:
    pack(run, tmp_path / "sent", 4096)
    return tmp_path / "sent"


def test_a_piece_that_is_missing_or_changed_is_named(sent: Path, tmp_path: Path):
    piece = sent / "piece-0002"
    content = piece.read_bytes()
    piece.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match="piece-0002 is damaged"):
        unpack([sent], tmp_path / "back")
    piece.unlink()
    with pytest.raises(UserError, match="piece-0002 is missing"):
        unpack([sent], tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "checkpoints/../../x", "run.lock", "signature", "own.py", "checkpoints/a/b.safetensors"]
)
def test_a_pack_writes_nowhere_but_to_the_files_of_a_run(sent: Path, tmp_path: Path, name: str):
    facts = json.loads((sent / CONTENTS).read_text())
    facts["files"][0]["name"] = name
    (sent / CONTENTS).write_text(json.dumps(facts))
    with pytest.raises(UserError, match="a file that no run has"):
        unpack([sent], tmp_path / "back")


def test_no_link_is_followed(run: Path, tmp_path: Path):
    """An older state of the run lies there, and its checkpoints are a link to a folder elsewhere."""
    theirs, away = tmp_path / "theirs", tmp_path / "away"
    shutil.copytree(run, theirs)
    posterity.resume(run, tasks=3)
    pack(run, tmp_path / "packed", BIG)
    (theirs / "checkpoints").rename(away)
    (theirs / "checkpoints").symlink_to(away)
    before = contents(away)
    with pytest.raises(UserError, match="is a link"):
        unpack([tmp_path / "packed"], theirs)
    assert contents(away) == before


def test_whatever_stands_in_a_pack_it_is_unpacked_to_the_bit_or_refused_in_a_line(run: Path, tmp_path: Path):
    """Damage in the list of contents and in the arrays' own headers, whose checksums then fit."""
    chance = random.Random(0)
    good = contents(run)
    for trial in range(60):
        place = tmp_path / f"sent-{trial}"
        pack(run, place, BIG)
        facts = json.loads((place / CONTENTS).read_text())
        content = bytearray((place / "piece-0001").read_bytes())
        if trial % 2:
            at = chance.randrange(len(content))
            content[at] ^= 1 << chance.randrange(8)
            (place / "piece-0001").write_bytes(content)
            facts["pieces"][0]["sha256"] = hashlib.sha256(content).hexdigest()
        else:
            entry = chance.choice(facts["files"])
            entry[chance.choice(["size", "packed"])] = chance.choice([0, 1, 10**6, None, -1, "x"])
        (place / CONTENTS).write_text(json.dumps(facts))
        said = ""
        try:
            unpack([place], tmp_path / f"back-{trial}")
        except UserError as error:
            said = str(error)
        assert len(said.splitlines()) == 1 or contents(tmp_path / f"back-{trial}") == good


def test_a_header_that_lies_about_its_arrays_is_refused(run: Path, tmp_path: Path):
    state = run / "checkpoints" / "state.safetensors"
    for header in (b"[]", b'{"a": 1}', b'{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}', b"\xff", b""):
        state.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(UserError, match="damaged"):
            pack(run, tmp_path / "packed", BIG)
        shutil.rmtree(tmp_path / "packed")


# The commands ---------------------------------------------------------------------------------------------------------


def test_the_commands_say_what_they_did_and_what_comes_next(run: Path, tmp_path: Path, capsys):
    packed, back = tmp_path / "packed", tmp_path / "back"
    assert main(["pack", str(run), "--out", str(packed), "--piece-mb", "0.004"]) == 0
    pieces = len(list(packed.glob("piece-*")))
    assert f"in {pieces} pieces" in " ".join(capsys.readouterr().out.split())
    assert main(["unpack", str(packed), "--out", str(back)]) == 0
    assert "posterity resume" in " ".join(capsys.readouterr().out.split())
    assert main(["resume", str(back), "--tasks", "3"]) == 0


@pytest.mark.parametrize(
    "args",
    [
        ["pack"],
        ["pack", "{run}"],
        ["pack", "{run}", "--out", "{run}"],
        ["pack", "{run}", "--out", "x", "--piece-mb", "0"],
        ["pack", "{empty}", "--out", "x"],
        ["pack", "nowhere", "--out", "x"],
        ["pack", "{run}", "--out", "x", "--since", "nowhere"],
        ["unpack", "x"],
        ["unpack", "nowhere", "--out", "x"],
        ["unpack", "{run}", "--out", "x"],
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(args: list[str], run: Path, tmp_path: Path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main([arg.format(run=run, empty=tmp_path / "empty") for arg in args]) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "x").exists() or not list((tmp_path / "x").iterdir())


def test_a_run_that_was_packed_and_unpacked_still_knows_whose_code_it_may_run(run: Path, tmp_path: Path, capfd):
    """The signature is of the folder where it was begun. It does not travel."""
    (run / "signature").write_bytes(b"x")
    pack(run, tmp_path / "packed", BIG)
    unpack([tmp_path / "packed"], tmp_path / "back")
    assert not (tmp_path / "back" / "signature").exists()
    RunFolder.reopen(tmp_path / "back", "test", tasks=3)[0].close()

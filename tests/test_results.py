"""What is published can be read, says how it was made, and is put on record as it was."""

import importlib.util
import json
import lzma
import re
from pathlib import Path

import numpy as np
import pytest

from posterity.report.metrics import read_run

RESULTS = Path(__file__).parents[1] / "results"
RUNS = sorted(str(path.parent.relative_to(RESULTS)) for path in RESULTS.glob("**/config.toml"))


def script(name: str):
    """One of the scripts that make results, which are no package."""
    spec = importlib.util.spec_from_file_location("made", RESULTS / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", RUNS)
def test_a_published_run_can_be_read_and_names_its_command_and_versions(name: str):
    run = read_run(RESULTS / name)
    assert np.isfinite(run.returns[:, 0, 0]).all()
    assert run.sessions
    for session in run.sessions:
        assert session["command"].startswith("posterity run") or session["command"].startswith("posterity resume")
        assert not re.search(r"\s/|=/", session["command"]), "no path of a machine"
        assert {"posterity", "python", "numpy", "started"} <= session.keys()


def test_publishing_keeps_returns_to_five_digits_factors_exactly_and_no_folders(tmp_path: Path):
    run, dest = tmp_path / "runs" / "mine", tmp_path / "results"
    (run / "evaluation").mkdir(parents=True)
    (run / "config.toml").write_text("seed = 0\n")
    (run / "versions.json").write_text('{"command": "posterity run x --out ../some/where/runs/mine"}')
    records = [
        {"kind": "task", "seed": 0, "factors": {"gravity": 0.5323672751778389}},
        {
            "kind": "iteration",
            "seed": 0,
            "return": 401.52467807,
            "model_error": 0.327269,
            "wall": 104.842,
            "steps": 400,
        },
    ]
    (run / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (run / "evaluation" / "train.jsonl").write_text(json.dumps({"score": "train", "return": 1 / 3}) + "\n")
    (dest / "evaluation").mkdir(parents=True)
    (dest / "evaluation" / "old.jsonl").write_text("")
    script("publish.py").publish(run, dest)
    task, iteration = map(json.loads, lzma.decompress((dest / "records.jsonl.xz").read_bytes()).splitlines())
    assert task == records[0]
    assert iteration == {**records[1], "return": 401.52, "model_error": 0.327, "wall": 105}
    assert json.loads((dest / "versions.json").read_text())["command"] == "posterity run x --out runs/mine"
    assert [file.name for file in (dest / "evaluation").iterdir()] == ["train.jsonl"]
    assert json.loads((dest / "evaluation" / "train.jsonl").read_text())["return"] == 0.33333


def test_runs_of_one_method_are_told_as_one_and_a_seed_counts_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """As docs/results.md and docs/experiments.md, 19, have it."""
    vblrl = [f"cheetah-gravity-vblrl{number}" for number in ("", "-2", "-3")]
    monkeypatch.setattr("sys.argv", ["pooled.py", "17", *vblrl, "--against", "cheetah-gravity-hip-mdp"])
    script("table1/pooled.py").main()
    assert "train: 318.1 ± 8.3, 12 seeds; against 38.0 ± 24.8" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["pooled.py", "18", "cheetah-gravity-vblrl-3", "cheetah-gravity-vblrl-every"])
    script("table1/pooled.py").main()
    blend = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("back-blend"))
    assert blend == "back-blend: 333.6 ± 14.8, 4 seeds; minus train 13.9 ± 20.3; minus back-confidence 10.8 ± 7.3"


def test_our_scores_stand_beside_the_papers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.argv", ["beside.py", str(RESULTS / "table1"), "--tasks", "2"])
    script("table1/beside.py").main()
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    [hopper] = [line for line in lines if line[:2] == ["| hopper-gravity", "vblrl"]]
    assert hopper[1:3] == ["vblrl", "2"]
    assert [hopper[5], hopper[7], hopper[9]] == ["268 ± 33", "333 ± 24", "361 ± 8"]

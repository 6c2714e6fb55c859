"""Folders that somebody sent: nothing in them is executed, followed or believed unless the user says so."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import posterity
from posterity.cli import main
from posterity.errors import UserError
from posterity.experiment.folder import RunFolder, read_config
from posterity.experiment.trust import NAME

MakeUp = Callable[..., Path]
CODE = """
from pathlib import Path
Path(__file__).with_name("executed").write_text("yes")
from posterity.families.randommdp import RandomMDP as Mine
"""


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of posterity's own code, with a task left to do."""
    path = tmp_path_factory.mktemp("runs") / "run"
    posterity.run("random-mdp", out=path, tasks=1, iterations=2, snapshots=True)
    RunFolder.reopen(path, "test", tasks=2)[0].close()
    return path


@pytest.fixture
def sent(begun: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(begun, tmp_path / "sent"))


def complaint(args: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that a command ends with."""
    capfd.readouterr()
    assert main(args) == 2
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1
    return error


@pytest.mark.parametrize("part", ["family", "method"])
@pytest.mark.parametrize("kind", ["module", "file"])
def test_code_that_a_sent_folder_names_is_not_executed(
    sent: Path, part: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
):
    (tmp_path / "evil.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    name = "evil:Mine" if kind == "module" else f"{tmp_path}/evil.py:Mine"
    text = (sent / "config.toml").read_text()
    old = 'family = "random-mdp"' if part == "family" else 'method = "blrl"'
    (sent / "config.toml").write_text(text.replace(old, f'{part} = "{name}"'))
    for args in (["resume"], ["resume", "--tasks", "3"], ["evaluate"], ["export", "--out", "x"]):
        assert "--trust" in complaint([args[0], str(sent), *args[1:]], capfd)
    complaint(["run", "random-mdp", "--from", str(sent), "--out", "y"], capfd)
    for call in (posterity.resume, posterity.evaluate, posterity.load):
        with pytest.raises(UserError, match="trust=True"):
            call(sent)
    complaint(["report", str(sent), "--no-figures"], capfd)  # its checkpoint knows another configuration
    shutil.rmtree(sent / "checkpoints")
    assert main(["report", str(sent), "--no-figures"]) == 0
    assert not (tmp_path / "executed").exists()


def test_a_run_of_my_own_code_needs_no_trust_where_it_was_begun_and_asks_for_it_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "mine.py").write_text(CODE)
    run = tmp_path / "run"
    posterity.run(f"{tmp_path}/mine.py:Mine", out=run, tasks=1, iterations=1)
    assert posterity.resume(run, tasks=2).returns.shape == (1, 2, 1)
    copied = Path(shutil.copytree(run, tmp_path / "copied"))
    with pytest.raises(UserError, match="was not begun here by you"):
        posterity.resume(copied, tasks=3)
    assert posterity.resume(copied, tasks=3, trust=True).returns.shape == (1, 3, 1)
    text = (run / "versions.json").read_text()
    (tmp_path / "other.py").write_text(CODE)
    (run / "versions.json").write_text(text.replace("/mine.py", "/other.py"))
    with pytest.raises(UserError, match="trust"):
        read_config(run)
    (run / "versions.json").write_text(text)
    assert read_config(run).tasks == 2
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody-else"))
    with pytest.raises(UserError, match="trust"):
        read_config(run)
    assert (run / NAME).exists()


@pytest.mark.parametrize("name", ["run.lock", "records.jsonl", "checkpoints"])
def test_resume_writes_through_no_link(sent: Path, name: str, tmp_path: Path, capfd):
    target = tmp_path / "mine"
    (sent / name).rename(target)
    (sent / name).symlink_to(target)
    before = target.read_bytes() if target.is_file() else sorted(target.iterdir())
    assert "is a link" in complaint(["resume", str(sent)], capfd)
    assert (target.read_bytes() if target.is_file() else sorted(target.iterdir())) == before


def test_a_link_beside_a_file_that_is_replaced_is_removed_and_not_followed(sent: Path, tmp_path: Path):
    (tmp_path / "mine").write_text("precious")
    for name in ("checkpoints/state.safetensors.part", "versions.json.part"):
        (sent / name).symlink_to(tmp_path / "mine")
    posterity.resume(sent)
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize("name", ["report", "evaluation", "report/table.csv"])
def test_reports_and_scores_are_written_through_no_link(sent: Path, name: str, tmp_path: Path, capfd):
    target = tmp_path / "mine"
    target.mkdir()
    (sent / name).parent.mkdir(exist_ok=True)
    (sent / name).symlink_to(target / "file" if "." in name else target)
    command = "evaluate" if name == "evaluation" else "report"
    assert "is a link" in complaint([command, str(sent)], capfd)
    assert not list(target.iterdir())


@pytest.mark.parametrize("family", ["/tmp/elsewhere/x", "../.."])
def test_a_report_stays_in_its_folder_whatever_the_family_is_called(made_up: MakeUp, tmp_path: Path, family: str):
    run = made_up(tmp_path / "run", family=family.replace("\\", "\\\\"), seeds=1, tasks=2, iterations=2)
    assert main(["report", str(run)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert any(file.suffix == ".png" for file in (run / "report").iterdir())


def test_nothing_in_a_folder_steers_the_terminal(made_up: MakeUp, tmp_path: Path, capfd):
    name = r"$a[/]\u001b[31mred\u202e$"
    run = made_up(tmp_path / "r\x1b[2Jun", name, seeds=1, tasks=2, iterations=2)
    assert main(["report", str(run)]) == 0
    said = capfd.readouterr()
    assert main(["resume", str(run)]) == 2
    said = said.out + said.err + capfd.readouterr().err
    assert "[/]" in said
    assert "\x1b" not in said
    assert "\u202e" not in said


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("tasks = 4", "tasks = 1000000000", "promises"),
        ("tasks = 4", 'tasks = "4"', "tasks is '4'"),
        ("seeds = 3", "seeds = true", "seeds is True"),
        ('family = "made-up"', "family = 3", "family is 3"),
    ],
)
def test_absurd_configurations_are_not_reported(made_up: MakeUp, tmp_path: Path, old: str, new: str, says: str):
    config = made_up(tmp_path / "run") / "config.toml"
    config.write_text(config.read_text().replace(old, new))
    with pytest.raises(UserError, match=says):
        posterity.read(tmp_path / "run")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"task": 1, "iteration": 0', '"task": -1, "iteration": 0'),
        ('"task": 1, "iteration": 0', '"task": 9, "iteration": 0'),
        ('"task": 1, "iteration": 0', '"task": 1.0, "iteration": 0'),
        ('"return": 10.0', '"return": NaN'),
        ('"return": 10.0', '"return": 1e999'),
        ('"return": 10.0', '"return": "10"'),
        ('"return": 10.0', '"return": true'),
    ],
)
def test_a_wrong_number_in_the_records_is_named_with_its_line(made_up: MakeUp, tmp_path: Path, old: str, new: str):
    records = made_up(tmp_path / "run") / "records.jsonl"
    text = records.read_text()
    line = 1 + text[: text.index(old)].count("\n")
    records.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=f"line {line}"):
        posterity.read(tmp_path / "run")


@pytest.mark.parametrize("at", [10, 20])  # of an iteration, of a task
@pytest.mark.parametrize("change", ["lost", "twice"])
def test_a_line_that_is_lost_or_there_twice_is_missed(made_up: MakeUp, tmp_path: Path, change: str, at: int):
    records = made_up(tmp_path / "run") / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    lines[at : at + 1] = [] if change == "lost" else [lines[at]] * 2
    records.write_bytes(b"".join(lines))
    with pytest.raises(UserError, match="is missing, or there twice"):
        posterity.read(tmp_path / "run")


def test_a_pipe_is_no_file_to_read(made_up: MakeUp, tmp_path: Path):
    """It would never end."""
    run = made_up(tmp_path / "run")
    (run / "records.jsonl").unlink()
    os.mkfifo(run / "records.jsonl")
    for call in (posterity.read, posterity.resume):
        with pytest.raises(UserError, match="not a plain file"):
            call(run)

"""What the command says of itself: help of every command, and flags made of settings."""

import contextlib
import re
from pathlib import Path
from typing import Literal

import pytest

from posterity.cli import COMMANDS, main
from posterity.commands.arguments import flags_of, parse
from posterity.experiment.config import config_type
from posterity.settings import Settings, argument, setting


@pytest.mark.parametrize("command", [*COMMANDS, "theory coin", "theory radius", "theory complexity", "theory transfer"])
def test_every_command_explains_itself(here: Path, capfd, command: str):
    with contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    out = capfd.readouterr().out
    assert "usage: posterity" in out
    assert not list(here.iterdir())


def help_of(capfd, args: str) -> str:
    with pytest.raises(SystemExit) as left:
        main([*args.split(), "--help"])
    assert left.value.code == 0
    return capfd.readouterr().out


@pytest.mark.parametrize(("family", "method"), [("random-mdp", "blrl"), ("pendulum-gravity", "vblrl")])
def test_every_setting_of_a_run_has_a_flag_and_a_help_line(here: Path, capfd, family: str, method: str):
    out = " ".join(help_of(capfd, f"run {family}").split())
    for flag in flags_of(config_type(family, method)):
        assert flag.positional or f" --{flag.name}" in out, flag.name
        assert flag.field.description, flag.name
        assert " ".join((flag.field.description or "").split()) in out, flag.name


def test_the_help_of_a_run_shows_the_family_then_what_people_change_first_then_the_rest_by_group(
    here: Path, capfd, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    out = help_of(capfd, "run pendulum-gravity")
    assert out.startswith("usage: posterity run FAMILY [options]\n")
    titles = re.findall(r"^(\w[\w -]*):$", out, flags=re.MULTILINE)
    parts = ["planner", "learner", "network", "latent", "value", "policy", "reward_map", "replay", "backward"]
    assert titles[:4] == ["arguments", "what people change first", "run", "method vblrl"]
    assert sorted(titles[4:-1]) == sorted(parts)
    assert titles[-1] == "environment"
    first = out.partition("what people change first:")[2].partition("\nrun:")[0]
    assert re.findall(r"^  (--[\w.-]+)", first, flags=re.MULTILINE) == [
        *("--method", "--preset", "--tasks", "--iterations", "--steps-per-iteration"),
        *("--seeds", "--seed", "--out", "--time-limit", "--from", "--planner.horizon"),
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_the_defaults_in_the_help_are_those_of_the_preset(here: Path, capfd):
    quick, paper = help_of(capfd, "run item-search"), help_of(capfd, "run random-mdp --preset paper")
    assert re.search(r"--tasks INT .*\[300\]", quick)
    assert re.search(r"--tasks INT .*\[100\]", paper)
    assert re.search(r"--no-measure-truth\s.*\[yes\]", " ".join(paper.split()))


def test_help_without_a_family_says_how_to_get_more(here: Path, capfd):
    assert main(["run", "--help"]) == 0
    out = capfd.readouterr().out
    assert "posterity run FAMILY [--method METHOD] [--preset PRESET] --help" in " ".join(out.split())
    assert "--time-limit" in out
    assert "--planner" not in out


class Form(Settings):
    """A form."""

    folders: tuple[Path, ...] = argument((), "Folders.")
    size: int | None = setting(None, "Size.")
    levels: tuple[float, ...] = setting((1.0,), "Levels, 100 % of them.")
    fast: bool = setting(True, "Fast.")
    kind: Literal["one", "two"] = setting("one", "Kind.")


def test_arguments_become_settings():
    given = parse(Form, ["a", "--size", "3", "b", "--levels", "-1e-5", "2", ".5", "--no-fast", "--kind=two"], "test")
    assert given == Form(folders=(Path("a"), Path("b")), size=3, levels=(-1e-5, 2.0, 0.5), fast=False, kind="two")
    assert parse(Form, [], "test") == Form()
    assert parse(Form, ["--levels"], "test") == Form(levels=())
    assert parse(Form, ["--fast"], "test").fast


def test_help_names_the_words_the_kinds_and_the_defaults(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        parse(Form, ["--help"], "test")
    out = capfd.readouterr().out
    assert out.startswith("usage: posterity test FOLDERS [FOLDERS ...] [options]\n\nA form.\n")
    assert "--kind one|two" in out
    assert "--fast, --no-fast" in out
    assert "Levels, 100 % of them. [1.0]" in out

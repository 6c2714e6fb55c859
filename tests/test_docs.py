"""The pages: every link leads somewhere, and every command that is printed is one that the program takes."""

import contextlib
import importlib
import importlib.util
import io
import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pages import commands

from posterity.cli import COMMANDS, main
from posterity.commands import arguments
from posterity.commands.run_flags import family_first, run_groups, starting_point
from posterity.errors import UserError
from posterity.experiment.config import checked, merged

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "results", "examples")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
OUTSIDE = re.compile(r"[a-z]+:")  # https:, mailto:
names = [str(page.relative_to(ROOT)) for page in PAGES]


def without_code(text: str) -> str:
    """The words of a page: no blocks of code, and no code within a line."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as they are linked to."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).replace("`", "") for head in heads]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if OUTSIDE.match(link):
            assert link.startswith("https://"), link
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: there is no such heading"


def test_every_page_is_in_the_navigation_of_the_site():
    """Tables of results and lab notes are reached from other pages."""
    nav = (ROOT / "properdocs.yml").read_text(encoding="utf-8")
    for page in names:
        if page.startswith("docs/"):
            assert f": {page}\n" in nav, page
    for page in re.findall(r": (\S+\.md)$", nav, flags=re.MULTILINE):
        assert page in names or page == "docs/reference.md", f"{page} is not there"


class Printed(NamedTuple):
    """A command as a page has it."""

    page: str
    words: tuple[str, ...]


def printed() -> list[Printed]:
    """All commands of README, docs and results: those in shell blocks, and those in a line of text."""
    return list(
        dict.fromkeys(
            Printed(name, command.words)
            for page, name in zip(PAGES, names, strict=True)
            if name != "CHANGELOG.md" and not name.startswith("results/notes/")  # they tell what was
            for command in commands(page.read_text(encoding="utf-8"))
            if command.words[0] != "cd"
        )
    )


PRINTED = printed()
OURS = [each for each in PRINTED if each.words[0] == "posterity"]
STANDS_FOR = re.compile(r"^[A-Z_]+$|^\.\.\.$|^…$|[<>|…]")  # RUN, METHOD, ..., machine|run


def ids(commands: list[Printed]) -> list[str]:
    return [f"{each.page}: {' '.join(each.words)}" for each in commands]


def test_pages_print_commands():
    assert len(OURS) > 60


@pytest.mark.parametrize("command", OURS, ids=ids(OURS))
def test_a_printed_command_is_one_that_the_program_takes(command: Printed, monkeypatch: pytest.MonkeyPatch):
    """Its name and every flag are known, and the values are legal. Nothing is run."""
    words = [word for word in command.words[1:] if word not in ("...", "…")]
    assert words, "a command"
    if words[0] in ("COMMAND", "--help", "--version"):
        return
    if len(words) == 1:  # its name in a sentence
        assert words[0] in COMMANDS
        return
    assert words[0] in COMMANDS, f"there is no command '{words[0]}'"
    if any(STANDS_FOR.search(word) for word in words):  # a word that stands for many: the flags can be looked up
        verb = words[1] if words[0] == "sweep" and words[1] in ("status", "stop", "cell", "publish") else ""
        known = help_of(words[0], verb)
        for word in words:
            if word.startswith("--"):
                assert re.search(rf"{re.escape(word.partition('=')[0])}\b", known), f"{word} is unknown"
        return
    parse(words, monkeypatch)


@cache
def help_of(command: str, verb: str) -> str:
    """What `--help` prints; for `run` that of a family whose method has most settings."""
    said = io.StringIO()
    about = [verb] if verb else ["pendulum-gravity"] if command == "run" else []
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([command, *about, "--help"])
    return said.getvalue()


class Parsed(Exception):  # noqa: N818
    """Raised in the place of doing what was asked for."""


def parse(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command up to where its arguments are understood."""
    monkeypatch.chdir(ROOT)
    for word in words:
        name = re.split(r"(?:\.py)?:", word)[0]
        if ":" in word and (ROOT / "examples" / f"{name}.py").exists():  # as the examples' docstrings have it
            monkeypatch.chdir(ROOT / "examples")
            monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    if words[0] == "run":
        _run_flags(words[1:])
        return
    place, _, function = COMMANDS[words[0]][0].partition(":")
    module = importlib.import_module(place)

    def only(*args: Any) -> None:
        arguments.parse(*args)
        raise Parsed

    def only_read(*args: Any) -> None:
        arguments.read(*args)
        raise Parsed

    monkeypatch.setattr(module, "parse", only)
    if words[0] == "sweep":  # which reads its flags in two groups
        monkeypatch.setattr(module, "read", only_read)
    with pytest.raises(Parsed):
        vars(module)[function](words[1:])


def _run_flags(args: Sequence[str]) -> None:
    """The flags of a run, which its family and method decide."""
    words = family_first(args)
    if not words or "--help" in words:
        return
    if ".py:" in words[0] and not Path(words[0].partition(":")[0]).exists():
        words[0] = "pendulum-gravity"  # a file that the reader is to write
    if "--from" in words:  # the other run, which is not here, decides the settings
        place = words.index("--from")
        words[place : place + 2] = []
    config = starting_point(words)
    values = {**arguments.read(run_groups(config), words, "run", ""), "family": config.family}
    for own in ("out", "time_limit", "track"):
        values.pop(own, None)
    checked(type(config), merged(config.model_dump(), values))


def test_a_flag_that_is_no_longer_there_is_found(monkeypatch: pytest.MonkeyPatch):
    """What the test above is worth."""
    for words in (
        "run pendulum-gravity --planner.horizn 3",
        "evaluate runs/mine --vidio",
        "export runs/mine --task old",
    ):
        with pytest.raises(UserError):
            parse(words.split(), monkeypatch)


def test_printed_make_targets_and_programs_are_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page, words in PRINTED:
        if words[0] == "make":
            wanted = [word for word in words[1:] if "=" not in word]
            assert set(wanted) <= targets, f"{page}: {' '.join(words)}"
        if words[0] == "python" and len(words) > 1 and words[1].endswith(".py"):
            at = ROOT / "examples" if words[1].startswith("../") else ROOT  # as the page says
            assert (at / words[1]).exists(), f"{page}: {' '.join(words)}"


def test_printed_commands_that_are_cheap_run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Listings, and reports of nothing: those that need no run and no minute."""
    monkeypatch.chdir(ROOT)
    tried = 0
    for _, words in OURS:
        if (
            len(words) > 1
            and words[1] in ("families", "methods", "presets")
            and not any(STANDS_FOR.search(word) or ".py:" in word for word in words)
        ):
            assert main(list(words[1:])) == 0, words
            tried += 1
    assert tried >= 5


def test_the_record_of_all_printed_commands_has_no_failure_and_the_page_has_its_numbers():
    """`make test-docs` writes it; a short form is in tests/soak/test_short.py."""
    told = json.loads((ROOT / "results" / "soak" / "printed.json").read_text(encoding="utf-8"))
    ran, left = (told["outcomes"][name] for name in ("exit 0", "left out"))
    assert told["commands"] == ran + left
    page = (ROOT / "docs" / "look.md").read_text(encoding="utf-8")
    assert f"Of {told['commands']} commands {ran} ran and ended well, and {left} were left out" in page


def test_the_pages_of_the_site_are_gathered_with_their_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """docs/site.py needs no generator."""
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    monkeypatch.setattr(site, "PAGES", tmp_path / "pages")
    assert site.main() == 0
    for page in (tmp_path / "pages").rglob("*.md"):
        for link in re.findall(r"\]\(([^)\s#:]+)[#)]", without_code(page.read_text(encoding="utf-8"))):
            assert (page.parent / link).is_file(), f"{page.name}: {link} is not gathered"
    assert "::: posterity.api" in (tmp_path / "pages" / "docs" / "reference.md").read_text()

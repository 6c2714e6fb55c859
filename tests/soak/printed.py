"""Runs every command that README.md and docs/ print, page by page and in order, with tiny budgets.

    python tests/soak/printed.py --out results/soak/printed.json        (make test-docs does this)
    python tests/soak/printed.py --short                                (part of make test: what needs no JAX)
    python tests/soak/printed.py --pages docs/look.md docs/control.md   (some pages; in --out the others stay)

A page has a folder of its own, in which a reader would be: with `examples` and `results` as they are here, and with the
files that the page tells to write. `budgets.py` says how a command is made small. Words that stand for many become
one of them: RUN a run of random-mdp, FAMILY random-mdp. A run that a page takes for granted is made first
(`STAND_INS`). `serve` is started, asked one message and ended. `cd` holds for the lines that stand together; a command
that names a file of examples/ is run there. A command's name alone in a sentence is no command. What cannot run here
is named with the reason (`LEFT_OUT`). The exit code is 1 if any command fails.
"""

import argparse
import collections
import importlib
import json
import multiprocessing
import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from budgets import FAMILY, PROGRAMS, given, put, tiny
from pages import Printed, commands, expanded, fenced

ROOT = Path(__file__).parents[2]
PATIENCE = 240  # seconds for one command
FINITE = ("item-search", "random-mdp", "river-swim", "chain", "grid", "own_family.py:Corridor")
STANDS_FOR = {"RUN": "runs/any", "RUN...": "runs/any", "FAMILY": "random-mdp", "N": "3"}
STAND_INS = {
    "runs/any": "run random-mdp --snapshots",
    "runs/mine": "run pendulum-gravity",
    "runs/alone": "run pendulum-gravity --method single-task",
}
LEFT_OUT = {  # how a command begins, or a part of it: why it is not run
    r"make ": "each target is a job of its own, which calls the programs that are tried here",
    r".*--executor ray": "needs Ray; tests/soak/sweep.py runs it",
    r".*--executor slurm": "needs a Slurm cluster",
    r"python tests/soak/sweep.py": "needs Ray",
    r"python results/control/seeds.py": "an hour on many cores",
    r"python \.\./results/control/transfer.py": "needs all eight runs of the text before it",
    r"python results/report/screenshots.py": "needs Chromium; make test-browser installs it",
    r"python examples/notebooks/execute.py": "tests/test_notebooks.py executes both notebooks",
    r"python -m http.server": "serves until it is stopped, and is Python's own",
}
NAMES_ALONE = ("families", "methods", "presets")  # which are whole commands
ENVIRONMENT = {  # as in tests/conftest.py: programs are compiled once, for all pages
    "JAX_PLATFORMS": "cpu",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    "COLUMNS": "120",
}
LIGHT = [f"posterity.commands.{name}" for name in ("running", "sweeping", "evaluating", "exporting", "theory")]
HEAVY = ["jax", "optax", "gymnasium", "mujoco", "matplotlib.pyplot", "posterity.agents.vblrl"]


class Outcome(NamedTuple):
    """What became of a command."""

    line: int
    printed: str
    ran: str = ""
    code: int | None = None
    seconds: float = 0.0  # of the processor
    left_out: str = ""
    said: str = ""  # its last lines, if it failed

    def facts(self) -> dict[str, object]:
        """For the record."""
        facts: dict[str, object] = {"line": self.line, "printed": self.printed}
        if self.left_out:
            return {**facts, "left_out": self.left_out}
        if self.ran != self.printed:
            facts["ran"] = self.ran
        facts |= {"exit": self.code, "cpu_seconds": round(self.seconds, 1)}
        return facts | ({"said": self.said} if self.code else {})


class Page:
    """A page and the folder that its commands are run in."""

    def __init__(self, name: str, place: Path, short: bool) -> None:
        self.text = (ROOT / name).read_text(encoding="utf-8")
        self.place, self.short = place, short
        place.mkdir(parents=True)

    def walk(self) -> list[Outcome]:
        """Every command, in order; one that is there twice is run once."""
        found: list[Outcome] = []
        folder, block, seen = self.place, -1, set[tuple[str, ...]]()
        for command in commands(self.text):
            if command.block != block or not block:
                folder, block = self.place, command.block
            if command.words[0] == "cd":
                self.bring(command.words[1])
                folder = self.place / command.words[1]
            elif command.words not in seen and not _a_name(command):
                seen.add(command.words)
                if outcome := self.tried(command, folder):
                    found.append(outcome)
                    print(json.dumps(outcome.facts()), flush=True)
        return found

    def tried(self, command: Printed, folder: Path) -> Outcome | None:
        """One command; None, if the short form has nothing to do with it."""
        printed = shlex.join(command.words).replace("'", "")
        for pattern, reason in LEFT_OUT.items():
            if re.match(pattern, printed):
                return None if self.short else Outcome(command.line, printed, left_out=reason)
        words = self.ready([each for word in command.words for each in expanded(word)])
        if any((ROOT / "examples" / word.partition(":")[0]).is_file() for word in words):
            self.bring("examples")
            folder = self.place / "examples"
        if self.short and not _light(words, folder):
            return None
        if self.short and words[1] == "report" and "--page" not in words:
            words.append("--no-figures")
        return _run(command.line, printed, words, folder)

    def ready(self, words: list[str]) -> list[str]:
        """The words with one thing for those that stand for many, and everything there that they name."""
        words = [STANDS_FOR.get(word, word) for word in words if word not in ("...", "…")]
        out = given(words, "out")
        for word in words:
            if word.startswith(("results/", "examples/")):
                self.bring(word.partition("/")[0])
            if word in STAND_INS and [word] != out and not (self.place / word).exists():
                self.stand_in(word)
            if word == "bench":
                (self.place / "small.py").write_text(FAMILY)
            if word == "FILE.toml":
                (self.place / word).write_text(fenced(self.text, "toml")[0])
            if word.startswith("my_family.py:"):
                (self.place / "my_family.py").write_text(fenced(self.text, "python")[0])
        plans = self.place / "DIR" / "plan"
        for plan in sorted(plans.rglob("*.toml"))[:1]:
            cell = str(plan.relative_to(plans).with_suffix(""))
            words = [cell if word == "CELL" else word for word in words]
        if out and words[1] in ("run", "sweep") and words[2] != "publish" and (self.place / out[0]).exists():
            words = put(words, "out", f"{out[0]}-again")
        if words[1:2] == ["export"] and not out and (self.place / "machine.posterity").exists():
            words = put(words, "out", "another.posterity")
        return words

    def bring(self, name: str) -> None:
        """A folder of the repository, as it is there."""
        if not (self.place / name).exists():
            shutil.copytree(ROOT / name, self.place / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))

    def stand_in(self, path: str) -> None:
        """A run that the page takes for granted."""
        if self.short and not STAND_INS[path].startswith("run random-mdp"):
            return
        made = _run(0, path, ["posterity", *STAND_INS[path].split(), "--out", path], self.place)
        assert made.code == 0, made.said


def _a_name(command: Printed) -> bool:
    """Whether it is a command's name in a sentence."""
    return not command.block and len(command.words) == 2 and command.words[1] not in NAMES_ALONE


def _light(words: Sequence[str], folder: Path) -> bool:
    """Whether a command needs no JAX: it is about finite families and their runs, or about none."""
    if words[0] != "posterity" or words[1] in ("bench", "serve", "demo"):
        return False
    if words[1] == "run":
        return words[2] in FINITE and "--from" not in words
    if words[1] == "sweep":
        families = given(words, "families") or words[2:3]  # item-search is the sweep of a figure too
        return {*families} <= {*FINITE} and "--tasks" not in words  # few are enough: cells are processes
    if words[1:3] == ["theory", "transfer"] or any(".py:" in word for word in words):  # the former draws figures
        return False
    if words[1] == "unpack" and not (folder / words[2]).exists():  # what was to be packed was no finite run
        return False
    return all(_finite(folder / word) for word in words[2:] if "/" in word and [word] != given(words, "out"))


def _finite(folder: Path) -> bool:
    """Whether a run, or all that a sweep has, is of finite families."""
    try:
        if (folder / "sweep.toml").exists():
            return {*tomllib.loads((folder / "sweep.toml").read_text())["families"]} <= {*FINITE}
        return tomllib.loads((folder / "config.toml").read_text())["family"] in FINITE
    except OSError:
        return False


def _run(line: int, printed: str, words: list[str], folder: Path) -> Outcome:
    """A command, in a process of its own. One of posterity's is forked from this one, which has loaded everything."""
    log, small = folder / "said.log", folder / "ran.txt"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if words[:2] == ["posterity", "serve"]:
        words = ["posterity", *tiny(words[1:])]
        code = _served(words, folder, log)
    elif words[0] == "python":
        words = [words[0], words[1], *PROGRAMS.get(words[1], words[2:])]
        code = _program(words, folder, log)
    else:
        log.unlink(missing_ok=True)
        child = multiprocessing.get_context("fork").Process(target=_called, args=(words[1:], folder, log, small))
        child.start()
        child.join(PATIENCE)
        if child.is_alive():
            child.terminate()
            child.join()
        code = child.exitcode
        words = shlex.split(small.read_text()) if small.exists() else words
        small.unlink(missing_ok=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = log.read_text(errors="replace")[-1500:].replace(str(folder), ".") if code else ""
    return Outcome(line, printed, shlex.join(words), code, seconds, "", said)


def _called(words: list[str], folder: Path, log: Path, small: Path) -> None:
    """In the child: what the program does when it is typed."""
    from posterity.cli import main

    os.chdir(folder)
    if _full_size(words) and "jax" in sys.modules:
        import jax

        jax.config.update("jax_disable_most_optimizations", False)
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
    words = tiny(words)
    small.write_text(shlex.join(["posterity", *words]))
    sys.exit(main(words))


def _full_size(words: Sequence[str]) -> bool:
    """Whether a command computes so much that optimising its programs pays."""
    return any(word.startswith("results/models/") for word in words)


def _program(words: list[str], folder: Path, log: Path) -> int:
    """A program of the repository; what it writes beside itself goes to the page's folder."""
    program = words[1] if (folder / words[1]).exists() else str(ROOT / words[1])
    with log.open("wb") as sink:
        return subprocess.run(
            [sys.executable, program, *words[2:]],
            check=False,
            cwd=folder,
            stdout=sink,
            stderr=sink,
            timeout=PATIENCE,
            env={**os.environ, "OUT": str(folder), "JAX_DISABLE_MOST_OPTIMIZATIONS": str(int(not _full_size(words)))},
        ).returncode


def _served(words: list[str], folder: Path, log: Path) -> int:
    """A server: started, asked one message as the page has it, ended."""
    from posterity.control.machine import read_machine

    spec = read_machine(folder / words[2]).header.spec
    obs = 0 if "states" in spec else [0.0] * int(str(spec["obs_dim"]))
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert server.stdout is not None
    for told in server.stdout:
        if met := re.match(r"Ready: POST (\S+?)\.? ", told):
            message = json.dumps({"obs": obs, "first": True}).encode()
            asked = urllib.request.Request(met[1], message, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=60) as reply:
                assert json.loads(reply.read())["action"] is not None
            server.terminate()
    return server.wait(PATIENCE)


def load(place: Path, short: bool) -> None:
    """Everything that commands need, once."""
    for name, value in ENVIRONMENT.items():
        if name != "XLA_FLAGS" or version("jaxlib").startswith("0.10."):  # elsewhere they may be unknown
            os.environ.setdefault(name, value)
    cache = Path(tempfile.gettempdir()) / f"posterity-tests-{os.getuid()}"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ["XDG_STATE_HOME"] = str(place / "state")
    warnings.filterwarnings("ignore", message=".*fork", category=RuntimeWarning)  # nothing is computed here
    for module in LIGHT if short else [*LIGHT, *HEAVY]:
        importlib.import_module(module)


class Record:
    """The outcomes of all pages, in a file where one is named. Pages that are not walked now stay as they were."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.pages: dict[str, list[dict[str, object]]] = {}
        if path and path.exists():
            self.pages = json.loads(path.read_text(encoding="utf-8"))["pages"]

    def add(self, page: str, outcomes: list[Outcome]) -> None:
        """A page that was walked to its end."""
        self.pages[page] = [each.facts() for each in outcomes]
        self.pages = {name: self.pages[name] for name in _pages() if self.pages.get(name)}
        if self.path:
            text = json.dumps({**self.about(), "pages": self.pages}, indent=1, ensure_ascii=False)
            self.path.write_text(text + "\n", encoding="utf-8")

    def about(self) -> dict[str, object]:
        """How many commands ended how."""
        lines = [each for page in self.pages.values() for each in page]
        codes = collections.Counter("left out" if "left_out" in each else f"exit {each['exit']}" for each in lines)
        seconds = sum(float(str(each.get("cpu_seconds", 0))) for each in lines)
        about = {"python": platform.python_version(), "system": platform.system(), "cpu_seconds": round(seconds)}
        return {**about, "commands": len(lines), "outcomes": dict(sorted(codes.items()))}

    def good(self) -> bool:
        """Whether every command that was run ended with 0."""
        return all(each.get("exit", 0) == 0 for page in self.pages.values() for each in page)


def _pages() -> list[str]:
    return ["README.md", *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))]


def main() -> int:
    """Walks, and says what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", nargs="*", default=_pages())
    parser.add_argument("--short", action="store_true", help="only commands that need no JAX")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    record = Record(asked.out)
    with tempfile.TemporaryDirectory() as place:
        load(Path(place), asked.short)
        for name in asked.pages:
            record.add(name, Page(name, Path(place) / name.replace("/", "-"), asked.short).walk())
    print(json.dumps(record.about()))
    return 0 if record.good() else 1


if __name__ == "__main__":
    sys.exit(main())

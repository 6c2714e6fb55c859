"""Throws damaged input at the command line: command lines, configurations, records, checkpoints and scores.

    python tests/soak/fuzz.py --cases 10000 --out results/soak/fuzz.json      (make soak does this)

For every case has to hold:
    no traceback     a command ends with 0 or with 2 and one line
    no hang          within 30 seconds
    nothing run      code that a folder names leaves no trace
    nothing lost     a command that refuses changes no file of the run
    nothing wrong    damaged records beside a checkpoint are refused, or read as they were written; records alone and
                     scores have no checksum, and only what no run writes is found there
"""

import argparse
import collections
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

import posterity
from posterity.cli import main as command
from posterity.errors import UserError
from posterity.experiment.records import Run

EVIL = "from pathlib import Path\nPath(__file__).with_name('executed').write_text('yes')\n"
WORDS = ["run", "resume", "evaluate", "report", "join", "families", "methods", "presets", "export", "theory", "bench"]
WORDS += [
    "random-mdp",
    "grid",
    "evil:Mine",
    "evil.py:Mine",
    "--out",
    "--tasks",
    "--seeds",
    "--seed",
    "--preset",
    "--method",
]
WORDS += [
    "blrl",
    "boss",
    "vblrl",
    "quick",
    "best",
    "-1",
    "0",
    "nan",
    "1e999",
    "a[/]b",
    "$x$",
    "\x1b[2J",
    "",
    "--",
    "-",
    "=",
    "\udcff",
]
WORDS += [
    "--show",
    "--check",
    "--time-limit",
    "0s",
    "--iterations",
    "--scores",
    "train",
    "--episodes",
    "--from",
    "--help",
    "\0",
]
VALUES = ["-1", "0", "1", "1000000000000", "nan", "inf", '"x"', "true", "[]", "{}", '"evil:Mine"', '"evil.py:Mine"']
VALUES += ['"../../x"', '"\\u001b[31m"', "1.5", '"random-mdp"', '"boss"', "''", "1979-05-27", '"a[/]$b$"']


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Bytes with a flipped bit, a hole, something else in between, cut off, or two places swapped."""
    data, kind = bytearray(content), chance.randrange(5)
    place = chance.randrange(max(1, len(data)))
    size = chance.choice([1, 3, 20])
    if kind == 0 and data:
        data[place] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[place : place + size]
    elif kind == 2:
        data[place:place] = chance.choice([chance.randbytes(size), b"NaN", b"-1", b"\n", b"{}\n", b'"', b"9" * size])
    elif kind == 3:
        del data[place:]
    else:
        other = chance.randrange(max(1, len(data)))
        data[place : place + size], data[other : other + size] = data[other : other + size], data[place : place + size]
    return bytes(data)


def changed_config(content: bytes, chance: random.Random) -> bytes:
    """One setting with another value, or one more."""
    lines = content.decode().splitlines()
    place = chance.choice([index for index, line in enumerate(lines) if " = " in line])
    lines[place] = f"{lines[place].partition(' = ')[0]} = {chance.choice(VALUES)}"
    return ("\n".join(lines) + "\n").encode()


def changed_line(content: bytes, chance: random.Random) -> bytes:
    """One line of records lost, doubled, moved, or with another value."""
    lines = content.splitlines(keepends=True)
    place, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.randrange(4)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(other, lines[place])
    elif kind == 2:
        lines[place], lines[other] = lines[other], lines[place]
    else:
        record = json.loads(lines[place])
        record[chance.choice([*record])] = chance.choice([-1, 0, 10**9, None, "x", float("nan"), [], True, 0.5])
        lines[place] = json.dumps(record).encode() + b"\n"
    return b"".join(lines)


class Fuzz:
    """A folder with a run to damage, and what was found."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.chance = place, random.Random(seed)
        self.found: list[dict[str, str]] = []
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.good = place / "good"
        posterity.run("random-mdp", out=self.good, tasks=2, iterations=2, seeds=2, snapshots=True)
        posterity.evaluate(self.good, episodes=1)
        self.whole = posterity.read(self.good)
        (place / "evil.py").write_text(EVIL)
        os.chdir(place)

    def case(self, number: int) -> None:
        """One damaged thing, and a command or two on it."""
        kind = ("command line", "config", "records", "checkpoint", "scores", "records without checkpoint")[number % 6]
        if kind == "command line":
            words = [self.chance.choice(WORDS) for _ in range(self.chance.randrange(1, 6))]
            if words[0] in ("bench", "theory", "demo") or (words[0] == "run" and "--help" not in words):
                words += ["--time-limit", "0s", "--out", "elsewhere"] if words[0] == "run" else ["--help"]
            self.ask(kind, words, None)
            return
        run = self.place / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.good, run)
        if kind == "records without checkpoint":
            shutil.rmtree(run / "checkpoints")
        file = self.chance.choice(
            {
                "config": [run / "config.toml", run / "versions.json"],
                "checkpoint": sorted((run / "checkpoints").glob("*.safetensors")),
                "scores": sorted((run / "evaluation").iterdir()),
            }.get(kind, [run / "records.jsonl"])
        )
        change: Callable[[bytes, random.Random], bytes] = damaged
        if self.chance.random() < 0.5 and file.suffix in (".toml", ".jsonl"):
            change = changed_config if file.suffix == ".toml" else changed_line
        file.write_bytes(change(file.read_bytes(), self.chance))
        options = [["report", "--no-figures"], ["evaluate", "--episodes", "1"], ["resume"], ["resume", "--tasks", "3"]]
        name, *rest = self.chance.choice(options)
        if kind not in ("config", "checkpoint"):
            self.compare(kind, run)
        self.ask(kind, [name, str(run), *rest], run)

    def compare(self, kind: str, run: Path) -> None:
        """What is read is refused, or is what was written."""
        try:
            read = posterity.read(run)
        except UserError:
            self.outcomes[f"{kind}: refused"] += 1
            return
        self.outcomes[f"{kind}: read"] += 1
        if kind == "records" and not _same(read, self.whole):  # without a checkpoint there is no checksum
            self.report(kind, "a wrong number was read", str(run))

    def ask(self, kind: str, words: list[str], run: Path | None) -> None:
        """A command, and what has to hold after it."""
        before = _files(run) if run else {}
        said = io.StringIO()
        signal.alarm(30)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                code = command(words)
        except SystemExit as left:
            code = int(left.code or 0)
        except TimeoutError:
            self.report(kind, "hung", repr(words))
            code = 2
        except BaseException:
            self.report(kind, traceback.format_exc()[-600:], repr(words))
            code = 2
        finally:
            signal.alarm(0)
        self.outcomes[f"{kind}: exit {code}"] += 1
        if code == 2 and said.getvalue().count("\n") > 1:
            self.report(kind, f"more than one line: {said.getvalue()[:300]}", repr(words))
        if code == 2 and run and _files(run) != before:
            self.report(kind, "a refusal changed files", repr(words))
        if (trace := self.place / "executed").exists():
            trace.unlink()
            if run:  # on a command line a user names code of their own
                self.report(kind, "code was executed", repr(words))

    def report(self, kind: str, what: str, words: str) -> None:
        """Something that must not be."""
        self.found.append({"kind": kind, "what": what, "words": words})
        print(json.dumps(self.found[-1]), flush=True)


def _same(one: Run, other: Run) -> bool:
    return all(np.array_equal(one._asdict()[n], other._asdict()[n], equal_nan=True) for n in ("returns", "reward"))


def _files(path: Path) -> dict[str, bytes]:
    own = ("report", "run.lock")  # a report is written anew, and a lock is empty
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.relative_to(path).parts[0] not in own
    }


def _hung(*_: object) -> None:
    raise TimeoutError


def fuzz(cases: int, seed: int, seconds: float = 1e9) -> Fuzz:
    """So many cases, or as many as there is time for."""
    import time

    signal.signal(signal.SIGALRM, _hung)
    here, until = Path.cwd(), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name:
        made = Fuzz(Path(name), seed)
        try:
            for number in range(cases):
                if time.monotonic() > until:
                    break
                made.case(number)
                made.outcomes["cases"] += 1
        finally:
            os.chdir(here)
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    out = asked.out and asked.out.resolve()
    ran = fuzz(asked.cases, asked.seed, asked.seconds)
    text = json.dumps(
        {"seed": asked.seed, "outcomes": dict(sorted(ran.outcomes.items())), "found": ran.found}, indent=1
    )
    print(text)
    if out:
        out.write_text(text + "\n")
    sys.exit(1 if ran.found else 0)

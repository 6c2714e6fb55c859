"""Throws damaged input at the command line: command lines, configurations, records, checkpoints and scores.

    python tests/soak/fuzz.py --cases 10000 --workers 2 --out results/soak/fuzz.json      (make soak does this)

For every case has to hold:
    no traceback     a command ends with 0 or with 2 and one line
    no hang          within 30 seconds
    nothing run      code that a folder names leaves no trace
    nothing lost     a command that refuses changes no file of the run
    nothing wrong    damage is refused, or the numbers that are read, and those in the folder after the command, are
                     the ones that they are without damage
A command is called in a process that has already loaded everything, and one case in `--real` in a process of its own.
The run is one of random-mdp. In a third of the folders its checkpoints are gone, as in published runs; then nothing
tells of a change to config.toml, and only the other kinds of damage are tried.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import posterity
from posterity.cli import main as command
from posterity.errors import UserError
from posterity.experiment.records import Run
from posterity.report.join import join

EVIL = "from pathlib import Path\nPath(__file__).with_name('executed').write_text('yes')\n"
WORDS = ["run", "resume", "evaluate", "report", "join", "families", "methods", "presets", "export", "theory", "bench"]
WORDS += [
    "pack",
    "unpack",
    "--since",
    "--piece-mb",
    "random-mdp",
    "grid",
    "evil:Mine",
    "evil.py:Mine",
    "--out",
    "--tasks",
    "--seeds",
    "--seed",
    "--preset",
]
WORDS += ["--method", "blrl", "boss", "vblrl", "quick", "best", "-1", "0", "nan", "1e999", "a[/]b", "$x$", "\x1b[2J"]
WORDS += ["", "--", "-", "=", "\udcff", "--show", "--check", "--time-limit", "0s", "--iterations", "--scores", "train"]
WORDS += ["--episodes", "--from", "--help", "\0"]
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


OPTIONS = [["report", "--no-figures"], ["evaluate", "--episodes", "1"], ["resume"], ["resume", "--tasks", "3"]]
KINDS = (
    "command line",
    "config",
    "records",
    "checkpoint",
    "scores",
    "records without checkpoint",
    "scores without checkpoint",
    "compressed records",
)
SLOW = ("bench", "theory", "demo")


class Fuzz:
    """A folder with a run to damage, and what was found."""

    def __init__(self, place: Path, seed: int, real: int) -> None:
        self.place, self.chance, self.real = place, random.Random(seed), real
        self.found: list[dict[str, str]] = []
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.good, self.published = place / "good", place / "published"
        posterity.run("random-mdp", out=self.good, tasks=2, iterations=2, seeds=2, snapshots=True)
        posterity.evaluate(self.good, episodes=1)
        join([self.good], self.published, compact=True)
        (place / "evil.py").write_text(EVIL)
        os.chdir(place)
        self.due = [self.undamaged(words) for words in OPTIONS]

    def undamaged(self, words: list[str]) -> dict[str, object]:
        """The numbers in the folder after a command, if nothing is damaged."""
        copy = self.place / "copy"
        shutil.copytree(self.good, copy)
        self.ask("without damage", [words[0], str(copy), *words[1:]], copy)
        found = _numbers(copy)
        shutil.rmtree(copy)
        return found

    def case(self, number: int) -> None:
        """One damaged thing, and a command or two on it."""
        kind = KINDS[number % len(KINDS)]
        if kind == "command line":
            words = [self.chance.choice(WORDS) for _ in range(self.chance.randrange(1, 6))]
            if words[0] in SLOW or (words[0] == "run" and "--help" not in words):
                words += ["--time-limit", "0s", "--out", "elsewhere"] if words[0] == "run" else ["--help"]
            self.ask(kind, words, None)
            return
        run = self.place / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.published if kind == "compressed records" else self.good, run)
        if kind.endswith("without checkpoint"):
            shutil.rmtree(run / "checkpoints")
        file = self.chance.choice(
            {
                "config": [run / "config.toml", run / "versions.json"],
                "checkpoint": sorted((run / "checkpoints").glob("*.safetensors")),
                "compressed records": [run / "records.jsonl.xz"],
            }.get(
                kind, sorted((run / "evaluation").iterdir()) if kind.startswith("scores") else [run / "records.jsonl"]
            )
        )
        change: Callable[[bytes, random.Random], bytes] = damaged
        if self.chance.random() < 0.5 and file.suffix in (".toml", ".jsonl"):
            change = changed_config if file.suffix == ".toml" else changed_line
        file.write_bytes(change(file.read_bytes(), self.chance))
        option = self.chance.randrange(len(OPTIONS))
        name, *rest = OPTIONS[option]
        self.compare(kind, run)
        before = _numbers(run)
        code = self.ask(kind, [name, str(run), *rest], run, real=number % self.real == self.real - 1)
        for path, lines in _numbers(run).items() if code == 0 else ():
            if lines not in (before.get(path), self.due[option].get(path)):
                self.report(kind, f"a command went on to other numbers in {path}", f"{file.name} {name} {rest}")

    def compare(self, kind: str, run: Path) -> None:
        """What is read is refused, or is what was written."""
        try:
            read = posterity.read(run)
        except UserError:
            self.outcomes[f"{kind}: refused"] += 1
            return
        except BaseException:
            self.report(kind, traceback.format_exc()[-600:], "posterity.read")
            return
        self.outcomes[f"{kind}: read"] += 1
        if not _same(read, posterity.read(self.good)):
            self.report(kind, "a wrong number was read", str(run))

    def ask(self, kind: str, words: list[str], run: Path | None, real: bool = False) -> int:
        """A command, and what has to hold after it; its exit code."""
        before = _files(run) if run else {}
        code, said = self.apart(kind, words) if real else self.within(kind, words)
        self.outcomes[f"{kind}: exit {code}{' (own process)' if real else ''}"] += 1
        if code not in (0, 2) or "Traceback" in said:
            self.report(kind, f"exit {code}: {said[-600:]}", repr(words))
        if code == 2 and said.count("\n") > 1:
            self.report(kind, f"more than one line: {said[:300]}", repr(words))
        if code == 2 and run and _files(run) != before:
            self.report(kind, "a refusal changed files", repr(words))
        if (trace := self.place / "executed").exists():
            trace.unlink()
            if run:  # on a command line a user names code of their own
                self.report(kind, "code was executed", repr(words))
        return code

    def within(self, kind: str, words: list[str]) -> tuple[int, str]:
        """The command in this process: its exit code, and what it said on standard error."""
        said, code = io.StringIO(), 2
        signal.alarm(30)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                code = command(words)
        except SystemExit as left:
            code = int(left.code or 0)
        except TimeoutError:
            self.report(kind, "hung", repr(words))
        except BaseException:
            self.report(kind, traceback.format_exc()[-600:], repr(words))
        finally:
            signal.alarm(0)
        return code, said.getvalue()

    def apart(self, kind: str, words: list[str]) -> tuple[int, str]:
        """The same in a process of its own."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "posterity", *words], check=False, capture_output=True, timeout=60
            )
        except subprocess.TimeoutExpired:
            self.report(kind, "hung", repr(words))
            return 2, ""
        return done.returncode, done.stderr.decode(errors="replace")

    def report(self, kind: str, what: str, words: str) -> None:
        """Something that must not be."""
        self.found.append({"kind": kind, "what": what, "words": words})
        print(json.dumps(self.found[-1]), flush=True)


def _same(one: Run, other: Run) -> bool:
    arrays = all(np.array_equal(one._asdict()[n], other._asdict()[n], equal_nan=True) for n in ("returns", "reward"))
    scores = one.scores.keys() == other.scores.keys() and all(
        np.array_equal(one.scores[name].returns, other.scores[name].returns, equal_nan=True) for name in one.scores
    )
    return arrays and scores and one.seeds == other.seeds


def _numbers(path: Path) -> dict[str, object]:
    """Records and scores, without the clock."""
    found: dict[str, object] = {}
    for file in [path / "records.jsonl", *sorted((path / "evaluation").glob("*.jsonl"))]:
        lines = file.read_bytes().splitlines() if file.exists() else []
        found[file.name] = [re.sub(rb'"wall_seconds": [^,}]*', b"", line) for line in lines]
    return found


def _files(path: Path) -> dict[str, bytes]:
    own = ("report", "run.lock")  # a report is written anew, and a lock is empty
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.relative_to(path).parts[0] not in own
    }


def _hung(*_: object) -> None:
    raise TimeoutError


def fuzz(cases: int, seed: int, seconds: float = 1e9, real: int = 1_000_000) -> Fuzz:
    """So many cases, or as many as there is time for; one in `real` has a process of its own."""
    signal.signal(signal.SIGALRM, _hung)
    here, until = Path.cwd(), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name:
        made = Fuzz(Path(name), seed, real)
        try:
            for number in range(cases):
                if time.monotonic() > until:
                    break
                made.case(number)
                made.outcomes["cases"] += 1
        finally:
            os.chdir(here)
    return made


def _share(cases: int, seed: int, seconds: float, real: int) -> tuple[dict[str, int], list[dict[str, str]]]:
    made = fuzz(cases, seed, seconds, real)
    return dict(made.outcomes), made.found


def main() -> int:
    """Divides the cases among processes; 1 if anything was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--real", type=int, default=101, help="one case in so many has a process of its own")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    found: list[dict[str, str]] = []
    with ProcessPoolExecutor(asked.workers) as pool:
        shares = [
            pool.submit(
                _share, (asked.cases + place) // asked.workers, 1000 * asked.seed + place, asked.seconds, asked.real
            )
            for place in range(asked.workers)
        ]
        for share in shares:
            counted, wrong = share.result()
            outcomes.update(counted)
            found += wrong
    told = {"seed": asked.seed, "workers": asked.workers, "outcomes": dict(sorted(outcomes.items())), "found": found}
    text = json.dumps(told, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

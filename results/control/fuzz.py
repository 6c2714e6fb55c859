"""Machine files that are damaged, cut off, newer, or forged with other spaces: all are refused in one line.

    python results/control/fuzz.py --cases 10000 --out results/control/fuzz.json

It begins with the trained files of results/models, whose arrays are cut to a few kilobytes so that a case takes a
millisecond. Four kinds of case, in turns:

    corrupted    bytes changed, cut out, doubled or put in
    truncated    the file ends too early
    newer        a greater format, and fields that this version does not know; the checksum is right
    spaces       dimensions, bounds, sizes, settings or the method are others than the arrays were made for; the
                 checksum is right, as only an attacker's would be

For every case has to hold: loading refuses it with one line; no other error; no module is imported that is not
posterity's own or JAX's, though a forged method names one that lies ready; and no file is written. A forged header may
also say what is allowed, such as another number of candidates: then the file is loaded, with the spaces that its arrays
were made for. Seconds are of a processor.
"""

import argparse
import collections
import copy
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from posterity.control import building
from posterity.control.machine import (
    KEY,
    Machine,
    _checksum,  # pyright: ignore[reportPrivateUsage]
    decoded,
    read_machine,
)
from posterity.errors import UserError
from posterity.experiment.folder import session

MODELS = Path(__file__).parents[1] / "models"
EVIL = "from pathlib import Path\nPath(__file__).with_name('executed').write_text('yes')\n"
SLOW = 30.0  # seconds
OURS = ("posterity.", "jax", "optax")  # modules that loading may need
PUT_IN = [b"{", b'"', b"[" * 500, b"9" * 20, b"\x00", b"__reduce__", b"posterity", b"NaN", b"-1e999", b"null"]
VALUES = [0, -1, 1, 2, 3, 7, 10**6, 10**12, 2**63, 1.5, "nan", "inf", "x" * 300, "", None, True, [], {}, [[1.0]]]
METHODS = ["evil:Method", "evil.py:Method", "os:system", "blrl", "npg", "boss", "subprocess:run", "../evil", "\n"]


def cut(machine: Machine) -> Machine:
    """With arrays of at most 64 numbers. Its header does not agree with them any more."""
    return Machine(machine.header, {name: np.ravel(array)[:64].copy() for name, array in machine.arrays.items()})


def written(fields: dict[str, object], arrays: dict[str, np.ndarray]) -> bytes:
    """A file with the right checksum."""
    whole = {**fields, "checksum": _checksum(fields, arrays)}
    return save(arrays, {KEY: json.dumps(whole)})


def corrupted(generator: random.Random, machine: Machine) -> bytes:
    """Bytes changed, cut out, doubled or put in; half of the changes are in the header."""
    content = bytearray(written(machine.header.model_dump(mode="json"), machine.arrays))
    end = len(content) if generator.random() < 0.5 else min(6000, len(content))
    for _ in range(generator.choice([1, 1, 2, 8])):
        place, length = generator.randrange(max(end, 1)), generator.choice([1, 1, 2, 8, 64])
        kind = generator.randrange(4)
        if kind == 0:
            content[place : place + length] = generator.randbytes(length)
        elif kind == 1:
            del content[place : place + length]
        elif kind == 2:
            content[place:place] = content[place : place + length]
        else:
            content[place:place] = generator.choice(PUT_IN)
        end = min(end, len(content))
    return bytes(content)


def truncated(generator: random.Random, machine: Machine) -> bytes:
    """The file ends too early."""
    whole = written(machine.header.model_dump(mode="json"), machine.arrays)
    return whole[: generator.randrange(len(whole))]


def newer(generator: random.Random, machine: Machine) -> bytes:
    """A greater format."""
    fields = machine.header.model_dump(mode="json")
    fields["format"] = generator.choice([2, 3, 100, 10**30, 1.5, "2", None, [2], -1, 0])
    fields[generator.choice(["method", "new", "spec", "agent"])] = copy.deepcopy(
        generator.choice([*VALUES, "evil:Method"])
    )
    return written(fields, machine.arrays)


def spaces(generator: random.Random, machine: Machine) -> bytes:
    """One to three values of the header are others, at any depth, or the method is."""
    fields = json.loads(json.dumps(machine.header.model_dump(mode="json")))
    for _ in range(generator.choice([1, 1, 2, 3])):
        place = fields[generator.choice(["spec", "spec", "spec", "agent", "budget", "env"])]
        if generator.random() < 0.1:
            fields["method"] = generator.choice(METHODS)
        while True:
            names = [*place] if isinstance(place, dict) else [*range(len(place))]
            if not names:
                break
            name = generator.choice(names)
            if isinstance(place[name], dict | list) and place[name] and generator.random() < 0.7:
                place = place[name]
                continue
            place[name] = copy.deepcopy(generator.choice(VALUES))
            break
    return written(fields, machine.arrays)


KINDS = {"corrupted": corrupted, "truncated": truncated, "newer": newer, "spaces": spaces}


def outcome(path: Path, like: Machine) -> str:
    """How loading ended: 'refused', 'loaded' with the spaces of `like`, or what is wrong about it."""
    began = time.process_time()
    try:
        machine = read_machine(path)
        spec = decoded(machine.header.spec, str(path), {})
        building.state_of(building.build(machine, spec, str(path), trust=False), machine, str(path))
        same = all(machine.header.spec[name] == like.header.spec[name] for name in ("obs_dim", "actions"))
        said = "loaded" if same and len(spec.low) == len(like.header.spec["low"]) else "loaded with other spaces"
    except UserError as error:
        said = "refused" if "\n" not in str(error) and len(str(error)) < 1000 else f"not one line: {error!r}"
    except BaseException as error:  # anything else is what is looked for
        if isinstance(error, KeyboardInterrupt):
            raise
        said = f"{type(error).__name__}: {error}"
    return said if time.process_time() - began < SLOW else f"slow, {said}"


def main() -> None:
    """Tries the cases and writes what was found; ends with 1 if anything was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="")
    told = parser.parse_args()
    generator = random.Random(told.seed)
    sources = [read_machine(path) for path in sorted(MODELS.glob("*.posterity"))]
    sources = [each for source in sources for each in (source, cut(source), cut(source), cut(source))]
    counts: collections.Counter[str] = collections.Counter()
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "evil.py").write_text(EVIL)
        sys.path.insert(0, folder)
        os.chdir(folder)
        path = Path(folder) / "case"
        path.write_bytes(written(sources[0].header.model_dump(mode="json"), sources[0].arrays))
        outcome(path, sources[0])  # imports what loading needs
        before, began = set(sys.modules), time.process_time()
        for number in range(told.cases):
            kind = [*KINDS][number % len(KINDS)]
            source = generator.choice(sources)
            path.write_bytes(KINDS[kind](generator, source))
            said = outcome(path, source)
            counts[f"{kind}: {said if said in ('refused', 'loaded') else 'wrong'}"] += 1
            ran = sorted(name for name in set(sys.modules) - before if not name.startswith(OURS))
            extra = sorted(each.name for each in Path(folder).iterdir() if each.name not in ("evil.py", "case"))
            before |= set(sys.modules)
            allowed = ("refused", "loaded") if kind == "spaces" else ("refused",)
            if said not in allowed or ran or extra:
                found.append({"case": number, "kind": kind, "said": said[:300], "imported": ran, "written": extra})
        os.chdir("/")
        seconds = time.process_time() - began
    result = {"cases": told.cases, "seed": told.seed, "outcomes": dict(sorted(counts.items())), "found": found}
    result |= {"seconds": round(seconds, 1), "session": session(f"python results/control/fuzz.py --cases {told.cases}")}
    text = json.dumps(result, indent=1)
    if told.out:
        Path(told.out).write_text(text + "\n")
    print(text[:6000])
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

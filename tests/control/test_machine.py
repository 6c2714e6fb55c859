"""A machine file is whole or refused in one line, and reading it runs nothing."""

import dataclasses
import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from posterity.control import building
from posterity.control.machine import (
    KEY,
    Header,
    Machine,
    _checksum,  # pyright: ignore[reportPrivateUsage]
    decoded,
    encoded,
    read_machine,
    write_machine,
)
from posterity.control.plain import PlainPolicy
from posterity.errors import UserError
from posterity.types import Spec

MUTATIONS = int(os.environ.get("POSTERITY_FUZZ", "300"))  # 10,000 before a release: see docs/control.md


def header(**changes: object) -> Header:
    plain = {
        "format": 1,
        "method": "vblrl",
        "family": "made-up",
        "env": {},
        "agent": {},
        "spec": encoded(Spec(2, np.array([-1.0]), np.array([1.0]), 10, None)),
        "budget": (1, 2, 3),
        "tasks": 1,
        "seed": 0,
        "made": {"command": "none"},
    }
    return Header.model_validate({**plain, **changes})


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_machine(tmp_path / "small", Machine(header(), {"state.a": np.arange(6.0), "state.b": np.array(3)}))
    return tmp_path / "small"


def forged(path: Path, machine: Machine, **fields: object) -> Path:
    """A file with other fields in its header and the right checksum: what only an attacker writes."""
    whole = {**machine.header.model_dump(mode="json"), **fields}
    whole["checksum"] = _checksum(whole, machine.arrays)
    path.write_bytes(save(machine.arrays, {KEY: json.dumps(whole)}))
    return path


def load(path: Path, trust: bool) -> object:
    machine = read_machine(path)
    if machine.header.policy is not None:
        return PlainPolicy.of(machine, str(path))
    spec = decoded(machine.header.spec, str(path))
    return building.state_of(building.build(machine, spec, str(path), trust), machine, str(path))


def refusal(path: Path, trust: bool = False) -> str:
    with pytest.raises(UserError) as caught:
        load(path, trust)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_file_is_read_back_as_it_was_written(small: Path):
    read = read_machine(small)
    assert read.header == header(checksum=read.header.checksum)
    np.testing.assert_array_equal(read.arrays["state.a"], np.arange(6.0))
    assert read.arrays["state.b"] == 3


def test_the_header_can_be_read_by_anything_that_reads_safetensors_and_json(small: Path):
    with safe_open(small, framework="numpy") as file:
        fields = json.loads(file.metadata()[KEY])
    assert (fields["method"], fields["made"]) == ("vblrl", {"command": "none"})


def test_a_specification_survives_json_with_its_infinities():
    box = (np.array([-np.inf, 0.7]), np.array([np.inf, 2.0]))
    spec = Spec(2, np.array([-1.0, -2.0]), np.array([1.0, 3.0]), 100, box, (np.ones(2), np.ones(3)))
    text = json.dumps(encoded(spec), allow_nan=False)
    back = decoded(json.loads(text), "here")
    assert json.dumps(encoded(back)) == text
    np.testing.assert_array_equal(back.alive, box)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("obs_dim", 0),
        ("obs_dim", 10**12),
        ("obs_dim", "three"),
        ("low", [1.0]),
        ("low", ["nan"]),
        ("low", [-1.0, -1.0]),
        ("low", None),
        ("alive", [[0.0], [1.0]]),
        ("max_episode_steps", 0),
        ("surprise", 1),
        ("low", [{"a": 1}]),
    ],
)
def test_wrong_spaces_are_refused(field: str, value: object):
    fields = encoded(Spec(2, np.array([-1.0]), np.array([1.0]), 10, None))
    with pytest.raises(UserError, match="its spaces are wrong"):
        decoded({**fields, field: value}, "here")


def test_what_a_file_cannot_hold_is_refused_when_it_is_written():
    spec = Spec(2, np.array([-1.0]), np.array([1.0]), 10, dataclasses.replace)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="'alive' that a file cannot hold"):
        encoded(spec)


def test_a_known_reward_has_to_be_given_again_when_a_file_is_loaded():
    spec = Spec(2, np.array([-1.0]), np.array([1.0]), 10, None, reward=lambda obs, action, following: obs[:, 0])
    fields = json.loads(json.dumps(encoded(spec)))
    with pytest.raises(UserError, match="plans with a known reward: load it with reward="):
        decoded(fields, "here")
    assert decoded(fields, "here", {"reward": spec.reward}).reward is spec.reward
    with pytest.raises(UserError, match="learned without a known terminated: load it without terminated="):
        decoded(fields, "here", {"reward": spec.reward, "terminated": spec.reward})


def test_a_truncated_file_is_refused_wherever_it_ends(small: Path):
    whole = small.read_bytes()
    for length in range(len(whole)):
        small.write_bytes(whole[:length])
        assert "damaged" in refusal(small)


def test_one_changed_bit_of_the_numbers_is_told_by_the_checksum(small: Path):
    whole = bytearray(small.read_bytes())
    whole[-1] ^= 1
    small.write_bytes(whole)
    assert "is damaged: its checksum" in refusal(small)


def test_a_newer_format_asks_for_a_newer_version(small: Path, tmp_path: Path):
    said = refusal(forged(tmp_path / "new", read_machine(small), format=2, something="else"))
    assert said.endswith("has format 2; this version of posterity reads up to 1. Update posterity")


def test_other_files_are_refused(tmp_path: Path):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "other").write_bytes(save({"a": np.zeros(3)}))
    assert "is not a machine file" in refusal(tmp_path / "text")
    assert "metadata has no 'posterity'" in refusal(tmp_path / "other")
    assert "is no file. Make one: posterity export" in refusal(tmp_path / "none")
    assert "is no file" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "os:system"}, "not posterity's own; loading it would run that code"),
        ({"method": "vblrll"}, "not posterity's own"),
        ({"method": "blrl"}, "a method for finite MDPs"),
        ({"budget": [10**6, 10**6, 10**3]}, "promises more than the file holds"),
        ({"agent": {"network": {"hidden": [100000, 100000]}}}, "promises more than the file holds"),
        ({"agent": {"planner": {"horizon": -1}}}, "setting planner.horizon"),
        ({"agent": {"nonsense": 1}}, "setting nonsense"),
        ({"agent": {"network": {"hidden": [8, 8]}}}, "the state of another method, size or version"),
        ({"tasks": -1}, "header, tasks"),
        ({"unknown": 1}, "header, unknown"),
        ({"calibration": {"usual": "NaN", "threshold": 0, "windows": 1}}, "header, calibration.usual"),
    ],
)
def test_a_forged_header_is_refused(machine_file: Path, tmp_path: Path, changes: dict[str, object], says: str):
    assert says in refusal(forged(tmp_path / "forged", read_machine(machine_file), **changes))


def test_a_method_of_ones_own_is_imported_only_if_the_file_is_trusted(
    machine_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "planted.py").write_text("raise RuntimeError('this code ran')\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    path = forged(tmp_path / "planted", read_machine(machine_file), method="planted:Method")
    assert "not posterity's own" in refusal(path)
    assert "this code ran" in refusal(path, trust=True)


@pytest.mark.parametrize("kind", ["machine_file", "policy_file"])
def test_mutated_files_execute_nothing_and_crash_nothing(kind: str, request: pytest.FixtureRequest, tmp_path: Path):
    """Each has bytes changed, cut out, doubled or put in. All are refused in one line, and nothing is imported."""
    whole, path = request.getfixturevalue(kind).read_bytes(), tmp_path / "mutant"
    generator = random.Random(0)
    before = set(sys.modules)
    for _ in range(MUTATIONS):
        path.write_bytes(mutant(whole, generator))
        if path.read_bytes() != whole:
            refusal(path)
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"policy": "gaussian"}, "in 2 outputs, and 1 are promised"),
        ({"policy": "plan"}, "header, policy"),
        ({"policy": None}, "the state of another method, size or version"),
        ({"format": 2}, "Update posterity"),
        ({"spec": {"obs_dim": 4}}, "for 4 inputs"),
        ({"spec": {"obs_dim": 10**12}}, "its spaces are wrong"),
        ({"spec": {"low": [-1.0, -1.0], "high": [1.0, 1.0]}}, "and 4 are promised"),
        ({"spec": {"low": [0.0], "high": [1.0], "actions": 1}}, "its actions are discrete"),
        ({"spec": {"high": ["nan"]}}, "its spaces are wrong"),
        ({"unknown": 1}, "header, unknown"),
    ],
)
def test_a_forged_header_of_a_policy_is_refused(
    policy_file: Path, tmp_path: Path, changes: dict[str, object], says: str
):
    machine = read_machine(policy_file)
    spec = changes.get("spec", {})
    assert isinstance(spec, dict)
    assert says in refusal(forged(tmp_path / "forged", machine, **changes | {"spec": machine.header.spec | spec}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"state.0.bias": None}, "state.0.bias"),
        ({"state.2.weight": None}, "other arrays"),
        ({"state.0.weight": None}, "other arrays"),
        ({"state.extra": np.zeros(3, np.float32)}, "other arrays"),
        ({"state.1.bias": np.zeros(3, np.float32)}, "a layer has weights (128, 128) and biases (3,)"),
        ({"state.1.weight": np.array(1.0, np.float32)}, "a layer has weights ()"),
        ({"state.1.bias": np.full(128, np.nan, np.float32)}, "no finite number of 32 bits"),
        ({"state.1.bias": np.zeros(128)}, "no finite number of 32 bits"),
    ],
)
def test_forged_layers_of_a_policy_are_refused(
    policy_file: Path, tmp_path: Path, changes: dict[str, np.ndarray | None], says: str
):
    machine = read_machine(policy_file)
    arrays = {name: array for name, array in (machine.arrays | changes).items() if array is not None}
    said = refusal(forged(tmp_path / "forged", Machine(machine.header, arrays)))
    assert "holds no policy such as its header promises" in said
    assert says in said


def test_a_truncated_policy_is_refused_wherever_it_ends(policy_file: Path, tmp_path: Path):
    whole, path = policy_file.read_bytes(), tmp_path / "cut"
    for length in [*range(0, 100), *range(100, len(whole), 997)]:
        path.write_bytes(whole[:length])
        assert "damaged" in refusal(path)


@pytest.mark.parametrize(("method", "alone"), [("vblrl", True), ("vblrl", False), ("npg", True), ("npg", False)])
def test_numbers_and_header_of_a_policy_changed_at_random_are_refused_or_act(
    policy_files: dict[str, tuple[Path, Path]], tmp_path: Path, method: str, alone: bool
):
    """With the right checksum, as only an attacker's would be. What is loaded has the spaces that its layers have."""
    machine, generator, path = read_machine(policy_files[method][alone]), random.Random(1), tmp_path / "forged"
    parts = [name for name in machine.arrays if alone or "playing" in name or "normaliser" in name or "theta" in name]
    values: list[object] = [0, -1, 2, 10**12, 2**63, 1.5, "nan", "inf", "", None, True, [], {}, [[1.0]], "x" * 300]
    before = set(sys.modules)
    for _ in range(MUTATIONS):
        fields = json.loads(json.dumps(machine.header.model_dump(mode="json")))
        place = fields[generator.choice(["spec", "spec", "agent"])] if generator.random() < 0.8 else fields
        place[generator.choice([*place])] = generator.choice(values)
        arrays = dict(machine.arrays)
        if generator.random() < 0.3:
            name = generator.choice(parts)
            arrays[name] = generator.choice([arrays[name].T, arrays[name][..., :-1], arrays[name] * np.float32(np.inf)])
        forged(path, Machine(machine.header, arrays), **fields)
        try:
            action = PlainPolicy.load(path).act([1.0, 0.0, 0.0])
        except UserError as error:
            lines = str(error).count("\n") + 1
        else:
            lines = action.size
        assert lines == 1
    assert set(sys.modules) == before


def mutant(whole: bytes, generator: random.Random) -> bytes:
    """The header is the first few thousand bytes, and half of the changes are there."""
    content = bytearray(whole)
    end = len(content) if generator.random() < 0.5 else min(4000, len(content))
    for _ in range(generator.choice([1, 1, 2, 8])):
        place = generator.randrange(end)
        length = generator.choice([1, 1, 2, 8, 64])
        kind = generator.randrange(4)
        if kind == 0:
            content[place : place + length] = generator.randbytes(length)
        elif kind == 1:
            del content[place : place + length]
        elif kind == 2:
            content[place:place] = content[place : place + length]
        else:
            content[place:place] = generator.choice([b"{", b'"', b"[" * 500, b"9" * 20, b"\x00", b"__reduce__"])
        end = max(min(end, len(content)), 1)
    return bytes(content)

"""A machine file: what one learner knows, to be taken to a machine. One safetensors file with a readable header.

The arrays are the agent's state, named as in a checkpoint, for one lane; or only the network that acts (`network.py`).
The header is JSON in the file's metadata. It says what the arrays are: the method, its settings, and the spaces it acts
in.

Reading runs no code. A file holds numbers and plain JSON, and both are checked before they are used: the format, the
checksum, the header's fields, and later the name, shape and type of every array.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from pydantic import Field, ValidationError
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from posterity.errors import UserError
from posterity.files import replace
from posterity.settings import Settings, setting
from posterity.types import Budget, FloatArray, HostArray, Record, Spec, StepFunction

FORMAT = 1
KEY = "posterity"  # of the header in the file's metadata
MOST_BYTES = 4 * 2**30  # of a file
MOST = 100_000  # of a dimension, a task count or a layer: more is an error in the file
FUNCTION = "function"  # in place of a known reward or termination, which no file holds
Known: TypeAlias = Mapping[str, StepFunction | None]  # "reward" and "terminated"
PolicyKind = Literal["actor", "gaussian"]
Count = Annotated[int, Field(ge=1, le=10**9)]


class Calibration(Settings):
    """How well the model explained what it was trained on, to judge new transitions by (`familiarity.py`)."""

    usual: float = setting(..., "Median over windows of the mean log-likelihood, in nats for each dimension.")
    threshold: float = setting(..., "Below this a window of transitions is unfamiliar.")
    windows: int = setting(..., "How many windows it was calibrated on.", ge=0)


class Header(Settings):
    """What a machine file says of itself."""

    format: int
    method: str
    family: str
    env: Record  # settings of the family
    agent: Record  # settings of the method
    spec: Record  # see `encoded`
    policy: PolicyKind | None = None  # the file holds only what acts, and this is its kind; None: the whole learner
    budget: tuple[Count, Count, Count]  # tasks, iterations, steps of an iteration: the sizes of the memory
    tasks: int = Field(ge=0, le=MOST)  # that were met, the present one among them
    seed: int = Field(ge=0)  # of the learner
    updates: int = Field(default=0, ge=0)  # since the export
    calibration: Calibration | None = None
    observation_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    made: Record  # when, by which command, with which versions and commit
    checksum: str = ""  # SHA-256 of the header without it, and of all arrays


class Machine(NamedTuple):
    """A machine file that was read."""

    header: Header
    arrays: dict[str, HostArray]


def write_machine(path: Path, machine: Machine) -> None:
    """Writes the file, at once or not at all."""
    arrays = {name: np.array(array, order="C") for name, array in machine.arrays.items()}
    fields = machine.header.model_dump(mode="json")
    fields["checksum"] = _checksum(fields, arrays)
    replace(path, to_bytes(arrays, {KEY: json.dumps(fields, sort_keys=True)}))


def read_machine(path: Path) -> Machine:
    """The file, or in one line why it is refused."""
    if not path.is_file():
        raise UserError(f"{path} is no file. Make one: posterity export RUN --out {path}")
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES // 2**30} GiB, which no machine file is")
    try:
        fields, arrays = _content(path)
    except Exception as error:  # whatever a damaged file makes a parser raise
        said = " ".join(f"{error}".split())[:200] or type(error).__name__
        raise UserError(f"{path} is not a machine file, or a damaged one: {said}") from error
    found = fields.get("format")
    if isinstance(found, int) and found > FORMAT:
        raise UserError(f"{path} has format {found}; this version of posterity reads up to {FORMAT}. Update posterity")
    if found != FORMAT:
        raise UserError(f"{path} is not a machine file of format {FORMAT}")
    if fields.get("checksum") != _checksum(fields, arrays):
        raise UserError(f"{path} is damaged: its checksum is not that of its content")
    try:
        return Machine(Header.model_validate(fields), arrays)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: header, {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _content(path: Path) -> tuple[Record, dict[str, HostArray]]:
    """Header and arrays, of which nothing is known yet but that a parser took them."""
    with safe_open(path, framework="numpy") as file:
        text = (file.metadata() or {}).get(KEY)
        if text is None:
            raise ValueError(f"its metadata has no '{KEY}'")
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("its header is no JSON object")
        return fields, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no dictionary)


def _checksum(fields: Mapping[str, object], arrays: Mapping[str, HostArray]) -> str:
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# What an agent may know of a task, as JSON -----------------------------------------------------------------------


def encoded(spec: Spec) -> Record:
    """A specification as plain JSON values; infinities are the words inf and -inf."""
    return {name: _encoded(name, value) for name, value in spec._asdict().items()}


def _encoded(name: str, value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return [_number(each) for each in np.asarray(value, float).reshape(-1).tolist()]
    if isinstance(value, tuple):
        return [_encoded(name, each) for each in value]
    if callable(value) and name in ("reward", "terminated"):
        return FUNCTION
    raise UserError(f"This family's specification has a '{name}' that a file cannot hold ({type(value).__name__})")


def _number(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)


def decoded(fields: Mapping[str, object], source: str, known: Known | None = None) -> Spec:
    """A specification from JSON, checked. `known`: the functions that it was written with."""
    functions = {name: function for name, function in (known or {}).items() if function is not None}
    for name in ("reward", "terminated"):
        if (fields.get(name) == FUNCTION) != (name in functions):
            said = "plans with" if fields.get(name) == FUNCTION else "was learned without"
            raise UserError(
                f"{source} {said} a known {name}: load it {'with' if said[0] == 'p' else 'without'} {name}="
            )
    try:
        plain = {name: _decoded(value) for name, value in fields.items()}
        spec = Spec(**{**plain, **functions})  # pyright: ignore[reportArgumentType]
        _check(spec)
    except (TypeError, ValueError, OverflowError, LookupError, AttributeError) as error:
        raise UserError(f"{source}: its spaces are wrong: {error}") from error
    return spec


def _decoded(value: object) -> object:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], list):
        return tuple(_decoded(each) for each in value)
    return np.array([float(cast(float, each)) for each in value])


def _check(spec: Spec) -> None:
    if not (isinstance(spec.obs_dim, int) and 1 <= spec.obs_dim <= MOST):
        raise ValueError(f"observations have {spec.obs_dim} dimensions")
    if not (isinstance(spec.max_episode_steps, int) and spec.max_episode_steps >= 1):
        raise ValueError(f"an episode has {spec.max_episode_steps} steps")
    _same(spec.low, spec.high, None)
    if not (np.isfinite(spec.low).all() and np.isfinite(spec.high).all() and (spec.low < spec.high).all()):
        raise ValueError("the bounds of actions are not finite and in order")
    discrete = isinstance(spec.actions, int) and spec.actions in (0, len(spec.low))
    if not discrete or (spec.actions and not ((spec.low == 0).all() and (spec.high == 1).all())):
        raise ValueError(f"there are {spec.actions} discrete actions, but bounds for {len(spec.low)}")
    if not isinstance(spec.learn_termination, bool):
        raise ValueError("learn_termination is neither true nor false")
    if spec.alive is not None:
        _same(*spec.alive, spec.obs_dim)
    if spec.min_scale is not None:
        _same(spec.min_scale[0], spec.min_scale[0], spec.obs_dim)
        _same(spec.min_scale[1], spec.min_scale[1], 1 + spec.obs_dim)


def _same(low: FloatArray, high: FloatArray, size: int | None) -> None:
    """Two arrays [size]."""
    shape = (size,) if size is not None else np.shape(low)
    if np.shape(low) != shape or np.shape(high) != shape or len(shape) != 1 or not 1 <= shape[0] <= MOST:
        raise ValueError(f"bounds of shapes {np.shape(low)} and {np.shape(high)}")
    if np.isnan(low).any() or np.isnan(high).any():
        raise ValueError("a bound is not a number")


def budget_of(header: Header) -> Budget:
    """The sizes of the memory."""
    return Budget(*header.budget)

"""All batching: what is written for one lane, run for all lanes.

    compiled(one)     jit(vmap(one)): the lanes are one JAX program
    each_lane(one)    a loop over lanes, for agents in NumPy

Both follow one rule. An argument that is a plain number is the same for all lanes. `Keys` are one key a lane. All else
is a tree of arrays with a leading axis of lanes.

A GPU waits for transfers more than it works on them. So the keys and NumPy arrays among the arguments of a compiled
program are packed into one array of 32-bit words, sent once, and unpacked inside the program.

Where JAX sees several devices (GPUs of one machine), and lanes divide evenly among them, each device has its share of
the lanes. Lanes know nothing of each other, so devices have nothing to tell each other either (`shard_map`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from posterity import tree
from posterity.agents.base import Keys
from posterity.errors import UserError
from posterity.types import HostArray, Key

if TYPE_CHECKING:
    import jax

Tree = TypeVar("Tree")
Result = TypeVar("Result")
_SINGLE = {"f": "float32", "i": "int32", "u": "uint32"}  # what JAX makes of NumPy's numbers, by kind
PRECISIONS = {"tf32": "tensorfloat32", "f32": "float32"}  # of matrix products on a GPU, as JAX names them


def check_device() -> None:
    """Says in one line that JAX, where it is in use, finds no device to compute on."""
    if "jax" not in sys.modules:
        return
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter where a platform is asked for that is not there
        asked = os.environ.get("JAX_PLATFORMS", "")
        raise UserError(
            f"JAX finds no device to compute on (JAX_PLATFORMS is '{asked}'). Without a GPU: JAX_PLATFORMS=cpu"
        ) from error


def each_lane(one: Callable[..., Result], keys: Keys, *args: object) -> Result:
    """`one` for each lane in turn, its results side by side. What no lane changed is not copied."""
    wholes: list[object] = []
    structure = tree.flatten(args, wholes)
    results: list[list[object]] = []
    views: list[list[object]] = []
    shape: tree.Structure = None
    for index, key in enumerate(keys):
        views.append([leaf if tree.is_number(leaf) else np.asarray(leaf)[index] for leaf in wholes])
        lane = cast("tuple[object, ...]", tree.unflatten(structure, iter(views[-1])))
        results.append([])
        shape = tree.flatten(one(key, *lane), results[-1])
    origins = [{id(view): place for place, view in enumerate(lane)} for lane in views]

    def joined(parts: Sequence[object]) -> object:
        if tree.is_number(parts[0]):
            return parts[0]
        places = {origin.get(id(part), -1) for origin, part in zip(origins, parts, strict=True)}
        place = places.pop()
        return wholes[place] if place >= 0 and not places else np.stack([np.asarray(part) for part in parts])

    return cast(Result, tree.unflatten(shape, iter([joined(parts) for parts in zip(*results, strict=True)])))


def repeated(one: Tree, lanes: int) -> Tree:
    """The same tree of JAX arrays for every lane."""
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], lanes, axis=0), one)


@cache
def full(lanes: int, value: float) -> jax.Array:
    """[L] the same number, sent to the device once."""
    import jax.numpy as jnp

    return jnp.full(lanes, value, jnp.float32)


@cache
def _on_cpu() -> bool:
    import jax

    return jax.default_backend() == "cpu"


def ask_for(array: jax.Array) -> None:
    """Asks a GPU to send an array when it is there. What is begun after this does not hold it up."""
    if not _on_cpu():
        array.copy_to_host_async()


def to_host(array: jax.Array) -> HostArray:
    """An array on the host. A GPU is asked for it at once, so that it comes without another word when it is there."""
    ask_for(array)
    return np.asarray(array)


class _Words(NamedTuple):
    """A packed argument: how to get it back from 32-bit words."""

    place: int  # of the first word in a lane's row
    shape: tuple[int, ...]  # of one lane
    kind: str  # "key", "bool" or the name of a 32-bit dtype


class Listener(Protocol):
    """Told when a program is compiled, which can take half a minute."""

    def compiling(self, name: str) -> None:
        """The function `name` begins to be compiled."""
        ...

    def compiled(self, name: str, seconds: float) -> None:
        """It is compiled."""
        ...


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def compilation_told(listener: Listener) -> Generator[None]:
    """While this lasts, `listener` is told of every program that is compiled."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Program(Generic[Result]):
    """`one`, compiled for all lanes. `traces` counts how often it was traced: once, unless shapes change."""

    def __init__(self, one: Callable[..., Result], precision: str, donate: Sequence[int], spread: bool) -> None:
        import jax

        self.one, self.spread = one, spread
        inner = one.func if isinstance(one, partial) else one
        self.name = inner.__name__.strip("_")
        self.precision = PRECISIONS[precision]
        self.traces = 0
        self._jit = jax.jit(self._lanes, static_argnums=0, donate_argnums=tuple(place + 2 for place in donate))

    def __call__(self, *args: object) -> Result:
        """The results of all lanes."""
        layout, words, rest = _packed(args)
        traces, began = self.traces, time.monotonic()
        result = self._jit(layout, words, *rest)
        if self.traces != traces and (listener := _listener.get()):
            listener.compiled(self.name, time.monotonic() - began)
        return result

    def on_device(self, *args: object) -> Callable[[], Result]:
        """A call with these arguments that has nothing left to send: for `posterity bench`."""
        import jax

        layout, words, rest = _packed(args)
        return partial(self._jit, layout, *jax.device_put((words, *rest)))

    def _lanes(self, layout: tuple[_Words | None, ...], words: jax.Array, *rest: object) -> Result:
        import jax

        self.traces += 1
        if listener := _listener.get():
            listener.compiling(self.name)

        def lane(row: jax.Array, *others: object) -> Result:
            pairs = zip(layout, others, strict=True)
            return self.one(*(other if place is None else _unpacked(row, place) for place, other in pairs))

        axes = [None if isinstance(arg, jax.Array) and arg.ndim == 0 else 0 for arg in rest]
        packed = 0 if any(layout) else None  # with nothing packed there are no words to share out among lanes
        every = (packed, *axes)
        shared = [arg for arg, axis in zip((words, *rest), every, strict=True) if axis == 0]
        lanes = len(jax.tree.leaves(shared)[0])
        with jax.default_matmul_precision(self.precision):
            batched = jax.vmap(lane, in_axes=every)
            return (_shared_out(batched, every, lanes) if self.spread else batched)(words, *rest)


def _shared_out(batched: Callable[..., Result], axes: Sequence[int | None], lanes: int) -> Callable[..., Result]:
    """A program for all lanes, in which each device does its share of them; as it is where there is one device."""
    import jax
    from jax.sharding import Mesh, PartitionSpec

    devices = jax.local_devices()
    if len(devices) == 1 or lanes % len(devices):
        return batched
    own = tuple(PartitionSpec() if axis is None else PartitionSpec("lanes") for axis in axes)
    mesh = Mesh(np.array(devices), ("lanes",))
    return jax.shard_map(batched, mesh=mesh, in_specs=own, out_specs=PartitionSpec("lanes"), check_vma=False)


def compiled(
    one: Callable[..., Result], precision: str = "tf32", donate: Sequence[int] = (), spread: bool = True
) -> Program[Result]:
    """`one`, written for one lane, as one program for all.

    `donate`: the arguments whose memory it may reuse. `spread`: over all devices, or else where its arguments lie.
    """
    return Program(one, precision, donate, spread)


def _packed(args: Sequence[object]) -> tuple[tuple[_Words | None, ...], HostArray, list[object]]:
    """The layout of packed arguments, their words [L, W], and the arguments that go as they are."""
    layout: list[_Words | None] = []
    parts: list[HostArray] = []
    rest: list[object] = []
    used = 0
    for arg in args:
        if isinstance(arg, np.ndarray):
            words, kind = _as_words(arg)
            shape = arg.shape[1:]
        elif isinstance(arg, list) and isinstance(arg[0], Key):
            words, shape, kind = np.array([key.words(2) for key in arg]), (2,), "key"
        else:
            layout.append(None)
            rest.append(_number(arg) if isinstance(arg, bool | int | float) else arg)
            continue
        layout.append(_Words(used, shape, kind))
        parts.append(words)
        rest.append(())
        used += words.shape[1]
    return tuple(layout), np.concatenate(parts, axis=1) if parts else np.zeros((0, 0), np.uint32), rest


def _as_words(array: HostArray) -> tuple[HostArray, str]:
    """A NumPy array [L, ...] as 32-bit words [L, W], and the kind of its numbers."""
    if array.dtype == np.bool_:
        return array.astype(np.uint32).reshape(len(array), -1), "bool"
    kind = _SINGLE[array.dtype.kind]
    return np.ascontiguousarray(array, kind).view(np.uint32).reshape(len(array), -1), kind


def _unpacked(row: jax.Array, words: _Words) -> jax.Array:
    """An argument of one lane from its words."""
    import jax
    import jax.numpy as jnp

    part = row[words.place : words.place + int(np.prod(words.shape))].reshape(words.shape)
    if words.kind == "key":
        return jax.random.wrap_key_data(part)
    return part > 0 if words.kind == "bool" else jax.lax.bitcast_convert_type(part, jnp.dtype(words.kind))


def _number(value: float) -> np.generic:
    """A number of a fixed dtype: a weakly typed one would be traced twice."""
    return np.int32(value) if isinstance(value, int) else np.float32(value)

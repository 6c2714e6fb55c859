"""Trees: nested NamedTuples, tuples, lists and dictionaries of arrays and numbers, without JAX.

A state, a snapshot and a checkpoint are trees. Their arrays have a leading axis of lanes; plain Python numbers are the
same for all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from posterity.types import HostArray

Tree = TypeVar("Tree")


def children(node: object) -> list[tuple[str, object]] | None:
    """The named parts of a branch, or None for a leaf. None, for what is not there, is a branch without parts."""
    if node is None:
        return []
    if isinstance(node, dict):
        return [(str(name), child) for name, child in node.items()]
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return list(zip(node._fields, node, strict=True))  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(node, list | tuple):
        return [(str(index), child) for index, child in enumerate(node)]
    return None


def rebuilt(node: Tree, parts: Sequence[object]) -> Tree:
    """A branch of the kind of `node` with other parts."""
    if node is None:
        return node
    if isinstance(node, dict):
        return cast(Tree, dict(zip(node, parts, strict=True)))
    return type(node)(*parts) if hasattr(node, "_fields") else type(node)(parts)  # pyright: ignore[reportCallIssue]


def leaves(node: object, name: str = "state") -> Iterator[tuple[str, object]]:
    """The leaves of a tree, each with the path that leads to it."""
    parts = children(node)
    if parts is None:
        yield name, node
    else:
        for part, child in parts:
            yield from leaves(child, f"{name}.{part}")


Structure: TypeAlias = "tuple[type, Sequence[str], list[Structure]] | None"  # of a branch; None: a leaf


def flatten(node: object, into: list[object]) -> Structure:
    """Puts the leaves of a tree into a list, and says how to grow it again: for what is done at every step."""
    if isinstance(node, tuple | list):
        return type(node), (), [flatten(child, into) for child in cast(Sequence[object], node)]
    if isinstance(node, dict):
        return dict, tuple(node), [flatten(child, into) for child in node.values()]
    if node is None:
        return type(None), (), []
    into.append(node)
    return None


def unflatten(structure: Structure, leaves: Iterator[object]) -> object:
    """The tree of this structure with these leaves."""
    if structure is None:
        return next(leaves)
    kind, names, parts = structure
    if kind is type(None):
        return None
    grown = [unflatten(part, leaves) for part in parts]
    if kind is dict:
        return dict(zip(names, grown, strict=True))
    return kind(*grown) if hasattr(kind, "_fields") else kind(grown)


def map_leaves(function: Callable[..., object], first: Tree, *others: Tree) -> Tree:
    """A tree of the same shape, its leaves `function` of the leaves of all the trees."""
    parts = children(first)
    if parts is None:
        return cast(Tree, function(first, *others))
    beside = [[child for _, child in children(other) or []] for other in others]
    return rebuilt(first, [map_leaves(function, *row) for row in zip((c for _, c in parts), *beside, strict=True)])


def filled(node: Tree, arrays: Mapping[str, object], name: str = "state") -> Tree:
    """`node` with the arrays of its leaves' names for leaves, and numbers where it has numbers."""
    parts = children(node)
    if parts is None:
        found = arrays[name]
        return type(node)(np.asarray(found).item()) if is_number(node) else cast(Tree, found)  # pyright: ignore[reportCallIssue]
    return rebuilt(node, [filled(child, arrays, f"{name}.{part}") for part, child in parts])


def is_number(leaf: object) -> bool:
    """Whether a leaf is a plain number, the same for all lanes."""
    return isinstance(leaf, bool | int | float)


def lane(tree: Tree, index: int) -> Tree:
    """One lane of a tree: its arrays without their leading axis."""
    return map_leaves(lambda leaf: leaf if is_number(leaf) else np.asarray(leaf)[index], tree)


def copied(tree: Tree) -> Tree:
    """A tree whose arrays share no memory with the old one's."""
    return map_leaves(lambda leaf: leaf if is_number(leaf) else in_library_of(leaf, np.array(leaf)), tree)


def lanes(tree: Tree, begin: int, end: int) -> Tree:
    """Some of the lanes of a tree, still with their leading axis."""
    return map_leaves(lambda leaf: leaf if is_number(leaf) else leaf[begin:end], tree)


def stack(lanes: Sequence[Tree]) -> Tree:
    """Lanes side by side: the arrays of the result have a leading axis of lanes."""
    return map_leaves(lambda *some: some[0] if is_number(some[0]) else np.stack(some), *lanes)


def extended(node: Tree, fresh: Tree) -> Tree:
    """`node` in the sizes of `fresh`: what an array has more there is as it is there."""
    return map_leaves(_extended, node, fresh)


def _extended(leaf: object, fresh: object) -> object:
    part, whole = np.asarray(leaf), np.array(fresh)
    if is_number(leaf) or part.shape == whole.shape:
        return leaf
    put_corner(whole, part)
    return in_library_of(fresh, whole)


def put_corner(whole: HostArray, part: HostArray) -> None:
    """Writes `part` over the beginning of every axis of `whole`."""
    whole[tuple(slice(size) for size in part.shape)] = part


def in_library_of(like: object, leaf: object) -> object:
    """An array of the library that `like` is of: a JAX array goes back to its device. A number stays one."""
    if isinstance(like, np.ndarray | np.generic) or is_number(like):
        return leaf
    return cast(Any, like).__array_namespace__().asarray(leaf)

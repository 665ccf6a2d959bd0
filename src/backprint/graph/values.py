"""Values: the arguments of a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from backprint.errors import GraphError, RefusedError
from backprint.graph.legal import check_device, check_target
from backprint.graph.specs import ATOMS


@dataclass(frozen=True, slots=True)
class Ref:
    """A value named earlier in the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """An operator used as data, as higher-order operators take them."""

    target: str

    def __post_init__(self) -> None:
        check_target(self.target)


@dataclass(frozen=True, slots=True)
class Sub:
    """A subgraph of this graph, by its attribute name."""

    name: str


@dataclass(frozen=True, slots=True)
class Atom:
    """A torch constant: a dtype, a layout or a memory format, such as `float32`."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in ATOMS:
            raise RefusedError(f"torch.{self.name} is not a dtype, layout or memory format that a graph may hold")


@dataclass(frozen=True, slots=True)
class Device:
    """A device, such as `cpu` or `cuda:0`."""

    name: str

    def __post_init__(self) -> None:
        check_device(self.name)


@dataclass(frozen=True, slots=True)
class Slice:
    """A Python slice."""

    start: Value
    stop: Value
    step: Value


@dataclass(frozen=True, slots=True)
class List:
    """A list; a tuple is a Python tuple, because operators distinguish them."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Dict:
    """A dictionary, in order."""

    items: tuple[tuple[Value, Value], ...]


Leaf: TypeAlias = "bool | int | float | complex | str | Ref | Op | Sub | Atom | Device | None"

Value: TypeAlias = "Leaf | Slice | List | Dict | tuple[Value, ...]"

LEAVES = frozenset({type(None), bool, int, float, complex, str, Ref, Op, Sub, Atom, Device})

MAX_DEPTH = 32
"""How deep a value may nest lists, tuples, dictionaries and slices."""


def leaves(value: Value, depth: int = 0) -> Iterator[Leaf]:
    """Yield the leaves of a value, in order; raise for anything that is not a Value."""
    kind = type(value)
    if kind in LEAVES:
        yield value  # type: ignore[misc]  # a Leaf, as checked
        return
    if depth > MAX_DEPTH:
        raise RefusedError("a value is nested too deeply")
    match value:
        case tuple() | List(items=tuple()):
            for item in value if isinstance(value, tuple) else value.items:
                yield from leaves(item, depth + 1)
        case Slice(start, stop, step):
            for item in (start, stop, step):
                yield from leaves(item, depth + 1)
        case Dict(pairs):
            for key, item in pairs:
                yield from leaves(key, depth + 1)
                yield from leaves(item, depth + 1)
        case _:
            raise GraphError(f"a {kind.__name__} cannot stand in a graph: {value!r:.120}")


def refs(value: Value) -> Iterator[str]:
    """Yield the names in a value, in order."""
    return (leaf.name for leaf in leaves(value) if type(leaf) is Ref)

"""What a call returned, as a tree that holds still: every tensor in every object of it, and what is no tensor as text.

A result is looked into as far as a program could: containers and their attributes, dataclasses, slots, objects of any
class, what functions close over, what iterators still give (they are used up), what modules have.
"""

import enum
import functools
import io
import itertools
import random
import types
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from picture import PRIMITIVES, attribute_parts, content, digest, is_iterator
from torch import Tensor, nn
from torch.utils import _pytree as pytree

DEEP = 40  # levels
LONG = 64  # values of one iterator, which may have no end
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
LEAVES = (*PRIMITIVES, slice, np.ndarray, np.generic, enum.Enum, types.ModuleType, types.BuiltinFunctionType)
DRAWS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)


@dataclass
class Part:
    """One object of a result: its class, its parts by name, and whether a pytree has them in this order."""

    kind: str
    parts: list[tuple[str, Any]]
    ordered: bool
    alike: bool = False  # no order at all: a set
    order: tuple[int, ...] = ()  # of a list whose pytree has its elements in another order: where its own are
    module: bool = False  # whether its parameters are outputs of the call is nobody's to say


@dataclass
class Again:
    """An object that stands higher up in the same result."""

    levels: int


@dataclass
class Callers:
    """A tensor of the caller's, in a module of the caller's, that a result leads back to."""


def without(part: Any, callers: set[int], inside: bool = False) -> Any:
    """The tree without the caller's own tensors in modules; whoever has the module sees these anyway."""
    if isinstance(part, Tensor) and inside and id(part) in callers:
        return Callers()
    if isinstance(part, Part):
        inside = inside or part.module
        return replace(part, parts=[(key, without(below, callers, inside)) for key, below in part.parts])
    return part


def tree(value: Any, above: tuple[int, ...] = (), known: frozenset[int] | set[int] = frozenset()) -> Any:
    """A result as a tree of `Part`s, with its own tensors, and numbers and texts as they are.

    `known` are the mutable containers of the object around it that were met: each is looked into once.
    """
    if isinstance(value, Tensor) and not isinstance(value, nn.parameter.UninitializedTensorMixin):
        return value
    if isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, Tensor):
        return Part(value.__name__, [("__self__", value.__self__)], False)
    if isinstance(value, LEAVES) or value is None:
        return value
    if isinstance(value, DRAWS):
        return Part(type(value).__qualname__, [("state", digest(value))], True)
    if id(value) in above or len(above) > DEEP:
        return Again(len(above) - above.index(id(value)) if id(value) in above else DEEP)
    if isinstance(value, (list, dict, set)) and id(value) in known:
        return Again(0)
    below = (*above, id(value))
    parts, ordered = parts_of(value)
    if isinstance(known, set):
        known.add(id(value))
    elif not ordered or own(value):
        known = {id(value)}
    kind = value.__qualname__ if isinstance(value, (type, types.FunctionType)) else type(value).__qualname__
    alike = isinstance(value, (set, frozenset))
    branches = [(key, tree(part, below, known)) for key, part in parts]
    if alike:
        branches = [(str(i), part) for i, (_, part) in enumerate(sorted(branches, key=lambda b: text(b[1])))]
    order: list[int | None] = []
    if isinstance(value, (list, tuple)):
        order = [next((i for i, (_, part) in enumerate(parts) if part is element), None) for element in value]
    turned = tuple(order) if len(order) == len(parts) and None not in order else ()
    return Part(kind, branches, ordered, alike, turned, isinstance(value, nn.Module))


def parts_of(value: Any) -> tuple[list[tuple[str, Any]], bool]:
    """The parts of one object by name, and whether their order is the one that a pytree gives them."""
    if isinstance(value, dict):
        items = [(type(key).__name__ if isinstance(key, Tensor) else str(key), part) for key, part in value.items()]
        odd = [(f"key {i}", key) for i, key in enumerate(value) if not isinstance(key, (*PRIMITIVES, tuple))]
        more = [(key, part) for key, part in own(value) if key not in value or value[key] is not part]
        return [*items, *odd, *more], not odd  # an item that is an attribute too is one part, under one name
    if isinstance(value, (list, tuple)) and type(value) in pytree.SUPPORTED_NODES and type(value) not in (list, tuple):
        children = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0]
        return [(str(i), part) for i, part in enumerate(children)], True
    if isinstance(value, types.CellType):
        return [("cell_contents", value.cell_contents)] if _filled(value) else [], False
    if isinstance(value, (list, tuple, deque)):
        return [*((str(i), part) for i, part in enumerate(value)), *own(value)], True
    if isinstance(value, types.MappingProxyType):
        return [(str(key), part) for key, part in value.items()], True
    if isinstance(value, VIEWS):
        return [("mapping", dict(value.mapping))], False
    if isinstance(value, (set, frozenset)):
        return [*((str(i), part) for i, part in enumerate(value)), *own(value)], False
    if is_dataclass(value) and not isinstance(value, type):
        declared = {field.name for field in fields(value)}
        more = [(key, part) for key, part in own(value) if key not in declared]
        return [*((key, getattr(value, key)) for key in declared_in_order(value)), *more], not more
    if isinstance(value, nn.Module):
        held = [*value._parameters.items(), *value._buffers.items(), *value._modules.items()]
        skipped = set(nn.Module().__dict__)
        return [*held, *((key, part) for key, part in value.__dict__.items() if key not in skipped)], False
    if isinstance(value, functools.partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords), *own(value)], False
    if isinstance(value, types.MethodType):
        return [("__self__", value.__self__), ("__func__", value.__func__)], False
    if isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        closed = [(name, cell.cell_contents) for name, cell in cells if _filled(cell)]
        return [("code", value.__code__.co_code), *closed, ("defaults", value.__defaults__), *own(value)], False
    if isinstance(value, type):
        if "<locals>" not in value.__qualname__:
            return [], False  # what a class of a module keeps is the class's; whoever has the class sees it
        plain = (Tensor, list, dict, tuple, int, float, str)
        return [(k, v) for k, v in vars(value).items() if not k.startswith("__") and isinstance(v, plain)], False
    if isinstance(value, types.GeneratorType) or is_iterator(value):
        return [(str(i), part) for i, part in enumerate(itertools.islice(value, LONG))], False
    if isinstance(value, (io.StringIO, io.BytesIO)):
        return [("value", value.getvalue()), ("place", value.tell())], False
    if isinstance(value, BaseException):
        return [("args", value.args), ("cause", value.__cause__), *own(value)], False
    kept = own(value)
    if kept or " at 0x" in (shown := repr(value)):
        return kept, False
    return [("repr", shown)], True


def own(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an object; what lies in its slots, too."""
    return list(attribute_parts("", value))


def declared_in_order(value: Any) -> Iterator[str]:
    """The names of a dataclass's fields that have a value."""
    return (field.name for field in fields(value) if hasattr(value, field.name))


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def text(part: Any) -> str:
    """A line by which the members of a set are put into an order that runs share."""
    if isinstance(part, Tensor):
        return f"{tuple(part.shape)} {part.dtype} {content(part)}"
    return f"{part.kind} {[text(p) for _, p in part.parts]}" if isinstance(part, Part) else repr(part)


def tensors_in(part: Any) -> list[Tensor]:
    """Every tensor of a tree, in order."""
    if isinstance(part, Tensor):
        return [part]
    return [t for _, below in part.parts for t in tensors_in(below)] if isinstance(part, Part) else []


def mapped(part: Any, change: Any) -> Any:
    """The tree with every tensor changed."""
    if isinstance(part, Tensor):
        return change(part)
    if isinstance(part, Part):
        return replace(part, parts=[(key, mapped(below, change)) for key, below in part.parts])
    return part


def has_modules(part: Any) -> bool:
    """Whether a module stands in a tree."""
    return isinstance(part, Part) and (part.module or any(has_modules(below) for _, below in part.parts))


def has_sets(part: Any) -> bool:
    """Whether a set stands in a tree."""
    return isinstance(part, Part) and (part.alike or any(has_sets(below) for _, below in part.parts))


def leaves_in(part: Any) -> list[Any]:
    """Every tensor of a tree in order, that of a list's own elements, and what stands for those of the caller's."""
    if isinstance(part, (Tensor, Callers)):
        return [part]
    if not isinstance(part, Part):
        return []
    parts = [below for _, below in part.parts]
    return [each for below in ([parts[i] for i in part.order] or parts) for each in leaves_in(below)]


def in_order(part: Any) -> bool:
    """Whether everybody counts the tensors of a tree in the same order; not where one stands in a set or an object."""
    if not isinstance(part, Part):
        return True
    return (part.ordered or not tensors_in(part)) and all(in_order(below) for _, below in part.parts)

"""Dataclasses from plain values that a stranger may have written: every field has its declared type, or an error."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def from_plain(kind: type[T], value: Any, where: str = "it") -> T:
    """Return the dataclass that a JSON object describes; raise ValueError that names the first value that is wrong."""
    return typing.cast(T, converted(kind, value, where))


def converted(kind: Any, value: Any, where: str) -> Any:
    """Return a value as a declared type; lists become tuples, objects become dataclasses."""
    if is_dataclass(kind):
        return filled(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else converted(inner, value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise wrong(kind, value, where)
        repeated = len(arguments) == 2 and arguments[1] is Ellipsis
        members = [arguments[0]] * len(value) if repeated else arguments
        if len(members) != len(value):
            raise wrong(kind, value, where)
        return tuple(
            converted(member, item, f"{where}[{index}]")
            for index, (member, item) in enumerate(zip(members, value, strict=True))
        )
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise wrong(kind, value, where)
    return value


def filled(kind: Any, value: Any, where: str) -> Any:
    """Return a dataclass of an object that has its fields, and no others; a field with a default may be missing."""
    if not isinstance(value, Mapping):
        raise wrong(kind, value, where)
    declared = declared_fields(kind)
    for name in value:
        if name not in declared:
            raise ValueError(f"{where} has {str(name)[:40]!r}, which is not one of {', '.join(declared)}")
    if missing := [name for name, (_, required) in declared.items() if required and name not in value]:
        raise ValueError(f"{where} has no {missing[0]!r}")
    return kind(**{name: converted(declared[name][0], item, f"{where}.{name}") for name, item in value.items()})


def wrong(kind: Any, value: Any, where: str) -> ValueError:
    """Return the error of a value of another type than the declared one."""
    name = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    return ValueError(f"{where} is of type {type(value).__name__}, and must be {name}")


@cache
def declared_fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return name -> declared type, and whether a value is required, of the fields of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: (hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    }

"""Functions of the table whose kernels trust their arguments, or go round a loop as often as one says: called checked.

What is checked is what `checks` knows of the operator of the same name. A check reads values, so it stays out of the
sight of tracers: where the arguments have no values nothing is looked at, because no kernel runs.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from backprint.checks import Bound, check_by_name
from backprint.errors import ReplayError

ROUNDS: Mapping[str, str] = {"svd_lowrank": "niter", "pca_lowrank": "niter", "tensordot": "dims"}
"""Functions in Python that go round a loop, and the argument that says how often."""

MOST_ROUNDS = 1000
"""How often they may."""


def guarded(target: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the table, or where it is unsafe, one that checks its arguments and calls it."""
    name = target.removesuffix(".default").rpartition(".")[2]
    if isinstance(function, types.BuiltinFunctionType):
        name = function.__name__  # torch.special.i0 is the operator special_i0
    if name in ROUNDS:
        return limited(function, ROUNDS[name])
    check = check_by_name(f"aten.{name}.default")
    rows = schema_names(name) if check is not None and not target.startswith("Tensor.") else ()
    return checked(function, check, rows) if check is not None and rows else function


def guarded_method(name: str) -> Callable[..., Any] | None:
    """A method of tensors that checks its arguments first: `call(tensor, ...)`; None where it needs no check."""
    swapped = name in REFLECTED
    operator = DIVISIONS.get(name, name)
    check = check_by_name(f"aten.{operator}.default")
    rows = schema_names(operator) if check is not None else ()
    if check is None or not rows:
        return None

    def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(owner, torch.Tensor) and not torch.compiler.is_compiling():
            given = (*args, owner) if swapped else (owner, *args)
            if complaint := complaint_of(check, rows, given, kwargs):
                raise ReplayError(f"{name}: {complaint}")
        return getattr(owner, name)(*args, **kwargs)

    call.__name__ = f"checked_{name}"
    return call


DIVISIONS: Mapping[str, str] = {
    **dict.fromkeys(("__floordiv__", "__rfloordiv__", "__ifloordiv__"), "floor_divide"),
    **dict.fromkeys(("__mod__", "__rmod__", "__imod__"), "remainder"),
}
"""Arithmetic by the names that Python has for it, and the operators that it calls."""

REFLECTED = frozenset({"__rfloordiv__", "__rmod__"})
"""Methods whose owner is what they divide by."""


def limited(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that refuses to go round too often."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        rounds = signature.bind(*args, **kwargs).arguments.get(name)
        if isinstance(rounds, (int, float)) and rounds > MOST_ROUNDS:
            raise ReplayError(f"{name}={rounds}: {function.__name__} may go round {MOST_ROUNDS:,} times in a graph")
        return function(*args, **kwargs)

    return call


def checked(
    function: Callable[..., Any], check: Callable[[Bound], str], rows: tuple[tuple[str, Any], ...]
) -> Callable[..., Any]:
    """A function whose arguments are checked where they have values."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and (complaint := complaint_of(check, rows, args, kwargs)):
            raise ReplayError(f"{function.__name__}: {complaint}")
        return function(*args, **kwargs)

    return call


def complaint_of(
    check: Callable[[Bound], str], rows: tuple[tuple[str, Any], ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """What a check says of a call; what it cannot read is left to torch, which refuses such arguments itself."""
    given = dict(rows) | dict(zip((name for name, _ in rows), args, strict=False)) | dict(kwargs)
    if "input" in kwargs and "self" in given:
        given["self"] = kwargs["input"]
    try:
        return check(given)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError):
        return ""


@functools.cache
def schema_names(name: str) -> tuple[tuple[str, Any], ...]:
    """The arguments of an operator by name, with their defaults; () where torch has none of this name."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    function = getattr(packet, packet.overloads()[0])
    return tuple(
        (each.name, each.default_value if each.has_default_value() else None) for each in function._schema.arguments
    )

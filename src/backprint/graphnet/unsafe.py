"""Functions of the table that are called with checked arguments, because their kernels trust them or loop at will.

The checks are those that `checks` has for the operator of the same name. A check reads values, so it is skipped under
tracers: where arguments have no values, no kernel runs.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from backprint._torch.operators import OpOverload, schema_of
from backprint.checks.looking import Bound
from backprint.checks.schema import rows_of
from backprint.checks.table import check_by_name
from backprint.errors import ReplayError

ROUNDS: Mapping[str, str] = {"svd_lowrank": "niter", "pca_lowrank": "niter", "tensordot": "dims"}
"""Functions in Python that loop, and the argument that says how often."""

MOST_ROUNDS = 1000
"""How often they may loop."""


def guarded_function(target: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function to call for a row of the table: itself, or where it is unsafe, with its arguments checked."""
    name = target.removesuffix(".default").rpartition(".")[2]
    if isinstance(function, types.BuiltinFunctionType):
        name = function.__name__  # torch.special.i0 is the operator special_i0
    if name in ROUNDS:
        return limit_rounds(function, ROUNDS[name])
    check = check_by_name(f"aten.{name}.default")
    forms = operator_forms(name) if check is not None and not target.startswith("Tensor.") else ()
    return check_before_call(function, check, forms) if check is not None and forms else function


def guarded_method(name: str) -> Callable[..., Any] | None:
    """A tensor method with its arguments checked, as `call(tensor, ...)`; None where it needs no check."""
    swapped = name in REFLECTED
    operator = DIVISIONS.get(name, name)
    check = check_by_name(f"aten.{operator}.default")
    forms = operator_forms(operator) if check is not None else ()
    if check is None or not forms:
        return None

    def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(owner, torch.Tensor) and not torch.compiler.is_compiling():
            given = (*args, owner) if swapped else (owner, *args)
            if complaint := call_complaint(check, forms, given, kwargs):
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
"""Methods whose owner is the divisor."""


def limit_rounds(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Refuse calls of a function that loop too often."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        rounds = signature.bind(*args, **kwargs).arguments.get(name)
        if isinstance(rounds, (int, float)) and rounds > MOST_ROUNDS:
            raise ReplayError(f"{name}={rounds}: {function.__name__} may go round {MOST_ROUNDS:,} times in a graph")
        return function(*args, **kwargs)

    return call


def check_before_call(
    function: Callable[..., Any], check: Callable[[Bound], str], forms: OperatorForms
) -> Callable[..., Any]:
    """Check a function's arguments before each call, where they have values."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and (complaint := call_complaint(check, forms, args, kwargs)):
            raise ReplayError(f"{function.__name__}: {complaint}")
        return function(*args, **kwargs)

    return call


def call_complaint(
    check: Callable[[Bound], str], forms: OperatorForms, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """The complaint of a check about a call. Arguments that it cannot read are left to torch, which refuses them."""
    try:
        return check(bind_to_form(forms, args, kwargs))
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError):
        return ""


def bind_to_form(forms: OperatorForms, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Bind arguments by name, with defaults, to the first overload that they fit; else to the first."""
    named = {"self" if key == "input" else key: value for key, value in kwargs.items()}
    for rows in forms:
        names = {name for name, *_ in rows}
        key = {"self": "input"} if "self" in named and "self" not in names else {}
        given = dict(zip((name for name, _, _, alone in rows if not alone), args, strict=False))
        given |= {key.get(name, name): value for name, value in named.items()}
        fit = all(fits(given[name]) for name, _, fits, _ in rows if name in given)
        if fit and set(given) <= names and len(given) == len(args) + len(kwargs):
            return {name: default for name, default, *_ in rows} | given
    first = forms[0]
    return (
        {name: default for name, default, *_ in first}
        | dict(zip((row[0] for row in first), args, strict=False))
        | named
    )


OperatorForms: TypeAlias = tuple[tuple[tuple[str, Any, Callable[[Any], bool], bool], ...], ...]
"""The arguments of each overload of an operator: name, default, whether a value fits, whether it is keyword-only."""


@functools.cache
def operator_forms(name: str) -> OperatorForms:
    """The overloads of an operator; () where torch has no operator of this name."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    return tuple(
        tuple(
            (row.name, default, fits, row.kwarg_only)
            for (_, _, fits, default), row in zip(rows_of(function), schema_of(function).arguments, strict=True)
        )
        for function in (getattr(packet, each) for each in packet.overloads())
        if isinstance(function, OpOverload)
    )

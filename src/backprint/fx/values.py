"""Resolve a target's name to a callable, through explicit tables; no other module does."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from backprint._torch.operators import OpOverload
from backprint.checks.arguments import divided
from backprint.checks.asserting import would_assert
from backprint.checks.schema import wrong
from backprint.checks.sizes import growth_complaint, why_outgrown
from backprint.errors import DeviceAssertError, GuardError, RefusedError, ReplayError, for_program
from backprint.graph.isolation import SEEN
from backprint.graph.nouns import (
    HIGHER,
    MATHS,
    OPERATORS,
    PLAIN_TARGETS,
    SYMS,
    Atom,
    Device,
    Dict,
    List,
    Op,
    Ref,
    Slice,
    Source,
    Step,
    Sub,
    Value,
    is_custom,
)
from backprint.graph.operators import operators
from backprint.graph.text import show_step

ROOMS: dict[str, Any] = {"operator": operator, "math": math, "torch": torch}


@functools.cache
def resolve(target: str) -> Callable[..., Any]:
    """Return the callable of a target: a known tensor operator, plain arithmetic, or a registered custom operator."""
    if target in OPERATORS or target in MATHS or target in SYMS:
        room, _, name = target.partition(".")
        return getattr(ROOMS[room], name)
    if target in HIGHER:
        return getattr(torch.ops.higher_order, target.rpartition(".")[2])
    if target in operators():
        return overload(target)
    if is_custom(target):
        return overload(target.removeprefix("torch.ops."))
    raise ReplayError(f"{target!r} is not a known tensor operator")


def check_call(target: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise RefusedError unless a target accepts these arguments safely."""
    if target in PLAIN_TARGETS:
        complaint = growth_complaint(target, args) or by_operator(target, args)
    elif isinstance(function, OpOverload):
        complaint = wrong(function, args, kwargs)
        if not complaint and (asserts := would_assert(function, args, kwargs)):
            raise DeviceAssertError(f"{asserts}: the kernel on the GPU would end this process's use of it")
    elif complaint := handed_on(target, args, kwargs):
        raise RefusedError(complaint)
    else:
        return  # the calls in its body are checked there
    if complaint := complaint or why_outgrown(function, args, kwargs):
        raise RefusedError(complaint)


def by_operator(target: str, args: Sequence[Any]) -> str:
    """Return what is wrong with a call of plain arithmetic on tensors."""
    check = DIVISIONS.get(target)
    return check({"self": args[0], "other": args[1]}) if check is not None and len(args) == 2 else ""


DIVISIONS = {"operator.floordiv": divided, "operator.mod": divided}


def handed_on(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """For an operator that calls an operator passed to it, return what is wrong with that one's arguments."""
    place, begin = SEEN.get(target, (len(args), 0))
    if place >= len(args) or not isinstance(args[place], OpOverload):
        return ""
    return wrong(args[place], args[begin:], {key: value for key, value in kwargs.items() if key != "rng_state"})


@functools.cache
def checked_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a target's callable with its arguments checked, except while it is compiled; any other function itself."""
    target = str(function) if isinstance(function, OpOverload) else others().get(function)
    if target is None:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            check_call(target, function, args, kwargs)
        return for_program(function, *args, **kwargs)

    call.__name__ = target.replace(".", "_")
    return call


@functools.cache
def others() -> Mapping[Callable[..., Any], str]:
    """Return the targets that are not tensor operators, by callable."""
    found = {}
    for target in PLAIN_TARGETS | HIGHER:
        with contextlib.suppress(AttributeError):  # another torch's
            found[resolve(target)] = target
    return found


def overload(name: str) -> Callable[..., Any]:
    """Return a registered operator by `namespace.name.overload`."""
    space, packet, kind = name.split(".")
    try:
        found = getattr(getattr(getattr(torch.ops, space), packet), kind)
    except (AttributeError, RuntimeError) as error:
        raise ReplayError(
            f"torch {torch.__version__} has no operator {space}::{packet}.{kind}: "
            "import the library that registers it, or use the torch that the sample's capture.json names"
        ) from error
    if not isinstance(found, OpOverload):
        raise ReplayError(f"{name!r} is not an operator but a {type(found).__name__}")
    return found


# ---- Values while a graph runs, and its guards


def maker(env: Mapping[str, Any], subs: Mapping[str, Any]) -> Callable[[Value], Any]:
    """Return a function that evaluates Values."""

    def make(value: Value) -> Any:
        match value:
            case Ref(name):
                return env[name]
            case List(items):
                return [make(item) for item in items]
            case tuple():
                return tuple([make(item) for item in value])
            case Atom(name):
                return getattr(torch, name)
            case Device(name):
                return torch.device(name)
            case Slice(start, stop, step):
                return slice(make(start), make(stop), make(step))
            case Dict(pairs):
                return {make(key): make(item) for key, item in pairs}
            case Op(target):
                return resolve(target)
            case Sub(name):
                return subs[name]
        return value

    return make


def hold(step: Step, value: Any, expected: Any = None) -> None:
    """Raise unless a guard step holds."""
    judge(step.target, value, expected, show_step(step), place(step.source))


def judge(target: str, value: Any, expected: Any, text: str, where: str) -> None:
    """Raise unless a guard holds, saying what it is and where it comes from."""
    match target:
        case "assert_nan":
            good, found, wanted = value != value, value, "nan"
        case "assert_shape":
            good, found, wanted = tuple(value.shape) == tuple(expected), tuple(value.shape), expected
        case _:
            good, found, wanted = value == expected, value, expected
    if not good:
        raise GuardError(
            f"guard `{text}` does not hold{where}: the capture took {wanted}, these inputs give {found}. "
            "Capture again on inputs like these"
        )


def place(source: Source | None) -> str:
    """A line in a message, or nothing."""
    return f" at {source.file}:{source.line}: {source.code!r}" if source else ""

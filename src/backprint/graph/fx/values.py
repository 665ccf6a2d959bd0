"""From a graph to Python: the callable of a target, which explicit tables name, and the object that a Value stands for.

No other module resolves targets, so that every call of a graph passes `check_call`.

A *target* is the operator of a step as text, `aten.mm.default`, and a Value one argument of a step as the Graph has it.
A *guard* is a step that checks a value, as `assert n == 3`. A *complaint* is what is wrong with a call, as text; '' if
nothing is.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from backprint._torch.operators import OpOverload
from backprint.errors import DeviceAssertError, GuardError, RefusedError, ReplayError, for_program
from backprint.graph.fx.asserting import gpu_assert_complaint
from backprint.graph.fx.schema import call_complaint
from backprint.graph.nouns import (
    COLLECTIVES,
    HIGHER,
    MATHS,
    OPERATORS,
    PLAIN_TARGETS,
    SYMS,
    WAIT,
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
from backprint.values.bounds import growth_complaint, why_outgrown

MODULES: dict[str, Any] = {"operator": operator, "math": math, "torch": torch}
"""The modules of targets that are plain functions."""


@functools.cache
def resolve(target: str) -> Callable[..., Any]:
    """Return the callable of a target: a known tensor operator, plain arithmetic, or a registered custom operator.
    ReplayError if it is none of these, or if this torch does not have it."""
    if target in OPERATORS or target in MATHS or target in SYMS:
        module, _, name = target.partition(".")
        return getattr(MODULES[module], name)
    if target in HIGHER:
        return getattr(torch.ops.higher_order, target.rpartition(".")[2])
    if target in operators():
        return overload(target)
    if is_custom(target) or target in COLLECTIVES or target == WAIT:
        return overload(target.removeprefix("torch.ops."))
    raise ReplayError(f"{target!r} is not a known tensor operator")


def check_call(target: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise RefusedError unless arguments fit the schema of a target, whose callable is `function`, and its result has
    a bounded size; DeviceAssertError if its kernel on a GPU would assert."""
    if target == "operator.getitem" and isinstance(args[0], tuple) and type(args[1]) is int:
        return  # one of several results that are there: nothing is computed
    if target in PLAIN_TARGETS:
        complaint = growth_complaint(target, args)
    elif isinstance(function, OpOverload):
        complaint = call_complaint(function, args, kwargs)
        if not complaint and (asserts := gpu_assert_complaint(function, args, kwargs)):
            raise DeviceAssertError(
                f"{asserts}: the assertion of the GPU kernel would fail, and this process could use the GPU no more"
            )
    elif complaint := _complaint_about_passed_operator(target, args, kwargs):
        raise RefusedError(complaint)
    else:
        return  # an operator with graphs as arguments, such as `cond`: the calls in these graphs are checked one by one
    if complaint := complaint or why_outgrown(function, args, kwargs):
        raise RefusedError(complaint)


PASSED_OPERATORS: Mapping[str, tuple[int, int]] = {
    "torch.ops.higher_order.run_and_save_rng_state": (0, 1),
    "torch.ops.higher_order.graphsafe_run_with_rng_state": (0, 1),
    "torch.ops.higher_order.run_with_rng_state": (1, 2),
    "torch.ops.higher_order.with_effects": (1, 2),
    "torch.ops.higher_order.out_dtype": (0, 2),
}
"""Higher-order operators that call an operator which is passed to them -> the position of that operator among their
arguments, and the position at which its own arguments begin. Those arguments are checked."""


def _complaint_about_passed_operator(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return what is wrong with the arguments of an operator that is passed to another one, which calls it; '' if
    nothing."""
    position, first_argument = PASSED_OPERATORS.get(target, (len(args), 0))  # by default, behind all arguments
    if position >= len(args) or not isinstance(args[position], OpOverload):
        return ""
    # `rng_state` is for the operator that calls, not for the one that is passed.
    return call_complaint(
        args[position], args[first_argument:], {key: value for key, value in kwargs.items() if key != "rng_state"}
    )


@functools.cache
def checked_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that checks the arguments of a target's callable and calls it; while torch compiles, it does
    not check. A callable that is no target is returned as it is."""
    target = str(function) if isinstance(function, OpOverload) else _targets_of_plain_functions().get(function)
    if target is None:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            check_call(target, function, args, kwargs)
        return for_program(function, *args, **kwargs)  # what it raises is no defect of Backprint

    call.__name__ = target.replace(".", "_")
    return call


@functools.cache
def _targets_of_plain_functions() -> Mapping[Callable[..., Any], str]:
    """Return the targets that are not tensor operators, by callable."""
    targets = {}
    for target in PLAIN_TARGETS | HIGHER:
        with contextlib.suppress(AttributeError):  # an operator that this version of torch does not have
            targets[resolve(target)] = target
    return targets


def overload(name: str) -> Callable[..., Any]:
    """Return a registered operator by `namespace.name.overload`; ReplayError if this torch has none of that name."""
    space, packet, kind = name.split(".")
    try:
        operator_ = getattr(getattr(getattr(torch.ops, space), packet), kind)
    except (AttributeError, RuntimeError) as error:
        raise ReplayError(
            f"torch {torch.__version__} has no operator {space}::{packet}.{kind}: "
            "import the library that registers it, or use the torch that the sample's capture.json names"
        ) from error
    if not isinstance(operator_, OpOverload):
        raise ReplayError(f"{name!r} is not an operator but a {type(operator_).__name__}")
    return operator_


# ---- Values while a graph runs, and its guards


def value_evaluator(env: Mapping[str, Any], subgraphs: Mapping[str, Any]) -> Callable[[Value], Any]:
    """Return a function that evaluates Values. `env` has the results of steps so far and the inputs, by name, and
    `subgraphs` the callables of subgraphs."""

    def evaluate(value: Value) -> Any:
        """Return the object that a Value stands for; a leaf that is a Python value stands for itself."""
        match value:
            case Ref(name):
                return env[name]
            case List(items):
                return [evaluate(item) for item in items]
            case tuple():
                return tuple([evaluate(item) for item in value])
            case Atom(name):
                return getattr(torch, name)
            case Device(name):
                return torch.device(name)
            case Slice(start, stop, step):
                return slice(evaluate(start), evaluate(stop), evaluate(step))
            case Dict(pairs):
                return {evaluate(key): evaluate(item) for key, item in pairs}
            case Op(target):
                return resolve(target)
            case Sub(name):
                return subgraphs[name]
        return value

    return evaluate


def check_guard_step(step: Step, value: Any, expected: Any = None) -> None:
    """Raise GuardError unless a guard step holds for a value. `expected` is what it compares the value with; a guard on
    NaN has none."""
    check_guard(step.target, value, expected, show_step(step), line_text(step.source))


def check_guard(target: str, value: Any, expected: Any, text: str, where: str) -> None:
    """Raise GuardError unless a guard of the kind `target` holds; the message has the guard as `text`, and the line
    that it comes from as `where` (`line_text`)."""
    match target:
        case "assert_nan":
            holds, got, captured = value != value, value, "nan"
        case "assert_shape":
            holds, got, captured = tuple(value.shape) == tuple(expected), tuple(value.shape), expected
        case _:
            holds, got, captured = value == expected, value, expected
    if not holds:
        raise GuardError(
            f"guard `{text}` does not hold{where}: the capture took {captured}, these inputs give {got}. "
            "Capture again on inputs like these"
        )


def line_text(source: Source | None) -> str:
    """Return a text that names a line of the user's program at the end of a message; '' if the line is not known."""
    return f" at {source.at}: {source.code!r}" if source else ""

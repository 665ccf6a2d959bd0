"""Evaluate the Values of a running graph, and check its guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from backprint.errors import GuardError
from backprint.fx.operators import resolve
from backprint.graph.nouns import Atom, Device, Dict, List, Op, Ref, Slice, Source, Step, Sub, Value
from backprint.graph.text import show_step


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

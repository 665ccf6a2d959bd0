"""Which programs of a stranger need a process of their own: those with calls that no check of arguments makes safe.

`callables.txt` says of each function and method: `safe`, `checked` (called by way of `unsafe`), or `isolated` and why.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from backprint.graph.isolation import needs_isolation
from backprint.graphnet.code import Expr, FunctionCall, MethodCall, ModelProgram, located_expressions
from backprint.graphnet.read import GraphNetSample


@functools.cache
def callable_standings() -> Mapping[str, tuple[str, str]]:
    """The standing of each function and method, with the reason."""
    rows = {}
    for line in Path(__file__).with_name("callables.txt").read_text(encoding="ascii").splitlines():
        name, standing, *reason = line.split(" ", 2)
        rows[name] = (standing, "".join(reason))
    return rows


def calls_to_isolate(sample: GraphNetSample) -> list[str]:
    """The calls of a sample that are only safe in a process of its own, each with the reason."""
    if sample.graph is not None:
        return needs_isolation(sample.graph)
    return isolated_calls(sample.program) if sample.program is not None else []


def isolated_calls(program: ModelProgram) -> list[str]:
    """The same of a program."""
    return sorted({why_isolate_call(value) for _, value in located_expressions(program)} - {""})


def why_isolate_call(value: Expr) -> str:
    """Why an expression needs a process of its own; '' where it does not."""
    match value:
        case FunctionCall(target=name):
            return isolation_reason(name)
        case MethodCall(name=name):
            return isolation_reason(f"Tensor.{name}")
    return ""


def isolation_reason(name: str) -> str:
    """Why a function or method needs a process of its own; '' where it does not."""
    standing, reason = callable_standings().get(name, ("safe", ""))
    return f"{name} ({reason})" if standing == "isolated" else ""

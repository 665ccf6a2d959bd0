"""Which Programs of a stranger want a process of their own: those that call what no check of arguments makes safe.

`callables.txt` says of each function and method: `safe`, `checked` (called by way of `unsafe`), or `isolated` and why.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from backprint.graphnet.code import Call, Expr, Method, Program, values_of


@functools.cache
def standings() -> Mapping[str, tuple[str, str]]:
    """How each function and method stands, and why."""
    rows = {}
    for line in Path(__file__).with_name("callables.txt").read_text(encoding="ascii").splitlines():
        name, standing, *reason = line.split(" ", 2)
        rows[name] = (standing, "".join(reason))
    return rows


def needs_isolation(program: Program) -> list[str]:
    """What a Program calls that is only safe in a process of its own; each with why."""
    return sorted({why_isolated(value) for _, value in values_of(program)} - {""})


def why_isolated(value: Expr) -> str:
    """Why an expression wants a process of its own; '' where it does not."""
    match value:
        case Call(target=name):
            return called(name)
        case Method(name=name):
            return called(f"Tensor.{name}")
    return ""


def called(name: str) -> str:
    """The same, of a function or a method."""
    standing, reason = standings().get(name, ("safe", ""))
    return f"{name} ({reason})" if standing == "isolated" else ""

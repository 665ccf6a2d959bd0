"""`operators.txt`: the tensor operators that a graph may call, what each does, and whether untrusted graphs may call
it.

A row is `NAME FLAGS STANDING REASON`, as `scripts/operators.py` writes it; `-` stands for no flags.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STANDINGS = ("safe", "checked", "isolated")
"""`safe`: no argument that fits its schema is known to end or hang a process. `checked`: `checks/` looks at its
arguments as well, because the kernel trusts them. `isolated`: neither is enough, so a graph of a stranger that calls it
runs in a process of its own; the reason says why."""


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """Facts about one operator. Flags: `r` draws random numbers, `m` changes an argument, `v` returns a view."""

    flags: str
    standing: str
    reason: str = ""


def read_rows(text: str) -> dict[str, OperatorRow]:
    """The rows of a table's text."""
    rows = {}
    for line in text.splitlines():
        name, flags, standing, *reason = line.split(" ", 3)
        rows[name] = OperatorRow(flags.strip("-"), standing, *reason)
    return rows


def written(rows: Mapping[str, OperatorRow]) -> str:
    """The text of a table."""
    lines = (f"{name} {row.flags or '-'} {row.standing} {row.reason}".rstrip() for name, row in sorted(rows.items()))
    return "".join(line + "\n" for line in lines)


@functools.cache
def table() -> Mapping[str, OperatorRow]:
    """Every operator of the table."""
    return read_rows(Path(__file__).with_name("operators.txt").read_text(encoding="ascii"))


@functools.cache
def operators() -> Mapping[str, str]:
    """The tensor operators that a graph may call, with their flags."""
    return {name: row.flags for name, row in table().items()}

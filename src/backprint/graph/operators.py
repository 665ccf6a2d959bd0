"""`operators.txt`: the tensor operators that a graph may call, and what each does.

A row is `NAME FLAGS`, as `scripts/operators.py` writes it, or `NAME` alone. Flags: `r` draws random numbers, `m`
changes an argument, `v` returns a view.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path


def read_rows(text: str) -> dict[str, str]:
    """Return the operators of a table's text, with their flags."""
    return {name: flags for name, _, flags in (line.partition(" ") for line in text.splitlines())}


def text_of_rows(rows: Mapping[str, str]) -> str:
    """Return operators with their flags as the text of a table."""
    return "".join(f"{name} {flags}".rstrip() + "\n" for name, flags in sorted(rows.items()))


@functools.cache
def operators() -> Mapping[str, str]:
    """Return the tensor operators that a graph may call, with their flags."""
    return read_rows(Path(__file__).with_name("operators.txt").read_text(encoding="ascii"))

"""The nouns of a report: a Table of plain values, and a Report of Tables; and how each kind of value is spelled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and the kind of what stands below it: a key of `SPELLED`."""

    name: str
    kind: str = "text"

    @property
    def right(self) -> bool:
        """Whether its cells are numbers, which stand to the right."""
        return self.kind not in WORDS


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a sentence that says what is counted, headings and rows. `rows` can be gone through more than once."""

    title: str
    note: str
    columns: tuple[Column, ...]
    rows: Iterable[tuple[Cell, ...]]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to: facts, tables, the table of all samples, and `rows`, each with every column, for files."""

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    samples: Table
    fields: tuple[tuple[str, str], ...]
    rows: Callable[[], Iterator[dict[str, Any]]]


WORDS = ("text", "name", "verdict")


def with_thousands(value: float) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,.0f}"


def share(value: float) -> str:
    """A part of one; nothing but all is 100%, nothing but none is 0%."""
    return f"{min(99.9, math.floor(value * 1000) / 10):.1f}%" if 0 < value < 1 else f"{value:.0%}"


def seconds(value: float) -> str:
    """A time, with three digits or as hours, minutes and seconds."""
    if abs(value) < 100:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def size(value: float) -> str:
    """Bytes in the unit that leaves one to four digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 999.5 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def with_separators(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}"


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.2f}×"


def change(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+,.0f}" if value else "0"


SPELLED: dict[str, Callable[[Any], str]] = {
    "text": str,
    "name": str,
    "verdict": str,
    "count": with_thousands,
    "share": share,
    "seconds": seconds,
    "size": size,
    "number": with_separators,
    "times": times,
    "change": change,
}


def spell(cell: Cell, column: Column) -> str:
    """A cell for people; nothing where there is no value."""
    return "" if cell is None else SPELLED[column.kind](cell)

"""The nouns of a report: Tables of plain values, Figures, and a Report of both; how each kind of value is printed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

Cell = str | int | float | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SampleLink:
    """A word, and the path of a file of a sample, relative to the folder of the report."""

    word: str
    path: str


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and the kind of its cells: a key of `CELL_TEXTS`."""

    name: str
    kind: str = "text"

    @property
    def right(self) -> bool:
        """Whether its cells are numbers, which are aligned to the right."""
        return self.kind not in WORDS


def columns(text: str) -> tuple[Column, ...]:
    """Return the Columns that a text describes: one for each word, which is a heading (with `_` for a blank), and a
    colon and the kind of the cells unless they are texts. `family verdict:count` has a column of texts and one of
    counts."""
    parts = (word.partition(":") for word in text.split())
    return tuple(Column(name.replace("_", " "), kind or "text") for name, _, kind in parts)


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a sentence about the counts, headings and rows. `rows` can be iterated more than once."""

    title: str
    note: str
    columns: tuple[Column, ...]
    rows: Iterable[tuple[Cell, ...]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A title, a sentence, and a picture in SVG, whose texts are escaped already. Only HTML shows it."""

    title: str
    note: str
    svg: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A title, a sentence, and code, which HTML and Markdown show in its own lines."""

    title: str
    note: str
    code: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a run: facts, tables, figures and listings for a reader.

    `answer` is what a reader asks first, in a sentence, and stands above everything else.
    `rows` yields the rows of the report as a JSON or CSV file, and `fields` has the name and the kind of their columns.
    `samples` is the table of all samples. Only the HTML page has it, which can search it: in Markdown and in a terminal
    it would be as long as the corpus.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    samples: Table
    fields: tuple[tuple[str, str], ...]
    rows: Callable[[], Iterator[dict[str, Any]]]
    figures: tuple[Figure, ...] = ()
    listings: tuple[Listing, ...] = ()
    links: Callable[[str], tuple[SampleLink, ...]] = lambda sample: ()
    """Returns links to the files of a sample, whose id it is called with, for the cells that name the sample."""
    answer: str = ""


WORDS = ("text", "name", "sample", "samples", "verdict")
"""The kinds of cells that are texts. A `sample` is the id of one, and `samples` are the ids of several."""

NAMED = 3
"""How many of several samples a cell names."""


def first_names(names: tuple[str, ...]) -> str:
    """Return the first NAMED of several names, and how many more there are."""
    return ", ".join(names[:NAMED]) + count_of_further(names)


def count_of_further(names: tuple[str, ...]) -> str:
    """Return a text that says how many names there are after the first NAMED; '' if there are none."""
    return f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""


def _with_thousands(value: float) -> str:
    """Return an integer with thousands separators."""
    return f"{value:,.0f}"


def share(value: float) -> str:
    """Return a share as a percentage. It is rounded down, and at most 99.9%, so that 100% means all; 0% means none."""
    return f"{min(99.9, math.floor(value * 1000) / 10):.1f}%" if 0 < value < 1 else f"{value:.0%}"


def seconds(value: float) -> str:
    """Return a time, with three digits or as hours, minutes and seconds."""
    if not 100 <= abs(value) < math.inf:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def size(value: float) -> str:
    """Return bytes in the unit that leaves one to four digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 999.5 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def _three_digits(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.3g}"


def times(value: float) -> str:
    """Return a ratio."""
    return f"{value:.2f}×"


def change(value: float) -> str:
    """Return a difference with its sign."""
    return f"{value:+,.0f}" if value else "0"


CELL_TEXTS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "name": str,
    "sample": str,
    "samples": first_names,
    "verdict": str,
    "count": _with_thousands,
    "share": share,
    "seconds": seconds,
    "size": size,
    "number": _three_digits,
    "times": times,
    "change": change,
}
"""The kinds of cells, each with the function that returns a cell as text."""


def cell_text(cell: Cell, column: Column) -> str:
    """Return a cell as text; '' if it has no value."""
    return "" if cell is None else CELL_TEXTS[column.kind](cell)


def one_line(text: str) -> str:
    """Return a text as one line of printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def date_text(time: object) -> str:
    """Return seconds since 1970 as a date; a value that is no number is returned unchanged."""
    if not isinstance(time, (int, float)):
        return str(time or "")
    return datetime.fromtimestamp(time, UTC).isoformat(sep=" ", timespec="seconds")


def encodable(text: object) -> str:
    """Return a text that can be encoded: JSON can hold lone surrogates."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def filled(tables: Iterable[Table]) -> Iterator[Table]:
    """Yield the tables that are not empty."""
    for table in tables:
        if any(True for _ in table.rows):
            yield table


def href(path: str) -> str:
    """Return a relative path as an address: percent-encoded, so that no name in it is a scheme or ends a quotation."""
    return quote(os.fsencode(path))


PARTS_OF_ONE_SAMPLE = re.compile(
    r"(?P<quote>['\"`]).*?(?P=quote)"  # what is quoted,
    r"|\b[A-Za-z_]\w*(\.\w+)+|\b[su]\d+\b|\b[Ll]_\w+"  # names with a path, symbols, GraphNet's names,
    r"|(?<![\w.])[-+]?\d[\d,.]*(e[-+]?\d+)?"  # and numbers
)
"""The parts of a note that differ between samples."""


def note_kind(note: str) -> str:
    """Replace the parts of a note that differ between samples by dots, so that equal notes can be counted."""
    return re.sub(r"…(, …)+", "…", PARTS_OF_ONE_SAMPLE.sub("…", one_line(note)))

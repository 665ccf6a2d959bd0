"""Table and Report, and the kinds of cells: how a value of each kind is written as text.

A *word* is a verdict or an outcome, such as `bitwise` or `slower`; its *tone* says how good that is: `good`, `fair`,
`quiet`, `warn` or `bad`, each with a color.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

# ------------------------------------------------------------------ values as text


def share(value: float) -> str:
    """Return a share as a percentage. It is rounded down, and at most 99.9%, so that 100% means all; 0% means none."""
    return f"{min(99.9, math.floor(value * 1000) / 10):.1f}%" if 0 < value < 1 else f"{value:.0%}"


def seconds(value: float) -> str:
    """Return a time: `1.23 s`, `2 min 05 s` from 100 s on, `1 h 02 min`."""
    if not 100 <= abs(value) < math.inf:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def size(value: float) -> str:
    """Return bytes in the unit that leaves one to four digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            # 1000 to 1023 without `.3g`, which writes them as 1e+03.
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 999.5 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def date_text(time: object) -> str:
    """Return seconds since 1970 as a date; a value that is no number is returned unchanged."""
    if not isinstance(time, (int, float)):
        return str(time or "")
    return datetime.fromtimestamp(time, UTC).isoformat(sep=" ", timespec="seconds")


def _items(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return several values in one text: `a; b`, and with names `x: 1; y: 2`."""
    rows = value.items() if isinstance(value, Mapping) else value
    return "; ".join(": ".join(map(str, row)) if isinstance(row, (tuple, list)) else str(row) for row in rows)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is written as text, whether it is a number (aligned to the right), and its type in Parquet."""

    text: Callable[[Any], str]
    number: bool
    arrow: str


KINDS: Mapping[str, Kind] = {
    "text": Kind(str, False, "text"),
    "name": Kind(str, False, "text"),
    "word": Kind(str, False, "text"),  # a verdict or an outcome: it has a color
    "path": Kind(str, False, "text"),  # of a file, relative to the page: it is a link there
    "detail": Kind(str, False, "text"),  # a reason: on a terminal it stands under the table
    "date": Kind(date_text, False, "number"),
    "flag": Kind(lambda value: "yes" if value else "no", False, "flag"),
    "count": Kind("{:,.0f}".format, True, "count"),
    "bytes": Kind(size, True, "count"),
    "number": Kind("{:.3g}".format, True, "number"),
    "digits": Kind(str, True, "text"),  # a number that is a text already
    "seconds": Kind(seconds, True, "number"),
    "share": Kind(share, True, "number"),
    "times": Kind("{:.2f}×".format, True, "number"),
    **{kind: Kind(_items, False, kind) for kind in ("texts", "pairs", "counts", "numbers", "words", "ports")},
}
"""The kinds of cells. The last are lists of texts, of (name, reason) and of ports, and mappings from names."""

TONES: Mapping[str, str] = {
    **dict.fromkeys(("bitwise", "faster", "right now", "the derivative now"), "good"),
    **dict.fromkeys(("good", "ok", "right", "derivative"), "good"),
    **dict.fromkeys(("close", "same", "unsure", "untimed"), "fair"),
    **dict.fromkeys(("undifferentiable", "random", "nondeterministic", "eager failed", "skipped"), "quiet"),
    **dict.fromkeys(("unproven", "unjudged", "not done", "cannot tell"), "warn"),
    **dict.fromkeys(("wrong", "failed", "refused", "crashed", "timeout", "out of memory"), "bad"),
    **dict.fromkeys(("wrong now", "stopped now", "not the derivative", "not the derivative now"), "bad"),
    "slower": "warn",
}
"""How good a verdict, an outcome or a change is: the color of its cell."""


def tone(word: str) -> str:
    """Return how good a word is, or '' for an unknown one. After a comma stands what it lacks: `bitwise, vacuous` is
    `warn`."""
    word_before, _, lack = word.partition(", ")
    tone_before = TONES.get(word_before, "")
    # `derivative` after the comma lacks nothing, and a word that is bad by itself stays bad.
    if tone_before == "bad" or lack in ("", "derivative"):
        return tone_before
    return "bad" if lack == "not the derivative" else "warn"


# ------------------------------------------------------------------ the nouns


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns and rows. `columns` has the name of each column and the kind of its cells, a key of KINDS; a
    page writes `_` as a blank. `rows` can be iterated more than once, and a cell that is None has no value."""

    title: str
    columns: Mapping[str, str]
    rows: Iterable[tuple[Any, ...]]
    note: str = ""
    shown: Collection[str] = ()
    """The columns that people are shown; all if it is empty. Files have all."""
    heads: bool = True
    """Whether people are shown the names of the columns."""

    def places(self) -> list[int]:
        """Return the places of the columns that people are shown."""
        return [place for place, name in enumerate(self.columns) if name in (self.shown or self.columns)]


def count_rows(table: Table) -> int:
    """Return how many rows a table has."""
    return len(table.rows) if isinstance(table.rows, Sized) else sum(1 for _ in table.rows)


def cell_text(value: Any, kind: str) -> str:
    """Return a cell as text; '' if it has no value."""
    return "" if value is None else KINDS[kind].text(value)


@dataclass(frozen=True, slots=True)
class Picture:
    """Numbers that people would rather look at, each series by its name: `draw` is a function of `pictures`."""

    title: str
    note: str
    draw: str
    series: Mapping[str, Sequence[float]]
    names: Sequence[str] = ()
    """What the values of a series belong to, where they have names."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to: the answer in a sentence, tables that sum up and say what is not good, and all rows.

    `facts` stand above the tables. `rows` is what a file in another format has, and the last table of a page.
    """

    title: str
    answer: str
    tables: tuple[Table, ...]
    rows: Table
    facts: Mapping[str, str] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()

"""A report on a terminal: tables that fit its width, the longest cut with a count. Files have all of it.

Names and messages in a report are not trusted: control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from textwrap import wrap
from typing import TYPE_CHECKING

from backprint.common.text import printable
from backprint.tools.report.nouns import Cell, Column, Report, Table, cell_text, one_line

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

MOST_ROWS = 12
"""The most rows of a table on a terminal."""


GAP = 2
"""Blanks between two columns."""

NARROW, NARROW_FIRST = 12, 28
"""A column of texts is no narrower than this, or than its longest cell; the first column has the names of rows."""


def on_terminal(report: Report, width: int) -> Iterator[RenderableType]:
    """Yield what a terminal shows of a report: the answer, the facts, and each table under its title."""
    from rich.text import Text

    yield Text(line_text(report.title), "bold")
    if report.answer:
        yield Text(line_text(report.answer))
    for name, value in report.facts:
        yield Text.assemble((f"{line_text(name)}: ", "dim"), line_text(value))
    for table in report.tables:
        yield Text()
        yield Text(line_text(table.title), "bold")
        yield from _table_on_terminal(table, width)


def _table_on_terminal(table: Table, width: int) -> Iterator[RenderableType]:
    """Yield a table without the columns that say nothing or do not fit, then what was left out of it."""
    from rich.table import Table as Grid
    from rich.text import Text

    rows = list(islice(table.rows, MOST_ROWS))
    count = sum(1 for _ in table.rows)
    zero = [place for place in range(len(table.columns)) if _says_nothing(table.columns[place], rows, place)]
    shown = [place for place in range(len(table.columns)) if place not in zero]
    texts = [
        [line_text(cell_text(cell, column)) for cell, column in zip(row, table.columns, strict=True)] for row in rows
    ]
    widths = fitted(table.columns, texts, shown, width)
    grid = Grid(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
    for place, cells in widths.items():
        column = table.columns[place]
        heading = Text("\n".join(wrap(column.name, cells)))
        justify: JustifyMethod = "right" if column.right else "left"
        grid.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis", width=cells)
    for row in texts:
        grid.add_row(*(Text(row[place]) for place in widths))
    yield grid
    if zero:
        yield Text(f"0 in each row: {', '.join(table.columns[place].name for place in zero)}", "dim")
    if unshown := [table.columns[place].name for place in shown if place not in widths]:
        yield Text(f"not shown, for want of width: {', '.join(unshown)}", "dim")
    if count > len(rows):
        yield Text(f"and {count - len(rows):,} more rows; -o FILE writes all", "dim")


def _says_nothing(column: Column, rows: Sequence[tuple[Cell, ...]], place: int) -> bool:
    """Whether a column of counts is 0 in every row that is shown."""
    return column.kind == "count" and all(row[place] == 0 for row in rows)


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], shown: list[int], width: int) -> dict[int, int]:
    """Return the columns that fit, with their widths. Numbers are never cut; texts share what is left. Where that is
    too little, the last texts are left out, then the last numbers."""
    from rich.cells import cell_len

    whole = {
        place: max(cell_len(text) for text in (*columns[place].name.split(), *(row[place] for row in rows)))
        for place in shown
    }
    most = {place: NARROW_FIRST if place == shown[0] else NARROW for place in shown}
    least = {place: cells if columns[place].right else min(cells, most[place]) for place, cells in whole.items()}
    for place in sorted(shown[1:], key=lambda place: (columns[place].right, -place)):
        if sum(least.values()) + GAP * (len(least) - 1) <= width:
            break
        del least[place]
    free = width - sum(least.values()) - GAP * (len(least) - 1)
    for place in least:
        more = max(0, min(free, whole[place] - least[place]))
        least[place], free = least[place] + more, free - more
    return least


def line_text(text: str) -> str:
    """Return a text in one printable line."""
    return printable(one_line(text))

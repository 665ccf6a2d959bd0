"""A table on a terminal: columns that fit its width. In a pipe: a line a row, with tabs between its cells.

Nothing is cut: texts are folded, and what has no room is named. Control characters are escaped.

A Table has the name of each column with the *kind* of its cells, a key of KINDS (`name`, `word`, `count`, `detail`, …),
and its rows. A *place* is the index of a column; `table.places()` are those of the columns that people are shown. A
*width* counts cells of the terminal, and None stands for a pipe. `cell_text(value, kind)` is a cell as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from backprint.common.text import printable
from backprint.table.nouns import KINDS, Report, Table, cell_text, count_rows, tone

MOST_ROWS = 12
"""The most rows of a report's table on a terminal."""

GAP = 2
"""Blanks between two columns."""

NARROW, NARROW_FIRST = 12, 24
"""A column of texts is no narrower than this, or than its longest cell; the first column has the names of rows."""

STYLES = {"good": "green", "fair": "cyan", "quiet": "dim", "warn": "yellow", "bad": "red", "": ""}


def print_report(report: Report, file: IO[str], width: int | None) -> None:
    """Print the answer, the facts and the tables of a report. `report.rows`, the table with all rows, is for files
    alone."""
    print_texts([(text, style) for text, style in ((report.title, "bold"), (report.answer, "")) if text], file, width)
    print_texts([(f"{name}: {value}", "dim") for name, value in report.facts.items()], file, width)
    for table in filter(count_rows, report.tables):
        print_table(table, file, width, MOST_ROWS)


def print_table(table: Table, file: IO[str], width: int | None, most_rows: int | None = None) -> None:
    """Print a table under its title, of at most so many rows (None: of all); in a pipe, of all."""
    if table.title:
        print_texts([("", ""), (table.title, "bold")], file, width)
    if width is None:
        file.writelines(f"{line}\n" for line in lines_with_tabs(table))
    else:
        _print_grid(table, file, width, most_rows)


def print_texts(texts: Sequence[tuple[str, str]], file: IO[str], width: int | None) -> None:
    """Print texts, each with its style of `rich` ('' for none); a terminal wraps them at its width."""
    if width is None:  # rich would write tabs as blanks
        file.writelines(f"{line_text(text)}\n" for text, _ in texts)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, width=width)
    for text, style in texts:
        console.print(Text(line_text(text), style))


def lines_with_tabs(table: Table) -> Iterator[str]:
    """Yield the headings, then a line a row."""
    kinds, places = list(table.columns.values()), table.places()
    names = list(table.columns)
    if table.heads:
        yield "\t".join(line_text(names[place]) for place in places)
    for row in table.rows:
        yield "\t".join(line_text(cell_text(row[place], kinds[place])) for place in places)


def _print_grid(table: Table, file: IO[str], width: int, most_rows: int | None) -> None:
    """Print the columns that say something and fit, then the reasons, a line a row, and what was left out: columns that
    are 0 in each row, those that have no room, and further rows. Columns without a text in any row are left out without
    a word."""
    from rich.console import Console

    names, kinds = list(table.columns), list(table.columns.values())
    rows, count = list(islice(table.rows, most_rows)), count_rows(table)
    # A table that is printed whole keeps its columns of zeros.
    all_zero = [
        place
        for place in table.places()
        if most_rows is not None and kinds[place] == "count" and not any(row[place] for row in rows)
    ]
    texts = [[line_text(cell_text(cell, kind)) for cell, kind in zip(row, kinds, strict=True)] for row in rows]
    all_blank = {place for place in table.places() if rows and not any(row[place] for row in texts)}
    # Reasons (`detail`) stand under the grid.
    wanted = [place for place in table.places() if place not in {*all_zero, *all_blank} and kinds[place] != "detail"]
    widths = fit_columns(table.columns, texts, wanted, width)
    Console(file=file, highlight=False, width=width).print(_grid_of(table, texts, widths))
    print_texts([(text, "") for text in _reasons(table, rows)], file, width)
    # What is not in the grid, by the words before it.
    left_out = {
        "0 in each row: ": ", ".join(names[place] for place in all_zero if rows),
        "not shown, for want of width: ": ", ".join(names[place] for place in wanted if place not in widths),
        "and ": f"{count - len(rows):,} more rows; -o FILE.html has all" if count > len(rows) else "",
    }
    print_texts(
        [(label + omitted.replace("_", " "), "dim") for label, omitted in left_out.items() if omitted], file, width
    )


def _grid_of(table: Table, texts: Sequence[Sequence[str]], widths: Mapping[int, int]) -> Any:
    """Return rows of `texts` as a table of `rich`, with the columns at the places in `widths`, which has their
    widths."""
    from rich.table import Table as Grid
    from rich.text import Text

    names, kinds = list(table.columns), list(table.columns.values())
    # The padding is above, right of, below and left of a cell.
    grid = Grid(box=None, pad_edge=False, header_style="bold", show_header=table.heads, padding=(0, GAP, 0, 0))
    for place, column_width in widths.items():
        is_number = KINDS[kinds[place]].number
        heading = Text(line_text(names[place].replace("_", " ")))
        grid.add_column(heading, justify="right" if is_number else "left", overflow="fold", width=column_width)
    for row in texts:
        grid.add_row(
            *(Text(row[place], STYLES[tone(row[place])] if kinds[place] == "word" else "") for place in widths)
        )
    return grid


def _reasons(table: Table, rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Yield the reasons of rows, the cells of kind `detail`, each after the cells of kind `name` of its row."""
    for row in rows:
        cells = [(kind, str(cell)) for kind, cell in zip(table.columns.values(), row, strict=True) if cell]
        names = ", ".join(text for kind, text in cells if kind == "name")
        yield from (f"{names}: {text}" for kind, text in cells if kind == "detail")


def fit_columns(
    columns: Mapping[str, str], rows: Sequence[Sequence[str]], wanted: list[int], width: int
) -> dict[int, int]:
    """Return the places of the columns that fit into `width`, with their widths. Numbers are never broken; texts get
    what is left, from the first on. Where that is too little, the last columns are left out, those of names after all
    others, and never the first.

    `rows` are texts, and `wanted` the places of the columns that are asked for."""
    from rich.cells import cell_len

    names, kinds = list(columns), list(columns.values())
    # The width that leaves a column whole: of its longest cell, or of the longest word of its heading, which is folded.
    full_widths = {
        place: max(cell_len(text) for text in (*names[place].split("_"), *(row[place] for row in rows)))
        for place in wanted
    }
    floors = {place: NARROW_FIRST if place == wanted[0] else NARROW for place in wanted}
    widths = {
        place: full_width if KINDS[kinds[place]].number else min(full_width, floors[place])
        for place, full_width in full_widths.items()
    }
    # From the last column to the second, names at the end: each is left out until the others fit.
    for place in sorted(wanted[1:], key=lambda place: (kinds[place] == "name", -place)):
        if sum(widths.values()) + GAP * (len(widths) - 1) <= width:
            break
        del widths[place]
    free = width - sum(widths.values()) - GAP * (len(widths) - 1)
    for place in widths:
        added = max(0, min(free, full_widths[place] - widths[place]))
        widths[place], free = widths[place] + added, free - added
    return widths


def line_text(text: str) -> str:
    """Return a text in one line, in which a control character is spelled out."""
    return printable(" ".join(text.split()))

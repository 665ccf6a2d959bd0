"""A report as a notebook shows it: a piece of HTML of one or a few tables, small, for light and dark.

    html_of(Report("softmax: good", "42 comparisons", (), Table("", {"check": "name", "verdict": "word"}, rows)))

It stands inside somebody's page, whose theme is not known: text has the color of the page, and the color of a word can
be read on white and on black. There is no script and nothing from elsewhere, and every text is escaped, by `text`.

A Table has the name of each column with the *kind* of its cells, a key of KINDS (`name`, `word`, `count`, …), and its
rows. `table.places()` are the indexes of the columns that people are shown, and `cell_text(value, kind)` is a cell as
text.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import islice

from backprint.common.text import printable
from backprint.table.nouns import KINDS, Report, Table, cell_text, count_rows, tone
from backprint.table.page import heading, text

MOST_ROWS = 60
"""The most rows of a table that a notebook shows."""

COLORS = {"good": "#17865a", "fair": "#0e829a", "warn": "#b26a00", "bad": "#dc3b30", "quiet": "#7a848f"}
"""The color of a word by its tone: 3.5 times as bright or as dark as white and as black, at least."""

CELL = "padding:2px 10px;vertical-align:top;max-width:34rem;overflow-wrap:break-word"
LEFT, RIGHT = f"text-align:left;{CELL}", f"text-align:right;white-space:nowrap;{CELL}"


def html_of(report: Report, lines: Sequence[str] = ()) -> str:
    """Return a report as a piece of HTML: its title, its answer, its tables, its rows up to MOST_ROWS, and `lines` as
    they stand."""
    return f"<div>{''.join(_pieces(report, lines))}</div>"


def _pieces(report: Report, lines: Sequence[str]) -> Iterator[str]:
    """Yield a report in pieces."""
    if report.title or report.answer:
        yield f"<p><b>{text(report.title)}</b> {text(report.answer)}</p>"
    for name, value in report.facts.items():
        yield f"<p>{text(name)}: {text(value)}</p>"
    for table in (*report.tables, report.rows):
        if count_rows(table):
            yield from _table(table)
    if lines:
        written = "\n".join(html.escape(printable(line, lines=True)) for line in lines)
        yield f'<pre style="white-space:pre-wrap">{written}</pre>'


def _table(table: Table) -> Iterator[str]:
    """Yield a table under its title, without columns that are empty in each row."""
    names, kinds = list(table.columns), list(table.columns.values())
    rows, count = list(islice(table.rows, MOST_ROWS)), count_rows(table)
    texts = [[cell_text(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in rows]
    places = [place for place in table.places() if any(row[place] for row in texts)]
    if table.title:
        yield f"<p><b>{text(table.title)}</b> {text(table.note)}</p>"
    yield "<table>"
    if table.heads:
        heads = "".join(f'<th style="{_style(kinds[place])}">{text(heading(names[place]))}</th>' for place in places)
        yield f"<thead><tr>{heads}</tr></thead>"
    yield "<tbody>"
    for row in texts:
        yield f"<tr>{''.join(_cell(row[place], kinds[place]) for place in places)}</tr>"
    yield "</tbody></table>"
    if count > len(rows):
        yield f"<p>and {count - len(rows):,} more rows</p>"


def _style(kind: str) -> str:
    """Return the style of a cell of this kind."""
    return RIGHT if KINDS[kind].number or kind == "digits" else LEFT


def _cell(shown: str, kind: str) -> str:
    """Return a cell; a word has the color of its tone."""
    color = COLORS.get(tone(shown)) if kind == "word" else None
    style = f"{_style(kind)};color:{color};font-weight:600" if color else _style(kind)
    return f'<td style="{style}">{text(shown)}</td>'

"""Render a report as Markdown. Strangers' texts stay in their cells, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backprint.report.nouns import Column, Report, Table, spell
from backprint.report.rows import one_line

SPECIAL = re.compile(r"[\\`*<>|~&]|(?<![^\W_])_+|_+(?![^\W_])|!(?=\[)|\](?=[(\[:])|(?<![\w/])[@#](?=\w)")
"""What would be more than itself in a cell: markup, entities, links, images, mentions, table borders."""


def render(report: Report) -> Iterator[str]:
    """Yield the whole report in pieces."""
    yield f"# {escaped(report.title)}\n\n"
    yield from (f"- **{escaped(name)}**: {escaped(value)}\n" for name, value in report.facts)
    for table in report.tables:
        yield from section(table)


def section(table: Table) -> Iterator[str]:
    """Yield one table under its title."""
    yield f"\n## {escaped(table.title)}\n"
    yield f"{escaped(table.note)}\n\n" if table.note else "\n"
    yield line(escaped(column.name) for column in table.columns)
    yield line("---:" if column.right else "---" for column in table.columns)
    for row in table.rows:
        yield line(cell(value, column) for value, column in zip(row, table.columns, strict=True))


def line(cells: Iterator[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def cell(value: str | int | float | None, column: Column) -> str:
    return escaped(spell(value, column))


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return SPECIAL.sub(lambda found: "".join(f"\\{letter}" for letter in found[0]), one_line(text))

"""Render a report as Markdown. Strangers' texts stay in their cells, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backprint.plain import printable
from backprint.report.nouns import Column, Listing, Report, Table, spell
from backprint.report.rows import one_line

SPECIAL = re.compile(r"[\\`*<>|~&]|(?<![^\W_])_+|_+(?![^\W_])|!(?=\[)|\](?=[(\[:])|(?<![\w/])[@#](?=\w)")
"""What would be more than itself in a cell: markup, entities, links, images, mentions, table borders."""

BACKTICKS = re.compile(r"`+")


def render(report: Report) -> Iterator[str]:
    """Yield the whole report in pieces."""
    yield f"# {escaped(report.title)}\n\n"
    yield from (f"- **{escaped(name)}**: {escaped(value)}\n" for name, value in report.facts)
    for table in report.tables:
        yield from section(table)
    for listing in report.listings:
        yield from fenced(listing)


def section(table: Table) -> Iterator[str]:
    """Yield one table under its title."""
    yield f"\n## {escaped(table.title)}\n"
    yield f"{escaped(table.note)}\n\n" if table.note else "\n"
    yield line(escaped(column.name) for column in table.columns)
    yield line("---:" if column.right else "---" for column in table.columns)
    for row in table.rows:
        yield line(cell(value, column) for value, column in zip(row, table.columns, strict=True))


def fenced(listing: Listing) -> Iterator[str]:
    """Yield code under its title; the fence is longer than any in the code."""
    code = printable(listing.code.strip("\n"), lines=True)
    fence = "`" * max(3, 1 + max(map(len, BACKTICKS.findall(code)), default=0))
    yield f"\n## {escaped(listing.title)}\n{escaped(listing.note)}\n\n"
    yield f"{fence}{listing.language}\n{code}\n{fence}\n"


def line(cells: Iterator[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def cell(value: str | int | float | None, column: Column) -> str:
    return escaped(spell(value, column))


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return SPECIAL.sub(lambda found: "".join(f"\\{letter}" for letter in found[0]), one_line(text))

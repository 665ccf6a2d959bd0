"""Render a report as Markdown. Strangers' texts stay in their cells, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backprint.plain import printable
from backprint.report.nouns import NAMED, Cell, Column, Listing, Report, Table, href, more_than, one_line, spell

SPECIAL = re.compile(r"[\\`*<>|~&]|(?<![^\W_])_+|_+(?![^\W_])|!(?=\[)|\](?=[(\[:])|(?<![\w/])[@#](?=\w)")
"""What would be more than itself in a cell: markup, entities, links, images, mentions, table borders."""

IN_LINKS = re.compile(rf"{SPECIAL.pattern}|[\[\]]")
"""The same in the text of a link, which a bracket could end."""

BACKTICKS = re.compile(r"`+")


def render(report: Report) -> Iterator[str]:
    """Yield the whole report in pieces."""
    yield f"# {escaped(report.title)}\n\n"
    yield from (f"- **{escaped(name)}**: {escaped(value)}\n" for name, value in report.facts)
    for table in report.tables:
        yield from section(table, report)
    for listing in report.listings:
        yield from fenced(listing)


def section(table: Table, report: Report) -> Iterator[str]:
    """Yield one table under its title."""
    yield f"\n## {escaped(table.title)}\n"
    yield f"{escaped(table.note)}\n\n" if table.note else "\n"
    yield line(escaped(column.name) for column in table.columns)
    yield line("---:" if column.right else "---" for column in table.columns)
    for row in table.rows:
        yield line(cell(*each, report) for each in zip(row, table.columns, strict=True))


def fenced(listing: Listing) -> Iterator[str]:
    """Yield code under its title; the fence is longer than any in the code."""
    code = printable(listing.code.strip("\n"), lines=True)
    fence = "`" * max(3, 1 + max(map(len, BACKTICKS.findall(code)), default=0))
    yield f"\n## {escaped(listing.title)}\n{escaped(listing.note)}\n\n"
    yield f"{fence}{listing.language}\n{code}\n{fence}\n"


def line(cells: Iterator[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def cell(value: Cell, column: Column, report: Report) -> str:
    """Return one cell; samples have links."""
    if isinstance(value, tuple):
        return ", ".join(linked_sample(name, report, 1) for name in value[:NAMED]) + more_than(value)
    if column.kind == "sample" and isinstance(value, str):
        return linked_sample(value, report)
    return escaped(spell(value, column))


def linked_sample(sample: str, report: Report, most: int | None = None) -> str:
    """Return the name of a sample as a link to its code, and its other files beside it; `most` links in all."""
    found = [(each.word, href(each.path)) for each in report.links(sample)[:most]]
    if not found:
        return escaped(sample)
    name = f"[{escaped(sample, IN_LINKS)}]({found[0][1]})"
    return f"{name} " + " ".join(f"[{word}]({path})" for word, path in found[1:]) if found[1:] else name


def escaped(text: str, special: re.Pattern[str] = SPECIAL) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return special.sub(lambda found: "".join(f"\\{letter}" for letter in found[0]), one_line(text))

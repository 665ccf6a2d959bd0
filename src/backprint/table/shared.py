"""A report that can be passed on: paths of this machine in it are relative to the report, or the last name of them.

    Table cell   '/home/me/work/run/samples/mlp: no such operator'
    in run/      'samples/mlp: no such operator'
    elsewhere    'mlp: no such operator'

A page of a report is shared; its rows as a file for programs keep what was measured.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backprint.table.nouns import Report, Table, count_rows

ABSOLUTE = re.compile(r"(?<![\w:/.~%-])(?:/[^\s/:;,'\"`()\[\]{}<>|=]+){2,}/?")
"""An absolute path of two names or more in a text; what follows `:` or `/`, as in an address of the web, is none."""


def shared(report: Report, base: Path) -> Report:
    """Return a report whose texts name no absolute path; `base` is the folder that it is written to."""

    def without(text: str) -> str:
        return without_paths(text, base)

    def of_table(table: Table) -> Table:
        return replace(table, title=without(table.title), note=without(table.note), rows=_Rows(table, base))

    return replace(
        report,
        title=without(report.title),
        answer=without(report.answer),
        facts={name: without(value) for name, value in report.facts.items()},
        tables=tuple(map(of_table, report.tables)),
        rows=of_table(report.rows),
        pictures=tuple(
            replace(
                picture,
                names=[without(name) for name in picture.names],
                series={without(name): values for name, values in picture.series.items()},
            )
            for picture in report.pictures
        ),
    )


def without_paths(text: str, base: Path) -> str:
    """Return a text in which each absolute path is relative to `base` if it is in it, else its last name."""
    root = os.path.abspath(base)

    def name(match: re.Match[str]) -> str:
        place = os.path.normpath(match[0])
        for folder in {root, os.path.realpath(root)}:
            if place.startswith(f"{folder}{os.sep}"):
                return place[len(folder) + 1 :]
        return os.path.basename(place)

    return ABSOLUTE.sub(name, text)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a table with paths that can be shared, made at each iteration."""

    table: Table
    base: Path

    def __len__(self) -> int:
        return count_rows(self.table)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (tuple(_cell(value, self.base) for value in row) for row in self.table.rows)


def _cell(value: Any, base: Path) -> Any:
    """Return a cell with its texts changed, also those in lists and mappings."""
    match value:
        case str():
            return without_paths(value, base)
        case Mapping():
            return {_cell(key, base): _cell(item, base) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_items(value, base)) if type(value) in (list, tuple) else value
    return value


def _items(values: Iterable[Any], base: Path) -> Iterator[Any]:
    return (_cell(value, base) for value in values)

"""The formats, each a name and a row; files are written by a rename, so that they are never partial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backprint.errors import UsageError
from backprint.report import html, markdown
from backprint.report.files import render_csv, write_parquet
from backprint.report.nouns import Report
from backprint.whole_file import whole_file


def encoded(render: Callable[[Report], Iterator[str]]) -> Callable[[Report, BinaryIO], None]:
    """Turn a renderer of text into one that writes bytes."""

    def write(report: Report, file: BinaryIO) -> None:
        for piece in render(report):
            file.write(piece.encode())

    return write


@dataclass(frozen=True, slots=True)
class ReportFormat:
    """How a report is written, the file endings of the format, and whether a terminal can show it."""

    write: Callable[[Report, BinaryIO], None]
    endings: tuple[str, ...]
    text: bool = True


FORMATS = {
    "markdown": ReportFormat(encoded(markdown.render), (".md", ".markdown")),
    "html": ReportFormat(encoded(html.render), (".html", ".htm")),
    "csv": ReportFormat(encoded(render_csv), (".csv",)),
    "parquet": ReportFormat(write_parquet, (".parquet", ".pq"), text=False),
}


def format_of(name: str | None, path: Path | None) -> str:
    """Return the requested format, else that of the file's name, else Markdown."""
    if name is not None:
        return name
    if path is None:
        return "markdown"
    for known, format in FORMATS.items():
        if path.suffix.lower() in format.endings:
            return known
    raise UsageError(f"{path}: no format is known by {path.suffix or 'no ending'!r}: pass --format {'|'.join(FORMATS)}")


def write_report(report: Report, format: str, path: Path) -> None:
    """Write a file beside its place, then rename it."""
    with whole_file(path) as file:
        FORMATS[format].write(report, file)

"""What the verbs that report have in common: their options, and writing a report to a file or to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.options import F, all_of
from backprint.cli.say import echo, width, wipe

if TYPE_CHECKING:
    from backprint.table.nouns import Report


def report_options(row: str) -> Callable[[F], F]:
    """Add the options of a verb that reports; CSV, Parquet and JSON have a `row` each."""
    options = (
        click.option(
            "--format",
            "format",
            type=click.Choice(["html", "csv", "json", "parquet"]),
            help=f"What to write; else what FILE's ending says. CSV, JSON lines and Parquet have a row a {row}.",
        ),
        click.option(
            "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to; else to the terminal."
        ),
        click.option("--json", "as_json", is_flag=True, help=f"One JSON object a {row}, every column."),
    )
    return all_of(options)


def write_or_print(
    make: Callable[[], Report], format: str | None, output: Path | None, as_json: bool, title: str
) -> Report:
    """Make a report, and write it to a file or print it; return it."""
    from backprint.errors import UsageError
    from backprint.table.files import FORMATS, format_of, write_report
    from backprint.table.terminal import print_report

    if as_json and (format or output):
        raise UsageError("--json prints to the terminal: pass either it, or --format and -o")
    if format == "parquet" and output is None:
        raise UsageError("--format parquet is not text, which a terminal could show: write it to a file, -o FILE")
    chosen = "json" if as_json else format or (format_of(output) if output is not None else None)
    report = make()
    wipe()
    if output is not None and chosen is not None:
        write_report(report, chosen, output)
        echo(report.answer)
        echo(f"{chosen} {title} in {output}", err=True)
    elif chosen is not None:
        for piece in FORMATS[chosen](report):
            sys.stdout.buffer.write(piece.encode())
        sys.stdout.flush()
    else:
        print_report(report, sys.stdout, width())
    return report

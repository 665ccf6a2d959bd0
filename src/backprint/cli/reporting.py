"""What the verbs that report have in common: their options, and writing a report to a file or to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.options import F, all_of
from backprint.cli.say import console, echo

if TYPE_CHECKING:
    from backprint.tools.report.nouns import Report


def report_options(row: str) -> Callable[[F], F]:
    """Add the options of a verb that reports; CSV, Parquet and JSON have a `row` each."""
    options = (
        click.option(
            "--format",
            "format",
            type=click.Choice(["markdown", "html", "csv", "parquet"]),
            help=f"What to write; else what FILE's ending says, else markdown. CSV and Parquet have a row a {row}.",
        ),
        click.option(
            "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to; else to the terminal."
        ),
        click.option("--json", "as_json", is_flag=True, help=f"One JSON object a {row}, every column."),
    )
    return all_of(options)


def write_or_print(
    make: Callable[[], Report], format: str | None, output: Path | None, as_json: bool, title: str
) -> None:
    """Make a report, and write it to a file or print it."""
    from backprint.errors import UsageError
    from backprint.tools.report.formats import FORMATS, format_of, json_lines, write_report

    if as_json and (format or output):
        raise UsageError("--json prints to the terminal: pass either it, or --format and -o")
    chosen = format_of(format, output)
    if not (as_json or output or FORMATS[chosen].text):
        raise UsageError(f"--format {chosen} is not text, which a terminal could show: write it to a file, -o FILE")
    report = make()
    if as_json:
        for line in json_lines(report):
            echo(line.rstrip("\n"))
    elif output is not None:
        write_report(report, chosen, output)
        if report.answer:
            echo(report.answer)
        echo(f"{chosen} {title} in {output}", err=True)
    elif format is None and sys.stdout.isatty():
        from backprint.tools.report.terminal import on_terminal

        terminal = console()
        for shown in on_terminal(report, terminal.width):
            terminal.print(shown)
    else:
        FORMATS[chosen].write(report, sys.stdout.buffer)
        sys.stdout.flush()

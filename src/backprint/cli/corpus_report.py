"""`backprint corpus report OUT`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from backprint.cli.say import echo


@click.command("report")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format",
    type=click.Choice(["markdown", "html", "csv", "parquet"]),
    help="What to write; by default what FILE's ending says, else markdown. CSV and Parquet have a row a sample.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to; else to the terminal.")
@click.option("--against", type=click.Path(path_type=Path), metavar="OUT", help="An earlier run to compare with.")
@click.option("--unique", is_flag=True, help="Count duplicates (the same graphs) once, by their worst verdict.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a sample, every column of the run.")
def command(
    out: Path, format: str | None, output: Path | None, against: Path | None, unique: bool, as_json: bool
) -> None:
    """Report the results of a corpus run: verdicts by family and cause, times, sizes, power, duplicates, samples that
    are not good.

    OUT is the folder of the run, which may still be running. Nothing in it is changed.
    """
    from backprint.errors import UsageError
    from backprint.report.against import against as compared
    from backprint.report.files import json_lines
    from backprint.report.rows import RunView
    from backprint.report.tables import report
    from backprint.report.write import FORMATS, format_of, write_report

    if as_json and (format or output):
        raise UsageError("--json prints to the terminal: pass either it, or --format and -o")
    chosen = format_of(format, output)
    made = report(RunView(out), unique)
    if against is not None:
        made = compared(made, RunView(against), RunView(out))
    if as_json:
        for line in json_lines(made):
            echo(line.rstrip("\n"))
    elif output is not None:
        write_report(made, chosen, output)
        echo(f"{chosen} report of {out} in {output}", err=True)
    elif not FORMATS[chosen].text:
        raise UsageError(f"--format {chosen} is not text, which a terminal could show: write it to a file, -o FILE")
    else:
        FORMATS[chosen].write(made, sys.stdout.buffer)
        sys.stdout.flush()

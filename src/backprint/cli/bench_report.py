"""`backprint bench report RUN`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.say import echo

if TYPE_CHECKING:
    from backprint.benching.runs import BenchRun
    from backprint.report.nouns import Report


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format",
    type=click.Choice(["markdown", "html", "csv", "parquet"]),
    help="What to write; by default what FILE's ending says, else markdown. CSV and Parquet have a row a cell.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to; else to the terminal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a cell, every column.")
@click.option(
    "--logs", type=click.Path(path_type=Path), metavar="FOLDER", help="Write GraphNet's log of each compiler."
)
def command(run: Path, format: str | None, output: Path | None, as_json: bool, logs: Path | None) -> None:
    """Report the results of a bench run: outcomes and speedups of each compiler, scores S(t) and ES(t) with their
    curves, failures by reason, wrong answers, compile times, memory, roofline.

    RUN is the folder of the run, which may still be running; or GraphNet's logs of a bench, one file, or a folder of
    several. Nothing in it is changed.
    """
    from backprint.benching.reports import report_of
    from backprint.benching.runs import read_run
    from backprint.benching.scored_cells import write_run_logs

    if logs is not None:
        for place in write_run_logs(read_run(run), logs):
            echo(f"GraphNet log in {place}", err=True)
    if logs is None or format or output or as_json:
        write_or_print(report_of(run), format, output, as_json, f"report of {run}")


def write_page(run: BenchRun) -> Path:
    """Write the report of a run into its folder; return the page's path."""
    from backprint.benching.reports import bench_report
    from backprint.report.write import write_report

    page = run.place / "report.html"
    write_report(bench_report(run), "html", page)
    return page


def write_or_print(report: Report, format: str | None, output: Path | None, as_json: bool, title: str) -> None:
    """Write a report to a file, or print it."""
    from backprint.errors import UsageError
    from backprint.report.files import json_lines
    from backprint.report.write import FORMATS, format_of, write_report

    if as_json and (format or output):
        raise UsageError("--json prints to the terminal: pass either it, or --format and -o")
    chosen = format_of(format, output)
    if as_json:
        for line in json_lines(report):
            echo(line.rstrip("\n"))
    elif output is not None:
        write_report(report, chosen, output)
        echo(f"{chosen} {title} in {output}", err=True)
    elif not FORMATS[chosen].text:
        raise UsageError(f"--format {chosen} is not text, which a terminal could show: write it to a file, -o FILE")
    else:
        FORMATS[chosen].write(report, sys.stdout.buffer)
        sys.stdout.flush()

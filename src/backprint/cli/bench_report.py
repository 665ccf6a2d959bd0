"""`backprint bench report RUN...`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.reporting import report_options, write_or_print
from backprint.cli.say import echo
from backprint.errors import UsageError

if TYPE_CHECKING:
    from backprint.table.nouns import Report
    from backprint.tools.bench.runs import BenchRun

NOTHING = 3
"""The exit code where nothing was looked at."""


@click.command("report")
@click.argument("runs", nargs=-1, required=True, metavar="[OLD]... RUN", type=click.Path(path_type=Path))
@click.option(
    "--threshold",
    type=click.FloatRange(0, min_open=True),
    default=0.05,
    show_default=True,
    help="Of several runs: how much slower or faster, beyond the noise, is a change.",
)
@report_options("cell")
@click.option(
    "--logs", type=click.Path(path_type=Path), metavar="FOLDER", help="Write GraphNet's log of each compiler."
)
def command(
    runs: tuple[Path, ...], threshold: float, format: str | None, output: Path | None, as_json: bool, logs: Path | None
) -> None:
    """Report a bench run: which compiler is right, how fast it is, what failed and why. Of several runs, the oldest
    first: what became wrong, stopped, slower or faster, beyond the noise.

    RUN is the folder of a run, which may still be running; or GraphNet's logs of a bench, one file, or a folder of
    several. Nothing in it is changed. Of several runs, the exit code is 1 if a cell is wrong, stopped or slower in the
    newest, and was not in the one before it, or in the oldest. It is 3 if there is no cell, or none that all have.
    """
    from backprint.table.nouns import count_rows
    from backprint.tools.bench.compare import history_of, history_report
    from backprint.tools.bench.runs import read_run
    from backprint.tools.bench.scored import write_run_logs

    if logs is not None:
        if len(runs) > 1:
            raise UsageError("--logs writes the logs of one run: name one RUN")
        for place in write_run_logs(read_run(runs[0]), logs):
            echo(f"GraphNet log in {place}", err=True)
        if not (format or output or as_json):
            return
    if len(runs) == 1:
        report = write_or_print(lambda: report_of(runs[0]), format, output, as_json, f"report of {runs[0]}")
        if not count_rows(report.rows):
            raise SystemExit(NOTHING)
        return
    known = [read_run(run) for run in runs]
    try:
        history = history_of(known, threshold=threshold)
    except UsageError as error:  # they have no cell in common
        echo(f"backprint: {error}", err=True)
        raise SystemExit(NOTHING) from None
    title = f"comparison of {' and '.join(map(str, runs))}"
    write_or_print(lambda: history_report(history), format, output, as_json, title)
    if history.regressed:
        raise SystemExit(1)


def report_of(path: Path) -> Report:
    """Return the report of a run's folder, of a GraphNet log, or of a folder of such logs."""
    from backprint.tools.bench.graphnet_report import report_of_logs
    from backprint.tools.bench.reports import bench_report
    from backprint.tools.bench.runs import META, read_run

    if path.is_file() or (not (path / META).exists() and any(path.glob("*.log"))):
        return report_of_logs(path)
    return bench_report(read_run(path))


def write_page(run: BenchRun, report: Report) -> Path:
    """Write the report of a run into its folder; return the page's path."""
    from backprint.table.files import write_report

    page = run.place / "report.html"
    write_report(report, "html", page)
    return page

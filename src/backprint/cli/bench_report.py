"""`backprint bench report RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.reporting import report_options, write_or_print
from backprint.cli.say import echo

if TYPE_CHECKING:
    from backprint.tools.bench.runs import BenchRun


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@report_options("cell")
@click.option(
    "--logs", type=click.Path(path_type=Path), metavar="FOLDER", help="Write GraphNet's log of each compiler."
)
def command(run: Path, format: str | None, output: Path | None, as_json: bool, logs: Path | None) -> None:
    """Report the results of a bench run: outcomes and speedups of each compiler, a matrix of graphs by compilers,
    fast_p, scores S(t) and ES(t) with their curves, failures by reason, wrong answers, what was not judged, compile
    times, memory, the machine's load.

    RUN is the folder of the run, which may still be running; or GraphNet's logs of a bench, one file, or a folder of
    several. Nothing in it is changed.
    """
    from backprint.tools.bench.reports import report_of
    from backprint.tools.bench.runs import read_run
    from backprint.tools.bench.scored import write_run_logs

    if logs is not None:
        for place in write_run_logs(read_run(run), logs):
            echo(f"GraphNet log in {place}", err=True)
    if logs is None or format or output or as_json:
        write_or_print(lambda: report_of(run), format, output, as_json, f"report of {run}")


def write_page(run: BenchRun) -> Path:
    """Write the report of a run into its folder; return the page's path."""
    from backprint.tools.bench.reports import bench_report
    from backprint.tools.report.formats import write_report

    page = run.place / "report.html"
    write_report(bench_report(run), "html", page)
    return page

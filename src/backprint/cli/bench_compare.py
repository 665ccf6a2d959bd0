"""`backprint bench compare OLD [RUN ...] NEW`."""

from __future__ import annotations

from pathlib import Path

import click

from backprint.cli.reporting import report_options, write_or_print


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="OLD [RUN]... NEW", type=click.Path(path_type=Path))
@click.option(
    "--threshold",
    type=click.FloatRange(0, min_open=True),
    default=0.05,
    show_default=True,
    help="How much slower or faster, beyond the noise, is a change.",
)
@report_options("cell")
def command(runs: tuple[Path, ...], threshold: float, format: str | None, output: Path | None, as_json: bool) -> None:
    """Compare bench runs, the oldest first: what became wrong, stopped, slower or faster, beyond the noise.

    Of two runs every change is listed; of more there is a table with a column for each run. The exit status is 1 if a
    cell is wrong, stopped or slower in the newest run, and was not in the one before it, or in the oldest.
    """
    from backprint.errors import UsageError
    from backprint.tools.bench.compare import compare_runs, comparison_report, history_of, history_report
    from backprint.tools.bench.runs import read_run

    if len(runs) < 2:
        raise UsageError(f"only {runs[0]} is named: a comparison takes two runs or more, the oldest first")
    known, title = [read_run(run) for run in runs], f"comparison of {' and '.join(map(str, runs))}"
    if len(known) == 2:
        comparison = compare_runs(*known, threshold=threshold)
        write_or_print(lambda: comparison_report(comparison), format, output, as_json, title)
        regressed = comparison.regressed
    else:
        history = history_of(known, threshold=threshold)
        write_or_print(lambda: history_report(history), format, output, as_json, title)
        regressed = history.regressed
    if regressed:
        raise SystemExit(1)

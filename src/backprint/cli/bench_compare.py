"""`backprint bench compare OLD NEW`."""

from __future__ import annotations

from pathlib import Path

import click

from backprint.cli.reporting import report_options, write_or_print


@click.command("compare")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--threshold",
    type=click.FloatRange(0, min_open=True),
    default=0.05,
    show_default=True,
    help="How much slower or faster, beyond the noise, is a change.",
)
@report_options("cell")
def command(old: Path, new: Path, threshold: float, format: str | None, output: Path | None, as_json: bool) -> None:
    """Compare two bench runs: what became wrong, stopped, slower or faster, beyond the noise.

    The exit status is 1 if a cell that was right is wrong, stopped or slower now.
    """
    from backprint.benching.compare import compare_runs
    from backprint.benching.comparison_report import comparison_report
    from backprint.benching.runs import read_run

    comparison = compare_runs(read_run(old), read_run(new), threshold=threshold)
    write_or_print(lambda: comparison_report(comparison), format, output, as_json, f"comparison of {old} and {new}")
    if comparison.regressed:
        raise SystemExit(1)

"""`backprint bench compare OLD NEW`."""

from __future__ import annotations

from pathlib import Path

import click

from backprint.cli.bench_report import write_or_print


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
@click.option(
    "--format",
    "format",
    type=click.Choice(["markdown", "html", "csv", "parquet"]),
    help="What to write; by default what FILE's ending says, else markdown. CSV and Parquet have a row a cell.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to; else to the terminal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a cell, every column.")
def command(old: Path, new: Path, threshold: float, format: str | None, output: Path | None, as_json: bool) -> None:
    """Compare two bench runs: what became wrong, stopped, slower or faster, beyond the noise.

    The exit status is 1 if a cell that was right is wrong, stopped or slower now.
    """
    from backprint.benching.compare import compare_runs
    from backprint.benching.comparison_report import comparison_report
    from backprint.benching.runs import read_run

    comparison = compare_runs(read_run(old), read_run(new), threshold=threshold)
    write_or_print(comparison_report(comparison), format, output, as_json, f"comparison of {old} and {new}")
    if comparison.regressed:
        raise SystemExit(1)

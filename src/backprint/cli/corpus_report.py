"""`backprint corpus report OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.reporting import report_options, write_or_print

if TYPE_CHECKING:
    from backprint.report.nouns import Report


@click.command("report")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--against", type=click.Path(path_type=Path), metavar="OUT", help="An earlier run to compare with.")
@click.option("--unique", is_flag=True, help="Count duplicates (the same graphs) once, by their worst verdict.")
@report_options("sample")
def command(
    out: Path, format: str | None, output: Path | None, against: Path | None, unique: bool, as_json: bool
) -> None:
    """Report the results of a corpus run: verdicts by family and cause, times, sizes, power, duplicates, samples that
    are not good.

    OUT is the folder of the run, which may still be running. Nothing in it is changed.
    """
    write_or_print(lambda: corpus_report(out, against, unique), format, output, as_json, f"report of {out}")


def corpus_report(out: Path, against: Path | None, unique: bool) -> Report:
    """Return the report of a run, beside an earlier one if it is given."""
    from backprint.report.against import against as compared
    from backprint.report.rows import RunView
    from backprint.report.tables import report

    made = report(RunView(out), unique)
    return made if against is None else compared(made, RunView(against), RunView(out))

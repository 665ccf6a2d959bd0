"""`backprint corpus report OUT`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backprint.cli.options import WHERE
from backprint.cli.reporting import report_options, write_or_print
from backprint.cli.say import echo, working
from backprint.errors import UsageError

if TYPE_CHECKING:
    from backprint.tools.report.nouns import Report


@click.command("report")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--against", type=click.Path(path_type=Path), metavar="OUT", help="An earlier run to compare with.")
@click.option("--unique", is_flag=True, help="Count duplicates (the same graphs) once, by their worst verdict.")
@click.option(
    "--rows",
    type=click.Choice(["sample", "operator"]),
    default="sample",
    show_default=True,
    help="What a row of CSV, Parquet and JSON is; an operator's row names all samples that call it.",
)
@click.option("--title", metavar="TEXT", help="The title of the report; else the name of OUT.")
@WHERE
@report_options("sample")
def command(
    out: Path,
    format: str | None,
    output: Path | None,
    against: Path | None,
    unique: bool,
    rows: str,
    title: str | None,
    where: tuple[str, ...],
    as_json: bool,
) -> None:
    """Report the results of a corpus run: verdicts by family and cause, operators and dtypes, sizes, power, duplicates,
    samples that are not good, times.

    OUT is the folder of the run, which may still be running. Nothing in it is changed.
    """
    if against is not None and rows == "operator":
        raise UsageError(
            "--against compares samples, and --rows operator has a row for each operator: pass one of them"
        )
    base = output.parent if output is not None else Path()
    plan = {
        "unique": unique,
        "title": title or "",
        "base": base,
        "by_operator": rows == "operator",
    }

    def make() -> Report:
        built = corpus_report(out, against, where, plan)
        if missing := dict(built.facts).get("operators not counted"):
            echo(f"operators: {missing}", err=True)
        shown = output is None and not as_json and format in (None, "markdown")
        return without_links(built) if shown else built

    write_or_print(make, format, output, as_json, f"report of {out}")


def corpus_report(out: Path, against: Path | None, where: tuple[str, ...], plan: dict[str, Any]) -> Report:
    """Return the report of a run, beside an earlier one if it is given; of both, the samples that meet conditions."""
    from backprint.tools.corpus.report import ReportPlan, RunView, report
    from backprint.tools.corpus.report import against as compared

    with working("reading the ledger"):
        built = report(RunView(out, where), ReportPlan(**plan))
        return built if against is None else compared(built, RunView(against, where), RunView(out, where))


def without_links(built: Report) -> Report:
    """Return a report for a terminal, in which addresses would only be in the way."""
    return replace(built, links=lambda sample: ())

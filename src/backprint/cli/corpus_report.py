"""`backprint corpus report OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.options import WHERE
from backprint.cli.reporting import report_options, write_or_print
from backprint.cli.say import working

if TYPE_CHECKING:
    from backprint.table.nouns import Report


@click.command("report")
@click.argument("out", type=click.Path(path_type=Path))
@WHERE
@report_options("sample")
def command(out: Path, format: str | None, output: Path | None, where: tuple[str, ...], as_json: bool) -> None:
    """Report the results of a corpus run: how many samples are proved, why the others are not, and what is duplicated.

    OUT is the folder of the run, which may still be running. Nothing in it is changed. Other questions are a line of
    SQL over OUT/ledger.sqlite.
    """
    from backprint.tools.corpus.report import report

    def make() -> Report:
        with working("reading the ledger"):
            return report(out, where, output.parent if output is not None else Path())

    write_or_print(make, format, output, as_json, f"report of {out}")

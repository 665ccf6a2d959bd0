"""`backprint kernels report DIR...`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.kernels_dedup import check_folders, exit_if_unread
from backprint.cli.reporting import report_options, write_or_print
from backprint.cli.say import working

if TYPE_CHECKING:
    from backprint.tools.kernels.groups import KernelGroups
    from backprint.tools.report.nouns import Report


@click.command("report")
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@report_options("program")
def command(folders: tuple[Path, ...], format: str | None, output: Path | None, as_json: bool) -> None:
    """Report the kernels in folders: how many there are of how many programs, forward against backward, by target, the
    most shared with their code, operators that are never fused, bytes.

    DIR is what `kernels dedup` reads. Files are parsed and not executed, and nothing in DIR is changed. Exit code 1 if
    something could not be read; it is in the report too.
    """
    from backprint.tools.kernels.groups import vanishing_groups

    check_folders(folders)
    groups = vanishing_groups()
    title = "report of " + ", ".join(map(str, folders))
    write_or_print(lambda: read_and_report(groups, folders), format, output, as_json, title)
    exit_if_unread(list(groups.index.unread_now()))


def read_and_report(groups: KernelGroups, folders: tuple[Path, ...]) -> Report:
    """Read the folders, and return their report."""
    from backprint.tools.kernels.reports import report_of_folders

    with working("reading") as at:
        return report_of_folders(groups, folders, at)

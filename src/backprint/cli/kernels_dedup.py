"""`backprint kernels dedup DIR...`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backprint.cli.bench import aligned
from backprint.cli.say import echo, ending, working

if TYPE_CHECKING:
    from backprint.tools.kernels.groups import KernelGroup, KernelGroups
    from backprint.tools.kernels.read import UnreadKernels

SHOWN = 20
"""How many groups the table has without `--limit`."""

LETTERS = 12
"""Of a hash in a table."""

WIDEST = 72
"""The letters of a name in a table."""


@click.command("dedup")
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option("--index", "kept", metavar="FILE", type=click.Path(path_type=Path), help="Keep what was read in FILE.")
@click.option("--ignore-sizes", is_flag=True, help="Kernels that differ in sizes and constants alone are the same.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write one of each group, in GraphNet's layout.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N groups; a table has 20 otherwise.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a group, with its members.")
def command(
    folders: tuple[Path, ...],
    kept: Path | None,
    ignore_sizes: bool,
    output: Path | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Group kernels that are the same program, whatever their names, numbering and comments.

    DIR is a folder of `backprint kernels`, an Inductor `output_code.py`, a cache of Inductor, or a folder in
    GraphNet's layout. Files are parsed and not executed. With --index, samples that are in FILE as they are now are not
    read again, and what is new since the last run is told. Exit code 1 if something could not be read.
    """
    from backprint.tools.kernels.groups import KernelGroups, write_layout
    from backprint.tools.kernels.index import KernelIndex

    check_folders(folders)
    by = "structure" if ignore_sizes else "program"
    hint = f"the same command goes on from what is in {kept}" if kept else "nothing was kept"
    with KernelIndex.writing(kept or "") as index:
        with ending(lambda: hint), working("reading") as at:
            for folder in folders:
                index.add_folder(folder, at)
        groups = KernelGroups(index)
        most = -1 if limit is None and as_json else limit or SHOWN
        for line in json_groups(groups, by, most) if as_json else group_lines(groups, by, most):
            echo(line)
        for line in (*total_lines(groups), *(new_lines(groups) if kept else ())):
            echo(line, err=as_json)
        if output is not None:
            count = write_layout(groups, output, by)
            echo(f"{count:,} kernels written to {output}", err=as_json)
        unread = list(index.unread_now())
    exit_if_unread(unread)


def check_folders(folders: Iterable[Path]) -> None:
    """Raise before anything is read for a folder that is not there."""
    from backprint.errors import UsageError

    for folder in folders:
        if not folder.exists():
            raise UsageError(f"{folder}: there is no such file or folder")


def exit_if_unread(unread: list[UnreadKernels]) -> None:
    """Name what could not be read, and exit with 1 if there is something."""
    for problem in unread:
        echo(f"not read: {problem.place}: {problem.reason}", err=True)
    if unread:
        raise SystemExit(1)


def json_groups(groups: KernelGroups, by: str, limit: int) -> Iterator[str]:
    """Yield the groups as JSON, each with its representative and its members."""
    for group in groups.groups(by, limit):
        kernel = groups.representative(group)
        row: dict[str, Any] = asdict(group)
        row["representative"] = {
            "hash": group.representative,
            **{name: getattr(kernel, name) for name in ("name", "target", "sample", "direction", "place", "source")},
        }
        row["members"] = [asdict(member) for member in groups.members(group)]
        yield json.dumps(row)


def group_lines(groups: KernelGroups, by: str, limit: int) -> Iterator[str]:
    """Yield the groups as a table."""
    rows = [group_row(group) for group in groups.groups(by, limit)]
    if rows:
        yield from aligned([["kernel", "language", "uses", "samples", "forward", "backward", "programs", by], *rows])
    totals = groups.totals()
    count = totals.programs if by == "program" else totals.structures
    if count > len(rows):
        yield f"and {count - len(rows):,} groups more: --limit N shows more, --json all"


def group_row(group: KernelGroup) -> list[str]:
    counts = (group.uses, group.samples, group.forward, group.backward, group.programs)
    return [short_name(group.name), group.language, *(f"{count:,}" for count in counts), group.hash[:LETTERS]]


def short_name(name: str) -> str:
    """Return a name for a table, cut off where it is long."""
    from backprint.common.text import printable

    shown = printable(name)
    return shown if len(shown) <= WIDEST else f"{shown[: WIDEST - 1]}…"


def total_lines(groups: KernelGroups) -> Iterator[str]:
    """Yield how many kernels, programs and structures there are, and how the directions share them."""
    totals = groups.totals()
    yield (
        f"{totals.uses:,} kernels in {totals.samples:,} samples: {totals.programs:,} programs ({totals.ratio:.2f} uses "
        f"each), {totals.structures:,} structures"
    )
    if totals.forward or totals.backward:
        alone = totals.forward - totals.both, totals.backward - totals.both
        yield f"programs of forwards alone {alone[0]:,}, of backwards alone {alone[1]:,}, of both {totals.both:,}"
    if totals.ambiguous_names:
        yield f"{totals.ambiguous_names:,} of {totals.names:,} names stand for more than one program"


def new_lines(groups: KernelGroups) -> Iterator[str]:
    """Yield what this run added to its index."""
    from backprint.tools.kernels.index import index_runs

    *before, now = index_runs(groups.index)
    since = f"new since run {before[-1].run}" if before else "new"
    yield f"run {now.run} of {groups.index.path}: {since}: {now.programs:,} programs, {now.uses:,} kernels, " + (
        f"{now.samples:,} samples"
    )

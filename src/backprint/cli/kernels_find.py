"""`backprint kernels find INDEX`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.bench import aligned
from backprint.cli.kernels_dedup import LETTERS, short_name
from backprint.cli.say import echo

if TYPE_CHECKING:
    from backprint.tools.kernels.index import IndexedUse, IndexRun


@click.command("find")
@click.argument("index", metavar="INDEX", type=click.Path(path_type=Path))
@click.option("--sample", metavar="NAME", help="Only the kernels of this sample.")
@click.option("--kernel", metavar="HASH", help="Only uses of this kernel: the beginning of its hash.")
@click.option(
    "--since",
    type=click.IntRange(0),
    metavar="RUN",
    help="Only what came after this run of `kernels dedup`: its number.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N uses.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object for each use of a kernel, or for each run."
)
def command(
    index: Path, sample: str | None, kernel: str | None, since: int | None, limit: int | None, as_json: bool
) -> None:
    """Search an index that `kernels dedup --index` wrote: which samples use a kernel, which kernels a sample uses, and
    what is new.

    With several options, only uses that meet all of them are shown. Without --sample, --kernel and --since, the runs
    that wrote the index are shown, with their numbers for --since. HASH is the hash of a program or of a structure.
    """
    from backprint.tools.kernels.index import KernelIndex, find_uses, index_runs

    with KernelIndex.reading(index) as opened:
        if sample is None and kernel is None and since is None:
            runs = list(index_runs(opened))
            for line in map(json.dumps, map(asdict, runs)) if as_json else run_lines(runs):
                echo(line)
            return
        uses = find_uses(opened, sample, kernel, since, limit or -1)
        for line in json_uses(uses, since) if as_json else use_lines(list(uses), since, limit):
            echo(line)


def json_uses(uses: Iterator[IndexedUse], since: int | None) -> Iterator[str]:
    for use in uses:
        row = {**asdict(use.use), "language": use.language, "program_run": use.program_run}
        yield json.dumps(row if since is None else {**row, "new_program": use.program_run > since})


def use_lines(uses: list[IndexedUse], since: int | None, limit: int | None) -> Iterator[str]:
    """Yield the uses as a table, and a line with the numbers of kernels, samples and programs."""
    rows = [
        [
            *(short_name(use.use.name), short_name(use.use.sample), use.use.direction, use.use.target),
            *(f"{use.use.calls:,}" if use.use.calls else "", str(use.use.run), use.use.hash[:LETTERS]),
        ]
        for use in uses
    ]
    if rows:
        yield from aligned([["kernel", "sample", "direction", "target", "calls", "run", "program"], *rows])
    programs = {use.use.hash for use in uses}
    first = "the first " if len(uses) == limit else ""
    samples = {use.use.sample for use in uses}
    headline = f"{first}{len(uses):,} kernels in {len(samples):,} samples: {len(programs):,} programs"
    if since is not None:
        new = {use.use.hash for use in uses if use.program_run > since}
        headline += f", of which {len(new):,} came after run {since}"
    yield headline


def run_lines(runs: list[IndexRun]) -> Iterator[str]:
    """Yield the runs as a table."""
    rows = [
        [
            *(str(run.run), time_text(run.started), time_text(run.finished) or "not finished"),
            *(f"{count:,}" for count in (run.samples, run.programs, run.uses)),
        ]
        for run in runs
    ]
    yield from aligned([["run", "started", "finished", "new samples", "new programs", "new kernels"], *rows])


def time_text(time: float | None) -> str:
    return "" if time is None else datetime.fromtimestamp(time, UTC).isoformat(sep=" ", timespec="seconds")

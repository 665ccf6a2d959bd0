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
    from backprint.kernels.index import IndexedUse, IndexRun


@click.command("find")
@click.argument("index", metavar="INDEX", type=click.Path(path_type=Path))
@click.option("--sample", metavar="NAME", help="The kernels that this sample needs.")
@click.option("--kernel", metavar="HASH", help="The samples that use this kernel: the beginning of its hash.")
@click.option("--since", type=click.IntRange(0), metavar="RUN", help="What came after a run of `kernels dedup`.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N uses.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a use of a kernel, or a run.")
def command(
    index: Path, sample: str | None, kernel: str | None, since: int | None, limit: int | None, as_json: bool
) -> None:
    """Ask an index of `kernels dedup --index`: who uses a kernel, what does a sample need, what is new?

    Several options together must all hold. Without one of them it shows the runs that wrote the index, by whose
    numbers --since goes. HASH is that of a program, or of a structure.
    """
    from backprint.kernels.index import KernelIndex, find_uses, index_runs

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
        known = {**asdict(use.use), "language": use.language, "program_run": use.program_run}
        yield json.dumps(known if since is None else {**known, "new_program": use.program_run > since})


def use_lines(uses: list[IndexedUse], since: int | None, limit: int | None) -> Iterator[str]:
    """Yield the uses as a table, and how many there are of what."""
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

"""`backprint corpus dedup SRC_OR_OUT -o OUT`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backprint.cli.corpus import carry_out
from backprint.cli.options import GIB, choice
from backprint.cli.say import echo, ending, print_table, table_text, working
from backprint.common.text import short

if TYPE_CHECKING:
    from backprint.tools.corpus.duplicates import SharedPart
    from backprint.tools.jobs import CorpusRun

ROWS = 30
"""How many parts the table has."""


@click.command("dedup")
@click.argument("source", metavar="SRC_OR_OUT", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="A new folder for what is kept.")
@click.option(
    "--by",
    metavar="HOW",
    default="graph",
    show_default=True,
    help="What is compared: graph, or part: layers and what stands between them.",
)
@click.option("--ignore-sizes", is_flag=True, help="Graphs that differ in sizes alone are the same.")
@choice("files", "How kept samples are written: hard links, copies, or only kept.txt and duplicates.json.", "link")
@click.option("--jobs", type=click.IntRange(1), help="Workers of --by part; else one a core.")
@click.option("--timeout", type=float, help="Seconds that a sample may take with --by part; else 600.")
@click.option("--memory", type=GIB, metavar="GIB", help="For a sample with --by part; else a share of what is free.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a sample: id, kept, duplicate_of, why.")
def command(
    source: Path, output: Path, by: str, ignore_sizes: bool, files: str, as_json: bool, **limits: float | None
) -> None:
    """Keep one of each group of samples that are the same program, and list the others.

    SRC_OR_OUT is the folder of a corpus run, whose ledger has the hashes, or any folder of samples, which are read and
    not executed. Of each group it keeps the sample that is proved, then the smallest, then the first by name.
    `kept.txt` is a list for `--list` of other verbs, `duplicates.json` has the others. If it is interrupted, the same
    call continues.

    `--by part` keeps nothing: it prints each different layer of Backprint's samples once, with how often and in how
    many samples it is there, and writes all of them to `parts.json`. `--json` then prints one object a part.
    """
    from backprint.errors import UsageError
    from backprint.tools.corpus import check_compared

    check_compared(by)
    limits_set = {name: value for name, value in limits.items() if value is not None}
    if by == "part":
        if files != "link":
            raise UsageError(f"--files {files} is for --by graph: with --by part no samples are kept")
        by_part(source, output, ignore_sizes, as_json, limits_set)
        return
    if limits_set:
        raise UsageError(
            f"--{min(limits_set)} is for --by part: graphs are compared one after the other, in one process"
        )
    by_graph(source, output, ignore_sizes, files, as_json)


def by_graph(source: Path, output: Path, ignore_sizes: bool, files: str, as_json: bool) -> None:
    """Keep one of each group, and print them."""
    from backprint.tools.corpus import dedup
    from backprint.tools.corpus.duplicates import KEPT, LIST

    with ending(lambda: f"the same command goes on from what is in {output}"), working(f"{source}: comparing"):
        groups = dedup(source, output, ignore_sizes=ignore_sizes, files=files)
    if as_json:
        for first, *others in groups.groups:
            echo(json.dumps(dict(id=first.id, kept=True, duplicate_of="", why="")))
            for other in others:
                echo(json.dumps(dict(id=other.id, kept=False, duplicate_of=first.id, why="")))
        for member in groups.left_out:
            echo(json.dumps(dict(id=member.id, kept=False, duplicate_of="", why=member.why)))
        return
    samples = sum(map(len, groups.groups))
    echo(
        f"{samples:,} samples, {len(groups.groups):,} distinct by {groups.by} graphs; the others are in {output / LIST}"
    )
    if groups.left_out:
        unread = groups.left_out[0]
        echo(f"{len(groups.left_out):,} could not be compared and are left out; {unread.id}: {unread.why}")
    echo(f"kept: {output / KEPT}" if files == "none" else f"kept samples: {output}")


def by_part(source: Path, output: Path, ignore_sizes: bool, as_json: bool, options: dict[str, Any]) -> None:
    """Run over the samples, and print their parts."""
    from backprint.cli.corpus_split import Silent

    def close(done: CorpusRun, as_json: bool) -> None:
        for text in part_lines(source, done, ignore_sizes, as_json):
            echo(text)

    run = {"jobs": None, "timeout": 600.0, "memory": None, "disk": None, "executor": "pool", **options}
    carry_out(
        "parts",
        source,
        output,
        {"sizes": not ignore_sizes},
        allow_unproven=True,
        as_json=as_json,
        show=Silent if as_json else None,
        close=close,
        **run,
    )


def part_lines(source: Path, done: CorpusRun, ignore_sizes: bool, as_json: bool) -> Iterator[str]:
    """Yield what is printed of the parts, after their table."""
    from backprint.tools.corpus.duplicates import SHARED_LIST, all_shared_parts

    parts = all_shared_parts(source, done.out, "shape" if ignore_sizes else "exact")
    if as_json:
        yield from (json.dumps(asdict(part)) for part in parts.parts)
        return
    print_shared(parts.parts[:ROWS])
    if len(parts.parts) > ROWS:
        yield f"and {len(parts.parts) - ROWS:,} more"
    yield f"{parts.count:,} parts, {len(parts.parts):,} distinct by {parts.by} graphs: {done.out / SHARED_LIST}"
    yield f"{parts.steps:,} steps, {parts.distinct_steps:,} where each part counts once"
    if parts.left_out:
        name, why = parts.left_out[0]
        yield f"{len(parts.left_out):,} samples have no parts and are left out; {name}: {why}"


def print_shared(parts: tuple[SharedPart, ...]) -> None:
    """Print parts as a table."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "direction", "times", "samples", "steps", "FLOPs", "hash"):
        shown.add_column(heading, overflow="fold")
    for part in parts:
        name = part.name or ("a loop" if part.repeats else "between loops")
        numbers = (str(part.count), str(len(part.samples)), str(part.steps), short(part.flops))
        shown.add_row(*map(table_text, (name, part.direction, *numbers, part.hash[:12])))
    print_table(shown)

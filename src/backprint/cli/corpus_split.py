"""`backprint corpus split SAMPLE_OR_CORPUS -o OUT --by HOW`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backprint.cli.corpus import carry_out, options, summarize_run
from backprint.cli.options import ALLOW, DATA, WHERE
from backprint.cli.say import echo, print_table, table_text

if TYPE_CHECKING:
    from backprint.tools.jobs import CorpusRun
    from backprint.tools.jobs.progress import Show


@click.command("split")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", "out", required=True, type=click.Path(path_type=Path), help="The folder for the parts.")
@click.option(
    "--by",
    required=True,
    metavar="HOW",
    help="range:N, ranges:0-10,10-25, operators[:A,B,C], module[:DEPTH], fold or saved[:N].",
)
@DATA
@click.option("--unique", is_flag=True, help="Write parts whose graphs are equal once.")
@ALLOW
@WHERE
@options
def command(
    source: Path, out: Path, by: str, data: str, unique: bool, allow: tuple[str, ...], as_json: bool, **rest: Any
) -> None:
    """Cut samples into parts: a forward with the backward that belongs to it, each a sample again.

    SOURCE is a sample, or a folder with samples below; the parts of each are below OUT/<its path>/, and `parts.json`
    there has a row for each. Every part is proven: on the values that the whole had there, and against autograd of its
    forward on inputs from recipes. A part that is not proven is reported, and not written. With --json, one object a
    part.
    """
    from backprint.tools.jobs.parts import all_parts

    chosen = {"by": by, "data": data, "allow": list(allow), "unique": unique}
    show: Callable[[bool], Any] | None = None
    if as_json:
        show = Silent if unique else partial(PartLines, out)

    def close(done: CorpusRun, as_json: bool) -> None:
        rows = list(all_parts(out))
        if as_json and unique:  # only known at the end
            for row in rows:
                echo(json.dumps(row))
        if not as_json:
            print_rows(rows)
            summarize_run(done, as_json)

    carry_out("split", source, out, chosen, as_json=as_json, show=show, close=close, **rest)


class Silent:
    """Shows nothing before the end."""

    def __init__(self, as_json: bool) -> None:
        pass

    def __enter__(self) -> Show:
        return self.show

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Any) -> None:
        """Ignore an event."""


class PartLines(Silent):
    """Prints one JSON object for each part, when its sample finishes."""

    def __init__(self, out: Path, as_json: bool) -> None:
        self.out = out

    def show(self, event: Any) -> None:
        """Print the parts of a finished sample."""
        from backprint.tools.jobs.parts import parts_of
        from backprint.tools.jobs.run import Written

        for row in parts_of(self.out, event.row) if isinstance(event, Written) else ():
            echo(json.dumps(row))


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "of", "times", "steps", "backward", "verdict", "detail"):
        shown.add_column(heading, overflow="fold")
    for row in rows:
        where = row["part"] or (f"= {row['of']}" if row["of"] else "(not written)")
        steps = f"{row.get('forward_steps', 0)}+{row.get('backward_steps', 0)}"
        times, cells = str(row.get("count", 1)), (row["backward"], row["verdict"], row["detail"])
        shown.add_row(*map(table_text, (where, row["label"], times, steps, *cells)))
    print_table(shown)
    copies, written = sum(bool(row["of"]) for row in rows), sum(bool(row["part"]) for row in rows)
    echo(f"{len(rows)} parts: {written} written, {copies} equal to another")

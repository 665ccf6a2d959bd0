"""`backprint corpus split SAMPLE_OR_CORPUS -o OUT --by HOW`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click


@click.command("split")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The folder for the parts.")
@click.option(
    "--by",
    required=True,
    metavar="HOW",
    help="range:N, ranges:0-10,10-25, operators[:A,B,C], module[:DEPTH] or saved[:N].",
)
@click.option(
    "--data",
    default="seed",
    show_default=True,
    type=click.Choice(["seed", "exact"]),
    help="What crosses a border: recipes fitted to it, or the bytes that it was.",
)
@click.option("--unique", is_flag=True, help="Write parts whose graphs are equal once.")
@click.option("--allow", multiple=True, metavar="NS::OP", help="A custom operator that the samples may call.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a part.")
def command(
    source: Path, output: Path, by: str, data: str, unique: bool, allow: tuple[str, ...], as_json: bool
) -> None:
    """Cut samples into parts: a forward with the backward that belongs to it, each a sample again.

    SOURCE is a sample, or a folder with samples below. Every part is proven: on the values that the whole had there,
    and against autograd of its forward on values made again. One that is not is told, and not written.
    """
    rows = []
    seen: dict[str, str] | None = {} if unique else None
    for row in cut(source, output, by, data, allow, seen):
        rows.append(row)
        if as_json:
            click.echo(json.dumps(row))
    if not as_json:
        table(rows)
    if not rows or any(row["verdict"] not in ("bitwise", "close", "undifferentiable") for row in rows):
        raise SystemExit(1)


def cut(
    source: Path, output: Path, by: str, data: str, allow: tuple[str, ...], seen: dict[str, str] | None
) -> Iterator[dict[str, Any]]:
    """A row for each part of each sample; a sample that cannot be cut is a row too."""
    from backprint.corpus.split import split_sample
    from backprint.errors import BackprintError, UsageError

    single = (source / "capture.json").exists()
    samples = [source] if single else sorted(path.parent for path in source.glob("**/capture.json"))
    if not samples:
        raise UsageError(f"{source}: no sample here or below: no folder holds capture.json")
    for sample in samples:
        out = output if single else output / sample.relative_to(source)
        try:
            for written in split_sample(sample, out, by, data, allow, seen):
                yield asdict(written)
        except BackprintError as error:
            if single:
                raise
            verdict = {"sample": str(sample), "part": "", "label": by, "verdict": "failed"}
            yield {**verdict, "detail": f"{type(error).__name__}: {error}", "of": "", "backward": ""}


def table(rows: list[dict[str, Any]]) -> None:
    """The rows for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "of", "steps", "backward", "verdict", "detail"):
        shown.add_column(heading, overflow="fold")
    for row in rows:
        where = row["part"] or (f"= {row['of']}" if row["of"] else "(not written)")
        steps = f"{row.get('forward_steps', 0)}+{row.get('backward_steps', 0)}"
        shown.add_row(*map(Text, (where, row["label"], steps, row["backward"], row["verdict"], row["detail"])))
    console = Console()
    console.print(shown)
    copies = sum(bool(row["of"]) for row in rows)
    written = sum(bool(row["part"]) for row in rows)
    console.print(f"{len(rows)} parts: {written} written, {copies} equal to another", highlight=False)

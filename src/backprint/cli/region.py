"""`backprint region compare A B` and `backprint region show DUMP`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import click

from backprint.cli.say import echo, echo_styled

STYLES = {
    "bitwise": "green",
    "close": "cyan",
    "same": "green",
    "unproven": "yellow",
    "differs": "red",
    "missing": "red",
}


@click.group("region")
def command() -> None:
    """Dumps of `bp.region`: show one, compare two."""


@command.command("show")
@click.argument("dump", type=click.Path(path_type=Path))
def show(dump: Path) -> None:
    """Print the passes of a dump: edges, what flowed, and the forward lines they come from."""
    from backprint.regions.read import read_passes
    from backprint.regions.write import summary

    check_dump(dump)
    for each in read_passes(dump):
        echo(summary(each), lines=True)


@command.command("compare")
@click.argument("left", metavar="A", type=click.Path(path_type=Path))
@click.argument("right", metavar="B", type=click.Path(path_type=Path))
@click.option("--all", "every", is_flag=True, help="Rows that agree to the bit as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: good, first, worst, rows.")
def compare(left: Path, right: Path, every: bool, as_json: bool) -> None:
    """Compare two dumps of the same region edge by edge: two runs, devices, precisions, before and after a change.

    A and B are folders of passes, or a pass's own folder. Exit 1 unless all edges are there on both sides, and bitwise
    or close.
    """
    from backprint.regions.compare import compare_passes
    from backprint.regions.read import read_passes

    check_dump(left)
    check_dump(right)
    found = compare_passes(read_passes(left), read_passes(right))
    if as_json:
        echo(json.dumps(as_dict(found)))
    else:
        table(found, every, left, right)
    if not found.good:
        sys.exit(1)


def check_dump(place: Path) -> None:
    """Refuse a path at which there is no dump; one that is damaged is for its reader."""
    from backprint.errors import UsageError

    if not place.is_dir():
        raise UsageError(f"{place}: {'not a folder' if place.exists() else 'no such folder'}")
    if not (place / "graph.json").exists() and not any(place.glob("*/graph.json")):
        raise UsageError(f"{place}: no pass here: a region's dump has folders with graph.json")


def as_dict(found: Any) -> dict[str, Any]:
    """A Comparison as JSON."""

    def row(each: Any) -> dict[str, Any] | None:
        if each is None:
            return None
        names = ("index", "what", "name", "tensor", "verdict", "error", "most", "detail", "line")
        made = {name: getattr(each, name) for name in names}
        return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in made.items()}

    return {
        "good": found.good, "passes": list(found.passes), "first": row(found.first), "worst": row(found.worst),
        "rows": [row(each) for each in found.rows],
    }  # fmt: skip


def table(found: Any, every: bool, left: Path, right: Path) -> None:
    """For a person: what differs, first divergence and largest error last, where they are seen."""
    shown = [row for row in found.rows if every or row.verdict not in ("bitwise", "same")]
    if shown:
        width = max(len(row.name) for row in shown)
        for row in shown:
            error = "" if row.error is None else f"{row.error:.3g}"
            where = f"pass {row.index} {row.what:5} {row.name:{width}}"
            said = f" {where}  {row.tensor}  {error}  {row.detail}".rstrip()
            echo_styled(said, f"{row.verdict:8}", fg=STYLES[row.verdict])
    counts: dict[str, int] = {}
    for row in found.rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "nothing to compare")
    if found.passes[0] != found.passes[1]:
        echo(f"{left} has {found.passes[0]} passes, {right} {found.passes[1]}")
    if found.first is not None:
        line = f", forward {found.first.line}" if found.first.line else ""
        echo(f"first divergence: pass {found.first.index}, {found.first.what} {found.first.name}{line}")
    if found.worst is not None and found.worst.error:
        echo(f"largest error: {found.worst.error:.3g}, {found.worst.what} {found.worst.name}")

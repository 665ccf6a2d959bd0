"""`backprint region compare A B`, `backprint region show DUMP` and `backprint region draw DUMP`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import click

from backprint.cli.groups import Listing
from backprint.cli.region_show import print_pass
from backprint.cli.say import echo, echo_styled

STYLES = {
    "bitwise": "green",
    "close": "cyan",
    "same": "green",
    "unproven": "yellow",
    "differs": "red",
    "missing": "red",
}


@click.group("region", cls=Listing)
def command() -> None:
    """Dumps of `bp.region`: show one, compare two, draw one."""


RUN_HELP = "Which run of the script: latest, all, or a run's name or the beginning of it."


@command.command("show")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--run", default="latest", show_default=True, help=RUN_HELP)
@click.option("--bad", is_flag=True, help="Only passes with NaN, Inf or an error, and of those what has NaN or Inf.")
@click.option("--pass", "index", type=click.IntRange(min=0), metavar="N", help="Only the pass with this number.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a pass.")
def print_passes(dump: Path, run: str, bad: bool, index: int | None, as_json: bool) -> None:
    """Print the passes of a dump: edges, the gradients on them, modules, and the forward lines they come from."""
    from backprint.tools.regions.comparing import bad_part, pass_as_dict, shown_passes, shown_unreached
    from backprint.tools.regions.dumps import check_dump
    from backprint.tools.regions.nouns import Unwatched

    check_dump(dump)
    for line in chosen(dump, run):
        echo(line, err=as_json)
    for text in () if as_json or bad or index is not None else shown_unreached(dump, run):
        echo(text)
    count = unwatched = shown = 0
    for region_pass in shown_passes(dump, run, index):
        count, unwatched = count + 1, unwatched + (not region_pass.watched)
        if bad and not region_pass.bad:
            continue
        shown += 1
        if as_json:
            echo(json.dumps(pass_as_dict(bad_part(region_pass) if bad else region_pass) | {"bad": region_pass.bad}))
            continue
        if shown > 1:
            echo("")
        print_pass(region_pass, bad)
    if bad and not as_json:
        echo(f"{shown} of {count} passes have NaN, Inf or an error")
    if bad and unwatched:
        echo(f"{unwatched} of {count} passes were not watched: {Unwatched().why}", err=True)


@command.command("draw")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--run", default="latest", show_default=True, help=RUN_HELP)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="How many nodes and folded frames are seen at most; inner frames are folded.",
)
@click.option("--pass", "number", type=click.IntRange(min=0), metavar="N", help="Only the pass with this number.")
def draw_passes(dump: Path, run: str, nodes: int, number: int | None) -> None:
    """Draw each pass into its folder: a picture, graph.svg and graph.dot, and a page, page.html.

    The forward runs down on the left and the backward up on the right. Modules are frames, and gradients with NaN or
    Inf are red. Shapes and statistics are in the tooltips.
    """
    from backprint.tools.regions.dumps import check_dump
    from backprint.tools.regions.pictures import draw_dump

    check_dump(dump)
    for line in chosen(dump, run):
        echo(line)
    for place in draw_dump(dump, run, nodes, number):
        echo(str(place))


def chosen(dump: Path, run: str) -> list[str]:
    """Say which of several runs is used."""
    from backprint.tools.regions.dumps import ALL, runs_of, select_run

    runs = runs_of(dump)
    if len(runs) == 1:
        return []
    if run == ALL:
        return [f"{dump}: all of {len(runs)} runs"]
    selected = select_run(runs, run, dump)
    others = ", ".join(str(run_of_dump) for run_of_dump in runs if run_of_dump is not selected)
    latest = " (the latest)" if selected is runs[-1] else ""
    return [f"{dump}: run {selected}{latest}, with {selected.reached} passes; left out: {others}"]


@command.command("compare")
@click.argument("left", metavar="A", type=click.Path(path_type=Path))
@click.argument("right", metavar="B", type=click.Path(path_type=Path))
@click.option("--all", "every", is_flag=True, help="Rows that agree to the bit as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: good, first, worst, rows, runs, notes.")
@click.option("--run-a", default="latest", show_default=True, help=RUN_HELP)
@click.option("--run-b", default="latest", show_default=True, help="The same, of B.")
def compare(left: Path, right: Path, every: bool, as_json: bool, run_a: str, run_b: str) -> None:
    """Compare two dumps of the same region edge by edge: two runs, devices, precisions, before and after a change.

    A and B are folders of passes, or a pass's own folder. If several runs of a script wrote into a folder, the passes
    of the latest run are compared, and a line says so. Exit 1 unless all edges exist on both sides and are bitwise or
    close.
    """
    from backprint.tools.regions.comparing import compare_passes
    from backprint.tools.regions.dumps import check_dump, read_passes

    check_dump(left)
    check_dump(right)
    ours, theirs = read_passes(left, run_a), read_passes(right, run_b)
    comparison = compare_passes(ours, theirs)
    notes = [*chosen(left, run_a), *chosen(right, run_b), *comparison.notes]
    if as_json:
        runs = [sorted({region_pass.run for region_pass in side}) for side in (ours, theirs)]
        echo(json.dumps(as_dict(comparison) | {"runs": runs, "notes": notes}))
    else:
        for line in notes:
            echo(line)
        print_comparison(comparison, every, left, right)
    if not comparison.good:
        sys.exit(1)


def as_dict(comparison: Any) -> dict[str, Any]:
    """Return a DumpComparison as JSON."""

    def row(part: Any) -> dict[str, Any] | None:
        if part is None:
            return None
        names = ("index", "what", "name", "tensor", "verdict", "error", "most", "detail", "line")
        fields = {name: getattr(part, name) for name in names}
        return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}

    return {
        "good": comparison.good,
        "passes": list(comparison.passes),
        "first": row(comparison.first),
        "worst": row(comparison.worst),
        "rows": [row(part) for part in comparison.rows],
    }


def print_comparison(comparison: Any, every: bool, left: Path, right: Path) -> None:
    """Print what differs; the first divergence and the largest error come last, where they are seen."""
    shown = [row for row in comparison.rows if every or row.verdict not in ("bitwise", "same")]
    if shown:
        width = max(len(row.name) for row in shown)
        for row in shown:
            error = "" if row.error is None else f"{row.error:.3g}"
            where = f"pass {row.index} {row.what:5} {row.name:{width}}"
            text = f" {where}  {row.tensor}  {error}  {row.detail}".rstrip()
            echo_styled(text, f"{row.verdict:8}", fg=STYLES[row.verdict])
    counts: dict[str, int] = {}
    for row in comparison.rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "nothing to compare")
    if comparison.passes[0] != comparison.passes[1]:
        echo(f"{left} has {comparison.passes[0]} passes, {right} {comparison.passes[1]}")
    if comparison.first is not None:
        line = f", forward {comparison.first.line}" if comparison.first.line else ""
        echo(f"first divergence: pass {comparison.first.index}, {comparison.first.what} {comparison.first.name}{line}")
    if comparison.worst is not None and comparison.worst.error:
        echo(f"largest error: {comparison.worst.error:.3g}, {comparison.worst.what} {comparison.worst.name}")

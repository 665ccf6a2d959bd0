"""`backprint diff A B`, of two samples or two dumps of a region."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backprint.cli import dumps
from backprint.cli.options import ALLOW
from backprint.cli.say import echo, echo_styled
from backprint.common.collector import collector_paused
from backprint.common.formats import CAPTURE, WORLD

COLORS = {"+": "green", "-": "red", "~": "yellow", "!": "magenta"}
"""By the first character of a line."""


@click.command("diff")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Every line, where long lists would be cut.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write a page as well, with marks on the steps that changed.",
)
@ALLOW
@click.option("--json", "as_json", is_flag=True, help="The differences as one JSON object.")
@click.option("--run-a", default="latest", show_default=True, help=dumps.RUN_HELP)
@click.option("--run-b", default="latest", show_default=True, help="The same, of B.")
@collector_paused()
def command(
    before: Path,
    after: Path,
    everything: bool,
    output: Path | None,
    allow: tuple[str, ...],
    as_json: bool,
    run_a: str,
    run_b: str,
) -> None:
    """Show what changed between two samples: steps, ports, saved bytes and FLOPs, forward and backward.

    Steps are matched by what they compute. Names of values, the order of independent steps and line numbers do not
    count. Nothing of a sample is run, and torch is not needed.

    Exit codes: 0 if every graph has the same hash, 1 if the graphs differ, 2 if a sample cannot be read.

    Of two dumps of bp.region, gradients are compared edge by edge: two runs, devices, precisions, before and after a
    change. It exits with 1 unless all edges are in both, and bitwise or close.
    """
    from backprint.common.web_page import check_html
    from backprint.errors import BackprintError, UsageError
    from backprint.tools.diff import compare
    from backprint.tools.diff.words import diff_json, diff_lines

    if dumps.is_dump((before, after), alone=("run_a", "run_b"), both=("everything", "as_json")):
        dumps.diff(before, after, run_a, run_b, everything, as_json)
        return
    for place in (before, after):
        if (place / WORLD).is_file():
            raise UsageError(f"{place} is a World: compare its ranks, each of which is a sample ({place / 'rank_0'})")
        if not (place / CAPTURE).is_file():
            raise UsageError(
                f"{place} is not a sample: it has no capture.json. `backprint capture TARGET -o DIR` makes one."
            )
    if output is not None:
        check_html(output)
    try:
        difference = compare(before, after, allow)
    except BackprintError as error:
        raise UsageError(f"{type(error).__name__}: {error}") from error
    if output is not None:  # before what is printed, which a pipe may cut off
        echo(f"page: {difference.view(output).title}, {output}", err=True)
    if as_json:
        echo(json.dumps(diff_json(difference)))
    else:
        for line in diff_lines(difference, everything, (str(before), str(after))):
            mark = line.lstrip()[:1]
            if mark in COLORS and line.startswith(" "):
                echo_styled("", line, fg=COLORS[mark])
            else:
                echo(line)
    if not difference.same:
        raise SystemExit(1)

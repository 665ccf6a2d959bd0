"""`backprint draw`, `view` and `diff`: a picture, a page, and what changed; of samples, and of the dumps of regions.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from backprint.cli import dumps
from backprint.cli.named import at_place
from backprint.cli.options import (
    ALLOW,
    COUNTS,
    DUMPS,
    HOW,
    JSON,
    LIMITS,
    OUTPUT,
    PATH,
    SAMPLE,
    WHAT,
    choice,
    command,
    option,
    output_option,
)
from backprint.cli.say import echo, echo_styled, working
from backprint.common.collector import collector_paused
from backprint.common.formats import CAPTURE, WORLD
from backprint.errors import ReplayError, UsageError
from backprint.tools.jobs.apart import run_apart, write_answer
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import load_only

# ---- A picture


@command("draw")
@SAMPLE
@output_option("The picture to write: .svg, .dot (for Graphviz) or .png.", "FILE")
@option(WHAT, "--pair", type=click.IntRange(min=0), default=0, show_default=True, help="Which Pair, counted from 0.")
@option(
    WHAT,
    "--nodes",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="How many steps and folded frames are seen at most; inner frames are folded.",
)
@ALLOW
@dumps.PASS
@dumps.RUN
@collector_paused()
def draw_command(
    sample: Path, output: Path, pair: int, nodes: int, allow: tuple[str, ...], number: int | None, run: str
) -> None:
    """Draw a sample as a picture: forward on the left, backward on the right, what is saved between them.

    Modules are frames, and a loop such as the layers of a model is one frame that shows its first turn. Nothing of the
    sample is run, and torch is not needed.

    For a dump of bp.region: one of its passes, which is the first with NaN, Inf or an error where none is asked for.
    """
    import backprint as bp

    sample = at_place(sample)
    if dumps.is_dump((sample,), options_of_dumps=("number", "run"), options_of_both=("output", "nodes")):
        dumps.draw(sample, run, number, output, nodes)
        return
    dumps.check_sample(sample)
    capture = bp.load(sample, allow=allow)
    place = capture.draw(output, pair=pair, nodes=nodes)
    echo(f"{place}: {capture.name}, {capture.pairs[pair].name} of {len(capture.pairs)}")


# ---- A page


@command("view")
@SAMPLE
@output_option("The HTML file to write; without it a browser opens the page.", "FILE", required=False)
@option(
    HOW,
    "--stats",
    is_flag=True,
    help="Run the graphs once, on the sample's inputs, in their own process; show statistics.",
)
@LIMITS
@ALLOW
@dumps.PASS
@dumps.RUN
@collector_paused()
def view_command(
    sample: Path,
    output: Path | None,
    stats: bool,
    timeout: float,
    memory: float | None,
    allow: tuple[str, ...],
    number: int | None,
    run: str,
) -> None:
    """Make the page of a sample: one HTML file in which forward, backward and what is saved can be looked at.

    The page needs no network and no server. Nothing of the sample is run unless `--stats` is given.

    For a dump of bp.region: one of its passes, which is the first with NaN, Inf or an error where none is asked for.
    """
    import backprint as bp
    from backprint.common.web_page import check_html
    from backprint.tools.draw import page_of

    if output is not None:
        check_html(output)
    sample = at_place(sample)
    if dumps.is_dump((sample,), options_of_dumps=("number", "run"), options_of_both=("output",)):
        dumps.view(sample, run, number, output)
        return
    dumps.check_sample(sample)
    capture = bp.load(sample, allow=allow)
    rows = observe_apart(sample, allow, (timeout, memory)) if stats else None
    page = page_of(capture, rows)
    place = page.save(output) if output is not None else page.open()
    echo(f"{place}: {capture.name}, {len(page.html.encode()) / 1e6:.1f} MB")


def observe_apart(
    sample: Path, allow: tuple[str, ...], limits: tuple[float, float | None]
) -> dict[tuple[int, int, str], list[float | None]]:
    """Run a sample in a process of its own, within `limits` (seconds, and GiB or None), and return statistics of its
    values, as `page_of` takes them, by the number of the Pair, 0 for forward or 1 for backward, and the name of the
    value. Raise if it did not run."""
    with working("running the sample") as show_status:
        options = {"allow": list(allow)}
        [answer] = run_apart(
            "backprint.cli.draw:write_observed_rows",
            [sample],
            options,
            limits_of_each=limits,
            on_sample=lambda place: show_status(str(place)),
        )
    content = answer.content or {"error": answer.ended}  # no content: the process has ended without an answer
    if "error" in content:
        raise ReplayError(f"{sample} did not run, so there are no statistics: {content['error']}")
    return {(pair, direction, name): row for pair, direction, name, row in content["rows"]}


def write_observed_rows(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Run a sample, in its own process, and write the statistics of its values as the answer."""
    import backprint as bp
    from backprint.tools.draw import observed_rows

    try:
        capture = bp.load(task.path, tuple(options["allow"]))
        rows = [[*key, row] for key, row in observed_rows(capture).items()]
    except Exception as error:  # whatever it is: `observe_apart`, in the process that asked, raises it
        return write_answer(staging, {"error": f"{type(error).__name__}: {error}"})
    return write_answer(staging, {"rows": rows})


write_observed_rows.warm = load_only  # type: ignore[attr-defined]  # what its worker loads first


# ---- What changed

COLORS = {"+": "green", "-": "red", "~": "yellow", "!": "magenta"}
"""The color of a line, by its first character: added, removed, changed, and what needs attention."""


@command("diff")
@click.argument("before", type=PATH)
@click.argument("after", type=PATH)
@option(WHAT, "--all", "everything", is_flag=True, help="Every line, where long lists would be cut.")
@output_option("Write a page as well, with marks on the steps that changed.", "FILE", required=False)
@choice(OUTPUT, "format", "markdown: tables for a comment of a review.", "text")
@option(COUNTS, "--exit-zero", is_flag=True, help="Graphs that differ are no reason to exit with 1.")
@ALLOW
@JSON
@option(DUMPS, "--run-a", default="latest", show_default=True, help=dumps.RUN_HELP)
@option(DUMPS, "--run-b", default="latest", show_default=True, help="The same, of AFTER.")
@collector_paused()
def diff_command(
    before: Path,
    after: Path,
    everything: bool,
    output: Path | None,
    format: str,
    exit_zero: bool,
    allow: tuple[str, ...],
    as_json: bool,
    run_a: str,
    run_b: str,
) -> None:
    """Show what changed between two samples: steps, ports, saved bytes and FLOPs, forward and backward.

    Steps are matched by what they compute. Names of values, the order of independent steps and line numbers do not
    count. Nothing of a sample is run, and torch is not needed.

    The exit code is 0 if every graph has the same hash, 1 if the graphs differ and --exit-zero is not given, and 3 if
    nothing was compared, because a sample cannot be read.

    Of two dumps of bp.region, gradients are compared edge by edge: two runs, devices, precisions, before and after a
    change. The exit code is 1 unless all edges are in both, and bitwise or close.
    """
    from backprint.common.web_page import check_html
    from backprint.tools.diff import compare
    from backprint.tools.diff.markdown import diff_markdown
    from backprint.tools.diff.words import diff_json, diff_lines

    if as_json and format != "text":
        raise UsageError(f"--json and --format {format} print two different things: pass one of them")
    titles = (str(before), str(after))
    before, after = at_place(before), at_place(after)
    both = ("everything", "as_json", "exit_zero")
    if dumps.is_dump((before, after), options_of_dumps=("run_a", "run_b"), options_of_both=both):
        dumps.diff(before, after, run_a, run_b, everything, as_json, exit_zero)
        return
    for place in (before, after):
        if (place / WORLD).is_file():
            raise UsageError(f"{place} is a World: compare its ranks, each of which is a sample ({place / 'rank_0'})")
        dumps.check_sample(place)
        if not (place / CAPTURE).is_file():
            raise UsageError(
                f"{place} is not a sample: it has no capture.json. `backprint capture TARGET -o DIR` makes one."
            )
    if output is not None:
        check_html(output)
    with dumps.reading_both():
        difference = compare(before, after, allow)
    if output is not None:  # before what is printed, which a pipe may cut off
        echo(f"page: {difference.view(output).title}, {output}", err=True)
    if as_json:
        echo(json.dumps(diff_json(difference)))
    elif format == "markdown":
        echo(diff_markdown(difference, everything, titles).rstrip(), lines=True)
    else:
        for line in diff_lines(difference, everything, titles):
            mark = line.lstrip()[:1]
            if mark in COLORS and line.startswith(" "):
                echo_styled("", line, fg=COLORS[mark])
            else:
                echo(line)
    if not (difference.same or exit_zero):
        raise SystemExit(1)

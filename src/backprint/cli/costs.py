"""`backprint fits` and `backprint ranks`: what a step needs, and what its ranks send, from the graphs alone.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.

*Needs* are the bytes that a step needs at its peak, counted in two ways, each with its largest parts: `eager`, as
PyTorch runs it, and `graph`, where values end with their last use. A *World* is the folder of the Captures of a
distributed step's ranks. A *model* of the time is what a step would take at given rates (Rates).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.named import at_place
from backprint.cli.options import ALLOW, GIB, HOW, JSON, PATH, SAMPLE, command, option, rank_option
from backprint.cli.say import NOTHING, echo
from backprint.common.collector import collector_paused
from backprint.common.text import amount
from backprint.errors import UsageError

if TYPE_CHECKING:
    from backprint.graph.nouns import Capture
    from backprint.tools.cost.fits import Needs

# ---- Whether a step fits into memory

MOST = 8
"""So many parts of the peak are listed."""


@command("fits")
@SAMPLE
@option(HOW, "--memory", type=GIB, metavar="GIB", required=True, help="What a device, or a rank, has.")
@option(
    HOW,
    "--optimizer-bytes",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="State of the optimizer for each element of a parameter: 8 for Adam in float32.",
)
@rank_option("Of a World, a rank; else all that were captured.")
@ALLOW
@JSON
@collector_paused()
def fits_command(
    sample: Path, memory: float, optimizer_bytes: int, ranks: tuple[int, ...], allow: tuple[str, ...], as_json: bool
) -> None:
    """Say whether a training step fits into memory, and what its peak is made of.

    SAMPLE is a sample, or a World that `backprint capture --world` has written: then the answer is for each rank.
    Counted are parameters, buffers and inputs, what lives at the peak of the step, all pairs of graphs together (saved
    values, gradients, temporaries), and the optimizer's state, if --optimizer-bytes says how much. The peak in eager
    mode decides, where autograd keeps values for longer than a compiled step does; the peak of the graphs, where values
    end with their last use, is said too. What an allocator wastes and what libraries keep is not
    counted. Nothing of the sample is run. The exit code is 1 if a step does not fit, and 3 if that cannot be told: the
    graphs of engine aot are without the program's checkpoints.
    """
    from backprint.graph.nouns import WITHOUT_CHECKPOINTS
    from backprint.tools.cost.fits import needs_of

    limit = int(memory * 2**30)
    rows = []
    for name, capture in captures_of(at_place(sample, fake=True), ranks, allow):
        needs = needs_of(capture, optimizer_bytes)
        fits: bool | None = needs.eager.bytes <= limit
        notes = [] if any(pair.lives for pair in capture.pairs) else [NOT_SEEN]
        if not fits and WITHOUT_CHECKPOINTS in capture.notes:
            fits, notes = None, [WITHOUT_CHECKPOINTS, *notes]
        # What `eager` needs decides, so a row has its numbers at the top too, beside `eager` and `graph`.
        rows.append({"name": name, "fits": fits, **asdict(needs.eager), **asdict(needs), "notes": notes})
        if not as_json:
            print_need(f"{name}: {ANSWERS[fits]} {memory:g} GiB", needs, limit)
            for note in notes:
                echo(f"  {note}")
    if as_json:
        echo(json.dumps({"limit": limit, "ranks": rows}))
    answers = {row["fits"] for row in rows}
    if answers != {True}:
        raise SystemExit(1 if False in answers else NOTHING)


NOT_SEEN = (
    "what variables of the program hold after its last use was not seen, and is not counted; nor is what eager mode "
    "saves and engines aot and dynamo compute again: a capture by engine eager has both"
)
"""The note of a need that was counted from graphs alone."""

# By whether a step fits; None where that cannot be told.
ANSWERS = {True: "fits into", False: "does not fit into", None: "cannot tell whether it fits into"}


def print_need(answer: str, needs: Needs, limit: int) -> None:
    """Print what a step needs, after `answer`, and how far that is from the limit in bytes."""
    eager, size = needs.eager, needs.eager.bytes
    margin = f"{amount(abs(limit - size))} {'to spare' if size <= limit else 'too much'}"
    echo(f"{answer}: {amount(size)} at the peak in eager mode, {margin}")
    echo(f"  {', '.join(f'{amount(part.bytes)} {NOUNS.get(part.role, part.role)}' for part in eager.by_role())}")
    echo(f"  {amount(needs.graph.bytes)} at the peak of the graphs, where values end with their last use")
    echo(f"  the peak in eager mode is at {eager.at or 'no line'}; the largest parts of it:")
    for part in eager.parts[:MOST]:
        echo(f"  {amount(part.bytes):>10}  {part.role:<9}  {part.line}")


NOUNS = {
    "parameter": "of parameters",
    "buffer": "of buffers",
    "input": "of inputs",
    "constant": "of constants",
    "saved": "saved for the backward",
    "gradient": "of gradients",
    "temporary": "of temporaries",
    "output": "of outputs",
    "tangent": "of tangents",
    "mutation": "of mutations",
    "optimizer": "of the optimizer",
}


def captures_of(sample: Path, ranks: Sequence[int], allow: tuple[str, ...]) -> list[tuple[str, Capture]]:
    """Load the Capture of a sample, or those of a World (of these ranks, or else all that it has), and return each with
    what it is called; refuse ranks of a sample."""
    import backprint as bp
    from backprint.tools.jobs.find import check_sample
    from backprint.tools.ranks.world import is_world

    if is_world(sample):
        world = bp.load_world(sample, allow=allow)
        return [(f"rank {number}", world.rank(number)) for number in ranks or world.numbers]
    if ranks:
        raise UsageError(f"{sample} is no World, so it has no ranks: leave --rank out")
    check_sample(sample)
    capture = bp.load(sample, allow=allow)
    return [(capture.name, capture)]


# ---- What the ranks of a step send


def rate(text: str) -> float:
    """Return a rate that may be written with a suffix: `400T`, `3.35T`, `50G`; refuse what is no number above 0."""
    text = text.strip()
    factor = SUFFIXES.get(text[-1:].upper())
    try:
        number = float(text[:-1] if factor else text) * (factor or 1.0)
    except ValueError:
        number = math.nan  # which the comparison below refuses
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{text!r} is not a rate: write 400T, 3.35T or 50G")
    return number


SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@command("ranks")
@click.argument("world", type=PATH)
@rank_option("A rank whose collectives are listed; else the first.")
@option(HOW, "--flops", type=rate, metavar="RATE", help="Operations of a device in a second: 400T.")
@option(HOW, "--bytes", "moved", type=rate, metavar="RATE", help="That kernels read and write in a second: 3T.")
@option(HOW, "--link", "links", multiple=True, metavar="GROUP=RATE", help="Bytes a rank sends in a second: tp=400G.")
@option(
    HOW,
    "--latency",
    type=click.FloatRange(0, 1e9),
    default=10.0,
    show_default=True,
    help="Microseconds of each collective.",
)
@ALLOW
@JSON
def ranks_command(
    world: Path,
    ranks: tuple[int, ...],
    flops: float | None,
    moved: float | None,
    links: tuple[str, ...],
    latency: float,
    allow: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the ranks of a distributed step: their groups, where their graphs differ, and what goes over the wire.

    WORLD is a folder that `backprint capture TARGET --world N` or `World.save` has written. Nothing of it is run;
    `backprint verify WORLD` proves the sample of each rank. The bytes are the least that a rank can send: those of a
    ring, so an all-reduce of B bytes among n ranks counts 2 (n - 1) / n of B.

    With --flops, --bytes and a --link for each group, it says how long the step of a rank would take at these rates,
    and what it would wait for: a model, in which a device runs one step of a graph at a time, each link moves one
    collective at a time, and nothing else takes time.
    """
    import backprint as bp
    from backprint.tools.cost.traffic import Rates, sizes_of_groups
    from backprint.tools.jobs.find import check_samples
    from backprint.tools.ranks.text import lines_of_model, lines_of_traffic, totals_of_traffic, traffic_json, world_text
    from backprint.tools.ranks.world import is_world

    check_samples((world,))
    if not is_world(world):
        raise UsageError(f"{world} is no World: `backprint capture TARGET --world N -o DIR` makes one")
    whole = bp.load_world(world, allow=allow)
    captures = [whole.rank(number) for number in ranks or whole.numbers[:1]]
    rates = None
    if flops is not None or moved is not None or links:
        if math.isnan(latency):
            raise click.BadParameter("nan is not a time", param_hint="--latency")
        sizes = {group: size for capture in captures for group, size in sizes_of_groups(capture).items()}
        rates = Rates(*rates_of(flops, moved), rates_of_links(links, sizes), latency * 1e-6)
    if as_json:
        echo(json.dumps({"ranks": [traffic_json(capture, rates) for capture in captures]}))
        return
    lines = world_text(repr(whole), whole.numbers, whole.ranks).splitlines()
    for capture in captures:
        lines += [*totals_of_traffic(capture), *lines_of_traffic(capture)]
        lines += lines_of_model(capture, rates) if rates is not None else []
    for line in lines:
        echo(line)


def rates_of(flops: float | None, moved: float | None) -> tuple[float, float]:
    """Return the rates of a device, operations and bytes in a second; UsageError unless both are given, which a model
    needs."""
    if flops is None or moved is None:
        raise UsageError("a model of the time needs --flops and --bytes, and a --link for each group")
    return flops, moved


def rates_of_links(links: Sequence[str], groups: Mapping[str, int]) -> dict[str, float]:
    """Return the rate of each group's link from texts `GROUP=RATE`; UsageError unless each group has one, and one
    alone. `groups` has the size of each group of the step, by its label."""
    rates: dict[str, float] = {}
    for text in links:
        group, equals, value = text.partition("=")
        if group in rates:
            raise UsageError(f"--link {text}: {group} has a rate already")
        if not equals or group not in groups:
            raise UsageError(f"--link {text}: write GROUP=RATE; the groups are {', '.join(groups) or 'none'}")
        rates[group] = rate(value)
    if missing := [group for group in groups if group not in rates]:
        raise UsageError(f"a model of the time needs --link {missing[0]}=RATE, too")
    return rates

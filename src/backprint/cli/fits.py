"""`backprint fits SAMPLE`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.options import ALLOW, GIB, rank_option
from backprint.cli.say import echo
from backprint.common.collector import collector_paused
from backprint.common.text import amount

if TYPE_CHECKING:
    from backprint.graph.nouns import Capture
    from backprint.tools.cost.fits import Needs

MOST = 8
"""So many parts of the peak are listed."""


@click.command("fits")
@click.argument("sample", type=click.Path(path_type=Path))
@click.option("--memory", type=GIB, metavar="GIB", required=True, help="What a device, or a rank, has.")
@click.option(
    "--optimizer-bytes",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="State of the optimizer for each element of a parameter: 8 for Adam in float32.",
)
@rank_option("Of a World, a rank; else all that were captured.")
@ALLOW
@click.option("--json", "as_json", is_flag=True, help="The answer as one JSON object.")
@collector_paused()
def command(
    sample: Path, memory: float, optimizer_bytes: int, ranks: tuple[int, ...], allow: tuple[str, ...], as_json: bool
) -> None:
    """Say whether a training step fits into memory, and what its peak is made of.

    SAMPLE is a sample, or a World that `backprint capture --world` has written: then the answer is for each rank.
    Counted are parameters, buffers and inputs, what lives at the peak of the step, all pairs of graphs together (saved
    values, gradients, temporaries), and the optimizer's state, if --optimizer-bytes says how much. The peak in eager
    mode decides, where autograd keeps values for longer than a compiled step does; the peak of the graphs, where values
    end with their last use, is said too. What an allocator wastes and what libraries keep is not
    counted. Nothing of the sample is run. Exits with 1 if a step does not fit, and with 3 if that cannot be told: the
    graphs of engine aot are without the program's checkpoints.
    """
    from backprint.graph.nouns import WITHOUT_CHECKPOINTS
    from backprint.tools.cost.fits import needs_of

    limit = int(memory * 2**30)
    rows = []
    for name, capture in captures_of(sample, ranks, allow):
        needs = needs_of(capture, optimizer_bytes)
        fits: bool | None = needs.eager.bytes <= limit
        notes = [] if any(pair.lives for pair in capture.pairs) else [NOT_SEEN]
        if not fits and WITHOUT_CHECKPOINTS in capture.notes:
            fits, notes = None, [WITHOUT_CHECKPOINTS, *notes]
        rows.append({"name": name, "fits": fits, **asdict(needs.eager), **asdict(needs), "notes": notes})
        if not as_json:
            say_need(f"{name}: {ANSWERS[fits]} {memory:g} GiB", needs, limit)
            for note in notes:
                echo(f"  {note}")
    if as_json:
        echo(json.dumps({"limit": limit, "ranks": rows}))
    answers = {row["fits"] for row in rows}
    if answers != {True}:
        raise SystemExit(1 if False in answers else 3)


NOT_SEEN = (
    "what variables of the program hold after its last use was not seen, and is not counted; nor is what eager mode "
    "saves and engines aot and dynamo compute again: a capture by engine eager has both"
)
"""The note of a need that was counted from graphs alone."""

ANSWERS = {True: "fits into", False: "does not fit into", None: "cannot tell whether it fits into"}


def say_need(answer: str, needs: Needs, limit: int) -> None:
    """Print what a step needs, and whether that is too much."""
    need, size = needs.eager, needs.eager.bytes
    left = f"{amount(abs(limit - size))} {'to spare' if size <= limit else 'too much'}"
    echo(f"{answer}: {amount(size)} at the peak in eager mode, {left}")
    echo(f"  {', '.join(f'{amount(part.bytes)} {NOUNS.get(part.role, part.role)}' for part in need.by_role())}")
    echo(f"  {amount(needs.graph.bytes)} at the peak of the graphs, where values end with their last use")
    echo(f"  the peak in eager mode is at {need.at or 'no line'}; the largest parts of it:")
    for part in need.parts[:MOST]:
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
    """Return the Captures of a sample, or of a World, each with what it is called."""
    import backprint as bp
    from backprint.errors import UsageError
    from backprint.tools.jobs.find import missing_sample
    from backprint.tools.ranks.world import is_world

    if is_world(sample):
        world = bp.load_world(sample, allow=allow)
        return [(f"rank {number}", world.rank(number)) for number in ranks or world.numbers]
    if ranks:
        raise UsageError(f"{sample} is no World, so it has no ranks: leave --rank out")
    if wrong := missing_sample((sample,)):
        raise UsageError(wrong)
    capture = bp.load(sample, allow=allow)
    return [(capture.name, capture)]

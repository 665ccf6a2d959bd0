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
    Counted are parameters, buffers and inputs, what lives at the peak of the graphs (saved values, gradients,
    temporaries), and the optimizer's state, if --optimizer-bytes says how much. What an allocator wastes and what
    libraries keep is not. Nothing of the sample is run. Exits with 1 if a step does not fit.
    """
    from backprint.graph.fits import need_of

    limit = int(memory * 2**30)
    rows = []
    for name, capture in captures_of(sample, ranks, allow):
        need = max((need_of(pair, optimizer_bytes) for pair in capture.pairs), key=lambda need: need.bytes)
        rows.append({"name": name, "fits": need.bytes <= limit, **asdict(need)})
        if not as_json:
            left = f"{amount(abs(limit - need.bytes))} {'to spare' if need.bytes <= limit else 'too much'}"
            answer = "fits" if need.bytes <= limit else "does not fit"
            echo(f"{name}: {answer} into {memory:g} GiB: {amount(need.bytes)} at the peak, {left}")
            echo(f"  {', '.join(f'{amount(part.bytes)} {NOUNS.get(part.role, part.role)}' for part in need.by_role())}")
            echo(f"  the peak is at {need.at or 'no line'}; the largest parts of it:")
            for part in need.parts[:MOST]:
                echo(f"  {amount(part.bytes):>10}  {part.role:<9}  {part.line}")
    if as_json:
        echo(json.dumps({"limit": limit, "ranks": rows}))
    if not all(row["fits"] for row in rows):
        raise SystemExit(1)


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
    from backprint.jobs.find import missing_sample
    from backprint.ranks.world import is_world

    if is_world(sample):
        world = bp.load_world(sample, allow=allow)
        return [(f"rank {number}", world.rank(number)) for number in ranks or world.numbers]
    if ranks:
        raise UsageError(f"{sample} is no World, so it has no ranks: leave --rank out")
    if wrong := missing_sample((sample,)):
        raise UsageError(wrong)
    capture = bp.load(sample, allow=allow)
    return [(capture.name, capture)]

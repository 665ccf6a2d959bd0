"""`backprint draw SAMPLE -o picture.svg`; of a region's dump, one pass."""

from __future__ import annotations

from pathlib import Path

import click

from backprint.cli import dumps
from backprint.cli.options import ALLOW
from backprint.cli.say import echo
from backprint.common.collector import collector_paused


@click.command("draw")
@click.argument("sample", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The picture to write: .svg, .dot (for Graphviz) or .png.",
)
@click.option("--pair", type=click.IntRange(min=0), default=0, show_default=True, help="Which Pair, counted from 0.")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="How many steps and folded frames are seen at most; inner frames are folded.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0.1, max=10),
    default=2.0,
    show_default=True,
    help="The pixels of a .png for each point.",
)
@ALLOW
@dumps.PASS
@dumps.RUN
@collector_paused()
def command(
    sample: Path,
    output: Path,
    pair: int,
    nodes: int,
    scale: float,
    allow: tuple[str, ...],
    number: int | None,
    run: str,
) -> None:
    """Draw a sample as a picture: forward on the left, backward on the right, what is saved between them.

    Modules are frames, and a loop such as the layers of a model is one frame that shows its first turn. Nothing of the
    sample is run, and torch is not needed.

    For a dump of bp.region: one of its passes, which is the first with NaN, Inf or an error where none is asked for.
    """
    import backprint as bp

    if dumps.is_dump((sample,), alone=("number", "run"), both=("output", "nodes", "scale")):
        dumps.draw(sample, run, number, output, nodes, scale)
        return
    dumps.check_sample(sample)
    capture = bp.load(sample, allow=allow)
    place = capture.draw(output, pair=pair, nodes=nodes, scale=scale)
    echo(f"{place}: {capture.name}, {capture.pairs[pair].name} of {len(capture.pairs)}")

"""`backprint ranks WORLD`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backprint.cli.options import ALLOW
from backprint.cli.say import echo


@click.command("ranks")
@click.argument("world", type=click.Path(path_type=Path))
@click.option("--rank", type=click.IntRange(0), help="The rank whose collectives are listed; else the first.")
@ALLOW
@click.option("--json", "as_json", is_flag=True, help="The collectives of the rank as one JSON object.")
def command(world: Path, rank: int | None, allow: tuple[str, ...], as_json: bool) -> None:
    """Show the ranks of a distributed step: their groups, where their graphs differ, and what goes over the wire.

    WORLD is a folder that `backprint capture TARGET --world N` or `World.save` has written. Nothing of it is run;
    `backprint verify WORLD` proves the sample of each rank. The bytes are the least that a rank can send: those of a
    ring, so an all-reduce of B bytes among n ranks counts 2 (n - 1) / n of B.
    """
    import backprint as bp
    from backprint.ranks.text import lines_of_traffic, traffic_json, world_text

    ranks = bp.load_world(world, allow=allow)
    capture = ranks.rank(ranks.numbers[0] if rank is None else rank)
    if as_json:
        echo(json.dumps(traffic_json(capture)))
        return
    text = world_text(repr(ranks), ranks.numbers, ranks.ranks, capture)
    for line in (*text.splitlines(), *lines_of_traffic(capture)):
        echo(line)

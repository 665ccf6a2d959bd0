"""`backprint ranks WORLD`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from backprint.cli.options import ALLOW, rank_option
from backprint.cli.say import echo


def rate(text: str) -> float:
    """Return a rate that is written with a suffix: `400T`, `3.35T`, `50G`."""
    text = text.strip()
    factor = SUFFIXES.get(text[-1:].upper())
    try:
        number = float(text[:-1] if factor else text) * (factor or 1.0)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{text!r} is not a rate: write 400T, 3.35T or 50G")
    return number


SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@click.command("ranks")
@click.argument("world", type=click.Path(path_type=Path))
@rank_option("A rank whose collectives are listed; else the first.")
@click.option("--flops", type=rate, metavar="RATE", help="Operations of a device in a second: 400T.")
@click.option("--bytes", "moved", type=rate, metavar="RATE", help="That kernels read and write in a second: 3T.")
@click.option("--link", "links", multiple=True, metavar="GROUP=RATE", help="Bytes a rank sends in a second: tp=400G.")
@click.option(
    "--latency", type=click.FloatRange(0, 1e9), default=10.0, show_default=True, help="Microseconds of each collective."
)
@ALLOW
@click.option("--json", "as_json", is_flag=True, help="The answer as one JSON object.")
def command(
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
    from backprint.tools.ranks.text import lines_of_model, lines_of_traffic, totals_of_traffic, traffic_json, world_text

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
    """Return the rates of a device; both are needed for a model."""
    from backprint.errors import UsageError

    if flops is None or moved is None:
        raise UsageError("a model of the time needs --flops and --bytes, and a --link for each group")
    return flops, moved


def rates_of_links(links: Sequence[str], groups: Mapping[str, int]) -> dict[str, float]:
    """Return the rate of each group's link; every group needs one."""
    from backprint.errors import UsageError

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

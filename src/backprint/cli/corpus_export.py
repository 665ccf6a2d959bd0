"""`backprint corpus export OUT -o FOLDER`."""

from __future__ import annotations

from pathlib import Path

import click

from backprint.cli.options import WHERE
from backprint.cli.say import echo, ending, working

NAMED = 5
"""How many samples that are left out are named."""


@click.command("export")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, metavar="FOLDER", type=click.Path(path_type=Path), help="The data set's folder."
)
@WHERE
@click.option("--license", metavar="ID", help="The licence of the programs, for the card and the column `license`.")
@click.option("--overwrite", is_flag=True, help="Replace a data set that exists already.")
def command(out: Path, output: Path, where: tuple[str, ...], license: str | None, overwrite: bool) -> None:
    """Write the graphs of a corpus run as one Parquet file, with a card, for Hugging Face's `datasets`.

    A row is one graph: text, hash, ports, verdict, derivative, power, FLOPs, bytes, seconds and provenance. Nothing of
    a sample is executed, neither here nor by who reads the rows.
    """
    from backprint.tools import corpus

    with ending(lambda: f"nothing was written to {output}"), working(f"{out}: writing graphs") as at:
        exported = corpus.export(out, output, where=where, license=license, overwrite=overwrite, watch=at)
    left = f"; {len(exported.left_out):,} samples left out" if exported.left_out else ""
    echo(f"{exported.graphs:,} graphs of {exported.samples:,} samples in {output}, with a card{left}")
    for id, why in exported.left_out[:NAMED]:
        echo(f"left out: {id}: {why}")
    if len(exported.left_out) > NAMED:
        echo(f"and {len(exported.left_out) - NAMED:,} more")

"""`backprint convert SAMPLE...`."""

from __future__ import annotations

from pathlib import Path

import click

from backprint.cli.say import echo


@click.command("convert")
@click.argument("samples", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(samples: tuple[Path, ...]) -> None:
    """Write samples of format 3, whose graphs are stored with loops, in today's format, in their place.

    A SAMPLE is a folder with capture.json, a copy of one direction's folder, or a folder with samples below. Nothing of
    it is run: each graph is read, written with loops again, and compared with what is stored, to the letter. Other
    files stay as they are, and so do samples of other formats. Exit code 1 if one could not be converted.
    """
    from backprint.errors import BackprintError, UsageError
    from backprint.graph.keys import number_of
    from backprint.jobs.find import missing_sample, samples_in
    from backprint.sample.convert import convert

    failed = False
    for place in samples_in(samples):
        try:
            count = convert(place)
        except BackprintError as error:
            failed = True
            echo(f"not converted: {error}", err=True)
            continue
        echo(f"{place}: {number_of(count, 'graph')} written flat" if count else f"{place}: has no loops")
    if wrong := missing_sample(samples):
        raise UsageError(wrong)
    if failed:
        raise SystemExit(1)

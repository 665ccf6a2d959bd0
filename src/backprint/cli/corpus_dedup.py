"""`backprint corpus dedup SRC_OR_OUT -o OUT`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backprint.cli.options import choice
from backprint.cli.say import echo, ending, working


@click.command("dedup")
@click.argument("source", metavar="SRC_OR_OUT", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="A new folder for what is kept.")
@click.option("--ignore-sizes", is_flag=True, help="Graphs that differ in sizes alone are the same.")
@choice("files", "How kept samples are written: hard links, copies, or only kept.txt and duplicates.json.", "link")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a sample: id, kept, duplicate_of, why.")
def command(source: Path, output: Path, ignore_sizes: bool, files: str, as_json: bool) -> None:
    """Keep one of each group of samples that are the same program, and list the others.

    SRC_OR_OUT is the folder of a corpus run, whose ledger has the hashes, or any folder of samples, which are read and
    not executed. Of each group it keeps the sample that is proved, then the smallest, then the first by name.
    `kept.txt` is a list for `--list` of other verbs, `duplicates.json` has the others.
    """
    from backprint.tools.corpus import dedup
    from backprint.tools.corpus.duplicates import KEPT, LIST

    with ending(lambda: f"nothing was written to {output}"), working(f"{source}: comparing"):
        groups = dedup(source, output, ignore_sizes=ignore_sizes, files=files)
    if as_json:
        for first, *others in groups.groups:
            echo(json.dumps(dict(id=first.id, kept=True, duplicate_of="", why="")))
            for other in others:
                echo(json.dumps(dict(id=other.id, kept=False, duplicate_of=first.id, why="")))
        for member in groups.left_out:
            echo(json.dumps(dict(id=member.id, kept=False, duplicate_of="", why=member.why)))
        return
    samples = sum(map(len, groups.groups))
    echo(
        f"{samples:,} samples, {len(groups.groups):,} distinct by {groups.by} graphs; the others are in {output / LIST}"
    )
    if groups.left_out:
        unread = groups.left_out[0]
        echo(f"{len(groups.left_out):,} could not be compared and are left out; {unread.id}: {unread.why}")
    echo(f"kept: {output / KEPT}" if files == "none" else f"kept samples: {output}")

"""`backprint corpus tasks PAIRS -o SET`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from backprint.cli.options import ALLOW
from backprint.cli.say import echo, ending, working


@click.command("tasks")
@click.argument("source", metavar="PAIRS", type=click.Path(path_type=Path))
@click.option("-o", "--output", "out", required=True, metavar="SET", type=click.Path(path_type=Path))
@click.option("--by", default="module", show_default=True, metavar="HOW", help="As of corpus split; or whole.")
@click.option("--held-out", type=float, default=0.2, show_default=True, help="The share of tasks that is held out.")
@click.option("--most", type=click.IntRange(1), metavar="N", help="End with so many tasks.")
@click.option("--least", type=int, default=2, show_default=True, help="The fewest operators of a part's forward.")
@ALLOW
@click.option("--json", "as_json", is_flag=True, help="One JSON object a task.")
def command(source: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Make a task of each different part of samples, with how often it occurs, a held-out split and a card.

    Parts are the same if their graphs are equal but for names. If the command is ended at any moment, the same command
    continues. Exit code 1 if no part became a task.
    """
    from backprint.tools import tasks

    with ending(lambda: "the same command continues"), working(f"corpus tasks {source}") as at:
        task_set = tasks.make_set(source, out, watch=at, **options)
    if as_json:
        for row in task_set.rows:
            echo(json.dumps(row))
    else:
        held = sum(row["split"] == "held out" for row in task_set.rows)
        occurs = sum(row["occurs"] for row in task_set.rows)
        echo(f"{out}: {len(task_set.rows)} tasks, {held} held out, of {occurs} parts; {len(task_set.skipped)} left out")
    if not task_set.rows:
        raise SystemExit(1)

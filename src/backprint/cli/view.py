"""`backprint view SAMPLE -o page.html`; of a region's dump, one pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from backprint.cli import dumps
from backprint.cli.options import ALLOW
from backprint.cli.say import echo, limits, working
from backprint.common.collector import collector_paused
from backprint.errors import ReplayError
from backprint.tools.jobs.apart import run_apart, write_answer
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import load_only


@click.command("view")
@click.argument("sample", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The HTML file to write; without it a browser opens the page.",
)
@click.option(
    "--stats", is_flag=True, help="Run the graphs once, on the sample's inputs, in their own process; show statistics."
)
@limits
@ALLOW
@dumps.PASS
@dumps.RUN
@collector_paused()
def command(
    sample: Path,
    output: Path | None,
    stats: bool,
    timeout: float,
    memory: float | None,
    allow: tuple[str, ...],
    number: int | None,
    run: str,
) -> None:
    """Make the page of a sample: one HTML file in which forward, backward and what is saved can be looked at.

    The page needs no network and no server. Nothing of the sample is run unless `--stats` is given.

    For a dump of bp.region: one of its passes, which is the first with NaN, Inf or an error where none is asked for.
    """
    import backprint as bp
    from backprint.common.web_page import check_html
    from backprint.tools.draw import page_of

    if output is not None:
        check_html(output)
    if dumps.is_dump((sample,), alone=("number", "run"), both=("output",)):
        dumps.view(sample, run, number, output)
        return
    dumps.check_sample(sample)
    capture = bp.load(sample, allow=allow)
    rows = observed_apart(sample, allow, (timeout, memory)) if stats else None
    page = page_of(capture, rows)
    place = page.save(output) if output is not None else page.open()
    echo(f"{place}: {capture.name}, {len(page.html.encode()) / 1e6:.1f} MB")


def observed_apart(
    sample: Path, allow: tuple[str, ...], allowed: tuple[float, float | None]
) -> dict[tuple[int, int, str], list[float | None]]:
    """Run a sample in a process of its own, and return statistics of its values."""
    with working("running the sample") as at:
        options = {"allow": list(allow)}
        [answer] = run_apart("backprint.cli.view:observed", [sample], options, allowed, lambda place: at(str(place)))
    if answer.content is None:
        raise ReplayError(f"{sample} did not run, so there are no statistics: {answer.ended}")
    if "error" in answer.content:
        raise ReplayError(f"{sample} did not run, so there are no statistics: {answer.content['error']}")
    return {(pair, side, name): row for pair, side, name, row in answer.content["rows"]}


def observed(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Run a sample, in its own process, and write the statistics of its values as the answer."""
    import backprint as bp
    from backprint.tools.draw import observed_rows

    try:
        capture = bp.load(task.path, tuple(options["allow"]))
        rows = [[*key, row] for key, row in observed_rows(capture).items()]
    except Exception as error:  # told by the process that asked
        return write_answer(staging, {"error": f"{type(error).__name__}: {error}"})
    return write_answer(staging, {"rows": rows})


observed.warm = load_only  # type: ignore[attr-defined]  # what its worker loads first

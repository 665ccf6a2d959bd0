"""`backprint bench SAMPLE... --compiler NAME -o RUN` and `bench report`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backprint.cli.groups import RUN, ShortGroup
from backprint.cli.options import ALLOW, choice, run_options, split_names
from backprint.cli.say import echo, width

if TYPE_CHECKING:
    from backprint.tools.bench.cells import BenchCell
    from backprint.tools.bench.runs import BenchRun


JOBS = click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Workers; timed parts take turns."
)
TIMEOUT = click.option(
    "--timeout", type=float, default=600.0, show_default=True, help="Seconds that one graph may take."
)


@click.group("bench", cls=ShortGroup, others=("report",))
def command() -> None:
    """Run compilers on the forward and backward graphs of samples: are they right, and how fast?

    `backprint bench SAMPLE... --compiler NAME -o RUN` is short for `backprint bench run`, which has the options.
    """


@command.command(RUN)
@click.argument("samples", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--compiler",
    "compilers",
    multiple=True,
    required=True,
    metavar="NAME[,NAME…]",
    help="inductor, xla, onnxruntime, …, a backend of torch.compile, or file.py:NAME, a compiler or a kernel of yours.",
)
@click.option("-o", "--output", "out", required=True, metavar="RUN", type=click.Path(path_type=Path))
@choice("direction", "Which graphs; both means the two of a Pair as one step, too.", "both")
@click.option("--no-timing", is_flag=True, help="Only compile and judge the results.")
@click.option("--derivative", is_flag=True, help="Say too whether compiled backwards are the derivative, in float64.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="For eager and compilers alike.")
@click.option("--device", help="Where the samples' graphs run; those captured elsewhere are captured again there.")
@run_options(jobs=JOBS, timeout=TIMEOUT)
@ALLOW
@click.option("--allow-refused", is_flag=True, help="A graph that a compiler refuses is no reason to exit with 1.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a cell, at the end.")
def run_command(
    samples: tuple[Path, ...],
    compilers: tuple[str, ...],
    direction: str,
    no_timing: bool,
    allow_refused: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run compilers on the graphs of samples, each sample in a process of its own, judge the results, and time them.

    Each output is compared with eager's and with a float64 run's. Eager and the compiler are timed in turns. RUN keeps
    a cell for each graph and compiler, and report.html; if the command is ended at any moment, the same command
    continues. Exit code 1 if a compiler gives wrong results, raises, crashes or hangs, and if nothing of a sample was
    compared.

    With --derivative, each step is compiled once more in float64: is the compiled backward the derivative of the
    compiled forward? If not, the exit code is 1.
    """
    from backprint.cli.bench_report import write_page
    from backprint.common.text import BENCH_DIRECTIONS
    from backprint.table.terminal import print_report
    from backprint.tools.bench import run
    from backprint.tools.bench.cells import STOPPED
    from backprint.tools.bench.reports import bench_report
    from backprint.tools.jobs.progress import display_for
    from backprint.tools.jobs.run import Stopped

    names = split_names(compilers)
    directions = BENCH_DIRECTIONS if direction == "both" else (direction,)
    try:
        with display_for(False) as watcher:
            done = run(samples, names, watch=watcher, directions=directions, timed=not no_timing, **given)
    except Stopped as stopped:
        echo(f"stopped by {stopped}; the same command goes on from here", err=True)
        raise SystemExit(128 + stopped.number) from None
    report = bench_report(done)
    for line in (json.dumps(cell.to_json()) for cell in done.cells) if as_json else ():
        echo(line)
    if not as_json:
        told = {name: report.facts[name] for name in TOLD if name in report.facts}
        print_report(replace(report, title="", facts=told), sys.stdout, width())
    page = write_page(done, report)
    echo(f"report: {page}; compare runs with: backprint bench report OLD NEW", err=True)
    bad = {"wrong", "unjudged", *STOPPED} - ({"refused"} if allow_refused else set())
    nothing = not_compared(done, ("refused",) if allow_refused else ())
    for name, why in nothing[:SHOWN]:
        echo(f"nothing was compared of {name}: {why}", err=True)
    if len(nothing) > SHOWN:
        echo(f"nor of {len(nothing) - SHOWN:,} more", err=True)
    if nothing or any(cell.outcome in bad or cell.not_the_derivative for cell in done.cells):
        raise SystemExit(1)


TOLD = ("noise", "load", "not judged")
"""The facts of a report that are printed at the end of a run."""

SHOWN = 10
"""How many samples of which nothing was compared are named."""


def not_compared(run: BenchRun, allowed: Sequence[str]) -> list[tuple[str, str]]:
    """Return the samples, each with its compiler, of which no graph was judged, and why; without those of which a graph
    has an outcome that is allowed."""
    from backprint.tools.bench.cells import NOT_JUDGED

    cells: dict[tuple[str, str], list[BenchCell]] = {}
    for cell in run.cells:
        cells.setdefault((cell.sample, cell.compiler), []).append(cell)
    return [
        (f"{sample} by {compiler}", f"{those[0].outcome}: {those[0].reason}")
        for (sample, compiler), those in cells.items()
        if all(cell.outcome in (*NOT_JUDGED, "refused") for cell in those)
        and not any(cell.outcome in allowed for cell in those)
    ]

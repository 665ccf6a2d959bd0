"""`backprint bench run SAMPLE... --compiler NAME -o RUN`, and `bench report RUN...`.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.

A *cell* is one graph and one compiler in a BenchRun, with its `outcome`: a word such as `faster` or `wrong`. STOPPED
are the outcomes of compilers that raised, crashed or were ended, and NOT_JUDGED those of cells that are neither right
nor wrong. A Report is a title, an answer in a sentence, facts, tables, and a row for each cell.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from backprint.cli.named import at_places
from backprint.cli.options import (
    ALLOW,
    COUNTS,
    HOW,
    LIMITED,
    OUTPUT,
    PATH,
    SAMPLES,
    WHAT,
    Commands,
    choice,
    json_lines,
    option,
    output_option,
    report_options,
    run_options,
    split_names,
)
from backprint.cli.say import NOTHING, echo, width, write_or_print
from backprint.common.words import BenchDirectionWord
from backprint.errors import UsageError
from backprint.table.nouns import count_rows

if TYPE_CHECKING:
    from backprint.table.nouns import Report
    from backprint.tools.bench.cells import BenchCell
    from backprint.tools.bench.runs import BenchRun


@click.group("bench", cls=Commands)
def bench_command() -> None:
    """Run compilers on the forward and backward graphs of samples: are they right, and how fast?"""


JOBS = option(
    LIMITED, "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Workers; timed parts take turns."
)


@bench_command.command("run")
@SAMPLES
@option(
    HOW,
    "--compiler",
    "compilers",
    multiple=True,
    required=True,
    metavar="NAME[,NAME…]",
    help="inductor, xla, onnxruntime, …, a backend of torch.compile, or file.py:NAME, a compiler or a kernel of yours.",
)
@output_option("The folder of the run; the same command continues it.", "RUN", name="out")
@choice(WHAT, "direction", "Which graphs; both means the two of a Pair as one step, too.", "both")
@option(HOW, "--no-timing", is_flag=True, help="Only compile and judge the results.")
@option(HOW, "--derivative", is_flag=True, help="Say too whether compiled backwards are the derivative, in float64.")
@option(HOW, "--threads", type=click.IntRange(1), default=1, show_default=True, help="For eager and compilers alike.")
@option(HOW, "--device", help="Where the samples' graphs run; those captured elsewhere are captured again there.")
@run_options(JOBS)
@ALLOW
@option(COUNTS, "--allow-refused", is_flag=True, help="A graph that a compiler refuses is no reason to exit with 1.")
@json_lines("cell, at the end")
def run(
    samples: tuple[Path, ...],
    compilers: tuple[str, ...],
    direction: Literal["both"] | BenchDirectionWord,
    no_timing: bool,
    allow_refused: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run compilers on the graphs of samples, each sample in a process of its own, judge the results, and time them.

    Each output is compared with eager's and with a float64 run's. Eager and the compiler are timed in turns. RUN keeps
    a cell for each graph and compiler, and report.html; if the command is ended at any moment, the same command
    continues. The exit code is 1 if a compiler gives wrong results, raises, crashes or hangs; and 3 if nothing of a
    sample was compared.

    With --derivative, each step is compiled once more in float64: is the compiled backward the derivative of the
    compiled forward? If not, the exit code is 1.
    """
    from backprint.common.words import BENCH_DIRECTIONS
    from backprint.table.terminal import print_report
    from backprint.tools import bench
    from backprint.tools.bench.cells import STOPPED
    from backprint.tools.bench.reports import bench_report
    from backprint.tools.jobs.progress import display_for
    from backprint.tools.jobs.run import Stopped

    names = split_names(compilers)
    directions = BENCH_DIRECTIONS if direction == "both" else (direction,)
    samples = at_places(samples, given["out"])
    try:
        with display_for(as_json=False) as watcher:  # with --json, the cells are printed at the end
            done = bench.run(samples, names, watch=watcher, directions=directions, timed=not no_timing, **given)
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
    if any(cell.outcome in bad or cell.not_the_derivative for cell in done.cells):
        raise SystemExit(1)
    if nothing:
        raise SystemExit(NOTHING)


TOLD = ("noise", "load", "not judged")
"""The facts of a report that are printed at the end of a run."""

SHOWN = 10
"""How many samples of which nothing was compared are named."""


def not_compared(run: BenchRun, allowed: Sequence[str]) -> list[tuple[str, str]]:
    """Return `SAMPLE by COMPILER` for each sample and compiler of which no graph was judged, with the outcome and the
    reason of the first; without those of which a graph has an outcome that is allowed."""
    from backprint.tools.bench.cells import NOT_JUDGED

    cells_of: dict[tuple[str, str], list[BenchCell]] = {}
    for cell in run.cells:
        cells_of.setdefault((cell.sample, cell.compiler), []).append(cell)
    nothing: list[tuple[str, str]] = []
    for (sample, compiler), cells in cells_of.items():
        outcomes = [cell.outcome for cell in cells]
        is_judged = any(outcome not in (*NOT_JUDGED, "refused") for outcome in outcomes)
        if not is_judged and not any(outcome in allowed for outcome in outcomes):
            nothing.append((f"{sample} by {compiler}", f"{cells[0].outcome}: {cells[0].reason}"))
    return nothing


# ------------------------------------------------------------------ reports


@bench_command.command("report")
@click.argument("runs", nargs=-1, required=True, metavar="[OLD]... RUN", type=PATH)
@option(
    COUNTS,
    "--threshold",
    type=click.FloatRange(0, min_open=True),
    default=0.05,
    show_default=True,
    help="Of several runs: how much slower or faster, beyond the noise, is a change.",
)
@report_options("cell")
@option(OUTPUT, "--logs", type=PATH, metavar="FOLDER", help="Write GraphNet's log of each compiler.")
def report(runs: tuple[Path, ...], threshold: float, output: Path | None, as_json: bool, logs: Path | None) -> None:
    """Report a bench run: which compiler is right, how fast it is, what failed and why. Of several runs, the oldest
    first: what became wrong, stopped, slower or faster, beyond the noise.

    RUN is the folder of a run, which may still be running; or GraphNet's logs of a bench, one file, or a folder of
    several. Nothing in it is changed. Of several runs, the exit code is 1 if a cell is wrong, stopped or slower in the
    newest, and was not in the one before it, or in the oldest; and 3 if there is no cell, or none that all have.
    """
    from backprint.tools.bench.compare import history_of, history_report
    from backprint.tools.bench.runs import read_run
    from backprint.tools.bench.scored import write_run_logs

    if logs is not None:
        if len(runs) > 1:
            raise UsageError("--logs writes the logs of one run: name one RUN")
        for place in write_run_logs(read_run(runs[0]), logs):
            echo(f"GraphNet log in {place}", err=True)
        if not (output or as_json):
            return
    if len(runs) == 1:
        written = write_or_print(lambda: report_of(runs[0]), output, as_json, f"report of {runs[0]}")
        if not count_rows(written.rows):
            raise SystemExit(NOTHING)
        return
    bench_runs = [read_run(run) for run in runs]
    try:
        history = history_of(bench_runs, threshold=threshold)
    except UsageError as error:  # they have no cell in common
        echo(f"backprint: {error}", err=True)
        raise SystemExit(NOTHING) from None
    title = f"comparison of {' and '.join(map(str, runs))}"
    write_or_print(lambda: history_report(history), output, as_json, title)
    if history.regressed:
        raise SystemExit(1)


def report_of(path: Path) -> Report:
    """Return the report of a run's folder, of a GraphNet log, or of a folder of such logs. A run's folder has the file
    META."""
    from backprint.tools.bench.reports import bench_report
    from backprint.tools.bench.runs import META, read_run
    from backprint.tools.graphnet.log import report_of_logs

    if path.is_file() or (not (path / META).exists() and any(path.glob("*.log"))):
        return report_of_logs(path)
    return bench_report(read_run(path))


def write_page(run: BenchRun, report: Report) -> Path:
    """Write the report of a run into its folder; return the page's path."""
    from backprint.table.files import write_report

    page = run.place / "report.html"
    write_report(report, "html", page)
    return page

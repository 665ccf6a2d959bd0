"""Dumps of `bp.region` as `show`, `diff`, `draw` and `view` take them.

A *dump* is the folder that a region has written. It has *runs* (one for each process that wrote it), and these have
*passes*: one backward through the region each, with its *nodes* of autograd and the *edges* between them. A *flow* is
the gradient at a root, on an edge, or at the input of a node; its `stats` are the norm, least and largest value, and
how many elements are NaN or Inf. A pass or a flow is `bad` if it has NaN, Inf or an error. A pass is not `watched` if
its values were not looked at. `echo` and `echo_styled` print a line with control characters escaped; `echo_styled` has
the text after the styled beginning first.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from backprint.cli.options import DUMPS, option
from backprint.cli.say import NOTHING, echo, echo_styled, print_table, width
from backprint.common.formats import has_dump
from backprint.errors import BackprintError, NothingFoundError, UsageError
from backprint.table.nouns import Table

# ---- Options

RUN_HELP = "Which run of the script: latest, all, or a run's name or the beginning of it."
RUN = option(DUMPS, "--run", default="latest", show_default=True, help=RUN_HELP)
PASS = option(
    DUMPS,
    "--pass",
    "number",
    type=click.IntRange(min=0),
    metavar="N",
    help="The pass with this number.",
)


def is_dump(places: Sequence[Path], options_of_dumps: Sequence[str], options_of_both: Sequence[str]) -> bool:
    """Return whether the paths are dumps of regions, and not samples; refuse a dump beside another path. Refuse options
    that the user gave and that the other kind alone has: by their names, `options_of_dumps` are those of dumps,
    `options_of_both` those that dumps and samples have, and all others are of samples."""
    are_dumps = [has_dump(place) for place in places]
    if any(are_dumps) and not all(are_dumps):
        other = places[are_dumps.index(False)]
        what = "is none" if other.exists() else "does not exist"
        raise UsageError(f"{places[are_dumps.index(True)]} is the dump of a region, and {other} {what}")
    is_dump_given = are_dumps[0]
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if not isinstance(parameter, click.Option) or name in options_of_both:
            continue
        if is_dump_given == (name in options_of_dumps):  # an option of the kind that was given
            continue
        # Of two flags for one name (`--forward`, `--backward`), click says of both that the name was given.
        another_flag = isinstance(parameter.flag_value, str) and context.params[name] != parameter.flag_value
        if not another_flag and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            if is_dump_given:
                raise UsageError(f"{parameter.opts[-1]} is for samples, and this is the dump of a region")
            raise UsageError(f"{parameter.opts[-1]} is for dumps of regions, and this is a sample")
    return is_dump_given


def check_sample(place: Path) -> None:
    """Refuse a path that has neither a sample nor the dump of a region."""
    from backprint.tools.jobs.find import check_sample as check

    try:
        check(place)
    except NothingFoundError as error:
        raise NothingFoundError(f"{error}, nor graph.json, as a dump of bp.region does") from None


@contextlib.contextmanager
def reading_both() -> Iterator[None]:
    """End a comparison of two things with NOTHING (3), if one cannot be read in this block: nothing was compared, so
    nothing differs. A UsageError is raised as it is."""
    try:
        yield
    except UsageError:
        raise
    except BackprintError as error:
        echo(f"backprint: nothing was compared: {type(error).__name__}: {error}", err=True)
        raise SystemExit(NOTHING) from None


# ---- Commands


def show(dump: Path, run: str, bad: bool, number: int | None, as_json: bool) -> None:
    """Print the passes of a dump: edges, the gradients on them, modules, and the forward lines they come from. With
    `bad`, print of the passes that have NaN, Inf or an error what has it; with a `number`, that pass alone."""
    from backprint.tools.regions.dumps import pass_as_json, shown_passes
    from backprint.tools.regions.nouns import Unwatched

    _print_run(dump, run, err=as_json)
    count = unwatched = shown = 0
    for region_pass in shown_passes(dump, run, number):
        count, unwatched = count + 1, unwatched + (not region_pass.watched)
        if bad and not region_pass.bad:
            continue
        shown += 1
        if as_json:
            part = region_pass.bad_part if bad else region_pass
            echo(json.dumps(pass_as_json(part) | {"bad": region_pass.bad}))
            continue
        if shown > 1:
            echo("")
        print_pass(region_pass, bad)
    if bad and not as_json:
        echo(f"{shown} of {count} passes have NaN, Inf or an error")
    if bad and unwatched:
        echo(f"{unwatched} of {count} passes were not watched: {Unwatched().why}", err=True)


def draw(dump: Path, run: str, number: int | None, output: Path, nodes: int) -> None:
    """Draw a pass of a dump to a file: the one with this number, else the first bad one, else the first. At most so
    many `nodes` are drawn."""
    from backprint.tools.draw.write import write_picture
    from backprint.tools.regions.pictures import drawn_pass

    drawn = drawn_pass(_one_pass(dump, run, number))
    echo(f"{write_picture(drawn, output, nodes)}: {drawn.scene.name}")


def view(dump: Path, run: str, number: int | None, output: Path | None) -> None:
    """Write the page of a pass of a dump, chosen as by `draw`, to a file; without one, open it in a browser."""
    from backprint.tools.regions.pictures import page_of_pass

    page = page_of_pass(_one_pass(dump, run, number))
    echo(f"{page.save(output) if output is not None else page.open()}: {page.title}")


def diff(left: Path, right: Path, run_a: str, run_b: str, everything: bool, as_json: bool, exit_zero: bool) -> None:
    """Compare two dumps of a region edge by edge; exit with 1 unless all edges are in both, and bitwise or close,
    or `exit_zero` is asked for, and with 3 if no two are there."""
    from backprint.tools.regions.comparing import compare_passes
    from backprint.tools.regions.dumps import read_passes

    with reading_both():
        ours, theirs = read_passes(left, run_a), read_passes(right, run_b)
    comparison = compare_passes(ours, theirs)
    for dump, run in ((left, run_a), (right, run_b)):
        _print_run(dump, run, err=as_json)
    if as_json:
        runs = [sorted({region_pass.run for region_pass in passes}) for passes in (ours, theirs)]
        echo(json.dumps(_comparison_json(comparison) | {"runs": runs}))
    else:
        _print_comparison(comparison, everything, left, right)
    if not comparison.good and not (exit_zero and comparison.rows):
        raise SystemExit(1 if comparison.rows else NOTHING)


def _one_pass(dump: Path, run: str, number: int | None) -> Any:
    """Return the pass with a number; without one, the first that has NaN, Inf or an error, or else the first."""
    from backprint.tools.regions.dumps import shown_passes

    _print_run(dump, run, err=True)
    if number is not None:
        return next(shown_passes(dump, run, number))
    first = None
    for region_pass in shown_passes(dump, run):
        if region_pass.bad:
            return region_pass
        first = first or region_pass
    return first


def _print_run(dump: Path, run: str, err: bool) -> None:
    """Print which of several runs is used, to standard error if `err`; nothing of a dump with one run."""
    from backprint.tools.regions.dumps import runs_of, select_run

    runs = runs_of(dump)
    if len(runs) == 1:
        return
    if run == "all":
        echo(f"{dump}: all of {len(runs)} runs", err=err)
        return
    selected = select_run(runs, run, dump)
    others = ", ".join(name for name in runs if name != selected)
    latest = " (the latest)" if selected == list(runs)[-1] else ""
    echo(f"{dump}: run {selected}{latest}, with {len(runs[selected])} passes; left out: {others}", err=err)


# ---- A comparison


def _comparison_json(comparison: Any) -> dict[str, Any]:
    """Return a DumpComparison as plain values. A row of it is a verdict on one edge."""

    def row(verdict: Any) -> dict[str, Any]:
        # Without the fields that verdicts of samples alone have; and JSON has no number for Inf or NaN.
        values = {name: value for name, value in asdict(verdict).items() if name not in ("power", "witness")}
        return values | ({} if math.isfinite(verdict.error) else {"error": str(verdict.error)})

    first, worst = comparison.first, comparison.worst
    return {
        "good": comparison.good,
        "passes": list(comparison.passes),
        "first": first and row(first),
        "worst": worst and row(worst),
        "rows": list(map(row, comparison.rows)),
        "notes": list(comparison.notes),
    }


def _print_comparison(comparison: Any, every: bool, left: Path, right: Path) -> None:
    """Print what differs, or with `every` all edges; the first divergence and the largest error come last, where they
    are seen. `comparison.passes` are the numbers of passes of the two dumps."""
    from backprint.graph.verdicts import WORDS

    for note in comparison.notes:
        echo(note)
    shown = [row for row in comparison.rows if every or row.verdict != "bitwise"]
    width = max((len(row.name) for row in shown), default=0)
    for row in shown:
        text = f" pass {row.index} {row.role:5} {row.name:{width}}  {row.tensor}  {row.detail}".rstrip()
        echo_styled(text, f"{row.verdict:8}", fg=WORDS[row.verdict].color)
    counts: dict[str, int] = {}
    for row in comparison.rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "nothing to compare")
    if comparison.passes[0] != comparison.passes[1]:
        echo(f"{left} has {comparison.passes[0]} passes, {right} {comparison.passes[1]}")
    if (first := comparison.first) is not None:
        line = f", forward {first.line}" if first.line else ""
        echo(f"first divergence: pass {first.index}, {first.role} {first.name}{line}")
    if (worst := comparison.worst) is not None:
        echo(f"largest error: {worst.error:.3g}, {worst.role} {worst.name}")


# ---- A pass as tables for a terminal

NARROW, LEAST = 90, 20
"""The columns that a table of nodes takes without code, and the fewest for code."""


def print_pass(region_pass: Any, bad: bool) -> None:
    """Print a pass: what it is, the gradients on its edges, and its nodes; with `bad`, what of it has NaN or Inf."""
    _print_head(region_pass)
    shown = region_pass.bad_part if bad else region_pass
    if bad:  # else the head has named the roots
        _print_flows("root", shown.roots, "")
    _print_flows("edge", shown.edges, "edges, in the order of the backward")
    if bad:  # an input has what the edges to it have, and what a hook has made of their sum
        _print_flows("input", shown.inputs, "what nodes received")
    _print_nodes(shown.nodes)


def _print_head(region_pass: Any) -> None:
    """Print what a pass is, in a few lines."""
    from backprint.tools.regions.nouns import NonfiniteOrigin, Unwatched

    inside = sum(node.inside for node in region_pass.nodes)
    echo_styled("", f"{region_pass.region}: pass {region_pass.index}", bold=True)
    began = f" Began at {', '.join(root.name for root in region_pass.roots)}." if region_pass.roots else ""
    echo(
        f"{inside} nodes inside, {len(region_pass.nodes) - inside} on the boundary, {len(region_pass.edges)} edges; "
        f"{region_pass.seconds * 1000:.1f} ms.{began}"
    )
    if region_pass.error:
        echo_styled(f": {region_pass.error}", "the backward raised", fg="red", bold=True)
    for note in region_pass.notes:
        echo(f"not kept: {note}")
    first = region_pass.first_bad
    if isinstance(region_pass.origin, NonfiniteOrigin):
        echo_styled("", str(region_pass.origin), fg="red", bold=True)
    if isinstance(first, Unwatched):
        echo(f"NaN and Inf: {first}")
    elif first is None:
        echo("no NaN and no Inf on any edge")
    else:
        echo(
            f"first NaN or Inf: {first.name}, the gradient of {first.tensor}, "
            f"of {region_pass.where(first) or 'outside'}"
        )


NUMBERS = ("norm", "min", "max")
COUNTS = ("nan", "inf")


def _print_flows(kind: str, rows: Sequence[Any], title: str) -> None:
    """Print a table of gradients of a kind: `root`, `edge` or `input`."""
    if not rows:
        return
    headings = {"nan": "NaN", "inf": "Inf"}
    has_stats, has_counts = any(flow.stats is not None for flow in rows), any(flow.bad for flow in rows)
    numbers = (*(NUMBERS if has_stats else ()), *(COUNTS if has_counts else ()))
    has_tensor = kind != "root"  # a root is itself the tensor whose gradient this is
    heads = (kind, *(("gradient of",) if has_tensor else ()), "type")
    columns = dict.fromkeys(heads, "text") | {headings.get(name, name): "digits" for name in numbers}
    cells = []
    for flow in rows:
        texts = (flow.name, *((flow.tensor,) if has_tensor else ()), _type_text(flow))
        cells.append((*texts, *(_statistic_text(flow.stats, name) for name in numbers)))
    print_table(Table(title, columns, cells))


def _print_nodes(nodes: Sequence[Any]) -> None:
    """Print a table of nodes with their modules and lines; the code of a line where the terminal has room for it. A
    column in which all cells are empty is left out."""
    room = (width() or sys.maxsize) - NARROW  # a pipe has no width, and any room
    lines = [_line_and_code(node) for node in nodes]
    columns = {
        "node": [node.name for node in nodes],
        "module": [node.module for node in nodes],
        "operators": [", ".join(node.ops) or node.opaque or node.kind for node in nodes],
        "forward line": [line for line, _ in lines],
        # An empty list, so no column, where there is too little room.
        "code": [code if len(code) <= room else f"{code[: room - 1]}…" for _, code in lines if room >= LEAST],
    }
    filled = {heading: cells for heading, cells in columns.items() if any(cells)}
    if filled:
        print_table(Table("nodes", dict.fromkeys(filled, "text"), list(zip(*filled.values(), strict=True))))


def _line_and_code(node: Any) -> tuple[str, str]:
    """Return the forward line of a node, and its source text."""
    if node.line is None:
        return "leaf" if node.leaf else "outside", ""
    line, _, code = str(node.line).partition(": ")  # `FILE:LINE: CODE`
    return line, code


def _type_text(flow: Any) -> str:
    """Return dtype and shape of a gradient, `float32[3, 4]`; words for an edge on which nothing flows (`flows`)."""
    return f"{flow.dtype}{list(flow.shape)}" if getattr(flow, "flows", True) else "nothing flows"


def _statistic_text(stats: Any, name: str) -> str:
    """Return one of the statistics as text; '' where there is none, and for a count of 0."""
    value = getattr(stats, name) if stats is not None else None
    if value is None or (name in COUNTS and not value):
        return ""
    return f"{value:,}" if name in COUNTS else f"{value:.4g}"

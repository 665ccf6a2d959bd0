"""The history of several bench runs, from the oldest to the newest: each run, what changed from each to the next, and
every cell by run.

Speedups of runs are compared on the cells that are right and timed in all of them, so that a run with other cells is
not faster for that.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from backprint.benching.cells import STOPPED, BenchCell
from backprint.benching.compare import (
    KINDS,
    MENDED,
    REGRESSIONS,
    BenchComparison,
    Key,
    cells_by_key,
    compare_runs,
)
from backprint.benching.means import geometric_mean
from backprint.benching.names import short_names
from backprint.benching.outcome_tables import judged_cells, right_share
from backprint.benching.runs import BenchRun
from backprint.benching.scored_cells import finite_speedup, powerless_graphs
from backprint.benching.standings import standing_of
from backprint.benching.svg import (
    BOTTOM,
    EDGE,
    LEFT,
    TOP,
    LogScale,
    chart,
    height_for,
    middle_out,
    range_around,
    value_axis,
)
from backprint.errors import UsageError
from backprint.report.nouns import Cell, Column, Figure, Report, Table, columns, date_text, filled, one_line

CERTAIN = (*REGRESSIONS, *MENDED, "not judged now", "judged now", "other failure")
"""Changes that a history lists a cell for."""


@dataclass(frozen=True, slots=True)
class BenchHistory:
    """Runs from the oldest to the newest, the comparison of each with the next, and of the first with the last."""

    runs: tuple[BenchRun, ...]
    steps: tuple[BenchComparison, ...]
    whole: BenchComparison

    @property
    def regressed(self) -> bool:
        """Whether the newest run is worse than the one before it, or than the oldest: many small steps add up."""
        return self.steps[-1].regressed or self.whole.regressed

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each run: its folder's, or its path where folders have one name, with its place if runs recur."""
        folders = [run.place.name or str(run.place) for run in self.runs]
        paths = [
            name if folders.count(name) == 1 else str(run.place) for name, run in zip(folders, self.runs, strict=True)
        ]
        return tuple(name if paths.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(paths, 1))


def history_of(runs: Sequence[BenchRun], *, threshold: float = 0.05) -> BenchHistory:
    """Compare each run with the next, and the first with the last. Fewer than two raise UsageError."""
    if len(runs) < 2:
        raise UsageError("a history takes two runs or more, from the oldest to the newest")
    steps = tuple(compare_runs(old, new, threshold=threshold) for old, new in pairwise(runs))
    whole = compare_runs(runs[0], runs[-1], threshold=threshold)
    return BenchHistory(tuple(runs), steps, whole)


def history_report(history: BenchHistory) -> Report:
    """Return the report of several runs."""
    means = common_means(history)
    tables = (
        runs_table(history, means),
        steps_table(history),
        cells_table("Cells that changed", history, changed_keys(history)),
    )
    keys = list(dict.fromkeys(key for run in history.runs for key in cells_by_key(run)))
    return Report(
        "Bench history",
        history_facts(history),
        tuple(filled(tables)),
        cells_table("All cells", history, keys),
        FIELDS_OF_HISTORY,
        lambda: history_rows(history),
        mean_picture(history, means),
    )


def history_facts(history: BenchHistory) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables."""
    last, whole = (step_text(step) for step in (history.steps[-1], history.whole))
    other = {told for step in history.steps for told in step.differences}
    known = {
        "note": f"the runs differ in more than what is compared: {'; '.join(sorted(other))}" if other else "",
        "answer": "regressed" if history.regressed else "no regression",
        "newest against the one before": last,
        "newest against the oldest": whole,
        "runs": ", ".join(history.names),
        "threshold": f"a time counts as changed beyond {history.whole.threshold:.1%} and the noise",
    }
    return tuple((name, one_line(value)) for name, value in known.items() if value)


def step_text(step: BenchComparison) -> str:
    count = Counter(change.kind for change in step.changes)
    return ", ".join(f"{count[kind]:,} {kind}" for kind in KINDS if count[kind] and kind != "same") or "nothing changed"


# ------------------------------------------------------------------ tables

Means = Mapping[str, tuple[float | None, ...]]
"""By compiler: the mean speedup of each run."""


def common_means(history: BenchHistory) -> Means:
    """Return each compiler's mean speedup in each run, over the cells that are right and timed in all runs."""
    known = [cells_by_key(run) for run in history.runs]
    common: dict[str, list[list[float]]] = {}
    for key in known[0]:
        cells = [run.get(key) for run in known]
        speeds = [finite_speedup(cell) if cell is not None and cell.right else None for cell in cells]
        if all(speeds):
            common.setdefault(key[2], []).append([speed for speed in speeds if speed])
    return {name: tuple(map(geometric_mean, zip(*rows, strict=True))) for name, rows in common.items()}


def runs_table(history: BenchHistory, means: Means) -> Table:
    """Return a row for each run and compiler."""
    rows: list[tuple[Cell, ...]] = []
    names = dict.fromkeys(compiler.name for run in history.runs for compiler in run.compilers)
    for compiler in names:
        for place, (name, run) in enumerate(zip(history.names, history.runs, strict=True)):
            if own := [cell for cell in run.cells if cell.compiler == compiler]:
                mean = means[compiler][place] if compiler in means else None
                rows.append((compiler, name, *run_facts_of(run), *run_counts(own, run), mean))
    heads = "compiler:name run:name started torch load:number cells:count judged:count right:share wrong:count "
    heads += "stopped:count speedup:times"
    note = (
        "Speedups are geometric means over the cells that are right and timed in every run. Right is the share of "
        "what was judged and has power; load the median of the machine's load averages."
    )
    return Table("Runs", note, columns(heads), tuple(rows))


def run_facts_of(run: BenchRun) -> tuple[Cell, ...]:
    loads = [cell.load for cell in run.cells if cell.load is not None]
    return date_text(run.started), run.torch, statistics.median(loads) if loads else None


def run_counts(own: Sequence[BenchCell], run: BenchRun) -> tuple[Cell, ...]:
    blamed = judged_cells(own, powerless_graphs(run.cells))
    wrong, stopped = (sum(cell.outcome in words for cell in own) for words in (("wrong",), STOPPED))
    return len(own), len(blamed), right_share(blamed), wrong, stopped


def steps_table(history: BenchHistory) -> Table:
    """Count the kinds of changes from each run to the next, and from the oldest to the newest."""
    names, steps = history.names, history.steps
    pairs = [*zip(pairwise(names), steps, strict=True)]
    if len(steps) > 1:
        pairs.append(((names[0], names[-1]), history.whole))
    counts = [(old, new, Counter(change.kind for change in step.changes)) for (old, new), step in pairs]
    present = [kind for kind in KINDS if any(count[kind] for _, _, count in counts)]
    rows: list[tuple[Cell, ...]] = [(old, new, *(count[kind] for kind in present)) for old, new, count in counts]
    heads = " ".join(f"{kind.replace(' ', '_')}:count" for kind in present)
    note = "Cells by how they changed from one run to another; the last row is from the oldest to the newest."
    return Table("Changes by run", note, columns(f"from:name to:name {heads}"), tuple(rows))


def changed_keys(history: BenchHistory) -> list[Key]:
    """Return the cells that certainly changed in any step, or from the oldest to the newest; the worst first."""
    worst: dict[Key, int] = {}
    for comparison in (*history.steps, history.whole):
        for change in comparison.changes:
            if change.kind in CERTAIN:
                key = change.cell.sample, change.cell.graph, change.cell.compiler
                worst[key] = min(worst.get(key, len(KINDS)), KINDS.index(change.kind))
    return sorted(worst, key=lambda key: (worst[key], key))


def cells_table(title: str, history: BenchHistory, keys: Sequence[Key]) -> Table:
    """Return a row for each cell, with a column for each run."""
    known = [(cells_by_key(run), powerless_graphs(run.cells)) for run in history.runs]
    rows: list[tuple[Cell, ...]] = []
    for sample, graph, compiler in keys:
        cells = [(run.get((sample, graph, compiler)), (sample, graph) in without) for run, without in known]
        told = (standing_of(cell, powerless) if cell is not None else "" for cell, powerless in cells)
        rows.append((f"{sample} {graph}".strip(), compiler, *told))
    heads = (*columns("sample:name compiler:name"), *(Column(one_line(name), "verdict") for name in history.names))
    return Table(title, "The outcome in each run, and its speedup.", heads, tuple(rows))


FIELDS_OF_HISTORY = (
    *((name, "text") for name in ("sample", "graph", "compiler", "run", "outcome")),
    *((name, "number") for name in ("speedup", "cold", "warm", "load")),
    *((name, "text") for name in ("change", "reason")),
)


def history_rows(history: BenchHistory) -> Iterator[dict[str, Any]]:
    """Yield each cell of each run, and how it changed from the run before."""
    for place, (name, run) in enumerate(zip(history.names, history.runs, strict=True)):
        step = history.steps[place - 1].changes if place else ()
        kinds = {(change.cell.sample, change.cell.graph, change.cell.compiler): change.kind for change in step}
        for key, cell in cells_by_key(run).items():
            yield {
                **{field: getattr(cell, field) for field in ("sample", "graph", "compiler")},
                "run": name,
                "outcome": cell.outcome,
                "speedup": finite_speedup(cell),
                **{field: getattr(cell, field) for field in ("cold", "warm", "load")},
                "change": kinds.get(key, ""),
                "reason": cell.reason,
            }


# ------------------------------------------------------------------ the picture


def mean_picture(history: BenchHistory, means: Means) -> tuple[Figure, ...]:
    """Draw each compiler's mean speedup by run."""
    shown = short_names(means)
    series = {shown[name]: [value for value in values if value] for name, values in means.items()}
    if not series:
        return ()
    height, last = height_for(len(series)), len(history.runs) - 1
    every = [value for values in series.values() for value in values if value < math.inf]
    scale = LogScale(*range_around(every), height - BOTTOM, TOP)
    across = [LEFT + 30 + place / last * (EDGE - LEFT - 60) for place in range(last + 1)]
    letters = max(4, int((EDGE - LEFT) / (last + 1) / 7))
    ticks = [(x, middle_out(name, letters)) for x, name in zip(across, history.names, strict=True)]
    places = {
        name: [(x, scale.place(value)) for x, value in zip(across, values, strict=True)]
        for name, values in series.items()
    }
    note, title = "Geometric means over the cells that are right and timed in every run.", "Speedup by run"
    return (Figure(title, note, chart(title, places, value_axis(scale, scale.ticks(), EDGE, "speedup"), ticks, "run")),)

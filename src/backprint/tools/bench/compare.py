"""Bench runs compared, cell by cell: what became wrong, stopped, slower or faster, beyond the noise.

A time is compared as a multiple of eager's, measured in turns with it in each run, so that a machine that is slower on
one day cancels out. The intervals of both runs count: the logarithms of the ratios are subtracted, and the widths added
in quadrature. `slower` and `faster` are certain only where the whole interval lies beyond the threshold and beyond the
noise of eager against eager beside either cell.

Of several runs each is compared with the next, and the oldest with the newest, because small steps add up. In a
history, a step is the comparison of one run with the next.

A cell is how one compiler did on one graph of a sample; its timing has the `ratio` of the compiler's time to eager's,
with its interval from `low` to `high`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from backprint.common.text import one_line
from backprint.errors import UsageError
from backprint.graph.verdicts import DERIVATIVE
from backprint.table.nouns import Picture, Report, Table, date_text
from backprint.tools.bench.cells import NOT_JUDGED, STOPPED, BenchCell, BenchTiming
from backprint.tools.bench.reports import judged_cells, reason_of, right_share, short_names, title_of
from backprint.tools.bench.runs import BenchRun
from backprint.tools.bench.scored import finite_speedup, powerless_graphs
from backprint.tools.graphnet.scores import geometric_mean

NOT_DERIVATIVE_NOW, DERIVATIVE_NOW = "not the derivative now", "the derivative now"

REGRESSIONS = ("wrong now", "stopped now", NOT_DERIVATIVE_NOW, "slower")

MENDED = ("right now", DERIVATIVE_NOW, "faster")

GONE = ("not judged now", "missing")

KINDS = (*REGRESSIONS, *GONE, *MENDED, "other failure", "judged now", "new", "unsure", "not timed", "same")
"""How a cell can have changed, from worst on. `unsure` is an interval that neither rules out a change nor is one."""

Key = tuple[str, str, str]
"""The sample, the graph and the compiler of a cell."""


@dataclass(frozen=True, slots=True)
class BenchChange:
    """How a cell changed: `kind` is one of KINDS, and the cell is None for a run that does not have it. `ratio` is the
    new time over the old, each as a multiple of eager's, in its interval."""

    kind: str
    old: BenchCell | None
    new: BenchCell | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def cell(self) -> BenchCell:
        """The old cell, or the new one where there is no old one, or one that stands for all graphs (`cell_of`)."""
        cells = [cell for cell in (self.old, self.new) if cell is not None]
        if not cells:
            raise UsageError("a BenchChange has an old cell, a new one, or both")
        return next((cell for cell in cells if cell.graph), cells[0])

    @property
    def regression(self) -> bool:
        """Whether the cell certainly became worse."""
        return self.kind in REGRESSIONS


@dataclass(frozen=True, slots=True)
class BenchComparison:
    """The changes from one run to another."""

    old: BenchRun
    new: BenchRun
    threshold: float
    changes: tuple[BenchChange, ...]
    differences: tuple[str, ...]
    """What else differs between the runs: machine, torch, versions, options."""

    @property
    def regressed(self) -> bool:
        """Whether any cell became wrong, stopped or slower."""
        return any(change.regression for change in self.changes)


def compare_runs(old: BenchRun, new: BenchRun, *, threshold: float = 0.05) -> BenchComparison:
    """Return what changed from one run to another, the worst first; times have changed beyond the share `threshold`.
    Runs without a cell in common raise UsageError, and so does a threshold that is no number above 0."""
    if not 0 < threshold < math.inf:
        raise UsageError(f"threshold={threshold!r} must be a number above 0: 0.05 is 5%")
    before, after = _cells_by_key(old), _cells_by_key(new)
    changes = [change_of(key, before, after, threshold) for key in _compared_keys(before, after)]
    if not any(change.old and change.new for change in changes):
        raise UsageError(
            f"{old.place} and {new.place} have no cell in common, so nothing is compared: "
            f"{_contents_text(old)}, against {_contents_text(new)}; bench the same samples with the same compilers"
        )
    ordered = sorted(changes, key=lambda change: KINDS.index(change.kind))
    return BenchComparison(old, new, threshold, tuple(ordered), tuple(differences(old, new)))


def _cells_by_key(run: BenchRun) -> dict[Key, BenchCell]:
    return {(cell.sample, cell.graph, cell.compiler): cell for cell in run.cells}


def _contents_text(run: BenchRun) -> str:
    """Return how many cells a run has, and of which compilers, for a message."""
    names = ", ".join(compiler.name for compiler in run.compilers) or "no compiler"
    return f"{len(run.cells):,} cells of {names}"


def _compared_keys(before: Mapping[Key, BenchCell], after: Mapping[Key, BenchCell]) -> list[Key]:
    """Return the keys of the cells of two runs, in order. The cell of a process that ended before any graph is left out
    where the other run has graphs, for which it stands (`cell_of`)."""
    graphs_of_runs = [{(sample, compiler) for sample, graph, compiler in run if graph} for run in (before, after)]
    keys = {
        (sample, graph, compiler)
        for run, graphs_of_other in zip((before, after), reversed(graphs_of_runs), strict=True)
        for (sample, graph, compiler), cell in run.items()
        if graph or cell.outcome not in STOPPED or (sample, compiler) not in graphs_of_other
    }
    return sorted(keys)


def cell_of(cells: Mapping[Key, BenchCell], key: Key) -> BenchCell | None:
    """Return a run's cell; where it has none, that of a process that ended before any graph of the sample
    (`runs.cells_of`), which stands for all of them; else None."""
    sample, _, compiler = key
    ended = cells.get((sample, "", compiler))
    return cells.get(key) or (ended if ended and ended.outcome in STOPPED else None)


def change_of(
    key: Key, before: Mapping[Key, BenchCell], after: Mapping[Key, BenchCell], threshold: float
) -> BenchChange:
    """Return the change of one cell."""
    old, new = cell_of(before, key), cell_of(after, key)
    if old is None or new is None:
        return BenchChange("missing" if new is None else "new", old, new)
    kind = _outcome_change(old, new) or _derivative_change(old, new)
    if kind or not (old.right and new.right):
        return BenchChange(kind or "same", old, new)  # times count only where both are right
    if not (old.timing and new.timing and timed(old.timing) and timed(new.timing)):
        return BenchChange("not timed", old, new)
    kind, ratio, low, high = _time_change(old.timing, new.timing, threshold)
    return BenchChange(kind, old, new, ratio, low, high)


def _outcome_change(old: BenchCell, new: BenchCell) -> str:
    """Return how an outcome changed; '' if it did not, or is right in both."""
    if old.right and new.right:
        return ""
    if new.outcome in NOT_JUDGED or old.outcome in NOT_JUDGED:
        return _judgement_change(old, new)
    if new.right:
        return "right now"
    if new.outcome == "wrong":
        return "" if old.outcome == "wrong" else "wrong now"
    if old.right:
        return "stopped now"
    return "" if old.outcome == new.outcome else "other failure"


def _derivative_change(old: BenchCell, new: BenchCell) -> str:
    """Return how the word for a compiled backward changed between what is the derivative and what is not; '' if it did
    not, or if one of the two is not known."""
    if old.derivative is None or new.derivative is None:
        return ""
    # `derivative but for NAME` differs only where its author means it to: it counts as the derivative.
    was_derivative, is_derivative = (row.word.startswith(DERIVATIVE) for row in (old.derivative, new.derivative))
    if was_derivative and new.not_the_derivative:
        return NOT_DERIVATIVE_NOW
    return DERIVATIVE_NOW if old.not_the_derivative and is_derivative else ""


def _judgement_change(old: BenchCell, new: BenchCell) -> str:
    """Return how a cell changed of which one run or both have not judged; '' where neither has."""
    if old.outcome in NOT_JUDGED and new.outcome in NOT_JUDGED:
        return ""
    return "not judged now" if new.outcome in NOT_JUDGED else "judged now"


def timed(timing: BenchTiming) -> bool:
    """Whether a ratio and its interval are numbers above 0."""
    return all(0 < value < math.inf for value in (timing.ratio, timing.low, timing.high))


def _time_change(before: BenchTiming, after: BenchTiming, threshold: float) -> tuple[str, float, float, float]:
    """Return the kind of change of a time, the ratio of the ratios, and its interval from low to high, of a cell that
    is right in both runs. The interval of a difference of logarithms: its lower end is as far below as the new ratio
    may be lower and the old one higher, both in quadrature."""
    log_ratio = math.log(after.ratio / before.ratio)
    low = log_ratio - math.hypot(math.log(after.ratio / after.low), math.log(before.high / before.ratio))
    high = log_ratio + math.hypot(math.log(after.high / after.ratio), math.log(before.ratio / before.low))
    noise = max(noise_of(before), noise_of(after))
    return _time_kind(low, high, math.log1p(threshold), noise), math.exp(log_ratio), math.exp(low), math.exp(high)


def _time_kind(low: float, high: float, threshold: float, noise: float) -> str:
    """Return the kind of a change of times, by the interval of its logarithm. `noise` (`noise_of`) makes `slower` and
    `faster` harder to reach; `same` goes by the threshold alone."""
    if low > threshold + noise:
        return "slower"
    if high < -(threshold + noise):
        return "faster"
    return "same" if -threshold < low and high < threshold else "unsure"


def noise_of(timing: BenchTiming) -> float:
    """Return how far eager against eager was from 1 beside a cell, as a logarithm; 0 where it was not measured."""
    known = timing.noise
    return abs(math.log(known)) if known is not None and 0 < known < math.inf else 0.0


def differences(old: BenchRun, new: BenchRun) -> Iterator[str]:
    """Yield a text for each difference between two runs other than their cells, with both values: versions, machine,
    options; and a text for each run that is not finished."""
    for name, before, after in (("torch", old.torch, new.torch), ("backprint", old.backprint, new.backprint)):
        if before != after:
            yield f"{name} {before or 'unknown'}, now {after or 'unknown'}"
    for place, left, right in (("machine", old.machine, new.machine), ("option", old.options, new.options)):
        for name in sorted({*left, *right}):
            if left.get(name) != right.get(name):
                yield f"{place} {name} {left.get(name)!r}, now {right.get(name)!r}"
    versions = {old_compiler.name: dict(old_compiler.versions) for old_compiler in old.compilers}
    for compiler in new.compilers:
        for name, version in compiler.versions:
            was = versions.get(compiler.name, {}).get(name)
            if compiler.name in versions and was != version:
                yield f"{compiler.name}: {name} {was or 'unknown'}, now {version}"
    yield from (f"{run.place}: {run.unfinished:,} samples are not done" for run in (old, new) if run.unfinished)


# ------------------------------------------------------------------ several runs
#
# Speedups of runs are compared on the cells that are right and timed in all of them, so that a run is not faster
# because it has other cells.

CERTAIN = (*REGRESSIONS, *MENDED, *GONE, "judged now", "other failure")
"""Changes that are listed."""


@dataclass(frozen=True, slots=True)
class BenchHistory:
    """Runs from the oldest to the newest, the comparison of each with the next, and of the oldest with the newest."""

    runs: tuple[BenchRun, ...]
    steps: tuple[BenchComparison, ...]
    whole: BenchComparison

    @property
    def decisive(self) -> dict[str, BenchComparison]:
        """The comparisons of the newest run, by the name of the older one: with the run before it, and with the oldest
        if that is another."""
        with_previous = {self.names[-2]: self.steps[-1]}
        return with_previous if len(self.runs) == 2 else with_previous | {self.names[0]: self.whole}

    @property
    def regressed(self) -> bool:
        """Whether the newest run is worse than the one before it, or than the oldest."""
        return any(comparison.regressed for comparison in self.decisive.values())

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
    whole = steps[0] if len(steps) == 1 else compare_runs(runs[0], runs[-1], threshold=threshold)
    return BenchHistory(tuple(runs), steps, whole)


def history_report(history: BenchHistory) -> Report:
    """Return the report of several runs: whether the newest is worse, in what, and each cell of each run."""
    means = _common_means(history)
    means_by_short_name = {short: means[name] for name, short in short_names(means).items()}
    note = "Geometric means over the cells that are right and timed in every run."
    picture = Picture("Speedup by run", note, "history", means_by_short_name, history.names)
    return Report(
        title="Bench history",
        answer=_answer(history),
        tables=(_runs_table(history, means), _changes_table(history)),
        rows=_cells_table(history),
        facts=_facts(history),
        pictures=(picture,) if means_by_short_name else (),
    )


def _answer(history: BenchHistory) -> str:
    """Say whether the newest run is worse than an older one, and in what."""
    texts = []
    for name, comparison in history.decisive.items():
        count = Counter(change.kind for change in comparison.changes)
        worse = ", ".join(f"{count[kind]:,} {kind}" for kind in (*REGRESSIONS, *GONE) if count[kind])
        texts.append(f"{worse or 'nothing became worse'} since {name}")
    return f"{'regressed' if history.regressed else 'no regression'}: {'; '.join(texts)}"


MOST_DIFFERENCES = 20


def _facts(history: BenchHistory) -> dict[str, str]:
    """Return the facts above the tables: which runs these are, and what else differs between them."""
    differences = list(dict.fromkeys(text for step in history.steps for text in step.differences))
    omitted = f"; and {len(differences) - MOST_DIFFERENCES} more" if len(differences) > MOST_DIFFERENCES else ""
    facts = {
        "note": f"the runs differ in more than what is compared: {'; '.join(differences[:MOST_DIFFERENCES])}{omitted}",
        "runs": ", ".join(map(str, (run.place for run in history.runs))),
        "threshold": f"a time counts as changed beyond {history.whole.threshold:.1%} and the noise",
    }
    return {name: one_line(value) for name, value in facts.items() if differences or name != "note"}


Means = Mapping[str, tuple[float, ...]]
"""By compiler: the mean speedup of each run."""


def _common_means(history: BenchHistory) -> Means:
    """Return each compiler's mean speedup in each run, over the cells that are right and timed in all runs."""
    cells_of_runs = [_cells_by_key(run) for run in history.runs]
    speeds_by_compiler: dict[str, list[list[float]]] = {}
    for key in cells_of_runs[0]:
        _, _, compiler = key
        cells = [run.get(key) for run in cells_of_runs]
        speeds = [finite_speedup(cell) if cell is not None and cell.right else None for cell in cells]
        if all(speeds):  # a speed is above 0, or None
            speeds_by_compiler.setdefault(compiler, []).append([speed for speed in speeds if speed])
    # From a row for each cell to a column for each run.
    return {name: tuple(map(geometric_mean, zip(*speeds, strict=True))) for name, speeds in speeds_by_compiler.items()}


def _runs_table(history: BenchHistory, means: Means) -> Table:
    """Return a row for each run and compiler; none for a run that does not have the compiler."""
    rows: list[tuple[Any, ...]] = []
    names = dict.fromkeys(compiler.name for run in history.runs for compiler in run.compilers)
    for compiler in names:
        for place, (name, run) in enumerate(zip(history.names, history.runs, strict=True)):
            cells = [cell for cell in run.cells if cell.compiler == compiler]
            if not cells:
                continue
            right = right_share(judged_cells(cells, powerless_graphs(run.cells)))
            wrong = sum(cell.outcome == "wrong" for cell in cells)
            stopped = sum(cell.outcome in STOPPED for cell in cells)
            mean = means[compiler][place] if compiler in means else None
            started = date_text(run.started)[:16]  # the date to the minute
            loads = [cell.load for cell in cells if cell.load is not None]
            load = statistics.median(loads) if loads else None
            rows.append((compiler, name, len(cells), right, wrong, stopped, mean, started, run.torch, load))
    columns = {"compiler": "name", "run": "name", "cells": "count", "right": "share", "wrong": "count"}
    columns |= {"stopped": "count", "speedup": "times", "started": "text", "torch": "text", "load": "number"}
    note = (
        "Speedups are geometric means over the cells that are right and timed in every run. Right is the share of "
        "what was judged and has power."
    )
    return Table("Runs", columns, rows, note)


def _changes_table(history: BenchHistory) -> Table:
    """Return a row for each cell that certainly changed until the newest run, since the run before it or since the
    oldest; the worst first."""
    rows = [
        (
            title_of(change.cell),
            change.cell.compiler,
            change.kind,
            name,
            change.old.outcome if change.old else "",
            change.new.outcome if change.new else "",
            change.ratio,
            change.low,
            change.high,
            reason_of(change.new) if change.new else "",
        )
        for name, comparison in history.decisive.items()
        for change in comparison.changes
        if change.kind in CERTAIN
    ]
    columns = {"sample": "name", "compiler": "name", "change": "word", "since": "text", "old": "word", "new": "word"}
    columns |= {"time": "times", "low": "times", "high": "times", "reason": "detail"}
    note = "Time is the new over the old, each as a multiple of eager's time in its run."
    place_of_change = list(columns).index("change")
    return Table("Changes", columns, sorted(rows, key=lambda row: KINDS.index(row[place_of_change])), note)


def _cells_table(history: BenchHistory) -> Table:
    """Return a row for each cell of each run, with how it changed from the run before; the oldest run's did not."""
    rows = []
    for place, (name, run) in enumerate(zip(history.names, history.runs, strict=True)):
        changes_until_run = history.steps[place - 1].changes if place else ()
        changes = {
            (change.cell.sample, change.cell.graph, change.cell.compiler): change for change in changes_until_run
        }
        for key, cell in _cells_by_key(run).items():
            change = changes.get(key)
            interval = (None, None, None) if change is None else (change.ratio, change.low, change.high)
            kind, regression = ("", False) if change is None else (change.kind, change.regression)
            derivative = cell.derivative.word if cell.derivative is not None else None
            facts = (cell.cold, cell.warm, cell.load, derivative, reason_of(cell))
            rows.append((*key, name, cell.outcome, finite_speedup(cell), kind, regression, *interval, *facts))
    columns = {"sample": "name", "graph": "name", "compiler": "name", "run": "text", "outcome": "word"}
    columns |= {"speedup": "times", "change": "word", "regression": "flag", "ratio": "times", "low": "times"}
    columns |= {"high": "times", "cold": "seconds", "warm": "seconds", "load": "number", "derivative": "text"}
    return Table("All cells", {**columns, "reason": "detail"}, rows)

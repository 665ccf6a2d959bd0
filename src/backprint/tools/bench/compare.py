"""Bench runs compared, cell by cell: what became wrong, stopped, slower or faster, beyond the noise.

A time is compared as a multiple of eager's, measured in turns with it in each run, so that a machine that is slower on
one day cancels out. The intervals of both runs count: the logarithms of the ratios are subtracted, and the widths added
in quadrature. `slower` and `faster` are certain only where the whole interval lies beyond the threshold and beyond the
noise of eager against eager beside either cell.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from backprint.errors import UsageError
from backprint.graph.verdicts import DERIVATIVE
from backprint.tools.bench.cells import NOT_JUDGED, STOPPED, BenchCell, BenchTiming
from backprint.tools.bench.pictures import short_names
from backprint.tools.bench.reports import judged_cells, right_share, standing_of, title_of, wrong_outputs
from backprint.tools.bench.runs import BenchRun
from backprint.tools.bench.scored import finite_speedup, powerless_graphs
from backprint.tools.graphnet.scores import geometric_mean
from backprint.tools.report.nouns import Cell, Column, Figure, Report, Table, columns, date_text, filled, one_line
from backprint.tools.report.svg import (
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

NOT_DERIVATIVE_NOW, DERIVATIVE_NOW = "not the derivative now", "the derivative now"

REGRESSIONS = ("wrong now", "stopped now", NOT_DERIVATIVE_NOW, "slower")

MENDED = ("right now", DERIVATIVE_NOW, "faster")

GONE = ("not judged now", "missing")

KINDS = (*REGRESSIONS, *GONE, *MENDED, "other failure", "judged now", "new", "unsure", "not timed", "same")
"""How a cell can have changed, from worst on. `unsure` is an interval that neither rules out a change nor is one."""

COMPILE_RATIO, COMPILE_SECONDS = 1.5, 1.0
"""A compilation is said to take longer beyond both, and to be shorter likewise."""

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class BenchChange:
    """How a cell changed. `ratio` is the new time over the old, each as a multiple of eager's, in its interval."""

    kind: str
    old: BenchCell | None
    new: BenchCell | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def cell(self) -> BenchCell:
        """The old cell, or the new one where there is no old one."""
        if self.old is None and self.new is None:
            raise UsageError("a BenchChange has an old cell, a new one, or both")
        return self.old or self.new  # type: ignore[return-value]  # one of the two is there

    @property
    def regression(self) -> bool:
        """Whether the cell certainly became worse."""
        return self.kind in REGRESSIONS


@dataclass(frozen=True, slots=True)
class _CompileChange:
    """A compilation that takes much longer, or much shorter."""

    cell: BenchCell
    caches: str
    """`cold` or `warm`."""
    old: float
    new: float


@dataclass(frozen=True, slots=True)
class BenchComparison:
    """The changes from one run to another."""

    old: BenchRun
    new: BenchRun
    threshold: float
    changes: tuple[BenchChange, ...]
    compilations: tuple[_CompileChange, ...]
    differences: tuple[str, ...]
    """What else differs between the runs: machine, torch, versions, options."""

    @property
    def regressed(self) -> bool:
        """Whether any cell became wrong, stopped or slower."""
        return any(change.regression for change in self.changes)


def compare_runs(old: BenchRun, new: BenchRun, *, threshold: float = 0.05) -> BenchComparison:
    """Return what changed from one run to another. Runs without a cell in common raise UsageError."""
    if not 0 < threshold < math.inf:
        raise UsageError(f"threshold={threshold!r} must be a number above 0: 0.05 is 5%")
    before, after = _cells_by_key(old), _cells_by_key(new)
    changes = [change_of(key, before, after, threshold) for key in sorted(before.keys() | after.keys())]
    if not any(change.old and change.new for change in changes):
        raise UsageError(
            f"{old.place} and {new.place} have no cell in common, so nothing is compared: "
            f"{_contents_text(old)}, against {_contents_text(new)}; bench the same samples with the same compilers"
        )
    pairs = [(before[key], after[key]) for key in sorted(before.keys() & after.keys())]
    ordered = sorted(changes, key=lambda change: KINDS.index(change.kind))
    compilations = tuple(change for pair in pairs for change in _compile_changes(*pair))
    return BenchComparison(old, new, threshold, tuple(ordered), compilations, tuple(differences(old, new)))


def _cells_by_key(run: BenchRun) -> dict[Key, BenchCell]:
    return {(cell.sample, cell.graph, cell.compiler): cell for cell in run.cells}


def _contents_text(run: BenchRun) -> str:
    names = ", ".join(compiler.name for compiler in run.compilers) or "no compiler"
    return f"{len(run.cells):,} cells of {names}"


def change_of(
    key: Key, before: Mapping[Key, BenchCell], after: Mapping[Key, BenchCell], threshold: float
) -> BenchChange:
    """Return the change of one cell. A process that ended before any graph counts for all graphs of its sample."""
    sample, _, compiler = key
    old, new = before.get(key), after.get(key)
    if new is None:
        stopped = after.get((sample, "", compiler))
        new = stopped if stopped and stopped.outcome in STOPPED else None
    if old is None or new is None:
        return BenchChange("missing" if new is None else "new", old, new)
    if (kind := _outcome_change(old, new) or _derivative_change(old, new)) or not (old.right and new.right):
        return BenchChange(kind or "same", old, new)
    if not (old.timing and new.timing and timed(old.timing) and timed(new.timing)):
        return BenchChange("not timed", old, new)
    kind, *interval = _time_change(old.timing, new.timing, threshold)
    return BenchChange(kind, old, new, *interval)


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
    good = [derivative.word.startswith(DERIVATIVE) for derivative in (old.derivative, new.derivative)]
    if good[0] and new.not_the_derivative:
        return NOT_DERIVATIVE_NOW
    return DERIVATIVE_NOW if old.not_the_derivative and good[1] else ""


def _judgement_change(old: BenchCell, new: BenchCell) -> str:
    if old.outcome in NOT_JUDGED and new.outcome in NOT_JUDGED:
        return ""
    return "not judged now" if new.outcome in NOT_JUDGED else "judged now"


def timed(timing: BenchTiming) -> bool:
    """Whether a ratio and its interval are numbers above 0."""
    return all(0 < value < math.inf for value in (timing.ratio, timing.low, timing.high))


def _time_change(before: BenchTiming, after: BenchTiming, threshold: float) -> tuple[str, float, float, float]:
    """Return the kind of change of a time, and the ratio with its interval, of a cell that is right in both runs."""
    middle = math.log(after.ratio / before.ratio)
    low = middle - math.hypot(math.log(after.ratio / after.low), math.log(before.high / before.ratio))
    high = middle + math.hypot(math.log(after.high / after.ratio), math.log(before.ratio / before.low))
    noise = max(noise_of(before), noise_of(after))
    return _time_kind(low, high, math.log1p(threshold), noise), math.exp(middle), math.exp(low), math.exp(high)


def _time_kind(low: float, high: float, threshold: float, noise: float) -> str:
    """Return the kind of a change of times, by the interval of its logarithm. Noise makes no two times the same."""
    if low > threshold + noise:
        return "slower"
    if high < -(threshold + noise):
        return "faster"
    return "same" if -threshold < low and high < threshold else "unsure"


def noise_of(timing: BenchTiming) -> float:
    """Return how far eager against eager was from 1 beside a cell, as a logarithm; 0 where it was not measured."""
    known = timing.noise
    return abs(math.log(known)) if known is not None and 0 < known < math.inf else 0.0


def _compile_changes(old: BenchCell, new: BenchCell) -> Iterator[_CompileChange]:
    for caches in ("cold", "warm"):
        before, after = getattr(old, caches), getattr(new, caches)
        if before is not None and after is not None:
            less, more = sorted((before, after))
            if more - less > COMPILE_SECONDS and more > COMPILE_RATIO * less:
                yield _CompileChange(new, caches, before, after)


def differences(old: BenchRun, new: BenchRun) -> Iterator[str]:
    """Yield a text for each difference between two runs other than their cells, with both values."""
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


# ------------------------------------------------------------------ the report of two runs

MOST_DIFFERENCES = 20


def comparison_report(comparison: BenchComparison) -> Report:
    """Return the report of a comparison, regressions first."""
    changes = comparison.changes
    listed = ("missing", "new", "same", "unsure")
    others = tuple(change for change in changes if change.kind not in (*REGRESSIONS, *MENDED, *listed))
    tables = (
        _kinds_table(changes),
        _changes_table("Regressions", [change for change in changes if change.regression]),
        _changes_table("Better", [change for change in changes if change.kind in MENDED]),
        _changes_table("Other changes", others),
        _missing_table(changes),
        _compilations_table(comparison),
    )
    return Report(
        "Bench comparison",
        _comparison_facts(comparison),
        tuple(filled(tables)),
        _changes_table("All cells of both", changes),
        FIELDS_OF_CHANGES,
        lambda: _change_rows(changes),
        answer=one_line(_comparison_answer(comparison)),
    )


def _comparison_answer(comparison: BenchComparison) -> str:
    """Say whether the newer run regressed, and in what."""
    count = Counter(change.kind for change in comparison.changes)
    worse = ", ".join(f"{count[kind]:,} {kind}" for kind in (*REGRESSIONS, *GONE) if count[kind])
    return ("regressed: " if comparison.regressed else "no regression: ") + (worse or "nothing became worse")


def _comparison_facts(comparison: BenchComparison) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables: which runs these are, and what else differs between them."""
    both = sum(change.old is not None and change.new is not None for change in comparison.changes)
    differences_shown = comparison.differences[:MOST_DIFFERENCES]
    more = len(comparison.differences) - len(differences_shown)
    note = "; ".join((*map(one_line, differences_shown), *((f"and {more} more",) if more else ())))
    known = {
        "note": f"the runs differ in more than what is compared: {note}" if differences_shown else "",
        "old": str(comparison.old.place),
        "new": str(comparison.new.place),
        "compared": f"{both:,} cells; a time counts as changed beyond {comparison.threshold:.1%} and the noise",
    }
    return tuple((name, one_line(value)) for name, value in known.items() if value)


def _kinds_table(changes: Sequence[BenchChange]) -> Table:
    """Count each kind of change of each compiler."""
    count = Counter((change.cell.compiler, change.kind) for change in changes)
    present = [kind for kind in KINDS if any(change.kind == kind for change in changes)]
    names = dict.fromkeys(change.cell.compiler for change in sorted(changes, key=lambda change: change.cell.compiler))
    rows: list[tuple[Cell, ...]] = [(name, *(count[name, kind] for kind in present)) for name in names]
    heads = " ".join(f"{kind.replace(' ', '_')}:count" for kind in present)
    return Table("Changes", "Cells by how they changed.", columns(f"compiler:name {heads}"), tuple(rows))


def _changes_table(title: str, changes: Sequence[BenchChange]) -> Table:
    """List changes with outcomes and times of both."""
    rows: list[tuple[Cell, ...]] = []
    for change in changes:
        cell, both = change.cell, (change.old, change.new)
        was, now = (side.outcome if side else "" for side in both)
        speeds = (side.speedup if side else None for side in both)
        interval = (change.ratio, change.low, change.high)
        rows.append((title_of(cell), cell.compiler, change.kind, was, now, *interval, *speeds, reason_of(change)))
    heads = (
        "sample:name compiler:name change old:verdict new:verdict time:times from:times to:times "
        "old_speedup:times new_speedup:times said"
    )
    note = "Time is the new over the old, each as a multiple of eager's time in its run."
    return Table(title, note, columns(heads), tuple(rows))


def reason_of(change: BenchChange) -> str:
    """Return the reason of the new outcome, and its wrong outputs."""
    if change.new is None:
        return ""
    outputs = [output for output in wrong_outputs(change.new) if output.role != "cell"]
    wrong = (f"{output.role} {output.name}: {output.detail}".strip(": ") for output in outputs)
    derivative = change.new.derivative
    of_derivative = f"{derivative.word}: {derivative.detail}" if derivative and change.new.not_the_derivative else ""
    return "; ".join(dict.fromkeys(map(one_line, filter(None, (change.new.reason, *wrong, of_derivative)))))


def _missing_table(changes: Sequence[BenchChange]) -> Table:
    """List the cells that one run lacks."""
    rows = [
        (title_of(change.cell), change.cell.compiler, change.kind, change.cell.outcome)
        for change in changes
        if change.kind in ("missing", "new")
    ]
    note = "Missing are cells that only the old run has, new those that only the new one has. Neither is a regression."
    heads = "sample:name compiler:name change outcome:verdict"
    return Table("Only in one run", note, columns(heads), tuple(rows))


def _compilations_table(comparison: BenchComparison) -> Table:
    """List the compilations that take much longer or shorter."""
    rows = [
        (title_of(change.cell), change.cell.compiler, change.caches, change.old, change.new, change.new / change.old)
        for change in sorted(comparison.compilations, key=lambda change: change.old - change.new)
        if change.old > 0
    ]
    heads = "sample:name compiler:name caches old:seconds new:seconds ratio:times"
    note = "By more than half and more than a second. One compilation each, so a note and no regression."
    return Table("Compile times that changed", note, columns(heads), tuple(rows))


FIELDS_OF_CHANGES = (
    *((name, "text") for name in ("sample", "graph", "compiler", "change")),
    ("regression", "flag"),
    *((name, "text") for name in ("old_outcome", "new_outcome")),
    *((name, "number") for name in ("ratio", "low", "high", "old_speedup", "new_speedup")),
    *((name, "number") for name in ("old_cold", "new_cold", "old_warm", "new_warm")),
    *((name, "text") for name in ("old_derivative", "new_derivative")),
    ("said", "text"),
)


def _change_rows(changes: Sequence[BenchChange]) -> Iterator[dict[str, Any]]:
    """Yield every column of each change."""
    for change in changes:
        cell, sides = change.cell, {"old": change.old, "new": change.new}
        yield {
            **{name: getattr(cell, name) for name in ("sample", "graph", "compiler")},
            "change": change.kind,
            "regression": change.regression,
            **{name: getattr(change, name) for name in ("ratio", "low", "high")},
            **{
                f"{side}_{name}": getattr(of_side, name, None)
                for side, of_side in sides.items()
                for name in ("outcome", "speedup", "cold", "warm")
            },
            **{
                f"{side}_derivative": getattr(getattr(of_side, "derivative", None), "word", None)
                for side, of_side in sides.items()
            },
            "said": reason_of(change),
        }


# ------------------------------------------------------------------ the history of several runs, and its report
#
# Speedups of runs are compared on the cells that are right and timed in all of them, so that a run is not faster
# because it has other cells.

CERTAIN = (*REGRESSIONS, *MENDED, "not judged now", "judged now", "other failure")
"""Changes that a history lists a cell for."""


@dataclass(frozen=True, slots=True)
class _BenchHistory:
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


def history_of(runs: Sequence[BenchRun], *, threshold: float = 0.05) -> _BenchHistory:
    """Compare each run with the next, and the first with the last. Fewer than two raise UsageError."""
    if len(runs) < 2:
        raise UsageError("a history takes two runs or more, from the oldest to the newest")
    steps = tuple(compare_runs(old, new, threshold=threshold) for old, new in pairwise(runs))
    whole = compare_runs(runs[0], runs[-1], threshold=threshold)
    return _BenchHistory(tuple(runs), steps, whole)


def history_report(history: _BenchHistory) -> Report:
    """Return the report of several runs."""
    means = _common_means(history)
    tables = (
        _runs_table(history, means),
        _steps_table(history),
        _cells_table("Cells that changed", history, _changed_keys(history)),
    )
    keys = list(dict.fromkeys(key for run in history.runs for key in _cells_by_key(run)))
    return Report(
        "Bench history",
        _history_facts(history),
        tuple(filled(tables)),
        _cells_table("All cells", history, keys),
        FIELDS_OF_HISTORY,
        lambda: _history_rows(history),
        _mean_picture(history, means),
        answer="regressed" if history.regressed else "no regression",
    )


def _history_facts(history: _BenchHistory) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables."""
    last, whole = (step_text(step) for step in (history.steps[-1], history.whole))
    other = {text for step in history.steps for text in step.differences}
    known = {
        "note": f"the runs differ in more than what is compared: {'; '.join(sorted(other))}" if other else "",
        "newest against the one before": last,
        "newest against the oldest": whole,
        "runs": ", ".join(history.names),
        "threshold": f"a time counts as changed beyond {history.whole.threshold:.1%} and the noise",
    }
    return tuple((name, one_line(value)) for name, value in known.items() if value)


def step_text(step: BenchComparison) -> str:
    count = Counter(change.kind for change in step.changes)
    return ", ".join(f"{count[kind]:,} {kind}" for kind in KINDS if count[kind] and kind != "same") or "nothing changed"


# -------------------------------------------------------------- tables of a history

Means = Mapping[str, tuple[float | None, ...]]
"""By compiler: the mean speedup of each run."""


def _common_means(history: _BenchHistory) -> Means:
    """Return each compiler's mean speedup in each run, over the cells that are right and timed in all runs."""
    known = [_cells_by_key(run) for run in history.runs]
    common: dict[str, list[list[float]]] = {}
    for key in known[0]:
        cells = [run.get(key) for run in known]
        speeds = [finite_speedup(cell) if cell is not None and cell.right else None for cell in cells]
        if all(speeds):
            common.setdefault(key[2], []).append([speed for speed in speeds if speed])
    return {name: tuple(map(geometric_mean, zip(*rows, strict=True))) for name, rows in common.items()}


def _runs_table(history: _BenchHistory, means: Means) -> Table:
    """Return a row for each run and compiler."""
    rows: list[tuple[Cell, ...]] = []
    names = dict.fromkeys(compiler.name for run in history.runs for compiler in run.compilers)
    for compiler in names:
        for place, (name, run) in enumerate(zip(history.names, history.runs, strict=True)):
            if own := [cell for cell in run.cells if cell.compiler == compiler]:
                mean = means[compiler][place] if compiler in means else None
                rows.append((compiler, name, *_run_facts_of(run), *_run_counts(own, run), mean))
    heads = "compiler:name run:name started torch load:number cells:count judged:count right:share wrong:count "
    heads += "stopped:count speedup:times"
    note = (
        "Speedups are geometric means over the cells that are right and timed in every run. Right is the share of "
        "what was judged and has power; load the median of the machine's load averages."
    )
    return Table("Runs", note, columns(heads), tuple(rows))


def _run_facts_of(run: BenchRun) -> tuple[Cell, ...]:
    loads = [cell.load for cell in run.cells if cell.load is not None]
    return date_text(run.started), run.torch, statistics.median(loads) if loads else None


def _run_counts(own: Sequence[BenchCell], run: BenchRun) -> tuple[Cell, ...]:
    judged = judged_cells(own, powerless_graphs(run.cells))
    wrong, stopped = (sum(cell.outcome in words for cell in own) for words in (("wrong",), STOPPED))
    return len(own), len(judged), right_share(judged), wrong, stopped


def _steps_table(history: _BenchHistory) -> Table:
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


def _changed_keys(history: _BenchHistory) -> list[Key]:
    """Return the cells that certainly changed in any step, or from the oldest to the newest; the worst first."""
    worst: dict[Key, int] = {}
    for comparison in (*history.steps, history.whole):
        for change in comparison.changes:
            if change.kind in CERTAIN:
                key = change.cell.sample, change.cell.graph, change.cell.compiler
                worst[key] = min(worst.get(key, len(KINDS)), KINDS.index(change.kind))
    return sorted(worst, key=lambda key: (worst[key], key))


def _cells_table(title: str, history: _BenchHistory, keys: Sequence[Key]) -> Table:
    """Return a row for each cell, with a column for each run."""
    known = [(_cells_by_key(run), powerless_graphs(run.cells)) for run in history.runs]
    rows: list[tuple[Cell, ...]] = []
    for sample, graph, compiler in keys:
        cells = [(run.get((sample, graph, compiler)), (sample, graph) in without) for run, without in known]
        standings = (standing_of(cell, powerless) if cell is not None else "" for cell, powerless in cells)
        rows.append((f"{sample} {graph}".strip(), compiler, *standings))
    heads = (*columns("sample:name compiler:name"), *(Column(one_line(name), "verdict") for name in history.names))
    return Table(title, "The outcome in each run, and its speedup.", heads, tuple(rows))


FIELDS_OF_HISTORY = (
    *((name, "text") for name in ("sample", "graph", "compiler", "run", "outcome")),
    *((name, "number") for name in ("speedup", "cold", "warm", "load")),
    *((name, "text") for name in ("change", "reason")),
)


def _history_rows(history: _BenchHistory) -> Iterator[dict[str, Any]]:
    """Yield each cell of each run, and how it changed from the run before."""
    for place, (name, run) in enumerate(zip(history.names, history.runs, strict=True)):
        step = history.steps[place - 1].changes if place else ()
        kinds = {(change.cell.sample, change.cell.graph, change.cell.compiler): change.kind for change in step}
        for key, cell in _cells_by_key(run).items():
            yield {
                **{field: getattr(cell, field) for field in ("sample", "graph", "compiler")},
                "run": name,
                "outcome": cell.outcome,
                "speedup": finite_speedup(cell),
                **{field: getattr(cell, field) for field in ("cold", "warm", "load")},
                "change": kinds.get(key, ""),
                "reason": cell.reason,
            }


# -------------------------------------------------------------- the picture of a history


def _mean_picture(history: _BenchHistory, means: Means) -> tuple[Figure, ...]:
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

"""Compare two bench runs, cell by cell: what became wrong, stopped, slower or faster, beyond the noise.

A time is compared as a multiple of eager's, measured in turns with it in each run, so a machine that is slower by the
day cancels out. Each run's interval of that ratio counts: the logarithms of the two are subtracted, and their widths
added in quadrature. `slower` and `faster` are certain only where the whole interval says so, beyond the threshold and
beyond what eager against eager moved beside either cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from backprint.benching.cells import NOT_JUDGED, STOPPED, BenchCell, BenchTiming
from backprint.benching.runs import BenchRun
from backprint.errors import UsageError

REGRESSIONS = ("wrong now", "stopped now", "slower")

MENDED = ("right now", "faster")

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
        """The cell that names it: the old one if there is one."""
        if self.old is None and self.new is None:
            raise UsageError("a BenchChange has an old cell, a new one, or both")
        return self.old or self.new  # type: ignore[return-value]  # one of the two is there

    @property
    def regression(self) -> bool:
        """Whether it is for the worse, for certain."""
        return self.kind in REGRESSIONS


@dataclass(frozen=True, slots=True)
class CompileChange:
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
    compilations: tuple[CompileChange, ...]
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
    before, after = cells_by_key(old), cells_by_key(new)
    changes = [change_of(key, before, after, threshold) for key in sorted(before.keys() | after.keys())]
    if not any(change.old and change.new for change in changes):
        raise UsageError(
            f"{old.place} and {new.place} have no cell in common, so nothing is compared: "
            f"{said_of(old)}, against {said_of(new)}; bench the same samples with the same compilers"
        )
    pairs = [(before[key], after[key]) for key in sorted(before.keys() & after.keys())]
    ordered = sorted(changes, key=lambda change: KINDS.index(change.kind))
    compilations = tuple(change for pair in pairs for change in compile_changes(*pair))
    return BenchComparison(old, new, threshold, tuple(ordered), compilations, tuple(differences(old, new)))


def cells_by_key(run: BenchRun) -> dict[Key, BenchCell]:
    return {(cell.sample, cell.graph, cell.compiler): cell for cell in run.cells}


def said_of(run: BenchRun) -> str:
    names = ", ".join(compiler.name for compiler in run.compilers) or "no compiler"
    return f"{len(run.cells):,} cells of {names}"


def change_of(
    key: Key, before: Mapping[Key, BenchCell], after: Mapping[Key, BenchCell], threshold: float
) -> BenchChange:
    """Return the change of one cell. A process that ended before any graph stands for all graphs of its sample."""
    sample, _, compiler = key
    old, new = before.get(key), after.get(key)
    if new is None:
        ended = after.get((sample, "", compiler))
        new = ended if ended and ended.outcome in STOPPED else None
    if old is None or new is None:
        return BenchChange("missing" if new is None else "new", old, new)
    if (kind := outcome_change(old, new)) or not (old.right and new.right):
        return BenchChange(kind or "same", old, new)
    if not (old.timing and new.timing and timed(old.timing) and timed(new.timing)):
        return BenchChange("not timed", old, new)
    kind, *interval = time_change(old.timing, new.timing, threshold)
    return BenchChange(kind, old, new, *interval)


def outcome_change(old: BenchCell, new: BenchCell) -> str:
    """Return how an outcome changed; '' if it did not, or is right in both."""
    if old.right and new.right:
        return ""
    if new.outcome in NOT_JUDGED or old.outcome in NOT_JUDGED:
        return judgement_change(old, new)
    if new.right:
        return "right now"
    if new.outcome == "wrong":
        return "" if old.outcome == "wrong" else "wrong now"
    if old.right:
        return "stopped now"
    return "" if old.outcome == new.outcome else "other failure"


def judgement_change(old: BenchCell, new: BenchCell) -> str:
    if old.outcome in NOT_JUDGED and new.outcome in NOT_JUDGED:
        return ""
    return "not judged now" if new.outcome in NOT_JUDGED else "judged now"


def timed(timing: BenchTiming) -> bool:
    """Whether a ratio and its interval are numbers above 0."""
    return all(0 < value < math.inf for value in (timing.ratio, timing.low, timing.high))


def time_change(before: BenchTiming, after: BenchTiming, threshold: float) -> tuple[str, float, float, float]:
    """Return how the time of a cell changed that is right in both runs, and the ratio with its interval."""
    middle = math.log(after.ratio / before.ratio)
    low = middle - math.hypot(math.log(after.ratio / after.low), math.log(before.high / before.ratio))
    high = middle + math.hypot(math.log(after.high / after.ratio), math.log(before.ratio / before.low))
    noise = max(noise_of(before), noise_of(after))
    return time_kind(low, high, math.log1p(threshold), noise), math.exp(middle), math.exp(low), math.exp(high)


def time_kind(low: float, high: float, threshold: float, noise: float) -> str:
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


def compile_changes(old: BenchCell, new: BenchCell) -> Iterator[CompileChange]:
    for caches in ("cold", "warm"):
        before, after = getattr(old, caches), getattr(new, caches)
        if before is not None and after is not None:
            less, more = sorted((before, after))
            if more - less > COMPILE_SECONDS and more > COMPILE_RATIO * less:
                yield CompileChange(new, caches, before, after)


def differences(old: BenchRun, new: BenchRun) -> Iterator[str]:
    """Yield what differs between two runs beside their cells, with both sides."""
    for name, before, after in (("torch", old.torch, new.torch), ("backprint", old.backprint, new.backprint)):
        if before != after:
            yield f"{name} {before or 'unknown'}, now {after or 'unknown'}"
    for place, left, right in (("machine", old.machine, new.machine), ("option", old.options, new.options)):
        for name in sorted({*left, *right}):
            if left.get(name) != right.get(name):
                yield f"{place} {name} {left.get(name)!r}, now {right.get(name)!r}"
    versions = {each.name: dict(each.versions) for each in old.compilers}
    for compiler in new.compilers:
        for name, version in compiler.versions:
            was = versions.get(compiler.name, {}).get(name)
            if compiler.name in versions and was != version:
                yield f"{compiler.name}: {name} {was or 'unknown'}, now {version}"
    yield from (f"{run.place}: {run.unfinished:,} samples are not done" for run in (old, new) if run.unfinished)

"""Which operators the samples of a run call: overloads and dtypes, how often, forward and backward, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from backprint.report.nouns import Cell, Report, Table, columns
from backprint.report.rows import RunView, Sample

SIDES = ("forward", "backward")


@dataclass(slots=True)
class OperatorCalls:
    """The calls of one operator: by side, by dtypes, and the samples that have some."""

    sides: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    samples: list[str] = field(default_factory=list)

    def add(self, sample: str, side: str, dtypes: str, count: int) -> None:
        """Count the calls of a sample; the calls of one sample follow each other."""
        self.sides[side] += count
        self.dtypes[dtypes] += count
        if not self.samples or self.samples[-1] != sample:
            self.samples.append(sample)

    @property
    def calls(self) -> int:
        """How many calls there are."""
        return self.sides.total()


@dataclass(frozen=True, slots=True)
class RunOperators:
    """The operators of a run; `counted` of its `of` samples with graphs have counts in the ledger."""

    operators: Mapping[str, OperatorCalls]
    dtypes: Mapping[str, OperatorCalls]
    counted: int
    of: int

    @property
    def missing(self) -> str:
        """How many samples are not counted; '' if all are."""
        if self.counted == self.of:
            return ""
        return (
            f"{self.counted:,} of {self.of:,} samples with graphs are counted; the others have no counts in this "
            "ledger: `backprint corpus verify` of their folder writes one that has"
        )


def run_operators(run: RunView, samples: Collection[Sample]) -> RunOperators:
    """Return the operators of some samples of a run, from the counts in its ledger."""
    ids = {sample.id for sample in samples if sample.forward_hash}
    counted = sum(1 for id, counts in run.column("operators") if id in ids and counts)
    return RunOperators(*added_up(run, ids), counted, len(ids))


def added_up(run: RunView, ids: Collection[str]) -> tuple[dict[str, OperatorCalls], dict[str, OperatorCalls]]:
    """Add the counts of all samples, by operator and by dtypes."""
    operators: dict[str, OperatorCalls] = {}
    dtypes: dict[str, OperatorCalls] = {}
    for id, counts in run.column("operators"):
        for key, count in counts.items() if id in ids else ():
            side, target, kind = parts_of_key(key)
            operators.setdefault(target, OperatorCalls()).add(id, side, kind, count)
            for dtype in dict.fromkeys(kind.replace(" -> ", ", ").split(", ")):
                dtypes.setdefault(dtype, OperatorCalls()).add(id, side, target, count)
    return operators, dtypes


def parts_of_key(key: str) -> tuple[str, str, str]:
    """Return side, operator and dtypes; a verb of the user's own may have written a key without all of them."""
    side, _, rest = key.partition(" ")
    target, _, kind = rest.partition(" ")
    return side, target, kind


# ------------------------------------------------------------------ tables


def operators_fact(found: RunOperators) -> str:
    """Return the operators of a run in one line."""
    calls = {side: sum(each.sides[side] for each in found.operators.values()) for side in SIDES}
    names = {operator_and_overload(target)[0] for target in found.operators}
    sides = " and ".join(f"{count:,} {side}" for side, count in calls.items())
    return f"{len(names):,} in {len(found.operators):,} overloads; {sum(calls.values()):,} calls, {sides}"


def operator_table(found: RunOperators) -> Table:
    """Return a row for each overload, the most frequent first."""
    rows: list[tuple[Cell, ...]] = []
    for target, each in by_calls(found.operators):
        kinds = "; ".join(f"{kind or 'not known'} ({count:,})" for kind, count in each.dtypes.most_common())
        rows.append((*operator_and_overload(target), kinds, *cells_of(each, found)))
    note = "Calls in the graphs; in brackets, the calls on these dtypes. Files with --rows operator name all samples."
    heads = f"operator:name overload dtypes:name {COUNTS}"
    return Table("Operators", note, columns(heads), tuple(rows))


def dtype_table(found: RunOperators) -> Table:
    """Return a row for each dtype of a tensor that a call takes or returns."""
    rows = [(dtype, len(each.dtypes), *cells_of(each, found)) for dtype, each in by_calls(found.dtypes)]
    note = "Calls that take or return a tensor of the dtype; one call may have several."
    return Table("Dtypes", note, columns(f"dtype overloads:count {COUNTS}"), tuple(rows))


COUNTS = "calls:count forward:count backward:count in_samples:count share_of_samples:share which:samples"


def cells_of(each: OperatorCalls, found: RunOperators) -> tuple[Cell, ...]:
    """Return the columns that both tables have."""
    count = len(each.samples)
    return (each.calls, *(each.sides[side] for side in SIDES), count, count / found.counted, tuple(each.samples))


def by_calls(found: Mapping[str, OperatorCalls]) -> list[tuple[str, OperatorCalls]]:
    """Return operators or dtypes, those with the most calls first."""
    return sorted(found.items(), key=lambda item: (-item[1].calls, item[0]))


def operator_and_overload(target: str) -> tuple[str, str]:
    """Return `aten.mm` and `default`, of aten.mm.default; a function has no overload."""
    name, _, overload = target.rpartition(".")
    return (name, overload) if "." in name else (target, "")


OPERATOR_FIELDS = (
    ("operator", "text"), ("overload", "text"), ("calls", "count"), ("forward", "count"), ("backward", "count"),
    ("dtypes", "counts"), ("samples", "texts"),
)  # fmt: skip


def by_operator(made: Report, found: RunOperators) -> Report:
    """Return a report whose rows for files are overloads instead of samples, each with all of its samples."""

    def rows() -> Iterator[dict[str, Any]]:
        for target, each in by_calls(found.operators):
            names = operator_and_overload(target)
            counts = (each.calls, *(each.sides[side] for side in SIDES), dict(each.dtypes), tuple(each.samples))
            yield dict(zip((name for name, _ in OPERATOR_FIELDS), (*names, *counts), strict=True))

    return replace(made, fields=OPERATOR_FIELDS, rows=rows)

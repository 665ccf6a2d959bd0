"""The report of a comparison of two bench runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from backprint.benching.compare import GONE, KINDS, MENDED, REGRESSIONS, BenchChange, BenchComparison
from backprint.benching.outcome_tables import title_of, wrong_outputs
from backprint.report.nouns import Cell, Report, Table, columns, filled, one_line

MOST_DIFFERENCES = 20


def comparison_report(comparison: BenchComparison) -> Report:
    """Return the report of a comparison, regressions first."""
    changes = comparison.changes
    listed = ("missing", "new", "same", "unsure")
    others = tuple(change for change in changes if change.kind not in (*REGRESSIONS, *MENDED, *listed))
    tables = (
        kinds_table(changes),
        changes_table("Regressions", [change for change in changes if change.regression]),
        changes_table("Better", [change for change in changes if change.kind in MENDED]),
        changes_table("Other changes", others),
        missing_table(changes),
        compilations_table(comparison),
    )
    return Report(
        "Bench comparison",
        comparison_facts(comparison),
        tuple(filled(tables)),
        changes_table("All cells of both", changes),
        FIELDS_OF_CHANGES,
        lambda: change_rows(changes),
    )


def comparison_facts(comparison: BenchComparison) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables: the answer, and what else differs between the runs."""
    count = Counter(change.kind for change in comparison.changes)
    worse = ", ".join(f"{count[kind]:,} {kind}" for kind in (*REGRESSIONS, *GONE) if count[kind])
    both = sum(change.old is not None and change.new is not None for change in comparison.changes)
    said = comparison.differences[:MOST_DIFFERENCES]
    more = len(comparison.differences) - len(said)
    note = "; ".join((*map(one_line, said), *((f"and {more} more",) if more else ())))
    known = {
        "note": f"the runs differ in more than what is compared: {note}" if said else "",
        "answer": ("regressed: " if comparison.regressed else "no regression: ") + (worse or "nothing became worse"),
        "old": str(comparison.old.place),
        "new": str(comparison.new.place),
        "compared": f"{both:,} cells; a time counts as changed beyond {comparison.threshold:.1%} and the noise",
    }
    return tuple((name, one_line(value)) for name, value in known.items() if value)


def kinds_table(changes: Sequence[BenchChange]) -> Table:
    """Count each kind of change of each compiler."""
    count = Counter((change.cell.compiler, change.kind) for change in changes)
    present = [kind for kind in KINDS if any(change.kind == kind for change in changes)]
    names = dict.fromkeys(change.cell.compiler for change in sorted(changes, key=lambda change: change.cell.compiler))
    rows: list[tuple[Cell, ...]] = [(name, *(count[name, kind] for kind in present)) for name in names]
    heads = " ".join(f"{kind.replace(' ', '_')}:count" for kind in present)
    return Table("Changes", "Cells by how they changed.", columns(f"compiler:name {heads}"), tuple(rows))


def changes_table(title: str, changes: Sequence[BenchChange]) -> Table:
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
    wrong = (f"{output.role} {output.name}: {output.detail}".strip(": ") for output in wrong_outputs(change.new))
    return "; ".join(dict.fromkeys(map(one_line, filter(None, (change.new.reason, *wrong)))))


def missing_table(changes: Sequence[BenchChange]) -> Table:
    """List the cells that one run lacks."""
    rows = [
        (title_of(change.cell), change.cell.compiler, change.kind, change.cell.outcome)
        for change in changes
        if change.kind in ("missing", "new")
    ]
    note = "Missing are cells that only the old run has, new those that only the new one has. Neither is a regression."
    heads = "sample:name compiler:name change outcome:verdict"
    return Table("Only in one run", note, columns(heads), tuple(rows))


def compilations_table(comparison: BenchComparison) -> Table:
    """List the compilations that take much longer or shorter."""
    rows = [
        (title_of(each.cell), each.cell.compiler, each.caches, each.old, each.new, each.new / each.old)
        for each in sorted(comparison.compilations, key=lambda each: each.old - each.new)
        if each.old > 0
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
    ("said", "text"),
)


def change_rows(changes: Sequence[BenchChange]) -> Iterator[dict[str, Any]]:
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
            "said": reason_of(change),
        }

"""Compare two runs: which samples became better, worse, new or gone, and sums."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from backprint.graph.verdicts import VERDICTS, rank
from backprint.report.nouns import Cell, Report, Table, columns, filled
from backprint.report.rows import RunView, Sample

CHANGES = ("worse", "better", "new", "gone", "other graphs", "other cause", "same")
"""How a sample can have changed, in the order of the table."""


def against(report: Report, before: RunView, after: RunView) -> Report:
    """Return the report of `after`, with its changes from `before` first."""
    left = {sample.id: sample for sample in before.samples if sample.done}
    right = {sample.id: sample for sample in after.samples if sample.done}
    found = {key: changed(left.get(key), right.get(key)) for key in sorted(left | right)}
    tables = (outcome(found), sums(left, right), moves(left, right), cost(left, right), each(found, left, right))
    fields = (*report.fields, ("change", "text"), ("before_verdict", "text"), ("before_seconds", "number"))

    def rows() -> Iterator[dict[str, Any]]:
        for row in report.rows():
            yield row | beside(found.get(row["id"], "not done"), left.get(row["id"]))
        for key in (key for key, change in found.items() if change == "gone"):
            yield dict.fromkeys(name for name, _ in report.fields) | {"id": key} | beside("gone", left[key])

    said = (*report.facts, ("against", str(before.place)))
    return replace(report, facts=said, tables=(*filled(tables), *report.tables), fields=fields, rows=rows)


def beside(change: str, before: Sample | None) -> dict[str, Any]:
    """Return the columns that a comparison adds."""
    verdict, seconds = (before.verdict, before.seconds) if before else (None, None)
    return {"change": change, "before_verdict": verdict, "before_seconds": seconds}


def changed(before: Sample | None, after: Sample | None) -> str:
    """Say how one sample changed."""
    if before is None or after is None:
        return "gone" if after is None else "new"
    if before.rank != after.rank:
        return "better" if after.rank < before.rank else "worse"
    if (before.forward_hash, before.backward_hash) != (after.forward_hash, after.backward_hash):
        return "other graphs"
    return "same" if before.cause == after.cause else "other cause"


def outcome(found: Mapping[str, str]) -> Table:
    """Count each kind of change."""
    count = Counter(found.values())
    rows = [(name, count[name], count[name] / len(found)) for name in CHANGES if count[name]]
    note = (
        "From best to worst: " + ", ".join(VERDICTS) + "; without power is worse. Samples that are done in both runs."
    )
    return Table("Before and after", note, columns("became samples:count share:share"), tuple(rows))


def sums(left: Mapping[str, Sample], right: Mapping[str, Sample]) -> Table:
    """Return the verdicts of both runs."""
    before, after = (Counter(sample.standing for sample in side.values()) for side in (left, right))
    names = sorted(before | after, key=lambda name: (standing_rank(name), name))
    rows = [(name, before[name], after[name], after[name] - before[name]) for name in names]
    rows.append(("all", len(left), len(right), len(right) - len(left)))
    return Table("Verdicts of both", "", columns("verdict:verdict before:count after:count change:change"), tuple(rows))


def standing_rank(name: str) -> int:
    """Return the place of a standing among the verdicts."""
    return rank(name.partition(",")[0])


def moves(left: Mapping[str, Sample], right: Mapping[str, Sample]) -> Table:
    """Count the changes from each verdict to each."""
    count = Counter((left[key].standing, right[key].standing) for key in left.keys() & right.keys())
    rows = [
        (old, new, n) for (old, new), n in sorted(count.items(), key=lambda item: (-item[1], item[0])) if old != new
    ]
    return Table("Moves", "", columns("before:verdict after:verdict samples:count"), tuple(rows))


COSTS = (("time", "seconds", "seconds"), ("peak memory", "peak_bytes", "size"), ("disk", "disk_bytes", "size"))


def cost(left: Mapping[str, Sample], right: Mapping[str, Sample]) -> Table:
    """Compare time and memory of the samples in both runs, after divided by before."""
    from backprint.report.nouns import SPELLED

    rows: list[tuple[Cell, ...]] = []
    for name, column, kind in COSTS:
        both = [(getattr(left[key], column), getattr(right[key], column)) for key in left.keys() & right.keys()]
        both = [(old, new) for old, new in both if old > 0 and new > 0]
        if both:
            old, new = sum(old for old, _ in both), sum(new for _, new in both)
            ratios = [new / old for old, new in both]
            spelled = SPELLED[kind]
            rows.append((name, len(both), spelled(old), spelled(new), new / old, statistics.median(ratios)))
    note = "Sums over the samples that are in both; a ratio under 1 is less."
    heads = "what samples:count before after ratio_of_sums:times median_ratio:times"
    return Table("Cost of both", note, columns(heads), tuple(rows))


def each(found: Mapping[str, str], left: Mapping[str, Sample], right: Mapping[str, Sample]) -> Table:
    """List every sample that changed."""
    rows: list[tuple[Cell, ...]] = []
    for key in sorted(found, key=lambda key: (CHANGES.index(found[key]), key)):
        if found[key] != "same":
            old, new = left.get(key), right.get(key)
            shown = new or old
            ratio = new.seconds / old.seconds if old and new and old.seconds > 0 else None
            was, now = (side.standing if side else "" for side in (old, new))
            rows.append((key, found[key], was, now, ratio, shown.said if shown and not shown.proved else ""))
    heads = "sample:sample became before:verdict after:verdict time:times what_was_said"
    return Table("Samples that changed", "", columns(heads), tuple(rows))

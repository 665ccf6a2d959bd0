"""Tables of S(t) and ES(t), a column a compiler, and reports of GraphNet's logs alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backprint.benching.means import mean_speedup, right_speedups
from backprint.benching.pictures import Scored, pictures
from backprint.benching.scored import UNMEASURED, ScoredSample
from backprint.benching.scores import ScorePoint, ScoreTerms, score_curve
from backprint.report.nouns import Cell, Column, Report, Table, columns, filled, one_line


def score_tables(scored: Scored, left_out: Mapping[str, int] | None = None) -> tuple[Table, ...]:
    """Return what the scores count, and the scores at every level in both interpretations.

    `left_out` has by name how many cells without power no score counts.
    """
    known = {name: samples for name, samples in scored.items() if any(sample.measured for sample in samples)}
    default = {name: score_curve(samples) for name, samples in known.items()}
    extended = {name: score_curve(samples, ScoreTerms(interpretation="extended")) for name, samples in known.items()}
    return (
        counted_in_scores(scored, left_out or {}),
        level_table("S(t) by level", default, "s"),
        level_table("ES(t), default by level", default, "es"),
        level_table("ES(t), extended by level", extended, "es"),
    )


def counted_in_scores(scored: Scored, left_out: Mapping[str, int]) -> Table:
    """Count the samples of each compiler that its scores count, and their mean speedup at level 0."""
    rows: list[tuple[Cell, ...]] = []
    for name, samples in scored.items():
        measured = sum(sample.measured for sample in samples)
        right = sum(sample.measured and sample.right_at(0) for sample in samples)
        mean = mean_speedup(right_speedups(samples))
        rows.append((name, measured, right, len(samples) - measured, left_out.get(name, 0), *mean))
    heads = "compiler:name scored:count right_at_level_0:count unmeasured:count powerless:count "
    note = "Scores leave out what is unmeasured (not timed, nondeterministic, skipped) and what has no power."
    return Table("Counted in scores", note, columns(f"{heads} speedup:times from:times to:times"), tuple(rows))


def level_table(title: str, curves: Mapping[str, Sequence[ScorePoint]], score: str) -> Table:
    """Return one score at each level, a column a compiler."""
    levels = [point.level for point in next(iter(curves.values()), ())]
    rows = [(level, *(getattr(curve[place], score) for curve in curves.values())) for place, level in enumerate(levels)]
    heads = (Column("t", "change"), *(Column(one_line(name), "number") for name in curves))
    return Table(title, "The score at each tolerance level t.", heads, tuple(rows))


# --- logs -------------------------------------------------------------------------------------------------------------

LOG_FIELDS = (
    ("log", "text"),
    ("sample", "text"),
    ("outcome", "text"),
    ("speedup", "number"),
    ("level", "count"),
    ("outputs", "count"),
    ("reason", "text"),
)


def report_of_logs(logs: Mapping[str, Sequence[ScoredSample]]) -> Report:
    """Return the scores, curves and violins of GraphNet's logs, each by its name."""
    rows = [tuple(row.values()) for row in log_rows(logs)]
    heads = "log:name sample:name outcome speedup:times right_from_level:change outputs:count reason"
    said = (("logs", ", ".join(logs)), ("samples", f"{sum(map(len, logs.values())):,}"))
    return Report(
        "Bench logs",
        said,
        tuple(filled(score_tables(logs))),
        Table("All samples", "", columns(heads), tuple(rows)),
        LOG_FIELDS,
        lambda: log_rows(logs),
        pictures(logs),
    )


def log_rows(logs: Mapping[str, Sequence[ScoredSample]]) -> Iterator[dict[str, Any]]:
    for name, samples in logs.items():
        for sample in samples:
            outcome, strictest = (sample.outcome if sample.measured else UNMEASURED), strictest_level(sample)
            values = (name, sample.name, outcome, sample.speedup, strictest, len(sample.outputs), sample.reason)
            yield {field: value for (field, _), value in zip(LOG_FIELDS, values, strict=True)}


def strictest_level(sample: ScoredSample) -> int | None:
    """Return the strictest level at which a sample is right; None where there is none."""
    return next((level for level in ScoreTerms().levels if sample.right_at(level)), None)

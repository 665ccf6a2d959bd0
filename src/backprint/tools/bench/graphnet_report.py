"""GraphNet's scores S(t) and ES(t) of GraphNet's logs, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from backprint.table.nouns import Report, Table
from backprint.tools.graphnet.log import read_log
from backprint.tools.graphnet.scores import UNMEASURED, ScoredSample, ScoreTerms, score_curve

Scored = Mapping[str, Sequence[ScoredSample]]
"""The samples of each compiler, or of each log, by its name."""


def score_table(scored: Scored) -> Table:
    """Return the scores at each tolerance level, in both interpretations, of the samples that were measured."""
    rows = []
    for name, samples in scored.items():
        if any(sample.measured for sample in samples):
            default = {point.level: point.es for point in score_curve(samples)}
            extended = score_curve(samples, ScoreTerms(interpretation="extended"))  # it has a level more
            rows += [(name, point.level, point.s, default.get(point.level), point.es) for point in extended]
    columns = {"name": "name", "t": "digits", "S": "number", "ES_default": "number", "ES_extended": "number"}
    return Table("GraphNet's scores", columns, rows, "At each tolerance level t; higher is better.")


def report_of_logs(path: Path) -> Report:
    """Return the report of a GraphNet log, or of a folder of logs."""
    logs = {log.stem: read_log(log) for log in (sorted(path.glob("*.log")) if path.is_dir() else [path])}
    rows = [
        (name, sample.name, sample.outcome if sample.measured else UNMEASURED, sample.speedup, sample.reason)
        for name, samples in logs.items()
        for sample in samples
    ]
    columns = {"log": "name", "sample": "name", "outcome": "word", "speedup": "times", "reason": "detail"}
    answer = f"{len(rows):,} samples of {', '.join(logs)}; {sum(row[2] == 'correct' for row in rows):,} are correct."
    return Report("Bench logs", answer, (score_table(logs),), Table("All samples", columns, rows))

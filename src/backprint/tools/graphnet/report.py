"""GraphNet's scores S(t) and ES(t) of GraphNet's logs, as a table."""

from __future__ import annotations

from pathlib import Path

from backprint.table.nouns import Report, Table
from backprint.tools.graphnet.log import read_log
from backprint.tools.graphnet.scores import UNMEASURED, ScoreTerms, score_curve


def report_of_logs(path: Path) -> Report:
    """Return the report of a GraphNet log, or of a folder of logs: the scores at each tolerance level, in both
    interpretations, of the samples that were measured, and all samples."""
    logs = {log.stem: read_log(log) for log in (sorted(path.glob("*.log")) if path.is_dir() else [path])}
    rows = [
        (name, sample.name, sample.outcome if sample.measured else UNMEASURED, sample.speedup, sample.reason)
        for name, samples in logs.items()
        for sample in samples
    ]
    scores = []
    for name, samples in logs.items():
        if any(sample.measured for sample in samples):
            default = {point.level: point.es for point in score_curve(samples)}
            extended = score_curve(samples, ScoreTerms(interpretation="extended"))  # it has a level more
            scores += [(name, point.level, point.s, default.get(point.level), point.es) for point in extended]
    kinds = {"name": "name", "t": "digits", "S": "number", "ES_default": "number", "ES_extended": "number"}
    table = Table("GraphNet's scores", kinds, scores, "At each tolerance level t; higher is better.")
    columns = {"log": "name", "sample": "name", "outcome": "word", "speedup": "times", "reason": "detail"}
    answer = f"{len(rows):,} samples of {', '.join(logs)}; {sum(row[2] == 'correct' for row in rows):,} are correct."
    return Report("Bench logs", answer, (table,), Table("All samples", columns, rows))

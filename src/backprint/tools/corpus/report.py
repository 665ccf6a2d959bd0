"""The report of a corpus run, from its ledger: how many samples are proved, why the others are not, and all samples.

What else people ask is a line of SQL over the ledger, or of pandas over the rows as a file: docs/corpora.md shows them.

A sample is proved if all its results compared equal, by a check that could have failed. A check is vacuous, and no
proof, if it has ports without power: results that do not move when inputs are redrawn. A Table is a title, columns
(name -> kind of value, which says how a page writes it) and rows.
"""

from __future__ import annotations

import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.common.formats import GRAPHNET
from backprint.common.text import encodable, one_line
from backprint.graph.verdicts import NOT_THE_DERIVATIVE, PROVED, has_proof, proofs, rank
from backprint.table.nouns import Report, Table, date_text, share
from backprint.tools.corpus.duplicates import group_by_key, key_of
from backprint.tools.jobs.ledger import COLUMNS, Ledger, place_of, source_of

# ------------------------------------------------------------------ a sample as far as the report's tables go


@dataclass(frozen=True, slots=True)
class _Sample:
    """One row of a ledger, without what only files have. `still` are the ports that no redraw moves: a check of them
    proves nothing."""

    id: str
    family: str
    source_hash: str
    forward_hash: str
    backward_hash: str
    done: bool
    verdict: str
    cause: str
    stage: str
    detail: str
    seconds: float
    power: float | None
    still: tuple[str, ...]
    not_the_derivative: str
    """What was said of a backward that is not the derivative; '' of others."""

    @property
    def proved(self) -> bool:
        """Whether everything compared equal, by a check that could have failed; a forward alone counts too."""
        return self.done and has_proof(self.verdict, self.power, self.still)

    @property
    def fault(self) -> tuple[str, str] | None:
        """What is not good about a finished sample, and the reason; None if it is good, or was not measured."""
        if self.not_the_derivative:
            return f"{self.verdict}, {NOT_THE_DERIVATIVE}", self.not_the_derivative
        if self.verdict not in (*PROVED, "undifferentiable"):
            return self.verdict, self.detail or self.cause or "nothing was said"
        if self.still:
            return f"{self.verdict}, vacuous", f"redrawn inputs do not move {first_names(self.still)}"
        return None


NAMED = 3
"""How many of several names are given."""


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _sample_of(row: Mapping[str, Any]) -> _Sample:
    """Return a ledger's row as a sample; a value that the row does not have is '' or 0."""
    texts = {
        name: row[name] or ""
        for name in ("family", "source_hash", "forward_hash", "backward_hash", "verdict", "cause", "stage", "detail")
    }
    not_the_derivative = ""
    if row["derivative"] == NOT_THE_DERIVATIVE:
        first_note = next(iter(row["notes"] or ()), NOT_THE_DERIVATIVE)  # the reason, by `verbs.sample_row`
        not_the_derivative = first_note.removeprefix(f"{NOT_THE_DERIVATIVE}: ")
    return _Sample(
        id=row["id"],
        done=row["state"] == "done",
        seconds=row["seconds"] or 0.0,
        power=row["power"],
        still=tuple(row["vacuous"] or ()),
        not_the_derivative=not_the_derivative,
        **texts,
    )


# ------------------------------------------------------------------ the report


def report(place: Path, where: tuple[str, ...] = (), base: Path = Path()) -> Report:
    """Return the report of a run, which may still go on; `place` is its folder or its ledger. With `where`, it has the
    samples whose rows meet these SQL conditions. Paths of files are relative to `base`, the folder of the report."""
    with Ledger.reading(place, where) as ledger:
        samples = tuple(map(_sample_of, ledger.rows(order="id")))
        about = ledger.facts()
    folder = place if place.is_dir() else place.parent
    groups = group_by_key(samples, key_of, lambda sample: sample.id)
    facts = {"where": " and ".join(where), **{name: _fact_text(name, about[name]) for name in sorted(about)}}
    return Report(
        title=f"Corpus report: {folder.resolve().name}",
        answer=_answer(samples, sum(any(sample.done for sample in group) for group in groups)),
        tables=(_families(samples), _faults(samples)),
        rows=Table(
            "All samples",
            {**{name: _kind_of(name) for name in COLUMNS}, **OWN_COLUMNS},
            _Rows(place, where, folder, Path(about.get("source") or folder), base, samples, groups),
            shown=SHOWN,
        ),
        facts={name: one_line(text) for name, text in facts.items() if text},
    )


def _answer(samples: Sequence[_Sample], distinct: int) -> str:
    """Return in sentences how many samples are good and what the others are, what is proved of those that are done,
    and how many of these are `distinct`, that is no duplicates."""
    done = [sample for sample in samples if sample.done]
    counts = proofs((sample.id, sample.verdict, sample.power, sample.still) for sample in done)
    part = f"{share(counts.proved / counts.differentiable)} proved" if counts.differentiable else "proved"
    causes = Counter(sample.cause or sample.fault[0] for sample in done if sample.fault)
    if len(done) < len(samples):
        causes["not done"] = len(samples) - len(done)
    faults = "; ".join(f"{count:,} {cause}" for cause, count in causes.most_common())
    texts = (
        f"{sum(not sample.fault for sample in done):,} of {len(samples):,} samples are good"
        f"{f'. Not good: {faults}' if faults else ''}.",
        f"{part}: {counts.in_one_line()}." if done else "",
        f"{distinct:,} of the {len(done):,} that are done are distinct." if done else "",
    )
    return " ".join(filter(None, texts))


def _fact_text(name: str, value: Any) -> str:
    """Return a fact of a run as text: a time as date and time, options without those that are not set."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items() if item not in (None, False, "", []))
    return date_text(value) if name in ("started", "finished") else str(value)


def _families(samples: Sequence[_Sample]) -> Table:
    """Return a table of how many samples of each family, and of all, have each verdict."""
    families: dict[str, list[_Sample]] = defaultdict(list)
    for sample in samples:
        families[sample.family or "(none)"].append(sample)
    rows = [_family_row(name, families[name]) for name in sorted(families)]
    columns = {"family": "name", "samples": "count", "proved": "count", "vacuous": "count"}
    columns |= dict.fromkeys(("undifferentiable", "unproven", "wrong", "failed", "not_done"), "count")
    columns |= {"proved_share": "share", "median": "seconds"}
    note = "The share is of the samples that are done and differentiable; a vacuous check is no proof."
    return Table("Summary", columns, (*rows, *([_family_row("all", samples)] if len(rows) > 1 else [])), note)


def _family_row(name: str, samples: Sequence[_Sample]) -> tuple[Any, ...]:
    """Return the row of a family, in the columns of `_families`."""
    done = [sample for sample in samples if sample.done]
    count = Counter(sample.verdict for sample in done)
    proved = proofs((sample.id, sample.verdict, sample.power, sample.still) for sample in done)
    return (
        name,
        len(samples),
        proved.proved,
        len(proved.without),  # samples that compared equal by a vacuous check
        *(count[verdict] for verdict in ("undifferentiable", "unproven", "wrong", "failed")),
        len(samples) - len(done),
        proved.proved / proved.differentiable if proved.differentiable else None,
        statistics.median(sample.seconds for sample in done) if done else None,
    )


def _faults(samples: Sequence[_Sample]) -> Table:
    """Return a table of the samples that are not good, the worst first; those with one cause are together."""
    rows = []
    for sample in sorted(samples, key=lambda sample: (-rank(sample.verdict), sample.cause, sample.id)):
        if sample.done and sample.fault is not None:
            verdict, reason = sample.fault
            rows.append((sample.id, verdict, sample.cause, sample.seconds, sample.stage, one_line(reason)))
    columns = {"sample": "name", "verdict": "word", "cause": "text", "time": "seconds", "stage": "text"}
    return Table("Not good", {**columns, "reason": "detail"}, rows)


# ------------------------------------------------------------------ all samples

OWN_COLUMNS = {"proved": "flag", "duplicate_of": "text", "code": "path", "page": "path"}
"""Columns that a ledger has not."""

SHOWN = (
    *("id", "family", "verdict", "proved", "cause", "seconds", "peak_bytes", "power", "derivative", "detail"),
    *("notes", "duplicate_of", "code", "page"),
)
"""The columns of a page."""

KIND_OF_COLUMN = {
    "id": "name",
    "verdict": "word",
    "detail": "detail",
    "seconds": "seconds",
    "started": "date",
    "finished": "date",
    "stages": "numbers",
    "vacuous": "texts",
    "asks": "pairs",
    "notes": "texts",
    "versions": "words",
    "operators": "counts",
}


def _kind_of(column: str) -> str:
    """Return the kind of cells of a ledger's column."""
    types = {"integer": "bytes" if column.endswith("_bytes") else "count", "real": "number"}
    return KIND_OF_COLUMN.get(column) or types.get(COLUMNS[column].split()[0], "text")


@dataclass(frozen=True, slots=True)
class _Rows:
    """All rows of the report with all columns, read from the ledger at each iteration, one at a time. `place`, `where`
    and `base` are those of `report`, `folder` is the run's and `source` that of its corpus; `groups` are the samples
    with equal keys, of which the first is no duplicate."""

    place: Path
    where: tuple[str, ...]
    folder: Path
    source: Path
    base: Path
    samples: Sequence[_Sample]
    groups: Sequence[Sequence[_Sample]]

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        proved = {sample.id: sample.proved for sample in self.samples}
        first = {sample.id: group[0].id for group in self.groups for sample in group[1:]}
        with Ledger.reading(self.place, self.where) as ledger:
            for row in ledger.rows(order="id"):
                if (id := row["id"]) in proved:  # a run may have added some since
                    cells = tuple(_plain(row[name]) for name in COLUMNS)
                    yield (*cells, proved[id], first.get(id, ""), *self.files(row))

    def files(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Return the paths of a sample's code and of its page (of two places each, the first that is there), '' where
        there is none: in the run's folder, or else in the corpus, where verbs such as `verify` leave the sample."""
        for place in (place_of(self.folder, row), source_of(self.source, row)):
            code = (place / "pair_0" / "forward" / "model.py", place / GRAPHNET.main)
            pages = (place / "page.html", place.with_name(f"{place.name}.html"))
            if any(map(os.path.isfile, code)):
                return self.relative(code), self.relative(pages)
        return "", ""

    def relative(self, files: Sequence[Path]) -> str:
        """Return the path of the first of these files that is there, from the folder of the report."""
        there = next((file for file in files if os.path.isfile(file)), None)
        return "" if there is None else encodable(Path(os.path.relpath(there, self.base.resolve())).as_posix())


def _plain(value: Any) -> Any:
    """Return a value of a ledger as one that can be encoded."""
    match value:
        case str():
            return encodable(value)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {encodable(key): _plain(item) for key, item in value.items()}
    return value

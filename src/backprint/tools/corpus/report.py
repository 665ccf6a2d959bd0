"""The report of a corpus run, from its ledger: samples, operators, tables, and a comparison of two runs.

Tables read a few columns of all rows; files get all columns, one row at a time. With `unique`, duplicates (samples with
the same graphs; without graphs, the same source) count once, by the worst of their verdicts: one bad duplicate is not
hidden by a good one.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from backprint.common.formats import GRAPHNET
from backprint.errors import SampleError
from backprint.graph.verdicts import (
    CANNOT_TELL,
    DERIVATIVE,
    GOOD,
    NOT_THE_DERIVATIVE,
    PROVED,
    VERDICTS,
    WORDS,
    Proofs,
    has_proof,
    proofs,
    rank,
)
from backprint.tools.corpus.duplicates import grouped, key_of, several
from backprint.tools.jobs.ledger import COLUMNS as SCHEMA
from backprint.tools.jobs.ledger import Ledger, naming_ledger
from backprint.tools.report.nouns import (
    NAMED,
    Cell,
    Report,
    SampleLink,
    Table,
    columns,
    encodable,
    filled,
    note_kind,
    one_line,
    share,
)

# ------------------------------------------------------------------ a run, read from its ledger


JSON = {
    "stages": "numbers",
    "vacuous": "texts",
    "asks": "pairs",
    "notes": "texts",
    "versions": "words",
    "operators": "counts",
}
"""The types of the ledger's JSON columns."""

KINDS = {"text": "text", "integer": "count", "real": "number"}

COLUMNS = {name: JSON.get(name) or KINDS[kind.split()[0]] for name, kind in SCHEMA.items()}
"""The ledger's columns, and the kinds of their values."""

VACUOUS, UNMEASURED = "vacuous", "power not measured"
"""Words added to a verdict that is good and no proof."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row, without long columns. `still` are the ports that no redraw moves: such a check proves nothing."""

    id: str
    family: str
    source_hash: str
    state: str
    attempts: int
    verdict: str
    cause: str
    detail: str
    stage: str
    engine: str
    mode: str
    seconds: float
    peak_bytes: int
    forward_hash: str
    backward_hash: str
    forward_steps: int
    backward_steps: int
    saved_bytes: int
    inputs: int
    gradients: int
    outputs: int
    input_bytes: int
    disk_bytes: int
    guards: int
    started: float
    finished: float
    power: float | None
    still: tuple[str, ...] = field(metadata={"column": "vacuous"})
    derivative: str

    @property
    def done(self) -> bool:
        """Whether there is a verdict."""
        return self.state == "done"

    @property
    def proved(self) -> bool:
        """Whether everything compared equal, by a check that could have failed; a forward alone counts too."""
        return self.done and has_proof(self.verdict, self.power, self.still)

    @property
    def powerless(self) -> bool:
        """Whether everything compared equal, by a check that some wrong results would pass too, or whose power is
        unknown."""
        return self.done and self.verdict in GOOD and not self.proved

    @property
    def standing(self) -> str:
        """The verdict as text; its state if there is none."""
        if not self.done:
            return "not done"
        return f"{self.verdict}, {VACUOUS if self.still else UNMEASURED}" if self.powerless else self.verdict

    @property
    def rank(self) -> tuple[int, bool]:
        """The order from best to worst; without power is worse."""
        return rank(self.verdict), self.powerless

    @property
    def reason(self) -> str:
        """The reason of the verdict in one line."""
        reason = one_line(self.detail)
        if self.powerless:
            still = (
                f"redrawn inputs do not move {first_names(self.still)}" if self.still else "its power was not measured"
            )
            reason = f"{still}; {reason}" if reason else still
        return reason or (f"{self.cause} at stage {self.stage}" if self.cause else "nothing was said")


@dataclass(frozen=True)
class RunView:
    """A corpus run that is finished or in progress, for reading; `place` is its folder or its ledger. With `where`, it
    has only the samples whose rows meet these conditions."""

    place: Path
    where: tuple[str, ...] = ()

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Every sample, in the order of ids."""
        names = {item.name: item.metadata.get("column", item.name) for item in fields(Sample)}
        return tuple(Sample(*row) for row in self.select(tuple(names.values())))

    @cached_property
    def facts(self) -> dict[str, str]:
        """The facts that the run recorded about itself."""
        with Ledger.reading(self.place, self.where) as ledger:
            return {name: one_line(_fact_text(name, value)) for name, value in sorted(ledger.facts().items())}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every row with every column, one at a time."""
        for row in self.select(tuple(COLUMNS)):
            yield dict(zip(COLUMNS, row, strict=True))

    def column(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield one column of the finished samples, by id."""
        for key, state, value in self.select(("id", "state", name)):
            if state == "done":
                yield key, value

    def select(self, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of all samples, one row at a time."""
        with Ledger.reading(self.place, self.where) as ledger, naming_ledger(ledger.path):
            for row in ledger.connection.execute(f"select {', '.join(columns)} from samples order by id"):
                yield tuple(map(_read_column, columns, row))


def _fact_text(name: str, value: Any) -> str:
    """Return a fact of a run as text; a time as local date and time."""
    if isinstance(value, dict):
        words = (f"{key} {_fact_text(key, item)}" for key, item in value.items() if item not in (None, False, "", []))
        return ", ".join(words)
    if name in ("started", "finished") and isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC).isoformat(sep=" ", timespec="seconds")
    return str(value)


EMPTY: dict[str, Any] = {
    "text": "",
    "count": 0,
    "number": 0.0,
    "numbers": {},
    "counts": {},
    "words": {},
    "texts": (),
    "pairs": (),
}

UNKNOWN = ("power", "flops", "moved_bytes", "source_bytes", "tensor_bytes")
"""Columns whose value may be unknown, where 0 would be a value."""

READERS: dict[str, Callable[[Any], Any]] = {
    "text": str,
    "count": int,
    "number": float,
    "numbers": lambda value: {encodable(key): float(item) for key, item in parsed(value, dict).items()},
    "counts": lambda value: {encodable(key): int(item) for key, item in parsed(value, dict).items()},
    "words": lambda value: {encodable(key): item for key, item in parsed(value, dict).items()},
    "texts": lambda value: tuple(map(encodable, parsed(value, list))),
    "pairs": lambda value: tuple((encodable(name), encodable(why)) for name, why in parsed(value, list)),
}


def _read_column(column: str, value: Any) -> Any:
    """Return a column's value; raise, by the column's name, if the ledger is damaged."""
    kind = COLUMNS[column]
    if value is None or value == "":
        return None if column in UNKNOWN else EMPTY[kind]
    try:
        return READERS[kind](value)
    except (ValueError, TypeError) as error:
        raise SampleError(f"ledger.sqlite: column {column} holds {str(value)[:60]!r}: {error}") from None


def parsed(text: str, kind: type) -> Any:
    """Parse JSON that must be a list, or a dict."""
    content = json.loads(text)
    if not isinstance(content, kind):
        raise ValueError(f"expected a {kind.__name__}, found {type(content).__name__}")
    return content


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more."""
    more = len(names) - NAMED
    return ", ".join(map(one_line, names[:NAMED])) + (f" and {more} more" if more > 0 else "")


# ------------------------------------------------------------------ links to the code and pages of samples

CODE = {word: f"pair_0/{word}/model.py" for word in ("forward", "backward")}
"""Word of a link -> the file of a Backprint sample."""


@dataclass(frozen=True)
class _SampleFolders:
    """The folders of a run's samples, and links to their files that are relative to `base`."""

    out: Path
    source: Path
    base: Path
    paths: dict[str, str]
    known: dict[str, tuple[SampleLink, ...]] = field(default_factory=dict)

    @classmethod
    def of_run(cls, run: RunView, base: Path) -> _SampleFolders:
        """Return the folders of a run, for a report that is in the folder `base`."""
        out = run.place if run.place.is_dir() else run.place.parent
        paths = dict(run.select(("id", "path")))
        return cls(out, Path(run.facts.get("source") or out), Path(os.path.abspath(base)), paths)

    def places(self, id: str) -> Iterator[Path]:
        """Yield where a sample may be. A ledger may not be trusted: nothing outside the two folders is read."""
        for root, name in ((self.out, id), (self.source, self.paths.get(id, ""))):
            below = Path(name) if name else None
            if below is not None and not below.is_absolute() and ".." not in below.parts:
                yield root / below

    def links(self, id: str) -> tuple[SampleLink, ...]:
        """Return the links of a sample: its forward and its backward, or GraphNet's code; then its page."""
        if id not in self.known:
            self.known[id] = tuple(self.found(id))
        return self.known[id]

    def columns(self, id: str) -> dict[str, str]:
        """Return the columns of a file: the paths of the first code and of the page, '' where there is none."""
        known = {link.word: encodable(link.path) for link in self.links(id)}
        return {"code": known.get("forward") or known.get("code", ""), "page": known.get("page", "")}

    def found(self, id: str) -> Iterator[SampleLink]:
        """Look for the files of a sample."""
        for place in self.places(id):
            files = {word: place / name for word, name in CODE.items()}
            files = {word: file for word, file in files.items() if os.path.isfile(file)}
            main = place / GRAPHNET.main
            if files or os.path.isfile(main):
                own = (place / "page.html", place.with_name(f"{place.name}.html"))
                pages = [("page", page) for page in own if os.path.isfile(page)]
                both = (*(files or {"code": main}).items(), *pages[:1])
                yield from (SampleLink(word, self.relative(file)) for word, file in both)
                return

    def relative(self, file: Path) -> str:
        """Return a path relative to the folder of the report."""
        return Path(os.path.relpath(os.path.abspath(file), self.base)).as_posix()


# ------------------------------------------------------------------ operators that the samples call

SIDES = ("forward", "backward")


@dataclass(slots=True)
class _OperatorCalls:
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
class _RunOperators:
    """The operators of a run; `counted` of its `of` samples with graphs have counts in the ledger."""

    operators: Mapping[str, _OperatorCalls]
    dtypes: Mapping[str, _OperatorCalls]
    counted: int
    of: int

    @property
    def missing(self) -> str:
        """How many samples are not counted; '' if all are."""
        if self.counted == self.of:
            return ""
        return (
            f"{self.counted:,} of {self.of:,} samples with graphs are counted; the others have no counts in this "
            "ledger: `backprint corpus run verify` of their folder writes one that has"
        )


def _run_operators(run: RunView, samples: Collection[Sample]) -> _RunOperators:
    """Return the operators of some samples of a run, from the counts in its ledger."""
    ids = {sample.id for sample in samples if sample.forward_hash}
    counted = sum(1 for id, counts in run.column("operators") if id in ids and counts)
    return _RunOperators(*_add_counts(run, ids), counted, len(ids))


def _add_counts(run: RunView, ids: Collection[str]) -> tuple[dict[str, _OperatorCalls], dict[str, _OperatorCalls]]:
    """Add the counts of all samples, by operator and by dtypes."""
    operators: dict[str, _OperatorCalls] = {}
    dtypes: dict[str, _OperatorCalls] = {}
    for id, counts in run.column("operators"):
        for key, count in counts.items() if id in ids else ():
            side, target, kind = _parts_of_key(key)
            operators.setdefault(target, _OperatorCalls()).add(id, side, kind, count)
            for dtype in dict.fromkeys(kind.replace(" -> ", ", ").split(", ")):
                dtypes.setdefault(dtype, _OperatorCalls()).add(id, side, target, count)
    return operators, dtypes


def _parts_of_key(key: str) -> tuple[str, str, str]:
    """Return side, operator and dtypes; a verb of the user's own may have written a key without all of them."""
    side, _, rest = key.partition(" ")
    target, _, kind = rest.partition(" ")
    return side, target, kind


# -------------------------------------------------------------- tables of operators


def _operators_fact(counted: _RunOperators) -> str:
    """Return the operators of a run in one line."""
    totals = {side: sum(calls.sides[side] for calls in counted.operators.values()) for side in SIDES}
    names = {_operator_and_overload(target)[0] for target in counted.operators}
    sides = " and ".join(f"{count:,} {side}" for side, count in totals.items())
    return f"{len(names):,} in {len(counted.operators):,} overloads; {sum(totals.values()):,} calls, {sides}"


def operator_table(counted: _RunOperators) -> Table:
    """Return a row for each overload, the most frequent first."""
    rows: list[tuple[Cell, ...]] = []
    for target, calls in _by_calls(counted.operators):
        kinds = "; ".join(f"{kind or 'not known'} ({count:,})" for kind, count in calls.dtypes.most_common())
        rows.append((*_operator_and_overload(target), kinds, *cells_of(calls, counted)))
    note = "Calls in the graphs; in brackets, the calls on these dtypes. Files with --rows operator name all samples."
    heads = f"operator:name overload dtypes:name {OPERATOR_COUNTS}"
    return Table("Operators", note, columns(heads), tuple(rows))


def _dtype_table(counted: _RunOperators) -> Table:
    """Return a row for each dtype of a tensor that a call takes or returns."""
    rows = [(dtype, len(calls.dtypes), *cells_of(calls, counted)) for dtype, calls in _by_calls(counted.dtypes)]
    note = "Calls that take or return a tensor of the dtype; one call may have several."
    return Table("Dtypes", note, columns(f"dtype overloads:count {OPERATOR_COUNTS}"), tuple(rows))


OPERATOR_COUNTS = "calls:count forward:count backward:count in_samples:count share_of_samples:share which:samples"


def cells_of(calls: _OperatorCalls, counted: _RunOperators) -> tuple[Cell, ...]:
    """Return the columns that both tables have."""
    count = len(calls.samples)
    return (calls.calls, *(calls.sides[side] for side in SIDES), count, count / counted.counted, tuple(calls.samples))


def _by_calls(calls_by_name: Mapping[str, _OperatorCalls]) -> list[tuple[str, _OperatorCalls]]:
    """Return operators or dtypes, those with the most calls first."""
    return sorted(calls_by_name.items(), key=lambda item: (-item[1].calls, item[0]))


def _operator_and_overload(target: str) -> tuple[str, str]:
    """Return `aten.mm` and `default`, of aten.mm.default; a function has no overload."""
    name, _, overload = target.rpartition(".")
    return (name, overload) if "." in name else (target, "")


OPERATOR_FIELDS = (
    ("operator", "text"),
    ("overload", "text"),
    ("calls", "count"),
    ("forward", "count"),
    ("backward", "count"),
    ("dtypes", "counts"),
    ("samples", "texts"),
)


def _with_operator_rows(whole: Report, counted: _RunOperators) -> Report:
    """Return a report whose rows for files are overloads instead of samples, each with all of its samples."""

    def rows() -> Iterator[dict[str, Any]]:
        for target, calls in _by_calls(counted.operators):
            names = _operator_and_overload(target)
            counts = (calls.calls, *(calls.sides[side] for side in SIDES), dict(calls.dtypes), tuple(calls.samples))
            yield dict(zip((name for name, _ in OPERATOR_FIELDS), (*names, *counts), strict=True))

    return replace(whole, fields=OPERATOR_FIELDS, rows=rows)


# ------------------------------------------------------------------ the report and its tables

SLOWEST = 10


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """The options of a report: `unique` counts duplicates once, `by_operator` gives files a row for each overload, and
    links are relative to `base`."""

    unique: bool = False
    title: str = ""
    base: Path = Path()
    by_operator: bool = False


def report(run: RunView, plan: ReportPlan = ReportPlan()) -> Report:
    """Return the report of one run."""
    groups = grouped(run.samples, key_of, lambda sample: sample.id)
    counted = tuple(worst(group) for group in groups) if plan.unique else run.samples
    counted = tuple(sorted(counted, key=lambda sample: sample.id))
    folders = _SampleFolders.of_run(run, plan.base)
    operators_of_run = _run_operators(run, counted)
    first = {sample.id: group[0].id for group in groups for sample in group[1:]}
    proved = {sample.id: sample.proved for sample in counted}

    def rows() -> Iterator[dict[str, Any]]:
        for row in run.rows():
            if (id := row["id"]) in proved:
                yield row | {"proved": proved[id], "duplicate_of": first.get(id, "")} | folders.columns(id)

    distinct = sum(any(sample.done for sample in group) for group in groups)
    run_facts = facts(run, counted, distinct, plan.unique, operators_of_run)
    kinds = (*COLUMNS.items(), ("proved", "flag"), *((name, "text") for name in ("duplicate_of", "code", "page")))
    title = plan.title or f"Corpus report: {folders.out.resolve().name}"
    whole = Report(
        title,
        run_facts,
        tuple(filled(_all_tables(run, counted, groups, operators_of_run))),
        _samples_table(run, counted),
        kinds,
        rows,
        links=folders.links,
    )
    return _with_operator_rows(whole, operators_of_run) if plan.by_operator else whole


def _all_tables(
    run: RunView, counted: Sequence[Sample], groups: Sequence[Sequence[Sample]], operators: _RunOperators
) -> Iterator[Table]:
    """Yield the tables: first about the samples, then about their captures, and the run itself last."""
    ids = {sample.id for sample in counted}
    done = [sample for sample in counted if sample.done]
    yield from (_verdicts_table(counted), _families_table(counted), operator_table(operators), _dtype_table(operators))
    yield from (_spread_table("Graphs", "count", COUNTS, done), _spread_table("Sizes", "size", SIZES, done))
    yield from (_causes_table(done), _not_good_table(counted), _undifferentiable_table(done), _duplicates_table(groups))
    yield from (_derivative_table(done), _not_derivative_table(run, done))
    yield from (_power_table(done), _powerless_table(done), _notes_table(run, ids), _grad_table(run, ids))
    yield from (_times_table(run, done, ids), _slowest_table(done), _about_run(run, done))


def worst(group: Sequence[Sample]) -> Sample:
    """Return the sample that a group of duplicates counts as."""
    return max(group, key=lambda sample: (sample.done, sample.rank))


def facts(
    run: RunView, counted: Sequence[Sample], groups: int, unique: bool, operators: _RunOperators
) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables."""
    done = sum(sample.done for sample in run.samples)
    proof_counts = _proofs_of(counted)
    rows = [
        *([("where", " and ".join(run.where))] if run.where else []),
        ("samples", f"{done:,} of {len(run.samples):,} done"),
        ("distinct", f"{groups:,} of the {done:,}" + ("; each counts once below" if unique else "")),
        (
            "proved",
            proof_counts.in_one_line()
            + (f" ({share(proof_counts.proved / proof_counts.differentiable)})" if proof_counts.differentiable else ""),
        ),
    ]
    rows += [("operators", _operators_fact(operators))] if operators.counted else []
    return (*rows, *([("operators not counted", operators.missing)] if operators.missing else []))


def _about_run(run: RunView, done: Sequence[Sample]) -> Table:
    """Return the facts that the run recorded about itself, and its pace."""
    rows = [(name, value) for name, value in run.facts.items() if value]
    starts, ends = [s.started for s in done if s.started], [s.finished for s in done if s.finished]
    if starts and ends and (wall := max(ends) - min(starts)) > 0:
        rows.append(("pace", f"{len(done) / wall * 3600:,.0f} samples an hour from the first start to the last end"))
    return Table("This run", "", columns("fact value"), tuple(rows))


def _proofs_of(samples: Sequence[Sample]) -> Proofs:
    """Return how many of these have a proof, counted as everywhere."""
    return proofs((sample.id, sample.verdict, sample.power, sample.still) for sample in samples if sample.done)


MISSING = {
    VACUOUS: "equal, but a redraw of the inputs does not move every result: no proof",
    UNMEASURED: "equal, but whether a redraw of the inputs moves every result was not measured: no proof",
}


def _verdicts_table(samples: Sequence[Sample]) -> Table:
    """Count each verdict."""
    count = Counter(sample.standing for sample in samples)
    rows: list[tuple[Cell, ...]] = []
    for verdict in VERDICTS:
        meanings = {
            verdict: WORDS[verdict].meaning,
            **{f"{verdict}, {why}": meaning for why, meaning in MISSING.items()},
        }
        counts = {name: count[name] for name in meanings if count[name]}
        rows += [(name, times, times / len(samples), meanings[name]) for name, times in counts.items()]
    known = {row[0] for row in rows}
    rows += [(name, n, n / len(samples), "no verdict yet") for name, n in sorted(count.items()) if name not in known]
    return Table("Verdicts", "", columns("verdict:verdict samples:count share:share meaning"), tuple(rows))


def _families_table(samples: Sequence[Sample]) -> Table:
    """Return the share of proved samples by family."""
    samples_by_family: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        samples_by_family[sample.family].append(sample)
    rows = [_family_row(name, samples_by_family[name]) for name in sorted(samples_by_family)]
    heads = "family samples:count proved:count vacuous:count undifferentiable:count unproven:count wrong:count"
    heads += " failed:count not_done:count proved_share:share median:seconds"
    note = "The share is of the samples that are done and differentiable; a vacuous check is no proof."
    return Table("By family", note, columns(heads), (*rows, *([_family_row("all", samples)] if len(rows) > 1 else [])))


def _family_row(name: str, samples: Sequence[Sample]) -> tuple[Cell, ...]:
    count = Counter(sample.verdict for sample in samples if sample.done)
    proof_counts, done = _proofs_of(samples), sum(count.values())
    spent = [sample.seconds for sample in samples if sample.done]
    return (
        *(name or "(none)", len(samples), proof_counts.proved, len(proof_counts.without)),
        *(count[verdict] for verdict in ("undifferentiable", "unproven", "wrong", "failed")),
        *(
            len(samples) - done,
            proof_counts.proved / proof_counts.differentiable if proof_counts.differentiable else None,
            statistics.median(spent) if spent else None,
        ),
    )


def _causes_table(done: Sequence[Sample]) -> Table:
    """Return the samples that are not proved, by cause."""
    groups: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for sample in done:
        if not sample.proved or sample.verdict not in PROVED:
            cause = sample.cause or ("no power" if sample.powerless else "")
            groups[sample.standing, cause, sample.stage].append(sample)
    rows = []
    for (verdict, cause, stage), samples in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        related = len({sample.family for sample in samples})
        rows.append((verdict, cause, stage, len(samples), related, samples[0].id, samples[0].reason))
    heads = "verdict:verdict cause stage samples:count families:count for_example:sample which_said"
    return Table("By cause", "Everything that is not proved.", columns(heads), tuple(rows))


def distribution(name: str, values: Sequence[tuple[float, str]]) -> tuple[Cell, ...]:
    """Return median, ninth decile, largest with its sample, and sum."""
    numbers = sorted(value for value, _ in values)
    ninth = numbers[-(-9 * len(numbers) // 10) - 1]
    largest, which = min(values, key=lambda pair: (-pair[0], pair[1]))
    return (name, len(numbers), statistics.median(numbers), ninth, largest, which, sum(numbers))


def _times_table(run: RunView, done: Sequence[Sample], ids: Collection[str]) -> Table:
    """Return the time of samples, in total and by stage."""
    stages: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for key, spent in run.column("stages"):
        if key in ids:
            for stage, value in spent.items():
                stages[stage].append((float(value), key))
    rows = [distribution(f"stage {name}", values) for name, values in stages.items()]
    whole = [distribution("a sample", [(sample.seconds, sample.id) for sample in done])] if done else []
    heads = "what samples:count median:seconds nine_tenths_within:seconds slowest:seconds which:sample together:seconds"
    return Table("Times", "", columns(heads), (*whole, *rows))


SIZES = {
    "peak memory of the worker": "peak_bytes",
    "inputs": "input_bytes",
    "saved for the backward": "saved_bytes",
    "on disk": "disk_bytes",
}
COUNTS = {
    "steps forward": "forward_steps",
    "steps backward": "backward_steps",
    "inputs": "inputs",
    "outputs": "outputs",
    "gradients": "gradients",
    "guards": "guards",
}


def _spread_table(title: str, kind: str, rows: dict[str, str], done: Sequence[Sample]) -> Table:
    """Return the spread of some columns, over the samples that have them."""
    values_of = {name: [(getattr(sample, key), sample.id) for sample in done] for name, key in rows.items()}
    spreads = [
        distribution(name, present)
        for name, values in values_of.items()
        if (present := [pair for pair in values if pair[0]])
    ]
    heads = f"what samples:count median:{kind} nine_tenths_within:{kind} largest:{kind} which:sample together:{kind}"
    cells = (row[:-1] + ((None,) if row[0] == "peak memory of the worker" else row[-1:]) for row in spreads)
    return Table(title, "", columns(heads), tuple(cells))


def _slowest_table(done: Sequence[Sample]) -> Table:
    """Return the samples that took longest."""
    rows = [
        (sample.id, sample.standing, sample.seconds, sample.peak_bytes, sample.forward_steps, sample.backward_steps)
        for sample in sorted(done, key=lambda sample: (-sample.seconds, sample.id))[:SLOWEST]
    ]
    heads = "sample:sample verdict:verdict time:seconds peak_memory:size steps_forward:count steps_backward:count"
    return Table("Slowest", "", columns(heads), tuple(rows))


BANDS = (
    (1.0, "under 1: some result does not move"),
    (10.0, "1 to 10"),
    (1e3, "10 to 1,000"),
    (float("inf"), "1,000 and more"),
)


def _power_table(done: Sequence[Sample]) -> Table:
    """Return how far results move, in tolerances, when the inputs are redrawn: the smallest movement of each sample."""
    checked = [sample for sample in done if sample.verdict in PROVED]
    bands: Counter[str] = Counter()
    for sample in checked:
        known = (name for limit, name in BANDS if sample.power is not None and sample.power < limit)
        bands["not measured" if sample.power is None else next(known, BANDS[-1][1])] += 1
    names = (*(name for _, name in BANDS), "not measured")
    rows = [(name, bands[name], bands[name] / len(checked)) for name in names if bands[name]]
    note = "The least movement of any result, in tolerances, when the inputs are redrawn; of what compared equal."
    return Table("Power", note, columns("power samples:count share:share"), tuple(rows))


def _powerless_table(done: Sequence[Sample]) -> Table:
    """Return the samples with results that no redraw moves, each by name; those without a measured power in one row."""
    unmoved = [sample for sample in done if sample.powerless and sample.still]
    unmeasured = [sample for sample in done if sample.powerless and not sample.still]
    rows = [
        (sample.id, sample.verdict, sample.power, len(sample.still), first_names(sample.still)) for sample in unmoved
    ]
    if unmeasured:
        more = f", nor that of {len(unmeasured) - 1:,} more samples" if len(unmeasured) > 1 else ""
        rows.append((unmeasured[0].id, unmeasured[0].verdict, None, 0, f"{UNMEASURED}{more}"))
    note = "Equal, but a redraw of the inputs does not move these results, or was not made: never counted as proof."
    return Table(
        "Without power", note, columns("sample:sample verdict:verdict power:number results:count which"), tuple(rows)
    )


DERIVATIVES = {
    DERIVATIVE: "the backward is the derivative of the forward",
    "derivative but for": "the backward is the derivative, except where it is meant to differ",
    NOT_THE_DERIVATIVE: "the backward is not the derivative, and its author did not say that this is meant",
    CANNOT_TELL: "the derivative could not be computed",
}


def _derivative_table(done: Sequence[Sample]) -> Table:
    """Count the samples whose backward is the derivative of its forward, and those whose is not."""
    checked = [sample for sample in done if sample.derivative]
    count = Counter(_kind_of_derivative(sample.derivative) for sample in checked)
    rows = [(name, count[name], count[name] / len(checked), DERIVATIVES[name]) for name in DERIVATIVES if count[name]]
    note = (
        "Of the samples for which it was checked. A verdict does not answer this: it says that graph and program agree."
    )
    return Table("Derivative", note, columns("derivative samples:count share:share meaning"), tuple(rows))


def _kind_of_derivative(word: str) -> str:
    """Return the word of a Derivative without the names of where it is meant to differ."""
    return word if word in DERIVATIVES else "derivative but for"


def _not_derivative_table(run: RunView, done: Sequence[Sample]) -> Table:
    """Return the samples whose backward is not simply the derivative of its forward, with the reason."""
    words = {sample.id: sample.derivative for sample in done if sample.derivative not in ("", DERIVATIVE)}
    notes = run.column("notes") if words else ()
    reasons = {
        key: text.removeprefix(f"{words[key]}: ")
        for key, texts in notes
        for text in texts[:1]
        if key in words and text.startswith(f"{words[key]}: ")
    }
    order = tuple(DERIVATIVES)[::-1]
    listed = sorted(words.items(), key=lambda item: (order.index(_kind_of_derivative(item[1])), item[0]))
    rows = [(key, word, one_line(reasons.get(key, ""))) for key, word in listed]
    return Table("Not simply the derivative", "", columns("sample:sample derivative what_was_said"), tuple(rows))


def _not_good_table(samples: Sequence[Sample]) -> Table:
    """Return every sample that is not good, in one line."""
    rows = [
        (sample.id, sample.verdict, sample.cause, sample.stage, sample.seconds, sample.reason)
        for sample in sorted(samples, key=lambda sample: (-sample.rank[0], sample.cause, sample.id))
        if sample.done and sample.verdict not in (*PROVED, "undifferentiable")
    ]
    heads = "sample:sample verdict:verdict cause stage time:seconds what_was_said"
    return Table("Not good", "", columns(heads), tuple(rows))


def _undifferentiable_table(done: Sequence[Sample]) -> Table:
    """Return the samples without a backward, and why."""
    rows = [(sample.id, sample.reason) for sample in done if sample.verdict == "undifferentiable"]
    note = "Nothing in these requires grad or could: a property of the sample, not a failure."
    return Table("Undifferentiable", note, columns("sample:sample why"), tuple(rows))


def _notes_table(run: RunView, ids: Collection[str]) -> Table:
    """Return the notes on samples: rewritten calls, constants that were printed too short, assigned sizes."""
    return tally(
        ((note_kind(note), key, note) for key, texts in run.column("notes") if key in ids for note in texts),
        Table(
            "Notes", "What has to be said of samples; alike but for numbers and names are one line.", columns(""), ()
        ),
        "note times:count samples:count for_example:sample which_said",
        lambda kind, times, samples, key, note: (kind, times, samples, key, one_line(note)),
    )


def _grad_table(run: RunView, ids: Collection[str]) -> Table:
    """Return the inputs that require grad, by the reason."""
    return tally(
        ((note_kind(why), key, name) for key, pairs in run.column("asks") if key in ids for name, why in pairs),
        Table("Which inputs require grad", "By reason; CSV and Parquet name them for each sample.", (), ()),
        "because inputs:count samples:count for_example:sample input",
        lambda kind, times, samples, key, name: (kind, times, samples, key, one_line(name)),
    )


def tally(
    entries: Iterable[tuple[str, str, str]], table: Table, heads: str, row: Callable[..., tuple[Cell, ...]]
) -> Table:
    """Return a row for each kind: how often, in how many samples, and the first. `found` is in the order of samples."""
    times: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    first: dict[str, tuple[str, str]] = {}
    last: dict[str, str] = {}
    for kind, key, text in entries:
        times[kind] += 1
        samples[kind] += last.get(kind) != key
        last[kind] = key
        first.setdefault(kind, (key, text))
    rows = (
        row(kind, times[kind], samples[kind], *first[kind]) for kind in sorted(times, key=lambda k: (-samples[k], k))
    )
    return Table(table.title, table.note, columns(heads), tuple(rows))


def _duplicates_table(groups: Sequence[Sequence[Sample]]) -> Table:
    """Return the samples that are the same program."""
    rows = []
    for group in sorted(several(groups), key=lambda group: (-len(group), group[0].id)):
        standings = Counter(sample.standing for sample in group)
        standings_text = ", ".join(
            f"{count} {name}" if len(standings) > 1 else name for name, count in standings.items()
        )
        alike = "graphs" if group[0].forward_hash else "source"
        rows.append((group[0].id, alike, len(group), standings_text, first_names([sample.id for sample in group[1:]])))
    together = sum(len(group) - 1 for group in several(groups))
    note = f"The same graphs or, where there are none, the same source: {together:,} more than one of each."
    return Table("Duplicates", note, columns("first:sample same samples:count verdicts the_others"), tuple(rows))


def _samples_table(run: RunView, samples: Sequence[Sample]) -> Table:
    """Return all samples, a line each, with their notes."""
    heads = "sample:sample family verdict:verdict cause time:seconds peak_memory:size power:number steps:count said"
    known = {sample.id: sample for sample in samples}

    class SampleLines:
        """The rows of all samples, read again at each iteration."""

        def __iter__(self) -> Iterator[tuple[Cell, ...]]:
            for key, sample_notes in run.select(("id", "notes")):
                if s := known.get(key):
                    steps = s.forward_steps + s.backward_steps
                    reasons = "; ".join(map(one_line, filter(None, (s.detail, *sample_notes))))
                    yield (s.id, s.family, s.standing, s.cause, s.seconds, s.peak_bytes, s.power, steps, reasons)

    return Table("All samples", "", columns(heads), SampleLines())


# ------------------------------------------------------------------ two runs compared

CHANGES = ("worse", "better", "new", "gone", "other graphs", "other cause", "same")
"""How a sample can have changed, in the order of the table."""


def against(report: Report, before: RunView, after: RunView) -> Report:
    """Return the report of `after`, with its changes from `before` first."""
    left = {sample.id: sample for sample in before.samples if sample.done}
    right = {sample.id: sample for sample in after.samples if sample.done}
    changes = {key: change_of(left.get(key), right.get(key)) for key in sorted(left | right)}
    tables = (
        _outcome_table(changes),
        _sums_table(left, right),
        _moves_table(left, right),
        _cost_table(left, right),
        _changed_samples(changes, left, right),
    )
    fields = (*report.fields, ("change", "text"), ("before_verdict", "text"), ("before_seconds", "number"))

    def rows() -> Iterator[dict[str, Any]]:
        for row in report.rows():
            yield row | _comparison_columns(changes.get(row["id"], "not done"), left.get(row["id"]))
        for key in (key for key, change in changes.items() if change == "gone"):
            yield (
                dict.fromkeys(name for name, _ in report.fields) | {"id": key} | _comparison_columns("gone", left[key])
            )

    facts_of_both = (*report.facts, ("against", str(before.place)))
    return replace(report, facts=facts_of_both, tables=(*filled(tables), *report.tables), fields=fields, rows=rows)


def _comparison_columns(change: str, before: Sample | None) -> dict[str, Any]:
    """Return the columns that a comparison adds."""
    verdict, seconds = (before.verdict, before.seconds) if before else (None, None)
    return {"change": change, "before_verdict": verdict, "before_seconds": seconds}


def change_of(before: Sample | None, after: Sample | None) -> str:
    """Return how one sample changed: one of CHANGES."""
    if before is None or after is None:
        return "gone" if after is None else "new"
    if before.rank != after.rank:
        return "better" if after.rank < before.rank else "worse"
    if (before.forward_hash, before.backward_hash) != (after.forward_hash, after.backward_hash):
        return "other graphs"
    return "same" if before.cause == after.cause else "other cause"


def _outcome_table(changes: Mapping[str, str]) -> Table:
    """Count each kind of change."""
    count = Counter(changes.values())
    rows = [(name, count[name], count[name] / len(changes)) for name in CHANGES if count[name]]
    note = (
        "From best to worst: " + ", ".join(VERDICTS) + "; without power is worse. Samples that are done in both runs."
    )
    return Table("Before and after", note, columns("became samples:count share:share"), tuple(rows))


def _sums_table(left: Mapping[str, Sample], right: Mapping[str, Sample]) -> Table:
    """Return the verdicts of both runs."""
    before, after = (Counter(sample.standing for sample in side.values()) for side in (left, right))
    names = sorted(before | after, key=lambda name: (_standing_rank(name), name))
    rows = [(name, before[name], after[name], after[name] - before[name]) for name in names]
    rows.append(("all", len(left), len(right), len(right) - len(left)))
    return Table("Verdicts of both", "", columns("verdict:verdict before:count after:count change:change"), tuple(rows))


def _standing_rank(name: str) -> int:
    """Return the place of a standing among the verdicts."""
    return rank(name.partition(",")[0])


def _moves_table(left: Mapping[str, Sample], right: Mapping[str, Sample]) -> Table:
    """Count the changes from each verdict to each."""
    count = Counter((left[key].standing, right[key].standing) for key in left.keys() & right.keys())
    rows = [
        (old, new, n) for (old, new), n in sorted(count.items(), key=lambda item: (-item[1], item[0])) if old != new
    ]
    return Table("Moves", "", columns("before:verdict after:verdict samples:count"), tuple(rows))


COSTS = (("time", "seconds", "seconds"), ("peak memory", "peak_bytes", "size"), ("disk", "disk_bytes", "size"))


def _cost_table(left: Mapping[str, Sample], right: Mapping[str, Sample]) -> Table:
    """Compare time and memory of the samples in both runs, after divided by before."""
    from backprint.tools.report.nouns import CELL_TEXTS

    rows: list[tuple[Cell, ...]] = []
    for name, column, kind in COSTS:
        both = [(getattr(left[key], column), getattr(right[key], column)) for key in left.keys() & right.keys()]
        both = [(old, new) for old, new in both if old > 0 and new > 0]
        if both:
            old, new = sum(old for old, _ in both), sum(new for _, new in both)
            ratios = [new / old for old, new in both]
            text_of = CELL_TEXTS[kind]
            rows.append((name, len(both), text_of(old), text_of(new), new / old, statistics.median(ratios)))
    note = "Sums over the samples that are in both; a ratio under 1 is less."
    heads = "what samples:count before after ratio_of_sums:times median_ratio:times"
    return Table("Cost of both", note, columns(heads), tuple(rows))


def _changed_samples(changes: Mapping[str, str], left: Mapping[str, Sample], right: Mapping[str, Sample]) -> Table:
    """List every sample that changed."""
    rows: list[tuple[Cell, ...]] = []
    for key in sorted(changes, key=lambda key: (CHANGES.index(changes[key]), key)):
        if changes[key] != "same":
            old, new = left.get(key), right.get(key)
            shown = new or old
            ratio = new.seconds / old.seconds if old and new and old.seconds > 0 else None
            was, now = (side.standing if side else "" for side in (old, new))
            rows.append((key, changes[key], was, now, ratio, shown.reason if shown and not shown.proved else ""))
    heads = "sample:sample became before:verdict after:verdict time:times what_was_said"
    return Table("Samples that changed", "", columns(heads), tuple(rows))

"""Make plain tables of a ledger's rows: one function a table, all from the same samples.

With `unique`, duplicates (the same graphs; without graphs, the same source) count once, by the worst of their verdicts:
one bad duplicate is not hidden by a good one.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.corpus.groups import grouped, key_of, several
from backprint.graph.verdicts import PROVED, VERDICTS, WORDS, Proofs, proofs
from backprint.report.links import SampleFolders
from backprint.report.nouns import Cell, Report, Table, columns, filled, note_kind, one_line, share
from backprint.report.operators import (
    RunOperators,
    dtype_table,
    operator_table,
    operators_fact,
    run_operators,
)
from backprint.report.operators import by_operator as with_operator_rows
from backprint.report.rows import COLUMNS, UNMEASURED, VACUOUS, RunView, Sample, first_names

SLOWEST = 10


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """What a report is to have: `unique` counts duplicates once, `by_operator` gives files a row for each overload, and
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
    folders = SampleFolders.of_run(run, plan.base)
    found = run_operators(run, counted)
    first = {sample.id: group[0].id for group in groups for sample in group[1:]}
    proved = {sample.id: sample.proved for sample in counted}

    def rows() -> Iterator[dict[str, Any]]:
        for row in run.rows():
            if (id := row["id"]) in proved:
                yield row | {"proved": proved[id], "duplicate_of": first.get(id, "")} | folders.columns(id)

    said = facts(run, counted, len(groups), plan.unique, found)
    kinds = (*COLUMNS.items(), ("proved", "flag"), *((name, "text") for name in ("duplicate_of", "code", "page")))
    title = plan.title or f"Corpus report: {folders.out.resolve().name}"
    made = Report(
        title,
        said,
        tuple(filled(all_tables(run, counted, groups, found))),
        everything(run, counted),
        kinds,
        rows,
        links=folders.links,
    )
    return with_operator_rows(made, found) if plan.by_operator else made


def all_tables(
    run: RunView, counted: Sequence[Sample], groups: Sequence[Sequence[Sample]], operators: RunOperators
) -> Iterator[Table]:
    """Yield the tables: first what the samples are, then how they were made, and the run itself last."""
    ids = {sample.id for sample in counted}
    done = [sample for sample in counted if sample.done]
    yield from (verdicts(counted), families(counted), operator_table(operators), dtype_table(operators))
    yield from (measures("Graphs", "count", COUNTS, done), measures("Sizes", "size", SIZES, done))
    yield from (causes(done), bad(counted), undifferentiable(done), duplicates(groups))
    yield from (power_table(done), vacuous(done), notes(run, ids), asks(run, ids))
    yield from (times(run, done, ids), slowest(done), about_run(run, done))


def worst(group: Sequence[Sample]) -> Sample:
    """Return the sample that a group of duplicates counts as."""
    return max(group, key=lambda sample: (sample.done, sample.rank))


def facts(
    run: RunView, counted: Sequence[Sample], groups: int, unique: bool, operators: RunOperators
) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables."""
    done = sum(sample.done for sample in run.samples)
    found = proofs_of(counted)
    rows = [
        ("samples", f"{len(run.samples):,}, of which {len(run.samples) - done:,} are not done"),
        ("distinct", f"{groups:,}" + ("; each counts once below" if unique else "")),
        ("proved", found.told() + (f" ({share(found.proved / found.of)})" if found.of else "")),
    ]
    rows += [("operators", operators_fact(operators))] if operators.counted else []
    return (*rows, *([("operators not counted", operators.missing)] if operators.missing else []))


def about_run(run: RunView, done: Sequence[Sample]) -> Table:
    """Return the facts that the run recorded about itself, and its pace."""
    rows = [(name, value) for name, value in run.facts.items() if value]
    starts, ends = [s.started for s in done if s.started], [s.finished for s in done if s.finished]
    if starts and ends and (wall := max(ends) - min(starts)) > 0:
        rows.append(("pace", f"{len(done) / wall * 3600:,.0f} samples an hour from the first start to the last end"))
    return Table("This run", "", columns("fact value"), tuple(rows))


def proofs_of(samples: Sequence[Sample]) -> Proofs:
    """Return how many of these have a proof, counted as everywhere."""
    return proofs((one.id, one.verdict, one.power, one.still) for one in samples if one.done)


MISSING = {
    VACUOUS: "equal, but a redraw of the inputs does not move every result: no proof",
    UNMEASURED: "equal, but whether a redraw of the inputs moves every result was not measured: no proof",
}


def verdicts(samples: Sequence[Sample]) -> Table:
    """Count each verdict."""
    count = Counter(sample.standing for sample in samples)
    rows: list[tuple[Cell, ...]] = []
    for verdict in VERDICTS:
        meanings = {verdict: WORDS[verdict].meaning, **{f"{verdict}, {why}": said for why, said in MISSING.items()}}
        found = {name: count[name] for name in meanings if count[name]}
        rows += [(name, times, times / len(samples), meanings[name]) for name, times in found.items()]
    known = {row[0] for row in rows}
    rows += [(name, n, n / len(samples), "no verdict yet") for name, n in sorted(count.items()) if name not in known]
    return Table("Verdicts", "", columns("verdict:verdict samples:count share:share meaning"), tuple(rows))


def families(samples: Sequence[Sample]) -> Table:
    """Return the share of proved samples by family."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.family].append(sample)
    rows = [family_row(name, found[name]) for name in sorted(found)]
    heads = "family samples:count proved:count vacuous:count undifferentiable:count unproven:count wrong:count"
    heads += " failed:count not_done:count proved_share:share median:seconds"
    note = "The share is of the samples that are done and differentiable; a vacuous check is no proof."
    return Table("By family", note, columns(heads), (*rows, *([family_row("all", samples)] if len(rows) > 1 else [])))


def family_row(name: str, samples: Sequence[Sample]) -> tuple[Cell, ...]:
    count = Counter(sample.verdict for sample in samples if sample.done)
    found, done = proofs_of(samples), sum(count.values())
    spent = [sample.seconds for sample in samples if sample.done]
    return (
        *(name or "(none)", len(samples), found.proved, len(found.without)),
        *(count[verdict] for verdict in ("undifferentiable", "unproven", "wrong", "failed")),
        *(
            len(samples) - done,
            found.proved / found.of if found.of else None,
            statistics.median(spent) if spent else None,
        ),
    )


def causes(done: Sequence[Sample]) -> Table:
    """Return the samples that are not proved, by cause."""
    found: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for sample in done:
        if not sample.proved or sample.verdict not in PROVED:
            cause = sample.cause or ("no power" if sample.powerless else "")
            found[sample.standing, cause, sample.stage].append(sample)
    rows = []
    for (verdict, cause, stage), samples in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        related = len({sample.family for sample in samples})
        rows.append((verdict, cause, stage, len(samples), related, samples[0].id, samples[0].said))
    heads = "verdict:verdict cause stage samples:count families:count for_example:sample which_said"
    return Table("By cause", "Everything that is not proved.", columns(heads), tuple(rows))


def distribution(name: str, values: Sequence[tuple[float, str]]) -> tuple[Cell, ...]:
    """Return median, ninth decile, largest with its sample, and sum."""
    numbers = sorted(value for value, _ in values)
    ninth = numbers[-(-9 * len(numbers) // 10) - 1]
    largest, which = min(values, key=lambda pair: (-pair[0], pair[1]))
    return (name, len(numbers), statistics.median(numbers), ninth, largest, which, sum(numbers))


def times(run: RunView, done: Sequence[Sample], ids: Collection[str]) -> Table:
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


def measures(title: str, kind: str, rows: dict[str, str], done: Sequence[Sample]) -> Table:
    """Return the spread of some columns, over the samples that have them."""
    found = {name: [(getattr(sample, key), sample.id) for sample in done] for name, key in rows.items()}
    spreads = [
        distribution(name, there) for name, values in found.items() if (there := [pair for pair in values if pair[0]])
    ]
    heads = f"what samples:count median:{kind} nine_tenths_within:{kind} largest:{kind} which:sample together:{kind}"
    told = (row[:-1] + ((None,) if row[0] == "peak memory of the worker" else row[-1:]) for row in spreads)
    return Table(title, "", columns(heads), tuple(told))


def slowest(done: Sequence[Sample]) -> Table:
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


def power_table(done: Sequence[Sample]) -> Table:
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


def vacuous(done: Sequence[Sample]) -> Table:
    """Return the samples with results that no redraw moves, each by name; those without a measured power in one row."""
    still = [sample for sample in done if sample.powerless and sample.still]
    unmeasured = [sample for sample in done if sample.powerless and not sample.still]
    rows = [(each.id, each.verdict, each.power, len(each.still), first_names(each.still)) for each in still]
    if unmeasured:
        more = f", nor that of {len(unmeasured) - 1:,} more samples" if len(unmeasured) > 1 else ""
        rows.append((unmeasured[0].id, unmeasured[0].verdict, None, 0, f"{UNMEASURED}{more}"))
    note = "Equal, but a redraw of the inputs does not move these results, or was not made: never counted as proof."
    return Table(
        "Without power", note, columns("sample:sample verdict:verdict power:number results:count which"), tuple(rows)
    )


def bad(samples: Sequence[Sample]) -> Table:
    """Return every sample that is not good, in one line."""
    rows = [
        (sample.id, sample.verdict, sample.cause, sample.stage, sample.seconds, sample.said)
        for sample in sorted(samples, key=lambda sample: (-sample.rank[0], sample.cause, sample.id))
        if sample.done and sample.verdict not in (*PROVED, "undifferentiable")
    ]
    heads = "sample:sample verdict:verdict cause stage time:seconds what_was_said"
    return Table("Not good", "", columns(heads), tuple(rows))


def undifferentiable(done: Sequence[Sample]) -> Table:
    """Return the samples without a backward, and why."""
    rows = [(sample.id, sample.said) for sample in done if sample.verdict == "undifferentiable"]
    note = "Nothing in these requires grad or could: a property of the sample, not a failure."
    return Table("Undifferentiable", note, columns("sample:sample why"), tuple(rows))


def notes(run: RunView, ids: Collection[str]) -> Table:
    """Return the notes on samples: rewritten calls, constants that were printed too short, assigned sizes."""
    return tally(
        ((note_kind(note), key, note) for key, found in run.column("notes") if key in ids for note in found),
        Table(
            "Notes", "What has to be said of samples; alike but for numbers and names are one line.", columns(""), ()
        ),
        "note times:count samples:count for_example:sample which_said",
        lambda kind, times, samples, key, note: (kind, times, samples, key, one_line(note)),
    )


def asks(run: RunView, ids: Collection[str]) -> Table:
    """Return the inputs that require grad, by the reason."""
    return tally(
        ((note_kind(why), key, name) for key, found in run.column("asks") if key in ids for name, why in found),
        Table("Which inputs require grad", "By reason; CSV and Parquet name them for each sample.", (), ()),
        "because inputs:count samples:count for_example:sample input",
        lambda kind, times, samples, key, name: (kind, times, samples, key, one_line(name)),
    )


def tally(
    found: Iterable[tuple[str, str, str]], table: Table, heads: str, row: Callable[..., tuple[Cell, ...]]
) -> Table:
    """Return a row for each kind: how often, in how many samples, and the first. `found` is in the order of samples."""
    times: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    first: dict[str, tuple[str, str]] = {}
    last: dict[str, str] = {}
    for kind, key, text in found:
        times[kind] += 1
        samples[kind] += last.get(kind) != key
        last[kind] = key
        first.setdefault(kind, (key, text))
    rows = (
        row(kind, times[kind], samples[kind], *first[kind]) for kind in sorted(times, key=lambda k: (-samples[k], k))
    )
    return Table(table.title, table.note, columns(heads), tuple(rows))


def duplicates(groups: Sequence[Sequence[Sample]]) -> Table:
    """Return the samples that are the same program."""
    rows = []
    for group in sorted(several(groups), key=lambda group: (-len(group), group[0].id)):
        said = Counter(sample.standing for sample in group)
        found = ", ".join(f"{count} {name}" if len(said) > 1 else name for name, count in said.items())
        alike = "graphs" if group[0].forward_hash else "source"
        rows.append((group[0].id, alike, len(group), found, first_names([sample.id for sample in group[1:]])))
    together = sum(len(group) - 1 for group in several(groups))
    note = f"The same graphs or, where there are none, the same source: {together:,} more than one of each."
    return Table("Duplicates", note, columns("first:sample same samples:count verdicts the_others"), tuple(rows))


def everything(run: RunView, samples: Sequence[Sample]) -> Table:
    """Return all samples, a line each, with their notes."""
    heads = "sample:sample family verdict:verdict cause time:seconds peak_memory:size power:number steps:count said"
    known = {sample.id: sample for sample in samples}

    class SampleLines:
        """The rows of all samples, read again at each iteration."""

        def __iter__(self) -> Iterator[tuple[Cell, ...]]:
            for key, told in run.select(("id", "notes")):
                if s := known.get(key):
                    steps = s.forward_steps + s.backward_steps
                    said = "; ".join(map(one_line, filter(None, (s.detail, *told))))
                    yield (s.id, s.family, s.standing, s.cause, s.seconds, s.peak_bytes, s.power, steps, said)

    return Table("All samples", "", columns(heads), SampleLines())

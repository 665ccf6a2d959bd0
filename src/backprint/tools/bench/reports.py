"""The report of a bench run or of GraphNet's logs: facts, tables, pictures, and a row a cell for files.

A share counts cells that were judged and have power. It leaves out cells that are no compiler's fault
(`cells.NOT_JUDGED`), and those of graphs without an output that a redraw of the inputs moves.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backprint.common.text import BENCH_DIRECTIONS
from backprint.graph.verdicts import CANNOT_TELL, DERIVATIVE, NOT_THE_DERIVATIVE
from backprint.tools.bench.cells import (
    NOT_JUDGED,
    OUTCOMES,
    STOPPED,
    BenchCell,
    BenchDerivative,
    BenchOutput,
    BenchTiming,
)
from backprint.tools.bench.pictures import Scored, pictures, short_names
from backprint.tools.bench.runs import META, BenchRun, read_run
from backprint.tools.bench.scored import (
    LARGEST_SIZE,
    SIZES,
    finite_speedup,
    powerless_graphs,
    scored_cell,
    scored_samples,
    size_class,
)
from backprint.tools.graphnet.log import read_log
from backprint.tools.graphnet.scores import (
    UNMEASURED,
    MeanSpeedup,
    ScoredSample,
    ScorePoint,
    ScoreTerms,
    mean_speedup,
    right_speedups,
    score_curve,
)
from backprint.tools.report.nouns import (
    Cell,
    Column,
    Figure,
    Report,
    Table,
    columns,
    date_text,
    filled,
    note_kind,
    one_line,
    share,
)
from backprint.tools.report.svg import LETTER, drawing, label, middle_out

ByCompiler = Mapping[str, Sequence[BenchCell]]


# ------------------------------------------------------------------ outcomes


def _outcome_tables(run_cells: Sequence[BenchCell], compilers: Sequence[str]) -> tuple[Table, ...]:
    """Return the tables of outcomes: in all, and by direction, family and size."""
    without = powerless_graphs(run_cells)
    cells: dict[str, list[BenchCell]] = {name: [] for name in compilers}
    for cell in run_cells:
        cells.setdefault(cell.compiler, []).append(cell)
    sizes = (*(name for _, name in SIZES), LARGEST_SIZE, "unknown")
    return (
        outcomes(cells, without),
        _grouped_outcomes("By direction", cells, without, lambda cell: cell.direction, BENCH_DIRECTIONS),
        _grouped_outcomes("By family", cells, without, lambda cell: cell.family, ()),
        _grouped_outcomes("By size", cells, without, size_class, sizes, "Operators of the graph."),
    )


def outcomes(cells: ByCompiler, without: frozenset[tuple[str, str]]) -> Table:
    """Count each outcome of each compiler."""
    present = [
        name for name in OUTCOMES if any(cell.outcome == name for own_cells in cells.values() for cell in own_cells)
    ]
    rows: list[tuple[Cell, ...]] = []
    for name, own in cells.items():
        count = Counter(cell.outcome for cell in own)
        judged = judged_cells(own, without)
        no_power = sum((cell.sample, cell.graph) in without for cell in own)
        shares = right_share(judged), _slower_share(judged)
        counts = (*(count[outcome] for outcome in present), no_power)
        rows.append((name, len(own), *shares, *_speedup_mean(judged), *counts))
    heads = "compiler:name cells:count right:share right_and_slower:share speedup:times from:times to:times "
    named = " ".join(f"{name.replace(' ', '_')}:count" for name in present)
    note = (
        "Right is the share of the cells that were judged and have power. Speedups are geometric means of right cells, "
        "with 95% intervals from 5 cells on."
    )
    return Table("Outcomes", note, columns(f"{heads}{named} powerless:count"), tuple(rows))


def _grouped_outcomes(
    title: str,
    cells: ByCompiler,
    without: frozenset[tuple[str, str]],
    key: Callable[[BenchCell], str],
    order: Sequence[str],
    note: str = "",
) -> Table:
    """Count the outcomes of each compiler in groups of cells."""
    rows: list[tuple[Cell, ...]] = []
    for name, own in cells.items():
        groups: dict[str, list[BenchCell]] = defaultdict(list)
        for cell in own:
            groups[key(cell)].append(cell)
        ranked = sorted(groups, key=lambda group: (order.index(group) if group in order else len(order), group))
        rows += [(name, group or "none", *_group_counts(judged_cells(groups[group], without))) for group in ranked]
    heads = "compiler:name group:name judged:count right:share right_and_slower:share "
    heads += "wrong:count stopped:count speedup:times from:times to:times"
    return Table(title, note, columns(heads), tuple(rows))


def _group_counts(judged: Sequence[BenchCell]) -> tuple[Cell, ...]:
    wrong = sum(cell.outcome == "wrong" for cell in judged)
    stopped = sum(cell.outcome in STOPPED for cell in judged)
    shares = right_share(judged), _slower_share(judged)
    return (len(judged), *shares, wrong, stopped, *_speedup_mean(judged))


def judged_cells(cells: Iterable[BenchCell], without: frozenset[tuple[str, str]]) -> list[BenchCell]:
    """Return the cells that count in shares: judged, and with power."""
    return [cell for cell in cells if cell.outcome not in NOT_JUDGED and (cell.sample, cell.graph) not in without]


def right_share(cells: Sequence[BenchCell]) -> float | None:
    return sum(cell.right for cell in cells) / len(cells) if cells else None


def _slower_share(cells: Sequence[BenchCell]) -> float | None:
    """Return the share of cells that are right, and slower than eager."""
    return sum(cell.outcome == "slower" for cell in cells) / len(cells) if cells else None


def _speedup_mean(cells: Iterable[BenchCell]) -> MeanSpeedup:
    """Return the geometric mean of the speedups of right cells, and its interval."""
    return mean_speedup([speed for cell in cells if cell.right and (speed := finite_speedup(cell))])


# ------------------------------------------------------------------ costs


def _cost_tables(cells: Sequence[BenchCell]) -> tuple[Table, ...]:
    """Return the tables of compile times and memory."""
    return _compile_times(cells), peak_memory(cells)


def _compile_times(cells: Sequence[BenchCell]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, own in _by_compiler(cells).items():
        for kind in ("cold", "warm"):
            known = [(value, cell) for cell in own if (value := getattr(cell, kind)) is not None]
            if known:
                values = [value for value, _ in known]
                longest, which = max(known, key=lambda pair: pair[0])
                rows.append((name, kind, len(known), statistics.median(values), longest, title_of(which), sum(values)))
    heads = "compiler:name caches count:count median:seconds longest:seconds which:name together:seconds"
    note = "Cold is the first compilation, with empty caches; warm the second, with the caches that the first filled."
    return Table("Compile times", note, columns(heads), tuple(rows))


def peak_memory(cells: Sequence[BenchCell]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, own in _by_compiler(cells).items():
        for place, kind in (("process", "peak_bytes"), ("GPU", "device_bytes")):
            if known := [(value, cell) for cell in own if (value := getattr(cell, kind)) is not None]:
                most, which = max(known, key=lambda pair: pair[0])
                middle = statistics.median(value for value, _ in known)
                rows.append((name, place, len(known), middle, most, title_of(which)))
    heads = "compiler:name memory count:count median:size most:size which:name"
    note = (
        "Of a process, with all that it compiled and compared; of a GPU, what a call took beside what was there "
        "before it, with a copy of its inputs."
    )
    return Table("Peak memory", note, columns(heads), tuple(rows))


def _by_compiler(cells: Iterable[BenchCell]) -> dict[str, list[BenchCell]]:
    groups: dict[str, list[BenchCell]] = defaultdict(list)
    for cell in cells:
        groups[cell.compiler].append(cell)
    return groups


def title_of(cell: BenchCell) -> str:
    """Return a cell's sample and graph."""
    return f"{cell.sample} {cell.graph}".strip()


# ------------------------------------------------------------------ what is not right


def _fault_tables(cells: Sequence[BenchCell]) -> tuple[Table, ...]:
    """Return the tables of failures, of wrong answers, and of graphs that were not judged."""
    return failures(cells), wrong_answers(cells), _not_judged(cells)


def failures(cells: Sequence[BenchCell]) -> Table:
    """Count cells that stopped by reason, without names and numbers; name the smallest graph that shows each reason."""
    groups: dict[tuple[str, str, str], list[BenchCell]] = defaultdict(list)
    for cell in cells:
        if cell.outcome in STOPPED:
            groups[cell.compiler, cell.outcome, note_kind(cell.reason) or "nothing was said"].append(cell)
    rows: list[tuple[Cell, ...]] = []
    for key, own in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0])):
        least = min(own, key=_size_order)
        samples = len({cell.sample for cell in own})
        rows.append((*key, len(own), samples, title_of(least), least.steps or None, one_line(least.reason)))
    heads = "compiler:name outcome:verdict reason graphs:count samples:count smallest:name operators:count it_said"
    note = "Reasons that are alike but for numbers and names are one line; the smallest graph shows each."
    return Table("Failures by reason", note, columns(heads), tuple(rows))


def _size_order(cell: BenchCell) -> tuple[float, str, str]:
    """Return the order from the smallest graph; those of unknown size come last."""
    return cell.steps or math.inf, cell.sample, cell.graph


def wrong_answers(cells: Iterable[BenchCell]) -> Table:
    """List each wrong output."""
    rows = [
        (cell.compiler, title_of(cell), f"{output.role} {output.name}", one_line(output.detail), cell.steps or None)
        for cell in sorted(cells, key=lambda cell: (cell.compiler, *_size_order(cell)))
        if cell.outcome == "wrong"
        for output in wrong_outputs(cell)
    ]
    heads = "compiler:name sample:name output:name detail operators:count"
    return Table("Wrong answers", "The smallest graphs first.", columns(heads), tuple(rows))


def wrong_outputs(cell: BenchCell) -> tuple[BenchOutput, ...]:
    """Return a wrong cell's wrong outputs; where none is marked, one output whose detail is the cell's reason."""
    marked = tuple(output for output in cell.outputs if output.word == "wrong")
    if marked or cell.outcome != "wrong":
        return marked
    return (BenchOutput("cell", "", "wrong", cell.reason, "", (), "", (), equal=False),)


def _not_judged(cells: Sequence[BenchCell]) -> Table:
    """List the graphs that no share counts, once each, and why."""
    without = powerless_graphs(cells)
    groups: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for cell in cells:
        if cell.outcome in NOT_JUDGED:
            groups[cell.sample, cell.graph, cell.outcome, one_line(cell.reason)].append(cell.compiler)
        elif (cell.sample, cell.graph) in without:
            groups[cell.sample, cell.graph, "powerless", "a redraw of the inputs moves no output"].append(cell.compiler)
    rows = [
        (f"{sample} {graph}".strip(), outcome, ", ".join(names), reason)
        for (sample, graph, outcome, reason), names in sorted(groups.items())
    ]
    note = "Neither right nor wrong: no share and no score counts these."
    return Table("Not judged", note, columns("sample:name outcome:verdict compilers:name why"), tuple(rows))


# ------------------------------------------------------------------ whether compiled backwards are derivatives


def _derivative_tables(cells: Sequence[BenchCell]) -> tuple[Table, ...]:
    """Return the tables of compiled backwards: how many are the derivative, and which are not, or stay open."""
    return _derivative_counts(cells), _not_derivatives(cells)


def _derivative_counts(cells: Sequence[BenchCell]) -> Table:
    """Count the words for the compiled backwards of each compiler, with the largest gap of a derivative."""
    rows: list[tuple[Cell, ...]] = []
    known = {name: derivatives_of(own) for name, own in _by_compiler(cells).items()}
    words = sorted({derivative.word for own in known.values() for derivative in own}, key=_derivative_order)
    for name, own in known.items():
        if own:
            count = Counter(derivative.word for derivative in own)
            right = [derivative for derivative in own if derivative.word == DERIVATIVE]
            largest = (
                max((value for value in (getattr(one, field) for one in right) if value is not None), default=None)
                for field in ("gap", "forward")
            )
            rows.append((name, *(count[word] for word in words), *largest, sum(one.seconds for one in own)))
    heads = "largest_gap:change largest_forward:change together:seconds"
    note = (
        "Of each step in float64: whether the gradients of the compiled function are those of its forward. The gap is "
        "that of the two products, and `forward` how far outputs are from the captured forward's, both of derivatives."
    )
    named = (*columns("compiler:name"), *(Column(one_line(word), "count") for word in words), *columns(heads))
    return Table("Compiled backwards", note, named, tuple(rows))


def derivatives_of(cells: Iterable[BenchCell]) -> list[BenchDerivative]:
    return [cell.derivative for cell in cells if cell.derivative is not None]


def _derivative_order(word: str) -> tuple[int, str]:
    """Return the order of words: the good ones first."""
    return (CANNOT_TELL, NOT_THE_DERIVATIVE).index(word) + 1 if word in (CANNOT_TELL, NOT_THE_DERIVATIVE) else 0, word


def _not_derivatives(cells: Iterable[BenchCell]) -> Table:
    """List the compiled backwards that are not the derivative, or of which nothing was found out."""
    rows = [
        (
            cell.compiler,
            title_of(cell),
            derivative.word,
            derivative.gap,
            derivative.forward,
            one_line(derivative.detail),
        )
        for cell in sorted(cells, key=lambda cell: (cell.compiler, *_size_order(cell)))
        if (derivative := cell.derivative) is not None and derivative.word != DERIVATIVE
    ]
    heads = "compiler:name sample:name derivative gap:change forward:change why"
    return Table("Compiled backwards that differ", "The smallest graphs first.", columns(heads), tuple(rows))


# ------------------------------------------------------------------ every graph under every compiler
#
# None of these needs times, but for fast_p.

FAST = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 4.0)
"""The factors p of fast_p."""

GOOD_OUTPUTS = ("bitwise", "close")

STEADY = (*GOOD_OUTPUTS, "wrong")
"""Words of outputs that were judged."""


def standing_of(cell: BenchCell, powerless: bool) -> str:
    """Return a cell's outcome, with its speedup where results are right and were timed."""
    speedup = finite_speedup(cell) if cell.right else None
    timed = "" if speedup is None else f" · {speedup:.2f}×"
    return f"{cell.outcome}{timed}, powerless" if powerless else f"{cell.outcome}{timed}"


def matrix(cells: Sequence[BenchCell]) -> Table:
    """Return a row for each graph, with a column for each compiler."""
    without, shown = powerless_graphs(cells), short_names(cell.compiler for cell in cells)
    graphs: dict[tuple[str, str], dict[str, BenchCell]] = defaultdict(dict)
    for cell in cells:
        graphs[cell.sample, cell.graph][cell.compiler] = cell
    rows: list[tuple[Cell, ...]] = []
    for (sample, graph), own in graphs.items():
        standings = (standing_of(own[name], (sample, graph) in without) if name in own else "" for name in shown)
        steps = max(cell.steps for cell in own.values())
        rows.append((f"{sample} {graph}".strip(), steps or None, *standings))
    heads = (*columns("sample:name operators:count"), *(Column(one_line(name), "verdict") for name in shown.values()))
    return Table("Graphs by compilers", "The outcome of each cell, and its speedup.", heads, tuple(rows))


# ------------------------------------------------------------------ outputs that were not judged


def _unjudged_outputs(cells: Sequence[BenchCell]) -> Table:
    """Count each compiler's outputs: right, wrong, and not judged."""
    rows: list[tuple[Cell, ...]] = []
    words = sorted({output.word for cell in cells for output in cell.outputs if output.word not in STEADY})
    for name, own in _by_compiler(cells).items():
        outputs = [output for cell in own for output in cell.outputs]
        count = Counter(output.word for output in outputs)
        right = sum(count[word] for word in GOOD_OUTPUTS)
        still = sum(not output.power for output in outputs if output.word in STEADY)
        other = [count[word] for word in words]
        if still or any(other):
            rows.append((name, len(outputs), right, count["wrong"], *other, still))
    heads = "compiler:name outputs:count right:count wrong:count "
    heads += " ".join(f"{word.replace(' ', '_')}:count" for word in words)
    note = (
        "Outputs by the judge's word. An output that is random or nondeterministic was not judged, and a right cell "
        "says nothing of it; one without power is right whatever the inputs are."
    )
    return Table("Outputs not judged", note, columns(f"{heads} without_power:count"), tuple(rows))


def unjudged_text(cells: Sequence[BenchCell]) -> str:
    """Return a text that counts outputs of right cells that were not judged; empty if all were judged."""
    outputs = [output for cell in cells if cell.right for output in cell.outputs]
    count = Counter(output.word for output in outputs if output.word not in STEADY)
    words = ", ".join(f"{number:,} {word}" for word, number in sorted(count.items()))
    return f"{count.total():,} of {len(outputs):,} outputs of right cells ({words})" if words else ""


# ------------------------------------------------------------------ fast_p


def _fast_table(cells: Sequence[BenchCell]) -> Table:
    """Return KernelBench's fast_p: the share of judged cells that are right and more than p times as fast as eager."""
    without = powerless_graphs(cells)
    rows: list[tuple[Cell, ...]] = []
    for name, own in _by_compiler(cells).items():
        judged = judged_cells(own, without)
        timed = [cell for cell in judged if not cell.right or finite_speedup(cell)]
        if any(cell.right for cell in timed):
            shares = (_fast_share(timed, p) for p in FAST)
            rows.append((name, len(timed), len(judged) - len(timed), *shares))
    heads = (
        *columns("compiler:name cells:count right_but_untimed:count"),
        *(Column(f"fast_{p:g}", "share") for p in FAST),
    )
    note = (
        "fast_p of KernelBench: the share of cells that are right and more than p times as fast as eager. What was not "
        "judged, has no power, or is right and has no time is left out."
    )
    return Table("fast_p", note, heads, tuple(rows))


def _fast_share(cells: Sequence[BenchCell], p: float) -> float:
    """Return the share of timed cells that are right and more than p times as fast."""
    return sum(cell.right and (finite_speedup(cell) or 0.0) > p for cell in cells) / len(cells)


# ------------------------------------------------------------------ the picture of outcomes

BANDS = (
    ("faster", ("faster",), "bitwise"),
    ("right", ("same", "unsure", "untimed"), "close"),
    ("slower", ("slower",), "unproven"),
    ("wrong", ("wrong",), "wrong"),
    ("stopped", STOPPED, "s3"),
    ("not judged", NOT_JUDGED, "undifferentiable"),
    ("powerless", (), "s7"),
)
"""A band of a bar: its name, the outcomes it counts, and its class. Cells without power count in the last band only."""

BAR, LINE, EDGE, NARROW = 460.0, 26.0, 12.0, 24.0


def _outcome_picture(cells: Sequence[BenchCell]) -> tuple[Figure, ...]:
    """Draw a bar for each compiler: how many of its cells had which outcome."""
    rows = {name: counts for name, own in _by_compiler(cells).items() if (counts := _band_counts(own, cells))}
    if not rows:
        return ()
    shown = {name: middle_out(short, 64) for name, short in short_names(rows).items()}
    left = EDGE + 10 + LETTER * max(map(len, shown.values()))
    present = [(name, tone) for name, _, tone in BANDS if any(counts[name] for counts in rows.values())]
    parts = []
    for place, (name, counts) in enumerate(rows.items()):
        middle = 14 + place * LINE
        parts.append(label(left - 8, middle + 4, shown[name], anchor="end", letters=64))
        parts += _bar_parts(counts, left, middle)
    below = 14 + len(rows) * LINE + 6
    x = left
    for name, tone in present:
        parts.append(f'<rect class="mark {tone}" x="{x:.1f}" y="{below - 9:.1f}" width="12" height="12"/>')
        parts.append(label(x + 17, below + 2, name, anchor="start"))
        x += 34 + LETTER * len(name)
    width = max(left + BAR + 20, x)
    note = "Cells by what became of them."
    return (Figure("Outcomes by compiler", note, drawing(width, below + 16, "Outcomes by compiler", parts)),)


def _band_counts(own: Sequence[BenchCell], every: Sequence[BenchCell]) -> Counter[str]:
    """Count the cells of each band."""
    without = powerless_graphs(every)
    band = {outcome: name for name, outcomes, _ in BANDS for outcome in outcomes}
    return Counter(
        "powerless" if (cell.sample, cell.graph) in without else band.get(cell.outcome, "not judged") for cell in own
    )


def _bar_parts(counts: Counter[str], left: float, middle: float) -> Iterator[str]:
    """Yield the bands of one bar, with their numbers where there is room."""
    x = left
    for name, _, tone in BANDS:
        if counts[name]:
            width = BAR * counts[name] / counts.total()
            place = f'x="{x:.1f}" y="{middle - 9:.1f}" width="{width:.1f}" height="18"'
            yield f'<rect class="mark dot {tone}" {place}><title>{counts[name]:,} {name}</title></rect>'
            if width > NARROW:
                yield label(x + width / 2, middle + 4, f"{counts[name]:,}")
            x += width


# ------------------------------------------------------------------ scores


def _score_tables(scored: Scored, left_out: Mapping[str, int] | None = None) -> tuple[Table, ...]:
    """Return tables of the samples that scores count, and of the scores at every level in both interpretations.

    `left_out` has by name how many cells without power no score counts.
    """
    known = {name: samples for name, samples in scored.items() if any(sample.measured for sample in samples)}
    default = {name: score_curve(samples) for name, samples in known.items()}
    extended = {name: score_curve(samples, ScoreTerms(interpretation="extended")) for name, samples in known.items()}
    return (
        _counted_in_scores(scored, left_out or {}),
        _level_table("S(t) by level", default, "s"),
        _level_table("ES(t), default by level", default, "es"),
        _level_table("ES(t), extended by level", extended, "es"),
    )


def _counted_in_scores(scored: Scored, left_out: Mapping[str, int]) -> Table:
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


def _level_table(title: str, curves: Mapping[str, Sequence[ScorePoint]], score: str) -> Table:
    """Return one score at each level, a column a compiler."""
    levels = [point.level for point in next(iter(curves.values()), ())]
    rows = [(level, *(getattr(curve[place], score) for curve in curves.values())) for place, level in enumerate(levels)]
    heads = (Column("t", "change"), *(Column(one_line(name), "number") for name in curves))
    return Table(title, "The score at each tolerance level t.", heads, tuple(rows))


# ------------------------------------------------------------------ GraphNet's logs

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
    rows = [tuple(row.values()) for row in _log_rows(logs)]
    heads = "log:name sample:name outcome speedup:times right_from_level:change outputs:count reason"
    facts = (("logs", ", ".join(logs)), ("samples", f"{sum(map(len, logs.values())):,}"))
    return Report(
        "Bench logs",
        facts,
        tuple(filled(_score_tables(logs))),
        Table("All samples", "", columns(heads), tuple(rows)),
        LOG_FIELDS,
        lambda: _log_rows(logs),
        pictures(logs),
    )


def _log_rows(logs: Mapping[str, Sequence[ScoredSample]]) -> Iterator[dict[str, Any]]:
    for name, samples in logs.items():
        for sample in samples:
            outcome, strictest = (sample.outcome if sample.measured else UNMEASURED), _strictest_level(sample)
            values = (name, sample.name, outcome, sample.speedup, strictest, len(sample.outputs), sample.reason)
            yield {field: value for (field, _), value in zip(LOG_FIELDS, values, strict=True)}


def _strictest_level(sample: ScoredSample) -> int | None:
    """Return the strictest level at which a sample is right; None where there is none."""
    return next((level for level in ScoreTerms().levels if sample.right_at(level)), None)


# ------------------------------------------------------------------ the report

CHANGED = 0.05
"""From so much on eager against eager counts as called a change, as a compiler's time does."""

MORE_LOAD = 0.5
"""Load above the bench's own that does not yet mean other work; on larger machines it is a quarter of the cores."""

EAGER = "eager"
"""The control that gives each graph back as it is."""


def report_of(path: Path) -> Report:
    """Return the report of a run's folder, of a GraphNet log, or of a folder of such logs."""
    if path.is_dir() and not (path / META).exists() and (logs := sorted(path.glob("*.log"))):
        return report_of_logs({log.stem: read_log(log) for log in logs})
    if path.is_file():
        return report_of_logs({path.stem: read_log(path)})
    return bench_report(read_run(path))


def bench_report(run: BenchRun) -> Report:
    """Return the report of a bench run."""
    names = [compiler.name for compiler in run.compilers]
    timed = any(cell.timing is not None for cell in run.cells)
    # Without times only what is wrong has a score, and the curves would be those of the wrong compilers alone.
    scored = {name: scored_samples(run, name) for name in names} if timed else {}
    without = powerless_graphs(run.cells)
    left_out = {name: sum((cell.sample, cell.graph) in without for cell in run.of(name)) for name in names}
    tables = (
        *_outcome_tables(run.cells, names),
        _fast_table(run.cells),
        matrix(run.cells),
        *_fault_tables(run.cells),
        *_derivative_tables(run.cells),
        _unjudged_outputs(run.cells),
        *_cost_tables(run.cells),
        *_score_tables(scored, left_out),
    )
    return Report(
        "Bench report",
        run_facts(run),
        tuple(filled(tables)),
        _all_cells(run, without),
        FIELDS,
        lambda: cell_rows(run),
        (*_outcome_picture(run.cells), *pictures(scored)),
        answer=answer_text(run, names, without),
    )


# ------------------------------------------------------------------ the answer


def answer_text(run: BenchRun, names: Sequence[str], without: frozenset[tuple[str, str]]) -> str:
    """Return for each compiler how many of the judged cells are right, how fast these are, and what the others are."""
    return "; ".join(f"{name}: {_answer_of_compiler(run.of(name), without)}" for name in names)


def _answer_of_compiler(own: Sequence[BenchCell], without: frozenset[tuple[str, str]]) -> str:
    """Return the answer for the cells of one compiler."""
    judged = judged_cells(own, without)
    faults = Counter(cell.outcome for cell in own if not cell.right and cell.outcome not in NOT_JUDGED)
    powerless = sum(cell.right and (cell.sample, cell.graph) in without for cell in own)
    skipped = sum(cell.outcome in NOT_JUDGED for cell in own)
    speedup, _, _ = _speedup_mean(judged)
    texts = (
        f"{sum(cell.right for cell in judged):,} of {len(judged):,} right" if judged else "",
        f"{speedup:.2f}× as fast as eager" if speedup is not None else "",
        *(f"{faults[name]:,} {name}" for name in OUTCOMES if faults[name]),
        f"{skipped:,} not judged" if skipped else "",
        f"{powerless:,} equal without power" if powerless else "",
    )
    return ", ".join(filter(None, texts)) or "no cells"


# ------------------------------------------------------------------ facts


def run_facts(run: BenchRun) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables; those that are unknown are left out."""
    versions = {
        compiler.name: " ".join(f"{name} {version}" for name, version in compiler.versions)
        for compiler in run.compilers
    }
    samples = len({cell.sample for cell in run.cells})
    known = {
        "run": str(run.place),
        "sources": ", ".join(run.sources),
        "cells": f"{len(run.cells):,} of {samples:,} samples",
        "not done": f"{run.unfinished:,} samples, each compiler counted" if run.unfinished else "",
        "compilers": "; ".join(f"{name} ({said})" if said else name for name, said in versions.items()),
        "machine": words_of(run.machine),
        "torch": run.torch,
        "backprint": run.backprint,
        "noise": _noise_text(run.cells),
        "load": _load_text(run),
        "not judged": unjudged_text(run.cells),
        "options": words_of(run.options),
        "started": date_text(run.started),
        "finished": date_text(run.finished) or "not finished",
    }
    return tuple((name, one_line(value)) for name, value in known.items() if value)


def words_of(facts: Mapping[str, Any]) -> str:
    lists = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in facts.items()}
    return ", ".join(f"{name} {value}" for name, value in lists.items() if value not in (None, "", False))


def _noise_text(cells: Sequence[BenchCell]) -> str:
    """Return the noise of eager against eager as text: the share called a change, and the width of the intervals."""
    known = [interval for cell in cells if cell.timing and (interval := _noise_interval(cell, cell.timing))]
    if not known:
        timed = any(cell.timing for cell in cells)
        return "not measured (eager against eager)" if timed else "no cell was timed: there are no scores"
    changed = sum(low > 1 + CHANGED or high < 1 / (1 + CHANGED) for low, high in known)
    width = statistics.median(high / low - 1 for low, high in known)
    return (
        f"eager against eager: {changed:,} of {len(known):,} called a change ({share(changed / len(known))}), "
        f"median width of the interval {width:.1%}"
    )


def _load_text(run: BenchRun) -> str:
    """Return the machine's load as text, and whether other work ran beside the bench."""
    loads = [cell.load for cell in run.cells if cell.load is not None]
    if not loads:
        return ""
    own, cores = int(run.options.get("jobs") or 1) * int(run.options.get("threads") or 1), run.machine.get("cores")
    most = own + max(MORE_LOAD, (cores or 1) / 4)
    busy = sum(load > most for load in loads)
    high = f"HIGH: {busy:,} of {len(loads):,} cells over {most:g}: other work ran beside, and times may wait for it"
    usual = f"median {statistics.median(loads):.3g}, at most {max(loads):.3g}, of which {own} is the bench's own"
    return f"{usual}; {high}" if busy else usual


def _noise_interval(cell: BenchCell, timing: BenchTiming) -> tuple[float, float] | None:
    """Return the interval of eager against eager beside a cell; for cells of `eager`, the cell's own interval."""
    low, high = timing.noise_low, timing.noise_high
    if cell.compiler == EAGER:
        low, high = timing.low, timing.high
    return None if low is None or high is None or not 0 < low <= high < math.inf else (low, high)


# ------------------------------------------------------------------ all cells


def _all_cells(run: BenchRun, without: frozenset[tuple[str, str]]) -> Table:
    """Return all cells, a line each."""
    rows = [_cell_line(cell, (cell.sample, cell.graph) in without) for cell in run.cells]
    heads = (
        "sample:name graph:name compiler:name outcome:verdict eager:seconds compiled:seconds speedup:times from:times "
        "to:times derivative gap:change cold:seconds warm:seconds peak_memory:size operators:count "
        "right_from_level:change family said"
    )
    return Table("All cells", "", columns(heads), tuple(rows))


def _cell_line(cell: BenchCell, powerless: bool) -> tuple[Cell, ...]:
    timing = cell.timing
    times = (None,) * 5 if timing is None else _interval_cells(cell, timing)
    costs = (cell.cold, cell.warm, cell.peak_bytes, cell.steps or None)
    level = _strictest_level(scored_cell(cell))
    reasons = "; ".join(map(one_line, filter(None, (cell.reason, *_wrong_words(cell), *cell.notes))))
    standing = f"{cell.outcome}, powerless" if powerless else cell.outcome
    words = (cell.sample, cell.graph, cell.compiler, standing)
    derivative = ("", None) if cell.derivative is None else (cell.derivative.word, cell.derivative.gap)
    return (*words, *times, *derivative, *costs, level, cell.family, reasons)


def _interval_cells(cell: BenchCell, timing: BenchTiming) -> tuple[Cell, ...]:
    """Return the times, and the speedup with its interval: the inverse of the ratio's."""
    ends = (1 / end if 0 < end < math.inf else None for end in (timing.high, timing.low))
    return (timing.eager, timing.compiled, finite_speedup(cell), *ends)


def _wrong_words(cell: BenchCell) -> Iterator[str]:
    yield from (
        f"{output.role} {output.name}: {output.detail}" for output in wrong_outputs(cell) if output.role != "cell"
    )


FIELDS = (
    *((name, "text") for name in ("sample", "graph", "direction", "compiler", "outcome", "reason", "family", "size")),
    *((name, "count") for name in ("operators", "outputs", "right_from_level")),
    *((name, "flag") for name in ("right", "powerless")),
    ("wrong", "pairs"),
    ("without_power", "texts"),
    *((name, "number") for name in ("speedup", "ratio", "low", "high", "eager", "compiled")),
    *((name, "number") for name in ("eager_mean", "compiled_mean", "noise", "noise_low", "noise_high")),
    ("device", "number"),
    ("rounds", "count"),
    *((name, "number") for name in ("cold", "warm", "seconds", "load")),
    *((name, "count") for name in ("peak_bytes", "device_bytes", "flops", "moved_bytes")),
    ("notes", "texts"),
    *((name, "text") for name in ("derivative", "derivative_detail", "captured_derivative")),
    *((name, "number") for name in ("derivative_gap", "derivative_forward", "derivative_seconds")),
)
"""The columns of a cell in files, and their kinds."""

TIMED = (
    *("ratio", "low", "high", "eager", "compiled", "eager_mean", "compiled_mean"),
    *("noise", "noise_low", "noise_high", "device", "rounds"),
)

KEPT = (
    *("sample", "graph", "direction", "compiler", "outcome", "reason", "family", "right"),
    *("cold", "warm", "seconds", "peak_bytes", "device_bytes", "flops", "moved_bytes", "notes", "load"),
)


OF_DERIVATIVES = {
    "derivative": "word",
    "derivative_detail": "detail",
    "captured_derivative": "captured",
    "derivative_gap": "gap",
    "derivative_forward": "forward",
    "derivative_seconds": "seconds",
}
"""The columns of a cell's derivative, and its fields."""


def cell_rows(run: BenchRun) -> Iterator[dict[str, Any]]:
    """Yield every column of each cell."""
    without = powerless_graphs(run.cells)
    for cell in run.cells:
        yield {
            **{name: getattr(cell, name) for name in KEPT},
            **{name: getattr(cell.timing, name, None) for name in TIMED},
            "size": size_class(cell),
            "operators": cell.steps,
            "outputs": len(cell.outputs),
            "right_from_level": _strictest_level(scored_cell(cell)),
            "powerless": (cell.sample, cell.graph) in without,
            "wrong": tuple((f"{output.role} {output.name}", output.detail) for output in wrong_outputs(cell)),
            "without_power": tuple(f"{output.role} {output.name}" for output in cell.outputs if not output.power),
            "speedup": finite_speedup(cell),
            **{column: getattr(cell.derivative, name, None) for column, name in OF_DERIVATIVES.items()},
        }

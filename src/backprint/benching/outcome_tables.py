"""Tables of a bench run's cells: outcomes and speedups by group, what compiling and running cost, what failed and why.

A share counts cells that were judged and have power: not those that no compiler can be blamed for
(`cells.NOT_JUDGED`), nor those of graphs without an output that a redraw of the inputs moves.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from backprint.benching.cells import NOT_JUDGED, OUTCOMES, STOPPED, BenchCell, BenchOutput
from backprint.benching.means import MeanSpeedup, mean_speedup
from backprint.benching.roofline import Peaks, Work, share_reached
from backprint.benching.scored_cells import LARGEST_SIZE, SIZES, finite_speedup, powerless_graphs, size_class
from backprint.choices import BENCH_DIRECTIONS
from backprint.report.nouns import Cell, Table, columns, note_kind, one_line

ByCompiler = Mapping[str, Sequence[BenchCell]]


def outcome_tables(run_cells: Sequence[BenchCell], compilers: Sequence[str]) -> tuple[Table, ...]:
    """Return the tables of outcomes: in all, and by direction, family and size."""
    without = powerless_graphs(run_cells)
    cells: dict[str, list[BenchCell]] = {name: [] for name in compilers}
    for cell in run_cells:
        cells.setdefault(cell.compiler, []).append(cell)
    sizes = (*(name for _, name in SIZES), LARGEST_SIZE, "unknown")
    return (
        outcomes(cells, without),
        grouped_outcomes("By direction", cells, without, lambda cell: cell.direction, BENCH_DIRECTIONS),
        grouped_outcomes("By family", cells, without, lambda cell: cell.family, ()),
        grouped_outcomes("By size", cells, without, size_class, sizes, "Operators of the graph."),
    )


def outcomes(cells: ByCompiler, without: frozenset[tuple[str, str]]) -> Table:
    """Count each outcome of each compiler."""
    present = [name for name in OUTCOMES if any(cell.outcome == name for each in cells.values() for cell in each)]
    rows: list[tuple[Cell, ...]] = []
    for name, own in cells.items():
        count = Counter(cell.outcome for cell in own)
        blamed = judged_cells(own, without)
        no_power = sum((cell.sample, cell.graph) in without for cell in own)
        shares = right_share(blamed), slower_share(blamed)
        counts = (*(count[outcome] for outcome in present), no_power)
        rows.append((name, len(own), *shares, *speedup_mean(blamed), *counts))
    heads = "compiler:name cells:count right:share right_and_slower:share speedup:times from:times to:times "
    named = " ".join(f"{name.replace(' ', '_')}:count" for name in present)
    note = (
        "Right is the share of the cells that were judged and have power. Speedups are geometric means of right cells, "
        "with 95% intervals from 5 cells on."
    )
    return Table("Outcomes", note, columns(f"{heads}{named} powerless:count"), tuple(rows))


def grouped_outcomes(
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
        rows += [(name, group or "none", *group_counts(judged_cells(groups[group], without))) for group in ranked]
    heads = "compiler:name group:name judged:count right:share right_and_slower:share "
    heads += "wrong:count stopped:count speedup:times from:times to:times"
    return Table(title, note, columns(heads), tuple(rows))


def group_counts(blamed: Sequence[BenchCell]) -> tuple[Cell, ...]:
    wrong = sum(cell.outcome == "wrong" for cell in blamed)
    stopped = sum(cell.outcome in STOPPED for cell in blamed)
    shares = right_share(blamed), slower_share(blamed)
    return (len(blamed), *shares, wrong, stopped, *speedup_mean(blamed))


def judged_cells(cells: Iterable[BenchCell], without: frozenset[tuple[str, str]]) -> list[BenchCell]:
    """Return the cells that shares count."""
    return [cell for cell in cells if cell.outcome not in NOT_JUDGED and (cell.sample, cell.graph) not in without]


def right_share(cells: Sequence[BenchCell]) -> float | None:
    return sum(cell.right for cell in cells) / len(cells) if cells else None


def slower_share(cells: Sequence[BenchCell]) -> float | None:
    """Return the share of cells that are right, and slower than eager."""
    return sum(cell.outcome == "slower" for cell in cells) / len(cells) if cells else None


def speedup_mean(cells: Iterable[BenchCell]) -> MeanSpeedup:
    """Return the geometric mean of the speedups of right cells, and its interval."""
    return mean_speedup([speed for cell in cells if cell.right and (speed := finite_speedup(cell))])


# --- costs ------------------------------------------------------------------------------------------------------------


def cost_tables(cells: Sequence[BenchCell], peaks: Peaks | None) -> tuple[Table, ...]:
    """Return the tables of compile times, memory, and the share of what the machine can do."""
    return compile_times(cells), peak_memory(cells), reached_table(cells, peaks)


def compile_times(cells: Sequence[BenchCell]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, own in by_compiler(cells).items():
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
    for name, own in by_compiler(cells).items():
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


def reached_table(cells: Sequence[BenchCell], peaks: Peaks | None) -> Table:
    """Return the share of the roofline that right cells reached, by compiler and direction."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cell in cells:
        if cell.right and (reached := reached_share(cell, peaks)) is not None:
            groups[cell.compiler, cell.direction].append(reached)
    rows = [(*key, len(found), statistics.median(found), max(found)) for key, found in groups.items()]
    note = (
        "The least time of a graph's operations or bytes, at the peaks above, over the time it took. The least bytes "
        "are each input read once and each output written once; a cache or memory of their size sets their peak."
    )
    return Table("Roofline", note, columns("compiler:name direction count:count median:share most:share"), tuple(rows))


def reached_share(cell: BenchCell, peaks: Peaks | None) -> float | None:
    """Return the share of the roofline that a cell reached; None where it cannot be known."""
    if peaks is None or cell.timing is None or not 0 < cell.timing.compiled < math.inf:
        return None
    work = Work(cell.flops or 0, cell.moved_bytes or 0, cell.flops_by_dtype)
    return share_reached(work, cell.timing.compiled, peaks) or None


def by_compiler(cells: Iterable[BenchCell]) -> dict[str, list[BenchCell]]:
    found: dict[str, list[BenchCell]] = defaultdict(list)
    for cell in cells:
        found[cell.compiler].append(cell)
    return found


def title_of(cell: BenchCell) -> str:
    """Return a cell's sample and graph."""
    return f"{cell.sample} {cell.graph}".strip()


# --- what is not right ------------------------------------------------------------------------------------------------


def fault_tables(cells: Sequence[BenchCell]) -> tuple[Table, ...]:
    """Return the tables of what failed, what is wrong, and what could not be judged."""
    return failures(cells), wrong_answers(cells), not_judged(cells)


def failures(cells: Sequence[BenchCell]) -> Table:
    """Count what stopped by its reason without names and numbers, with the smallest graph that shows each."""
    groups: dict[tuple[str, str, str], list[BenchCell]] = defaultdict(list)
    for cell in cells:
        if cell.outcome in STOPPED:
            groups[cell.compiler, cell.outcome, note_kind(cell.reason) or "nothing was said"].append(cell)
    rows: list[tuple[Cell, ...]] = []
    for key, own in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0])):
        least = min(own, key=size_order)
        samples = len({cell.sample for cell in own})
        rows.append((*key, len(own), samples, title_of(least), least.steps or None, one_line(least.reason)))
    heads = "compiler:name outcome:verdict reason graphs:count samples:count smallest:name operators:count it_said"
    note = "Reasons that are alike but for numbers and names are one line; the smallest graph shows each."
    return Table("Failures by reason", note, columns(heads), tuple(rows))


def size_order(cell: BenchCell) -> tuple[float, str, str]:
    """Return the order from the smallest graph; those of unknown size come last."""
    return cell.steps or math.inf, cell.sample, cell.graph


def wrong_answers(cells: Iterable[BenchCell]) -> Table:
    """List each wrong output."""
    rows = [
        (cell.compiler, title_of(cell), f"{output.role} {output.name}", one_line(output.detail), cell.steps or None)
        for cell in sorted(cells, key=lambda cell: (cell.compiler, *size_order(cell)))
        if cell.outcome == "wrong"
        for output in wrong_outputs(cell)
    ]
    heads = "compiler:name sample:name output:name detail operators:count"
    return Table("Wrong answers", "The smallest graphs first.", columns(heads), tuple(rows))


def wrong_outputs(cell: BenchCell) -> tuple[BenchOutput, ...]:
    """Return a wrong cell's wrong outputs; where none is marked, one that stands for the reason."""
    marked = tuple(output for output in cell.outputs if output.word == "wrong")
    if marked or cell.outcome != "wrong":
        return marked
    return (BenchOutput("cell", "", "wrong", cell.reason, "", (), "", (), equal=False),)


def not_judged(cells: Sequence[BenchCell]) -> Table:
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

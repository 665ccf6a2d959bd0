"""What became of every graph under every compiler: the matrix, its picture, and KernelBench's fast_p.

These need no times, so that a run without any has them all but fast_p.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from backprint.benching.cells import NOT_JUDGED, STOPPED, BenchCell
from backprint.benching.names import short_names
from backprint.benching.outcome_tables import by_compiler, judged_cells
from backprint.benching.scored_cells import finite_speedup, powerless_graphs
from backprint.benching.svg import LETTER, drawing, label, middle_out
from backprint.report.nouns import Cell, Column, Figure, Table, columns, one_line

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
        told = (standing_of(own[name], (sample, graph) in without) if name in own else "" for name in shown)
        steps = max(cell.steps for cell in own.values())
        rows.append((f"{sample} {graph}".strip(), steps or None, *told))
    heads = (*columns("sample:name operators:count"), *(Column(one_line(name), "verdict") for name in shown.values()))
    return Table("Graphs by compilers", "The outcome of each cell, and its speedup.", heads, tuple(rows))


# ------------------------------------------------------------------ outputs that were not judged


def unjudged_outputs(cells: Sequence[BenchCell]) -> Table:
    """Count each compiler's outputs: right, wrong, and those that neither is said of."""
    rows: list[tuple[Cell, ...]] = []
    words = sorted({output.word for cell in cells for output in cell.outputs if output.word not in STEADY})
    for name, own in by_compiler(cells).items():
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
    """Say how many outputs of right cells were not judged; nothing if all were."""
    outputs = [output for cell in cells if cell.right for output in cell.outputs]
    count = Counter(output.word for output in outputs if output.word not in STEADY)
    told = ", ".join(f"{number:,} {word}" for word, number in sorted(count.items()))
    return f"{count.total():,} of {len(outputs):,} outputs of right cells ({told})" if told else ""


# ------------------------------------------------------------------ fast_p


def fast_table(cells: Sequence[BenchCell]) -> Table:
    """Return KernelBench's fast_p: the share of judged cells that are right and more than p times as fast as eager."""
    without = powerless_graphs(cells)
    rows: list[tuple[Cell, ...]] = []
    for name, own in by_compiler(cells).items():
        blamed = judged_cells(own, without)
        timed = [cell for cell in blamed if not cell.right or finite_speedup(cell)]
        if any(cell.right for cell in timed):
            shares = (fast_share(timed, p) for p in FAST)
            rows.append((name, len(timed), len(blamed) - len(timed), *shares))
    heads = (
        *columns("compiler:name cells:count right_but_untimed:count"),
        *(Column(f"fast_{p:g}", "share") for p in FAST),
    )
    note = (
        "fast_p of KernelBench: the share of cells that are right and more than p times as fast as eager. What was not "
        "judged, has no power, or is right and has no time is left out."
    )
    return Table("fast_p", note, heads, tuple(rows))


def fast_share(cells: Sequence[BenchCell], p: float) -> float:
    """Return the share of timed cells that are right and more than p times as fast."""
    return sum(cell.right and (finite_speedup(cell) or 0.0) > p for cell in cells) / len(cells)


# ------------------------------------------------------------------ the picture

BANDS = (
    ("faster", ("faster",), "bitwise"),
    ("right", ("same", "unsure", "untimed"), "close"),
    ("slower", ("slower",), "unproven"),
    ("wrong", ("wrong",), "wrong"),
    ("stopped", STOPPED, "s3"),
    ("not judged", NOT_JUDGED, "undifferentiable"),
    ("powerless", (), "s7"),
)
"""A band of a bar: its name, the outcomes it counts, and its class. What has no power counts in the last alone."""

BAR, LINE, EDGE, NARROW = 460.0, 26.0, 12.0, 24.0


def outcome_picture(cells: Sequence[BenchCell]) -> tuple[Figure, ...]:
    """Draw a bar for each compiler: how many of its cells had which outcome."""
    rows = {name: counts for name, own in by_compiler(cells).items() if (counts := band_counts(own, cells))}
    if not rows:
        return ()
    shown = {name: middle_out(short, 64) for name, short in short_names(rows).items()}
    left = EDGE + 10 + LETTER * max(map(len, shown.values()))
    present = [(name, tone) for name, _, tone in BANDS if any(counts[name] for counts in rows.values())]
    parts = []
    for place, (name, counts) in enumerate(rows.items()):
        middle = 14 + place * LINE
        parts.append(label(left - 8, middle + 4, shown[name], anchor="end", letters=64))
        parts += bar_parts(counts, left, middle)
    below = 14 + len(rows) * LINE + 6
    x = left
    for name, tone in present:
        parts.append(f'<rect class="mark {tone}" x="{x:.1f}" y="{below - 9:.1f}" width="12" height="12"/>')
        parts.append(label(x + 17, below + 2, name, anchor="start"))
        x += 34 + LETTER * len(name)
    width = max(left + BAR + 20, x)
    note = "Cells by what became of them."
    return (Figure("Outcomes by compiler", note, drawing(width, below + 16, "Outcomes by compiler", parts)),)


def band_counts(own: Sequence[BenchCell], every: Sequence[BenchCell]) -> Counter[str]:
    """Count the cells of each band."""
    without = powerless_graphs(every)
    band = {outcome: name for name, outcomes, _ in BANDS for outcome in outcomes}
    return Counter(
        "powerless" if (cell.sample, cell.graph) in without else band.get(cell.outcome, "not judged") for cell in own
    )


def bar_parts(counts: Counter[str], left: float, middle: float) -> Iterator[str]:
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

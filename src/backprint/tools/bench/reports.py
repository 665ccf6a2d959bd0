"""The report of a bench run: which compiler is right, how much faster, what failed and why, and a row a cell.

A share counts cells that were judged and have power. It leaves out cells that are no compiler's fault
(`cells.NOT_JUDGED`), and those of graphs without an output that a redraw of the inputs moves: graphs without power, or
powerless. What else people ask is a line of pandas over the rows as a file: docs/compilers.md shows some.

A Table is a title, columns (name -> kind of value, which says how a page writes it) and rows. A speedup is eager's time
over the compiler's; a MeanSpeedup is a geometric mean with its interval, each None where there are too few.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backprint.common.text import one_line
from backprint.common.words import BENCH_DIRECTIONS
from backprint.graph.verdicts import NOT_THE_DERIVATIVE
from backprint.table.nouns import Picture, Report, Table, date_text, share
from backprint.tools.bench.cells import NOT_JUDGED, OUTCOMES, STOPPED, BenchCell, BenchOutput, BenchTiming
from backprint.tools.bench.runs import BenchRun
from backprint.tools.bench.scored import finite_speedup, powerless_graphs
from backprint.tools.graphnet.scores import MeanSpeedup, mean_speedup

Graphs = frozenset[tuple[str, str]]
"""The (sample, graph) of graphs without power."""

# ------------------------------------------------------------------ the report


def bench_report(run: BenchRun) -> Report:
    """Return the report of a bench run, which may still go on."""
    powerless = powerless_graphs(run.cells)
    names = [compiler.name for compiler in run.compilers]
    speeds = {
        name: [speed for cell in run.of(name) if cell.right and (speed := finite_speedup(cell))] for name in names
    }
    speeds_by_short_name = {short: speeds[name] for name, short in short_names(names).items() if speeds[name]}
    note = "Of the graphs that are right, from the slowest to the fastest."
    picture = Picture("Speedups over samples", note, "speedups", speeds_by_short_name)
    return Report(
        title="Bench report",
        answer="; ".join(f"{name}: {_answer_of_compiler(run.of(name), powerless)}" for name in names),
        tables=(_summary(run, powerless), _faults(run.cells, powerless)),
        rows=Table("All cells", COLUMNS, [_row_of(cell, powerless) for cell in run.cells], shown=SHOWN),
        facts=run_facts(run),
        pictures=(picture,) if speeds_by_short_name else (),
    )


def _answer_of_compiler(cells: Sequence[BenchCell], powerless: Graphs) -> str:
    """Say how many of the judged cells of a compiler are right, how fast these are, and what the others are."""
    judged = judged_cells(cells, powerless)
    faults = Counter(cell.outcome for cell in cells if not cell.right and cell.outcome not in NOT_JUDGED)
    speedup, _, _ = _speedup_mean(judged)
    counts = {
        **{name: faults[name] for name in OUTCOMES},
        NOT_THE_DERIVATIVE: sum(cell.not_the_derivative for cell in cells),
        "not judged": sum(cell.outcome in NOT_JUDGED for cell in cells),
        "equal without power": sum(cell.right and (cell.sample, cell.graph) in powerless for cell in cells),
    }
    texts = (
        f"{sum(cell.right for cell in judged):,} of {len(judged):,} right" if judged else "",
        f"{speedup:.2f}× as fast as eager" if speedup is not None else "",
        *(f"{count:,} {name}" for name, count in counts.items() if count),
    )
    return ", ".join(filter(None, texts)) or "no cells"


# ------------------------------------------------------------------ the tables


def _summary(run: BenchRun, powerless: Graphs) -> Table:
    """Return a row for each compiler and direction, and, unless there is one direction only, one for all of a compiler:
    how many cells are right, how fast, and how long they took to compile."""
    directions = [name for name in BENCH_DIRECTIONS if any(cell.direction == name for cell in run.cells)]
    rows: list[tuple[Any, ...]] = []
    for compiler in run.compilers:
        cells_of_row = run.of(compiler.name)
        if len(directions) != 1:
            rows.append((compiler.name, "all", *_summary_cells(cells_of_row, powerless)))
        for direction in directions:
            if cells := [cell for cell in cells_of_row if cell.direction == direction]:
                rows.append((compiler.name, direction, *_summary_cells(cells, powerless)))
    columns = {"compiler": "name", "graphs": "name", "cells": "count", "right": "share", "speedup": "times"}
    columns |= {"wrong": "count", "stopped": "count", "slower": "count", "low": "times", "high": "times"}
    columns |= {"not_derivative": "count", "not_judged": "count", "powerless": "count", "cold_compile": "seconds"}
    note = (
        "Right is the share of the cells that were judged and have power. Speedups are geometric means of right cells, "
        "with 95% intervals from 5 cells on. A cold compilation, here the median, begins with empty caches."
    )
    return Table("Summary", columns, rows, note)


def _summary_cells(cells: Sequence[BenchCell], powerless: Graphs) -> tuple[Any, ...]:
    """Return what these cells come to, in the order of the columns of `_summary` from `cells` on."""
    judged, cold = judged_cells(cells, powerless), [cell.cold for cell in cells if cell.cold is not None]
    speedup, low, high = _speedup_mean(judged)
    return (
        len(cells),
        right_share(judged),
        speedup,
        sum(cell.outcome == "wrong" for cell in cells),
        sum(cell.outcome in STOPPED for cell in cells),
        sum(cell.outcome == "slower" for cell in cells),
        low,
        high,
        sum(cell.not_the_derivative for cell in cells),
        sum(cell.outcome in NOT_JUDGED for cell in cells),
        sum((cell.sample, cell.graph) in powerless for cell in cells),
        statistics.median(cold) if cold else None,
    )


def judged_cells(cells: Iterable[BenchCell], powerless: Graphs) -> list[BenchCell]:
    """Return the cells that count in shares: judged, and with power."""
    return [cell for cell in cells if cell.outcome not in NOT_JUDGED and (cell.sample, cell.graph) not in powerless]


def right_share(cells: Sequence[BenchCell]) -> float | None:
    """Return the share of cells that are right; None if there are none."""
    return sum(cell.right for cell in cells) / len(cells) if cells else None


def _speedup_mean(cells: Iterable[BenchCell]) -> MeanSpeedup:
    """Return the geometric mean of the speedups of right cells, and its interval."""
    return mean_speedup([speed for cell in cells if cell.right and (speed := finite_speedup(cell))])


def _faults(cells: Sequence[BenchCell], powerless: Graphs) -> Table:
    """Return a table of what is not right, the worst first and the smallest graphs first: wrong, stopped, not the
    derivative; then what was not judged, or proves nothing because its graph is powerless."""
    order = ("wrong", *STOPPED, NOT_THE_DERIVATIVE, *NOT_JUDGED, "powerless")
    listed = []
    for cell in cells:
        outcome = cell.outcome
        if cell.right and cell.not_the_derivative:
            outcome = NOT_THE_DERIVATIVE
        elif cell.right and (cell.sample, cell.graph) in powerless:
            outcome = "powerless"
        if outcome in order:
            key = (order.index(outcome), cell.compiler, cell.steps or math.inf, cell.sample, cell.graph)
            listed.append((key, (title_of(cell), cell.compiler, outcome, cell.steps or None, reason_of(cell, outcome))))
    columns = {"sample": "name", "compiler": "name", "outcome": "word", "operators": "count", "reason": "detail"}
    return Table("Not right", columns, [row for _, row in sorted(listed, key=lambda pair: pair[0])])


def reason_of(cell: BenchCell, outcome: str = "") -> str:
    """Return the reason of a cell's outcome, and its wrong outputs. `outcome` is the word that a table has for it, such
    as `powerless`."""
    # An output of role `cell` repeats the cell's own reason (`wrong_outputs`).
    outputs = [output for output in wrong_outputs(cell) if output.role != "cell"]
    wrong = (f"{output.role} {output.name}: {output.detail}".strip(": ") for output in outputs)
    derivative = cell.derivative
    of_derivative = f"{derivative.word}: {derivative.detail}" if derivative and cell.not_the_derivative else ""
    power = "a redraw of the inputs moves no output" if outcome == "powerless" else ""
    return "; ".join(dict.fromkeys(map(one_line, filter(None, (cell.reason, *wrong, of_derivative, power)))))


def wrong_outputs(cell: BenchCell) -> tuple[BenchOutput, ...]:
    """Return a wrong cell's wrong outputs; where none is marked, one output whose detail is the cell's reason."""
    marked = tuple(output for output in cell.outputs if output.word == "wrong")
    if marked or cell.outcome != "wrong":
        return marked
    of_cell = BenchOutput(
        role="cell",
        name="",
        word="wrong",
        detail=cell.reason,
        dtype="",
        shape=(),
        compiled_dtype="",
        compiled_shape=(),
        equal=False,
    )
    return (of_cell,)


def title_of(cell: BenchCell) -> str:
    """Return a cell's sample and graph."""
    return f"{cell.sample} {cell.graph}".strip()


FUNCTION_IN_FILE = re.compile(r".*[/\\](?P<name>[^/\\]+\.py:[^/\\]+)", re.DOTALL)
"""The name of a compiler that is a function of the user's: `FOLDER/FILE.py:FUNCTION`."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return, for each name, the name without its folder. If several would then be the same, they keep their
    folders."""
    full_names = list(dict.fromkeys(names))
    matches = [FUNCTION_IN_FILE.fullmatch(name) for name in full_names]
    short = [match["name"] if match else name for match, name in zip(matches, full_names, strict=True)]
    return {
        name: short_name if short.count(short_name) == 1 else name
        for name, short_name in zip(full_names, short, strict=True)
    }


# ------------------------------------------------------------------ all cells

OF_CELL = {
    **dict.fromkeys(("sample", "graph", "compiler"), "name"),
    "direction": "text",
    "outcome": "word",
    "reason": "detail",
    "family": "text",
    "right": "flag",
    "steps": "count",
    "cold": "seconds",
    "warm": "seconds",
    "seconds": "seconds",
    "load": "number",
    "peak_bytes": "bytes",
    "device_bytes": "bytes",
    "flops": "count",
    "moved_bytes": "count",
    "notes": "texts",
}
OF_TIMING = {
    **dict.fromkeys(("eager", "compiled", "eager_mean", "compiled_mean"), "seconds"),
    **dict.fromkeys(("ratio", "low", "high", "noise", "noise_low", "noise_high", "device"), "number"),
    "rounds": "count",
}
OF_DERIVATIVE = {
    "word": "text",
    "detail": "text",
    "captured": "text",
    "gap": "number",
    "forward": "number",
    "seconds": "seconds",
}

COLUMNS: Mapping[str, str] = {
    **OF_CELL,
    **OF_TIMING,
    # The word's column is `derivative`, the others `derivative_gap` and so on.
    **{f"derivative_{name}".removesuffix("_word"): kind for name, kind in OF_DERIVATIVE.items()},
    "speedup": "times",
    "powerless": "flag",
    "outputs": "count",
    "wrong": "pairs",
    "without_power": "texts",
}
"""The columns of a cell, with the kinds of their values."""

SHOWN = (
    *("sample", "graph", "compiler", "outcome", "speedup", "eager", "compiled", "steps", "cold", "peak_bytes"),
    *("derivative", "family", "reason", "wrong", "notes", "powerless"),
)
"""The columns of a page."""


def _row_of(cell: BenchCell, powerless: Graphs) -> tuple[Any, ...]:
    """Return the values of a cell for COLUMNS, in their order."""
    return (
        *(getattr(cell, name) for name in OF_CELL),
        # None for a cell without a timing, or without a derivative
        *(getattr(cell.timing, name, None) for name in OF_TIMING),
        *(getattr(cell.derivative, name, None) for name in OF_DERIVATIVE),
        finite_speedup(cell),
        (cell.sample, cell.graph) in powerless,
        len(cell.outputs),
        [(f"{output.role} {output.name}", output.detail) for output in wrong_outputs(cell)],
        [f"{output.role} {output.name}" for output in cell.outputs if not output.power],
    )


# ------------------------------------------------------------------ facts

CHANGED = 0.05
"""Eager against eager counts as changed where its interval lies beyond this, as a compiler's time does."""

MORE_LOAD = 0.5
"""Load above the bench's own that does not yet mean other work, or a quarter of the cores if that is more."""

EAGER = "eager"
"""The control that gives each graph back as it is."""

JUDGED = ("bitwise", "close", "wrong")
"""Words of outputs that were judged."""


def run_facts(run: BenchRun) -> dict[str, str]:
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
        "machine": _words_of(run.machine),
        "torch": run.torch,
        "backprint": run.backprint,
        "noise": _noise_text(run.cells),
        "load": _load_text(run),
        "not judged": unjudged_text(run.cells),
        "options": _words_of(run.options),
        "started": date_text(run.started),
        "finished": date_text(run.finished) or "not finished",
    }
    return {name: one_line(value) for name, value in known.items() if value}


def _words_of(facts: Mapping[str, Any]) -> str:
    """Return facts as `NAME VALUE, …`, without those that are empty or False."""
    lists = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in facts.items()}
    return ", ".join(f"{name} {value}" for name, value in lists.items() if value not in (None, "", False))


def unjudged_text(cells: Sequence[BenchCell]) -> str:
    """Count the outputs of right cells that were not judged; '' if all were judged."""
    outputs = [output for cell in cells if cell.right for output in cell.outputs]
    count = Counter(output.word for output in outputs if output.word not in JUDGED)
    words = ", ".join(f"{number:,} {word}" for word, number in sorted(count.items()))
    return f"{count.total():,} of {len(outputs):,} outputs of right cells ({words})" if words else ""


def _noise_text(cells: Sequence[BenchCell]) -> str:
    """Return the noise of eager against eager as text: the share called a change, and the width of the intervals."""
    intervals = [interval for cell in cells if cell.timing and (interval := _noise_interval(cell, cell.timing))]
    if not intervals:
        timed = any(cell.timing for cell in cells)
        return "not measured (eager against eager)" if timed else "no cell was timed"
    changed = sum(low > 1 + CHANGED or high < 1 / (1 + CHANGED) for low, high in intervals)
    width = statistics.median(high / low - 1 for low, high in intervals)
    return (
        f"eager against eager: {changed:,} of {len(intervals):,} called a change ({share(changed / len(intervals))}), "
        f"median width of the interval {width:.1%}"
    )


def _noise_interval(cell: BenchCell, timing: BenchTiming) -> tuple[float, float] | None:
    """Return the interval of eager against eager beside a cell; for cells of the compiler `eager`, the cell's own
    interval, which is that too. None where it was not measured, or is no interval of numbers above 0."""
    low, high = timing.noise_low, timing.noise_high
    if cell.compiler == EAGER:
        low, high = timing.low, timing.high
    return None if low is None or high is None or not 0 < low <= high < math.inf else (low, high)


def _load_text(run: BenchRun) -> str:
    """Return the machine's load as text, and whether other work ran beside the bench; '' if no cell has a load."""
    loads = [cell.load for cell in run.cells if cell.load is not None]
    if not loads:
        return ""
    own_load = run.jobs * int(run.options.get("threads") or 1)
    usual_load = own_load + max(MORE_LOAD, (run.machine.get("cores") or 1) / 4)
    busy = sum(load > usual_load for load in loads)
    high_text = (
        f"HIGH: {busy:,} of {len(loads):,} cells over {usual_load:g}: other work ran beside, and times may wait for it"
    )
    usual_text = (
        f"median {statistics.median(loads):.3g}, at most {max(loads):.3g}, of which {own_load} is the bench's own"
    )
    return f"{usual_text}; {high_text}" if busy else usual_text

"""The report of a bench run: its facts, tables and pictures, and a row a cell for files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backprint.benching.cells import BenchCell, BenchTiming
from backprint.benching.graphnet_log import read_log
from backprint.benching.outcome_tables import cost_tables, fault_tables, outcome_tables, reached_share, wrong_outputs
from backprint.benching.pictures import pictures
from backprint.benching.roofline import Peaks
from backprint.benching.runs import META, BenchRun, read_run
from backprint.benching.score_tables import report_of_logs, score_tables, strictest_level
from backprint.benching.scored_cells import (
    finite_speedup,
    powerless_graphs,
    scored_cell,
    scored_samples,
    size_class,
)
from backprint.benching.standings import fast_table, matrix, outcome_picture, unjudged_outputs, unjudged_text
from backprint.report.nouns import Cell, Report, Table, columns, date_text, filled, one_line, share

CHANGED = 0.05
"""From so much on eager against eager counts as called a change, as a compiler's time does."""

MORE_LOAD = 0.5
"""So much load beside the bench's own is no other work's yet; on larger machines it is a quarter of the cores."""

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
        *outcome_tables(run.cells, names),
        fast_table(run.cells),
        matrix(run.cells),
        *fault_tables(run.cells),
        unjudged_outputs(run.cells),
        *cost_tables(run.cells, run.peaks),
        *score_tables(scored, left_out),
    )
    return Report(
        "Bench report",
        run_facts(run),
        tuple(filled(tables)),
        all_cells(run, without),
        FIELDS,
        lambda: cell_rows(run),
        (*outcome_picture(run.cells), *pictures(scored)),
    )


# --- facts ------------------------------------------------------------------------------------------------------------


def run_facts(run: BenchRun) -> tuple[tuple[str, str], ...]:
    """Return the facts above the tables; those that are unknown are left out."""
    versions = {each.name: " ".join(f"{name} {version}" for name, version in each.versions) for each in run.compilers}
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
        "peaks": peaks_text(run.peaks),
        "noise": noise_text(run.cells),
        "load": load_text(run),
        "not judged": unjudged_text(run.cells),
        "options": words_of(run.options),
        "started": date_text(run.started),
        "finished": date_text(run.finished) or "not finished",
    }
    return tuple((name, one_line(value)) for name, value in known.items() if value)


def words_of(facts: Mapping[str, Any]) -> str:
    lists = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in facts.items()}
    return ", ".join(f"{name} {value}" for name, value in lists.items() if value not in (None, "", False))


def peaks_text(peaks: Peaks | None) -> str:
    """Say what the machine reached: arithmetic, and memory beside the fastest cache."""
    if peaks is None:
        return ""
    rates = {"GFLOP/s": peaks.flops, "GB/s from memory": peaks.bytes}
    rates |= {"GB/s from the fastest cache": max(rate for _, rate in peaks.moves)} if peaks.moves else {}
    return ", ".join(f"{rate / 1e9:.3g} {word}" for word, rate in rates.items() if rate < math.inf)


def noise_text(cells: Sequence[BenchCell]) -> str:
    """Say how far eager against eager came out: the share called a change, and how wide the intervals are."""
    known = [found for cell in cells if cell.timing and (found := noise_interval(cell, cell.timing))]
    if not known:
        timed = any(cell.timing for cell in cells)
        return "not measured (eager against eager)" if timed else "no cell was timed: there are no scores"
    changed = sum(low > 1 + CHANGED or high < 1 / (1 + CHANGED) for low, high in known)
    width = statistics.median(high / low - 1 for low, high in known)
    return (
        f"eager against eager: {changed:,} of {len(known):,} called a change ({share(changed / len(known))}), "
        f"median width of the interval {width:.1%}"
    )


def load_text(run: BenchRun) -> str:
    """Say how busy the machine was, and whether other work ran beside the bench."""
    loads = [cell.load for cell in run.cells if cell.load is not None]
    if not loads:
        return ""
    own, cores = int(run.options.get("jobs") or 1) * int(run.options.get("threads") or 1), run.machine.get("cores")
    most = own + max(MORE_LOAD, (cores or 1) / 4)
    busy = sum(load > most for load in loads)
    high = f"HIGH: {busy:,} of {len(loads):,} cells over {most:g}: other work ran beside, and times may wait for it"
    usual = f"median {statistics.median(loads):.3g}, at most {max(loads):.3g}, of which {own} is the bench's own"
    return f"{usual}; {high}" if busy else usual


def noise_interval(cell: BenchCell, timing: BenchTiming) -> tuple[float, float] | None:
    """Return the interval of eager against eager beside a cell; the cells of `eager` are themselves that."""
    low, high = timing.noise_low, timing.noise_high
    if cell.compiler == EAGER:
        low, high = timing.low, timing.high
    return None if low is None or high is None or not 0 < low <= high < math.inf else (low, high)


# --- all cells --------------------------------------------------------------------------------------------------------


def all_cells(run: BenchRun, without: frozenset[tuple[str, str]]) -> Table:
    """Return all cells, a line each."""
    rows = [cell_line(cell, run, (cell.sample, cell.graph) in without) for cell in run.cells]
    heads = (
        "sample:name graph:name compiler:name outcome:verdict eager:seconds compiled:seconds speedup:times from:times "
        "to:times roofline:share cold:seconds warm:seconds peak_memory:size operators:count right_from_level:change "
        "family said"
    )
    return Table("All cells", "", columns(heads), tuple(rows))


def cell_line(cell: BenchCell, run: BenchRun, powerless: bool) -> tuple[Cell, ...]:
    timing = cell.timing
    times = (None,) * 5 if timing is None else interval_cells(cell, timing)
    costs = (reached_share(cell, run.peaks), cell.cold, cell.warm, cell.peak_bytes, cell.steps or None)
    level = strictest_level(scored_cell(cell))
    said = "; ".join(map(one_line, filter(None, (cell.reason, *wrong_words(cell), *cell.notes))))
    standing = f"{cell.outcome}, powerless" if powerless else cell.outcome
    words = (cell.sample, cell.graph, cell.compiler, standing)
    return (*words, *times, *costs, level, cell.family, said)


def interval_cells(cell: BenchCell, timing: BenchTiming) -> tuple[Cell, ...]:
    """Return the times, and the speedup with its interval: the inverse of the ratio's."""
    ends = (1 / end if 0 < end < math.inf else None for end in (timing.high, timing.low))
    return (timing.eager, timing.compiled, finite_speedup(cell), *ends)


def wrong_words(cell: BenchCell) -> Iterator[str]:
    yield from (f"{each.role} {each.name}: {each.detail}" for each in wrong_outputs(cell) if each.role != "cell")


FIELDS = (
    *((name, "text") for name in ("sample", "graph", "direction", "compiler", "outcome", "reason", "family", "size")),
    *((name, "count") for name in ("operators", "outputs", "right_from_level")),
    *((name, "flag") for name in ("right", "powerless", "varied")),
    ("wrong", "pairs"),
    ("without_power", "texts"),
    *((name, "number") for name in ("speedup", "ratio", "low", "high", "eager", "compiled")),
    *((name, "number") for name in ("eager_mean", "compiled_mean", "noise", "noise_low", "noise_high")),
    ("device", "number"),
    ("rounds", "count"),
    *((name, "number") for name in ("cold", "warm", "roofline", "seconds", "load")),
    *((name, "count") for name in ("peak_bytes", "device_bytes", "flops", "moved_bytes")),
    ("notes", "texts"),
)
"""The columns of a cell in files, and their kinds."""

TIMED = (
    *("ratio", "low", "high", "eager", "compiled", "eager_mean", "compiled_mean"),
    *("noise", "noise_low", "noise_high", "device", "rounds", "varied"),
)

KEPT = (
    *("sample", "graph", "direction", "compiler", "outcome", "reason", "family", "right"),
    *("cold", "warm", "seconds", "peak_bytes", "device_bytes", "flops", "moved_bytes", "notes", "load"),
)


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
            "right_from_level": strictest_level(scored_cell(cell)),
            "powerless": (cell.sample, cell.graph) in without,
            "wrong": tuple((f"{each.role} {each.name}", each.detail) for each in wrong_outputs(cell)),
            "without_power": tuple(f"{each.role} {each.name}" for each in cell.outputs if not each.power),
            "speedup": finite_speedup(cell),
            "roofline": reached_share(cell, run.peaks),
        }

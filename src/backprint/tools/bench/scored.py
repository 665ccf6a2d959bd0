"""The cells of a bench run as GraphNet's ScoredSamples, for its scores and its log (`tools/graphnet`).

GraphNet knows fewer outcomes than a cell has:

- An output that was compared is judged by the tolerances that it is within, as GraphNet does. A cell that is right by
  Backprint's rule may be wrong at a strict level, and the reverse. Where a cell is wrong, another dtype, another shape,
  and NaN or Inf in other places are mismatches.
- Another number of outputs is a mismatch of shapes.
- A wrong cell that was not timed has no speedup that a loose level could count: it is within no tolerance.
- `refused` failed to compile; `failed` failed to run.
- A process that crashed or was ended at a limit failed to run, if its reason begins with one of `RUNNING`; else it
  failed to compile, with which each graph begins.
- `nondeterministic`, `skipped` and cells that are right and not timed are unmeasured, and so is a process that ended
  before any graph had begun.

A ScoredSample is a graph that one compiler ran, as GraphNet counts it; a ScoredOutput is an output of eager with the
tolerances that the compiler's result is within, and an OutputForm its dtype and shape.

An output that eager itself does not repeat, or that draws other random numbers, is left out of its sample. A cell
without any output that a redraw of the inputs moves is left out of all scores: zeros would pass there. So is that
graph with the compilers that did not compile it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from backprint.tools.bench.cells import RIGHT, BenchCell, BenchOutput
from backprint.tools.bench.runs import BenchRun
from backprint.tools.graphnet.log import write_log
from backprint.tools.graphnet.scores import (
    COMPARED,
    MISMATCHES,
    TOLERANCES,
    UNMEASURED,
    OutputForm,
    ScoredOutput,
    ScoredSample,
    compared_outcome,
)

FAILS = {
    "refused": "compile_fail",
    "failed": "runtime_fail",
    "eager failed": "eager_fail",
}

ENDED_PROCESSES = ("crashed", "timeout", "out of memory")

RUNNING = re.compile(
    r"\W*(?:while |when |at )?(run|call|compar|judg|tim(?:e|ing)\b(?! ?out)|warm|measur)", re.IGNORECASE
)
"""How a reason begins whose stage is after the compilation."""

UNSTEADY = ("nondeterministic", "random")
"""Words of outputs that are neither right nor wrong."""

NOT_FINITE = re.compile(r"relative error (inf|nan)\b")
"""The judge's detail of an output with NaN or Inf where eager has numbers."""

SIZES = ((10, "<10"), (100, "10-99"), (1000, "100-999"))
"""Classes of graphs by their number of operators, each with the least number beyond it."""

LARGEST_SIZE = "1000+"


def scored_samples(run: BenchRun, compiler: str) -> tuple[ScoredSample, ...]:
    """Return the samples that scores count for a compiler."""
    without = powerless_graphs(run.cells)
    return _scored_cells(cell for cell in run.of(compiler) if (cell.sample, cell.graph) not in without)


def _scored_cells(cells: Iterable[BenchCell]) -> tuple[ScoredSample, ...]:
    """Return each cell as a sample, those without power too."""
    return tuple(map(scored_cell, cells))


def write_run_log(run: BenchRun, compiler: str, path: Path | str) -> None:
    """Write GraphNet's log of a compiler's cells, whose scores are those of `scored_samples`."""
    write_log(scored_samples(run, compiler), path)


def write_run_logs(run: BenchRun, folder: Path) -> Iterator[Path]:
    """Write the log of each compiler into a folder; yield the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for compiler in run.compilers:
        place = folder / f"{compiler.folder}.log"
        write_run_log(run, compiler.name, place)
        yield place


def _has_no_power(cell: BenchCell) -> bool:
    """Whether no output of a cell can tell a right compiler from one that ignores its inputs."""
    return bool(cell.outputs) and not any(output.power for output in cell.outputs)


def powerless_graphs(cells: Iterable[BenchCell]) -> frozenset[tuple[str, str]]:
    """Return (sample, graph) of the graphs without power, by the cells of any compiler."""
    return frozenset((cell.sample, cell.graph) for cell in cells if _has_no_power(cell))


def size_class(cell: BenchCell) -> str:
    """Return the class of a graph's number of operators."""
    if not cell.steps:
        return "unknown"
    return next((name for limit, name in SIZES if cell.steps < limit), LARGEST_SIZE)


def scored_cell(cell: BenchCell) -> ScoredSample:
    """Return a cell as a sample of its graph, by the rules of the module's docstring."""
    steady = [output for output in cell.outputs if output.word not in UNSTEADY]
    speedup = finite_speedup(cell)
    outputs = tuple(map(_scored_output, steady))
    if cell.outcome == "wrong" and speedup is None:
        outputs = tuple(ScoredOutput(output.form) for output in outputs)  # within no tolerance
    outcome, reason = _scored_outcome(cell, steady, outputs)
    return ScoredSample(
        name=f"{cell.sample} {cell.graph}".strip(),
        outcome=outcome,
        speedup=speedup if outcome in COMPARED else None,
        outputs=outputs,
        compiled=tuple(map(_compiled_form, steady)) if outcome in MISMATCHES else None,
        reason=reason,
        config=_config_of(cell),
        performance=_performance_of(cell),
    )


def finite_speedup(cell: BenchCell) -> float | None:
    """Return the speedup of a cell that was timed; None where its ratio is not a number above 0."""
    timed = cell.timing is not None and 0 < cell.timing.ratio < math.inf
    return cell.speedup if timed else None


def _scored_output(output: BenchOutput) -> ScoredOutput:
    """Return an output as GraphNet's scores read it: eager's form, and the tolerances that the result is within."""
    form = OutputForm(output.dtype, output.shape)
    return ScoredOutput(form, output.equal, frozenset(TOLERANCES[place] for place in output.within))


def _compiled_form(output: BenchOutput) -> OutputForm:
    """Return the form of what the compiler returned, and `inf` or `nan` if it has such numbers where eager has not."""
    odd = NOT_FINITE.search(output.detail) if output.word == "wrong" else None
    return OutputForm(output.compiled_dtype, output.compiled_shape, odd[1] if odd else "")


def _scored_outcome(cell: BenchCell, steady: list[BenchOutput], outputs: tuple[ScoredOutput, ...]) -> tuple[str, str]:
    """Return GraphNet's outcome of a cell, and its reason. `steady` are the outputs that eager repeats, and `outputs`
    the same as scores read them."""
    if cell.outcome in FAILS:
        return FAILS[cell.outcome], cell.reason
    if cell.outcome in ENDED_PROCESSES:
        if not cell.graph:  # the process ended before any graph had begun
            return UNMEASURED, cell.reason
        return ("runtime_fail" if RUNNING.match(cell.reason) else "compile_fail"), cell.reason
    if cell.outcome not in (*RIGHT, "wrong"):
        return UNMEASURED, f"{cell.outcome}: {cell.reason}".rstrip(": ")
    if not outputs:
        return ("shape_mismatch", cell.reason) if cell.outcome == "wrong" else (UNMEASURED, "no output was compared")
    if cell.outcome == "wrong" and (mismatch := mismatch_of(steady)):
        return mismatch, cell.reason
    if finite_speedup(cell) is None and cell.outcome != "wrong":
        return UNMEASURED, f"not timed: {cell.reason}".rstrip(": ")
    return compared_outcome(outputs), ""


def mismatch_of(outputs: list[BenchOutput]) -> str:
    """Return the first kind of mismatch of outputs, in GraphNet's order (MISMATCHES): dtypes, shapes, NaN or Inf; '' if
    they differ in values alone."""
    kinds = (
        any(output.dtype != output.compiled_dtype for output in outputs),
        any(output.shape != output.compiled_shape for output in outputs),
        any(output.word == "wrong" and NOT_FINITE.search(output.detail) for output in outputs),
    )
    return next((name for name, seen in zip(MISMATCHES, kinds, strict=True) if seen), "")


def _config_of(cell: BenchCell) -> tuple[tuple[str, str], ...]:
    """Return (name, word) for each of the words by which scores group a cell; without those that are unknown."""
    known = {
        "compiler": cell.compiler,
        "direction": cell.direction,
        "family": cell.family,
        "size": size_class(cell),
        "operators": str(cell.steps or ""),
        "outcome": cell.outcome,
    }
    return tuple((name, value) for name, value in known.items() if value)


def _performance_of(cell: BenchCell) -> tuple[tuple[str, str], ...]:
    """Return the times of both sides in milliseconds, in the form of GraphNet's log."""
    if cell.timing is None:
        return ()
    times_by_side = {
        "eager": {"lower_decile": cell.timing.eager * 1e3, "mean": cell.timing.eager_mean * 1e3},
        "compiled": {"lower_decile": cell.timing.compiled * 1e3, "mean": cell.timing.compiled_mean * 1e3},
    }
    return tuple((side, json.dumps({"e2e": times_of_side})) for side, times_of_side in times_by_side.items())

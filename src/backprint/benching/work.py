"""The verb of a bench run: one compiler on one sample, for the workers of `corpus/`.

The process of a sample reads it and runs nothing of it. It forks another, which tries the compiler on each graph and
writes a cell as soon as it is known; if that one crashes, hangs or uses too much memory, the graph at work gets the
outcome, and one more process goes on with the next graph.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from backprint.benching.cells import RIGHT, STOPPED, BenchCell, cell_from_json
from backprint.benching.children import ChildEnd, in_child
from backprint.benching.turns import GraphClock, Turns, turns_folder
from backprint.corpus.clock import stage
from backprint.corpus.task import Task, failure, one_line
from backprint.errors import SampleError

CELLS = "cells.jsonl"
"""The file of a sample's folder: a cell a line; a line with `begun` names a graph and a part of its trial."""

BEGUN = "begun"


def load_all(options: Mapping[str, Any]) -> dict[str, str]:
    """Load PyTorch and Backprint, and nothing of a compiler; return their versions."""
    import torch

    from backprint import target
    from backprint.benching.trial import titles
    from backprint.corpus.task import on_cpu
    from backprint.corpus.verbs import versions, without_device_threads

    _ = target.read_target, titles  # loaded, for the processes that are forked from this one
    torch.set_num_threads(1)
    if on_cpu(options):  # a process that has used a GPU cannot be forked
        without_device_threads()
    global _turns
    _turns = turns_folder(Path(tempfile.gettempdir()))
    return versions(options)


_turns = Path()


def bench_sample(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Try a compiler on every graph of a sample; return the sample's row."""
    from backprint.benching.trial import titles

    staging.mkdir()
    with stage("read"):
        capture = read_capture(task, options, staging)
    wanted = titles(capture, options["directions"])
    file = staging / CELLS
    while left := [title for title in wanted if title not in outcomes(file)]:
        clock = GraphClock()
        given = task, capture, options, file, clock
        end = in_child(partial(try_rest, *given), options["timeout"], task.memory, clock.seconds)
        if not end.ended_well:
            write_ended(file, end, left, BenchCell(task.id, "", "", options["compiler"], "", family=task.family))
        elif [title for title in wanted if title not in outcomes(file)] == left:
            return failure("no cells", f"nothing was tried of {left[0]}", "bench")
    for place in caches_of(task, options).parent.glob(f"{caches_of(task, options).name}_*"):
        shutil.rmtree(place, ignore_errors=True)
    return row_of(list(read_cells(file)))


bench_sample.warm = load_all  # type: ignore[attr-defined]  # what a worker calls first


def read_capture(task: Task, options: Mapping[str, Any], staging: Path) -> Any:
    """Return the Capture of a sample. A GraphNet sample, or one for another device, is captured first, in another
    process."""
    from backprint import api

    allow, device = tuple(options["allow"]), options["device"]
    if task.kind == "backprint" and device is None:
        return api.load(task.path, allow=allow)
    place = staging / "sample"
    with stage("capture"):
        end = in_child(partial(capture_sample, task.path, place, device), options["timeout"], task.memory)
    if not end.ended_well:
        raise SampleError(f"could not be captured: {end.cause}: {end.detail}")
    return api.load(place, allow=allow)


def capture_sample(source: Path, place: Path, device: str | None) -> None:
    """Capture a sample on a device, and save it."""
    from backprint import api
    from backprint.target import capture_target, read_target

    api.save(capture_target(read_target(source, device=device)), place)


def caches_of(task: Task, options: Mapping[str, Any]) -> Path:
    """Return the path below which a compiler keeps what it made of a sample; each graph adds its name."""
    name = hashlib.sha256(f"{options['asked']} {task.id}".encode()).hexdigest()[:16]
    return Path(options["caches"]) / name


ARITHMETIC = ("default_dtype", "flush_denormal")
"""Settings of the capture in which its graphs run: they decide what is computed."""


def try_rest(task: Task, capture: Any, options: Mapping[str, Any], file: Path, clock: GraphClock) -> None:
    """Try the compiler on the graphs without a cell, and write each cell; in a process of its own."""
    import torch

    from backprint.benching.compilers.table import compiler_named
    from backprint.benching.gpu import compute_in_float32
    from backprint.benching.trial import FIRST_PART, TrialPlan, tried
    from backprint.settings import restored

    torch.set_num_threads(options["threads"])
    compute_in_float32()
    compiler, directions = compiler_named(options["asked"]), tuple(options["directions"])
    plan = TrialPlan(compiler, directions, options["timed"], caches_of(task, options))
    turns = Turns(_turns, clock)

    def begun(title: str, part: str) -> None:
        if part == FIRST_PART:
            clock.begin_graph()
        append(file, {BEGUN: title, "stage": part})

    own = dict(capture.environment)
    with turns.working(), restored({name: own[name] for name in ARITHMETIC if name in own}):
        for cell in tried(capture, plan, outcomes(file), turns, begun):
            named = replace(cell, sample=task.id, family=task.family, compiler=options["compiler"], load=load_average())
            append(file, named.to_json())


def load_average() -> float | None:
    """Return how many processes have run or waited to run, on average over the last minute."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):  # not every system counts them
        return None


# ------------------------------------------------------------------ the file of cells


def append(file: Path, row: Mapping[str, Any]) -> None:
    """Add a line to the file."""
    with open(file, "a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")


def rows_of_file(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of the file."""
    text = file.read_text("utf-8") if file.exists() else ""
    yield from map(json.loads, text[: text.rfind("\n") + 1].splitlines())


def read_cells(file: Path) -> Iterator[BenchCell]:
    """Yield the cells of the file."""
    yield from (cell_from_json(row) for row in rows_of_file(file) if BEGUN not in row)


def outcomes(file: Path) -> dict[str, str]:
    """Return title -> outcome of the graphs that have a cell."""
    return {cell.graph: cell.outcome for cell in read_cells(file)}


def write_ended(file: Path, end: ChildEnd, left: list[str], blank: BenchCell) -> None:
    """Give the graph at work the outcome of its process; all graphs, if none was at work: eager itself ended it.

    What a compiler raises is in a cell already, so another error is ours.
    """
    known = outcomes(file)
    begun = [row for row in rows_of_file(file) if BEGUN in row and row[BEGUN] not in known]
    outcome = {"raised": "unjudged"}.get(end.cause, end.cause) if begun else "eager failed"
    reason = one_line(": ".join([*(row["stage"] for row in begun[-1:]), end.detail]))
    for title in [row[BEGUN] for row in begun[-1:]] or left:
        direction = title.partition(" ")[2]
        cell = replace(blank, graph=title, direction=direction, outcome=outcome, reason=reason)
        append(file, cell.to_json())


# ------------------------------------------------------------------ the sample's row


def row_of(cells: list[BenchCell]) -> dict[str, Any]:
    """Return the row of a sample in the ledger of its run."""
    verdict, cause = verdict_of(cells)
    counts = {outcome: sum(cell.outcome == outcome for cell in cells) for outcome in {cell.outcome for cell in cells}}
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    bad = next((f"; {cell.graph}: {cell.reason}" for cell in cells if cell.outcome not in RIGHT), "")
    return {"verdict": verdict, "cause": cause, "detail": one_line(f"{said}{bad}"), "notes": []}


def verdict_of(cells: list[BenchCell]) -> tuple[str, str]:
    """Return the verdict of a sample, the worst of its graphs, and the cause of a failure."""
    stopped = [cell.outcome for cell in cells if cell.outcome in STOPPED]
    if any(cell.outcome == "wrong" for cell in cells):
        return "wrong", ""
    if stopped:
        return "failed", stopped[0]
    if not cells or not all(cell.right for cell in cells):
        return "unproven", ""
    return ("bitwise" if all(output.equal for cell in cells for output in cell.outputs) else "close"), ""

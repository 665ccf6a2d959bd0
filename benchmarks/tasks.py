"""Tasks from architectures and GraphNet samples: whether the reference passes, and planted faults fail.

    pip install '.[models]'                                architectures need it
    python benchmarks/tasks.py architectures               parts of the transformers models of `architectures.py`
    python benchmarks/tasks.py graphnet FOLDER             parts of GraphNet samples: folders with `model.py`

Each program is captured and cut (`--by`) in a process of its own, and each different part becomes a task in a folder:
with `--smallest`, those of the fewest elements first, else in random order, and at most `--parts` of a program. The
folder is read again, and its `reference.py` is judged as a solution. Then faults are planted in the text of
`reference.py`, at least 20 a task: one change of the forward or the backward, which is another operand of the same
type, a constant times 1.5, 1.1, 1.01 or 1.001, the result of a step times 0.5, 1.01 or -1, a dropped addend, or two
results swapped. A fault counts if it moves a result or a gradient, on inputs of the recipes or drawn anew, by more than
CHANGED of its norm. With `--json FILE` each row is appended to a file, and what is in the file is not run again, so
that a run may be continued.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from planting import changes_of, swaps_of, with_step
from programs import Make, architectures, graphnet
from results import Figure, keep
from torch import Tensor

from backprint.derive.called import Program, run_forward
from backprint.derive.setting import drawn_like, is_inexact, to_float64
from backprint.errors import BackprintError
from backprint.graph.nouns import Capture, Graph, Ref, TensorSpec
from backprint.tools.tasks.folder import ReadTask, read_task
from backprint.tools.tasks.judge import judge, judge_together
from backprint.tools.tasks.program import Reference, TaskProgram, captured_values, fresh_values, program_of
from backprint.tools.tasks.sets import parts_of
from backprint.tools.tasks.solver import solution_of_text
from backprint.tools.tasks.text import reference_text
from backprint.tools.tasks.writing import hash_of_program, valid_task_name, write_task

sys.path.insert(0, str(Path(__file__).parent))

FACTORS = (1.5, 1.1, 1.01, 1.001)

CHANGED = {torch.float16: 3e-2, torch.bfloat16: 0.2}
"""How far, relative to its norm, a fault moves a result at least; other dtypes have USUAL."""

USUAL = 2e-4

SCALES = (0.5, 1.01, -1.0)
"""What the result of a step is multiplied by."""

MOST_REMEMBERED = 1 << 30
"""The bytes of the reference's results that are kept."""

TOGETHER = 10
"""How many faults are judged by the same contents."""

MOST_TRIED = 4
"""So many times as many faults are drawn as are wanted: many change nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one part. `word` is `right`, `wrong`, `refused` or `timeout`."""

    program: str
    part: str
    hash: str
    word: str
    detail: str = ""
    steps: int = 0
    occurs: int = 1
    comparisons: int = 0
    faults: int = 0
    caught: int = 0
    same: int = 0
    raised: int = 0
    seconds: float = 0.0
    missed: tuple[str, ...] = ()


# ---- Planted faults


def faults_of(graph: Graph, source: random.Random) -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Yield changes of a graph, each with its kind."""
    for change in changes_of(graph, source, FACTORS, operands=3):
        yield f"{change.kind} of {graph.steps[change.step].name}", change.make
    for index, step in enumerate(graph.steps):
        if not step.is_guard and isinstance(step.spec, TensorSpec) and step.spec.dtype.startswith(("float", "bfloat")):
            for factor in SCALES:
                yield f"{step.name} x{factor}", partial(scaled, graph, index, factor)
    for swap in swaps_of(graph):
        early, late = graph.outputs[swap.early], graph.outputs[swap.late]
        yield f"swapped {early.name} and {late.name}", swap.make


def scaled(graph: Graph, index: int, factor: float) -> Graph:
    """Return a graph in which the result of a step is multiplied."""
    step = graph.steps[index]
    inner = replace(step, name=f"{step.name}_before")
    outer = replace(step, target="aten.mul.Tensor", args=(Ref(inner.name), factor), kwargs=())
    return with_step(graph, index, inner, outer)


def results_of(reference: Reference, values: Mapping[str, Tensor], seed: int) -> dict[str, Tensor | None]:
    """Return all results and gradients in float64 on some inputs, for random tangents."""
    call = replace(reference.program.call, values=dict(values))
    forward = run_forward(Program(reference, {}, 0), call, {name: to_float64(value) for name, value in values.items()})
    source = torch.Generator().manual_seed(seed)
    tangents = {name: drawn_like(forward.outputs[name].detach(), source) for name in forward.differentiable}
    return {**{n: v.detach() for n, v in forward.outputs.items()}, **forward.gradients(tangents)}


def reference_with(fault: TaskProgram, right: Reference) -> Reference:
    """Return a program with a fault as a reference; if its backward has it, with the forwards that have run already."""
    reference = Reference(fault, right.most)
    if fault.forward is right.program.forward:
        backward = reference.graphs("wide").backward
        reference.runs = [replace(run, backward=backward, gradients=[]) for run in right.runs]
    return reference


def change(right: Mapping[str, Tensor | None], other: Mapping[str, Tensor | None]) -> float:
    """Return the largest relative change of a result."""
    most = 0.0
    largest = max(
        (float(value.norm()) for value in right.values() if value is not None and is_inexact(value)), default=0
    )
    for name, value in right.items():
        now = other[name]
        value, now = (zeros_if_none(tensor, value, now) for tensor in (value, now))
        if value is None or now is None or not is_inexact(value) or value.shape != now.shape:
            continue
        size = max(float(value.norm()), 1e-3 * largest, 1e-300)
        difference = float((value - now).norm()) / size
        most = max(most, difference if difference == difference else 1.0)
    return most


def zeros_if_none(tensor: Tensor | None, *others: Tensor | None) -> Tensor | None:
    known = next((other for other in others if other is not None), None)
    return torch.zeros_like(known) if tensor is None and known is not None else tensor


def chosen_faults(read: ReadTask, wanted: int, source: random.Random) -> tuple[list[tuple[str, TaskProgram]], int, int]:
    """Return faults that change a result, how many change nothing, and how many do not run."""
    program = read.program
    every = [
        *(("forward", kind, make) for kind, make in faults_of(program.forward, source)),
        *(("backward", kind, make) for kind, make in faults_of(program.backward, source)),
    ]
    reference = Reference(program, MOST_REMEMBERED)
    draws = [captured_values(program), fresh_values(program, 77)]
    right = [results_of(reference, values, number) for number, values in enumerate(draws)]
    kinds = [getattr(torch, port.dtype) for port in read.task.inputs if port.differentiable]
    least = max(CHANGED.get(kind, USUAL) for kind in kinds)
    faults, same, raised = [], 0, 0
    for side, kind, make in source.sample(every, min(MOST_TRIED * wanted, len(every))):
        moved = 0.0
        try:
            faulty = replace(program, **{side: make()})
            other = reference_with(faulty, reference)
            for number, (before, values) in enumerate(zip(right, draws, strict=True)):
                moved = max(moved, change(before, results_of(other, values, number)))
                if moved > least:
                    break
        except (BackprintError, RuntimeError, ValueError, IndexError, NotImplementedError, TypeError):
            raised += 1
            continue
        if moved <= least:
            same += 1
            continue
        faults.append((f"{side}: {kind} (moves by {moved:.1e})", faulty))
        if len(faults) == wanted:
            break
    return faults, same, raised


# ---- One part


def row_of_task(row: Row, place: Path, wanted: int) -> Row:
    """Return the row of a task: its folder is read, and judged with the reference and with faults."""
    start = time.perf_counter() - row.seconds
    read = read_task(place)
    text = (place / "reference.py").read_text()
    report = judge(read, solution_of_text(text), "reference.py", timed=False, limit=120.0)
    row = replace(row, word="right", detail="", comparisons=len(report.rows))
    if not report.right:
        return replace(row, word="wrong", detail=report.reason, seconds=time.perf_counter() - start)
    faults, same, raised = chosen_faults(read, wanted, random.Random(row.hash))
    missed, caught = [], 0
    for first in range(0, len(faults), TOGETHER):
        solutions = []
        for kind, faulty in faults[first : first + TOGETHER]:
            changed = reference_text(read.task, faulty.forward, faulty.backward, faulty.wanted)
            solutions.append((kind, solution_of_text(changed)))
        for verdict in judge_together(read, solutions, first=True, limit=120.0):
            caught += not verdict.right
            if verdict.right:
                missed.append(verdict.solution)
    seconds = time.perf_counter() - start
    return replace(
        row, faults=len(faults), caught=caught, same=same, raised=raised, seconds=seconds, missed=tuple(missed)
    )


# ---- Programs


def in_a_process(seconds: float, function: Callable[..., None], *arguments: Any) -> str:
    """Run a function in a process of its own, which begins without the memory of those before it; return how it ended,
    '' if as it should."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join(seconds)
    is_slow = process.is_alive()
    process.kill()
    process.join()
    return "timeout" if is_slow else f"its process ended with {process.exitcode}" if process.exitcode else ""


def rows_of_program(name: str, make: Make, options: argparse.Namespace, known: set[str]) -> Iterator[Row]:
    """Yield a row for each different part of a program."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        ended = in_a_process(options.limit, write_tasks, name, make, options, known, folder)
        if ended:
            yield Row(name, "", "", "timeout" if ended == "timeout" else "refused", f"its capture or tasks: {ended}")
        for row in read_rows(folder / ROWS):
            if row.word != "made":
                yield row
                continue
            known.add(row.hash)
            ended = in_a_process(options.limit, judge_task, row, folder / row.detail, options.faults)
            judged = read_rows(folder / row.detail / ROWS)
            yield (
                judged[0] if judged else replace(row, word="timeout" if ended == "timeout" else "refused", detail=ended)
            )
    yield Row(name, "", "", "done")


def judge_task(row: Row, place: Path, wanted: int) -> None:
    """Write the row of a task into its folder."""
    try:
        judged = row_of_task(row, place, wanted)
    except BackprintError as error:
        judged = replace(row, word="refused", detail=f"{error}"[:300])
    append(place / ROWS, judged)


ROWS = "rows.jsonl"


def write_tasks(name: str, make: Make, options: argparse.Namespace, known: set[str], folder: Path) -> None:
    """Capture a program, cut it, and write its tasks into a folder, with a row for each in a file."""
    torch.manual_seed(0)
    try:
        capture = make()
        parts = [] if capture is None else list(parts_of(capture, options.by))
    except Exception as error:  # what a program raises is an outcome
        append(folder / ROWS, Row(name, "", "", "refused", f"{type(error).__name__}: {error}"[:300]))
        return
    random.Random(name).shuffle(parts)
    if options.smallest:
        parts.sort(key=lambda part: elements_of(part[1]))
    count = 0
    for label, part, why, occurs in parts:
        if count >= options.parts:
            break
        start = time.perf_counter()
        try:
            if why:
                raise BackprintError(why)
            if len(part.pairs[0].forward.steps) < options.least:
                continue
            key = hash_of_program(program_of(part))
            if key in known:
                continue
            known.add(key)
            place = f"task{count}"
            write_task(part, folder / place, valid_task_name(f"{name} {label}"))
        except BackprintError as error:
            append(folder / ROWS, Row(name, label, "", "refused", f"{error}"[:300]))
            continue
        steps = sum(len(graph.steps) for pair in part.pairs for graph in (pair.forward, pair.backward) if graph)
        seconds = time.perf_counter() - start
        append(folder / ROWS, Row(name, label, key, "made", place, steps=steps, occurs=occurs, seconds=seconds))
        count += 1


def elements_of(part: Capture) -> int:
    """Return how many elements the inputs and the results of all steps have."""
    graphs = [graph for pair in part.pairs for graph in (pair.forward, pair.backward) if graph is not None]
    specs = [item.spec for graph in graphs for item in (*graph.inputs, *graph.steps)]
    return sum(spec.numel for spec in specs if isinstance(spec, TensorSpec))


def append(place: Path, row: Row) -> None:
    """Append a row to a file."""
    with place.open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")


# ---- All of it


def summary(rows: Sequence[Row]) -> str:
    """Return the counts."""
    tasks = [row for row in rows if row.word in ("right", "wrong")]
    right = [row for row in tasks if row.word == "right"]
    faults, caught = sum(row.faults for row in right), sum(row.caught for row in right)
    many = [row for row in right if row.faults >= 20]
    words = {word: sum(row.word == word for row in rows) for word in ("refused", "timeout")}
    return (
        f"{len(tasks)} tasks of {len({row.program for row in tasks})} programs: the reference passes {len(right)}; "
        f"{faults} planted faults that change a result, caught {caught} ({caught / max(faults, 1):.2%}); "
        f"20 or more faults in {len(many)} tasks; {sum(row.same for row in right)} changes that change nothing, "
        f"{sum(row.raised for row in right)} that do not run; parts refused {words['refused']}, "
        f"too slow {words['timeout']}; {sum(row.seconds for row in rows):.0f} s"
    )


def read_rows(place: Path | None) -> list[Row]:
    """Return the rows of earlier runs."""
    if place is None or not place.exists():
        return []
    rows = [json.loads(line) for line in place.read_text().splitlines()]
    return [Row(**{**row, "missed": tuple(row["missed"])}) for row in rows]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("architectures", "graphnet"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--by", default="module")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--parts", type=int, default=1000, help="The most tasks of a program.")
    parser.add_argument("--smallest", action="store_true", help="Parts with the fewest elements first.")
    parser.add_argument("--least", type=int, default=2, help="The least operators of a forward.")
    parser.add_argument("--limit", type=int, default=300, help="Seconds of a task, and of a program's capture.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--programs", type=int, default=10_000, help="The most programs that are run now.")
    parser.add_argument("--only", nargs="*", help="Programs, by name.")
    options = parser.parse_args()
    rows = read_rows(options.json)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    done, known = {row.program for row in rows if row.word in ("done",)}, {row.hash for row in rows}
    programs = architectures() if options.source == "architectures" else graphnet(options.folder)
    count = 0
    for name, make in programs:
        if count >= options.programs:
            break
        if name in done or (options.only and name not in options.only):
            continue
        count += 1
        for row in rows_of_program(name, make, options, known):
            rows.append(row)
            if options.json is not None:
                append(options.json, row)
            if row.word != "done":
                missed = f"; missed {', '.join(row.missed)}" if row.missed else ""
                print(
                    f"{row.program} {row.part}: {row.word} {row.detail} {row.caught}/{row.faults} faults, "
                    f"{row.seconds:.1f} s{missed}",
                    flush=True,
                )
    print(summary(rows))
    right = [row for row in rows if row.word == "right"]
    tasks = len(right) + sum(row.word == "wrong" for row in rows)
    faults = sum(row.faults for row in right)
    figures = [
        Figure(f"references that pass, of {tasks:,} tasks", len(right), at_least=tasks),
        Figure(f"planted faults caught, of {faults:,}", sum(row.caught for row in right), at_least=faults),
    ]
    return keep(f"tasks_{options.source}", figures)


if __name__ == "__main__":
    sys.exit(main())

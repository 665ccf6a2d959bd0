"""Tasks from architectures and GraphNet samples: whether the reference passes, and planted faults fail.

    pip install '.[models]'                                architectures need it
    python benchmarks/tasks.py architectures               parts of the transformers models of `architectures.py`
    python benchmarks/tasks.py graphnet FOLDER             parts of GraphNet samples: folders with `model.py`
    python benchmarks/tasks.py summary --json FILE         the counts of a file

Each program is captured and cut (`--by`), each different part becomes a task in a folder, which is read again. Its
`reference.py` is judged as a solution. Then faults are planted in the text of `reference.py`, at least 20 a task: one
change of the forward or the backward, which is another operand of the same type, a constant times 1.5, 1.1, 1.01 or
1.001, the result of a step times 0.5, 1.01 or -1, a dropped addend, or two results swapped. A fault counts if it moves
a result or a gradient, on inputs of the recipes or drawn anew, by more than CHANGED of its norm. With `--json FILE`
each row is appended to a file, and what is in the file is not run again, so that a run may be continued.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import backprint as bp
from backprint.derivatives.called import Program, run_forward
from backprint.derivatives.setting import drawn_like, is_inexact, wide
from backprint.errors import BackprintError
from backprint.graph.nouns import Capture, Graph, Ref, Step, TensorSpec
from backprint.tasks.folder import ReadTask, read_task
from backprint.tasks.judge import judge
from backprint.tasks.program import Reference, TaskProgram, captured_values, fresh_values, program_of
from backprint.tasks.sets import parts_of
from backprint.tasks.solver import solution_of_text
from backprint.tasks.text import reference_text
from backprint.tasks.writing import hash_of_program, named, write_task

sys.path.insert(0, str(Path(__file__).parent))

Make = Callable[[], Capture | None]

FACTORS = (1.5, 1.1, 1.01, 1.001)

CHANGED = {torch.float16: 3e-2, torch.bfloat16: 0.2}
"""How far, relative to its norm, a fault moves a result at least; other dtypes have USUAL."""

USUAL = 2e-4

SCALES = (0.5, 1.01, -1.0)
"""What the result of a step is multiplied by."""

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
    specs: dict[str, Any] = {port.local: port.spec for port in graph.inputs}
    specs |= {step.name: step.spec for step in graph.steps}
    known: dict[Any, list[str]] = {}
    for port in graph.inputs:
        known.setdefault(type_of(port.spec), []).append(port.local)
    for index, step in enumerate(graph.steps):
        if step.is_guard:
            continue

        def changed(other: Step, index: int = index) -> Graph:
            return replace(graph, steps=(*graph.steps[:index], other, *graph.steps[index + 1 :]))

        for place, value in enumerate(step.args):
            before, after = step.args[:place], step.args[place + 1 :]
            if type(value) is float and value:
                for factor in FACTORS:
                    other = replace(step, args=(*before, value * factor, *after))
                    yield f"constant x{factor} of {step.name}", partial(changed, other)
            if type(value) is Ref:
                alike = [name for name in known.get(type_of(specs[value.name]), ()) if name != value.name]
                for name in source.sample(alike, min(3, len(alike))):
                    other = replace(step, args=(*before, Ref(name), *after))
                    yield f"another operand of {step.name}", partial(changed, other)
        first, second = (*step.args, None, None)[:2]
        if step.target == "aten.add.Tensor" and type(first) is Ref and type(second) is Ref:
            for kept in (first, second):
                if type_of(specs[kept.name]) == type_of(step.spec):
                    alias = replace(step, target="aten.alias.default", args=(kept,), kwargs=())
                    yield f"dropped addend of {step.name}", partial(changed, alias)
        if isinstance(step.spec, TensorSpec) and step.spec.dtype.startswith(("float", "bfloat")):
            for factor in SCALES:
                yield f"{step.name} x{factor}", partial(scaled, graph, index, factor)
        known.setdefault(type_of(step.spec), []).append(step.name)
    for late, result in enumerate(graph.results):
        for early in range(late):
            other_result, ports = graph.results[early], (graph.outputs[early], graph.outputs[late])
            alike_ports = type_of(ports[0].spec) == type_of(ports[1].spec)
            if type(result) is Ref and type(other_result) is Ref and result != other_result and alike_ports:
                results = list(graph.results)
                results[early], results[late] = result, other_result
                yield f"swapped {ports[0].name} and {ports[1].name}", partial(replace, graph, results=tuple(results))


def scaled(graph: Graph, index: int, factor: float) -> Graph:
    """Return a graph in which the result of a step is multiplied."""
    step = graph.steps[index]
    inner = replace(step, name=f"{step.name}_before")
    outer = replace(step, target="aten.mul.Tensor", args=(Ref(inner.name), factor), kwargs=())
    return replace(graph, steps=(*graph.steps[:index], inner, outer, *graph.steps[index + 1 :]))


def type_of(spec: Any) -> Any:
    """Return the shape and the dtype of a tensor; what equals nothing else for another value."""
    return (spec.shape, spec.dtype) if isinstance(spec, TensorSpec) else object()


def results_of(program: TaskProgram, values: Mapping[str, Tensor], seed: int) -> dict[str, Tensor | None]:
    """Return all results and gradients in float64 on some inputs, for random tangents."""
    call = replace(program.call, values=dict(values))
    forward = run_forward(
        Program(Reference(program), {}, 0), call, {name: wide(value) for name, value in values.items()}
    )
    source = torch.Generator().manual_seed(seed)
    tangents = {name: drawn_like(forward.outputs[name].detach(), source) for name in forward.differentiable}
    return {**{n: v.detach() for n, v in forward.outputs.items()}, **forward.gradients(tangents)}


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
    draws = [captured_values(program), fresh_values(program, 77)]
    right = [results_of(program, values, number) for number, values in enumerate(draws)]
    kinds = [getattr(torch, port.dtype) for port in read.task.inputs if port.differentiable]
    least = max(CHANGED.get(kind, USUAL) for kind in kinds)
    faults, same, raised = [], 0, 0
    for side, kind, make in source.sample(every, min(MOST_TRIED * wanted, len(every))):
        try:
            faulty = replace(program, **{side: make()})
            moved = max(
                change(before, results_of(faulty, values, number))
                for number, (before, values) in enumerate(zip(right, draws, strict=True))
            )
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


def row_of_part(program: str, label: str, part: Capture, count: int, wanted: int, folder: Path) -> Row:
    """Return the row of a part: its task is written, read, and judged with the reference and with faults."""
    start = time.perf_counter()
    steps = sum(len(graph.steps) for pair in part.pairs for graph in (pair.forward, pair.backward) if graph)
    key = hash_of_program(program_of(part))
    place = folder / "task"
    write_task(part, place, named(f"{program} {label}"), overwrite=True)
    read = read_task(place)
    text = (place / "reference.py").read_text()
    options: dict[str, Any] = dict(timed=False, timeout=120.0)
    report = judge(read, solution_of_text(text), "reference.py", **options)
    row = Row(program, label, key, "right", steps=steps, occurs=count, comparisons=len(report.rows))
    if not report.right:
        return replace(row, word="wrong", detail=report.reason, seconds=time.perf_counter() - start)
    faults, same, raised = chosen_faults(read, wanted, random.Random(key))
    missed, caught = [], 0
    for kind, faulty in faults:
        changed = reference_text(read.task, faulty.forward, faulty.backward, faulty.wanted)
        verdict = judge(read, solution_of_text(changed), kind, first=True, **options)
        caught += not verdict.right
        if verdict.right:
            missed.append(kind)
    seconds = time.perf_counter() - start
    return replace(
        row, faults=len(faults), caught=caught, same=same, raised=raised, seconds=seconds, missed=tuple(missed)
    )


# ---- Programs


def architectures() -> Iterator[tuple[str, Make]]:
    """Yield the transformers models of `architectures.py`."""
    from architectures import EVERY, loss_of, make, seed_all

    def captured(architecture: Any) -> Capture:
        seed_all(0)
        model, inputs = make(architecture)
        seed_all(0)
        return bp.capture(model, args=(), kwargs=inputs, loss=loss_of, specialize=True)

    for architecture in EVERY:
        yield architecture.name, partial(captured, architecture)


def graphnet(folder: Path) -> Iterator[tuple[str, Make]]:
    """Yield the samples of GraphNet in a folder, short programs first."""
    for model in sorted(folder.rglob("model.py"), key=lambda path: (path.stat().st_size, path)):
        yield str(model.parent.relative_to(folder)), partial(bp.capture, str(model.parent))


class TimeIsOver(Exception):
    """A part took too long."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TimeIsOver in the block after so many seconds."""

    def end(*_: object) -> None:
        raise TimeIsOver

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def rows_of_program(name: str, make: Make, options: argparse.Namespace, known: set[str]) -> Iterator[Row]:
    """Yield a row for each different part of a program."""
    torch.manual_seed(0)
    try:
        with time_limit(options.limit):
            capture = make()
            parts = [] if capture is None else list(parts_of(capture, options.by))
    except TimeIsOver:
        yield Row(name, "", "", "timeout", "its capture")
        return
    except Exception as error:  # what a program raises is an outcome
        yield Row(name, "", "", "refused", f"{type(error).__name__}: {error}"[:300])
        return
    random.Random(name).shuffle(parts)
    count = 0
    for label, part, why, occurs in parts:
        if count >= options.parts:
            break
        try:
            if why:
                raise BackprintError(why)
            if len(part.pairs[0].forward.steps) < 2:
                continue
            key = hash_of_program(program_of(part))
            if key in known:
                continue
            known.add(key)
            with time_limit(options.limit), tempfile.TemporaryDirectory() as folder:
                yield row_of_part(name, label, part, occurs, options.faults, Path(folder))
            count += 1
        except TimeIsOver:
            yield Row(name, label, "", "timeout")
        except BackprintError as error:
            yield Row(name, label, "", "refused", f"{error}"[:300])
    yield Row(name, "", "", "done")


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
    parser.add_argument("source", choices=("architectures", "graphnet", "summary"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--by", default="module")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--parts", type=int, default=1000, help="The most tasks of a program.")
    parser.add_argument("--limit", type=int, default=300, help="Seconds of a part, and of a capture.")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = read_rows(options.json)
    if options.source != "summary":
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        torch.set_num_threads(1)
        done, known = {row.program for row in rows if row.word in ("done",)}, {row.hash for row in rows}
        programs = architectures() if options.source == "architectures" else graphnet(options.folder)
        for name, make in programs:
            if name in done:
                continue
            for row in rows_of_program(name, make, options, known):
                rows.append(row)
                if options.json is not None:
                    with options.json.open("a") as file:
                        file.write(json.dumps(asdict(row)) + "\n")
                if row.word != "done":
                    missed = f"; missed {', '.join(row.missed)}" if row.missed else ""
                    print(
                        f"{row.program} {row.part}: {row.word} {row.detail} {row.caught}/{row.faults} faults, "
                        f"{row.seconds:.1f} s{missed}",
                        flush=True,
                    )
    print(summary(rows))
    return int(any(row.word == "wrong" for row in rows))


if __name__ == "__main__":
    sys.exit(main())

"""Try one compiler on one sample, in this process: compile each graph, judge its results, time it; a cell for each.

The order is that of trust. Eager runs twice before the compiler is loaded, so what it cannot repeat is not blamed on
the compiler. Results are judged before the timing, and during it. A cell is given away as soon as it is known, because
the next graph may end the process.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backprint.bench.cells import NOT_JUDGED, STOPPED, UNTIMED, BenchCell
from backprint.bench.compilers import Compiler, compile_timed
from backprint.bench.honest import check_honest, time_graph
from backprint.bench.judging import eager_of, judged_outputs, outcome_of_outputs
from backprint.bench.subjects import BenchGraph, BenchStep, bench_graphs, bench_steps
from backprint.bench.turns import Turns
from backprint.corpus import processes
from backprint.corpus.clock import stage
from backprint.corpus.task import one_line
from backprint.graph.nouns import Capture
from backprint.sample.judged import Eager, first_line
from backprint.sample.rerun import copies

AnyGraph = BenchGraph | BenchStep


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What a trial does with each graph: with which compiler, in which directions, and whether it times."""

    compiler: Compiler
    directions: tuple[str, ...]
    timed: bool
    seconds: float
    caches: Path


def titles(capture: Capture, directions: Sequence[str]) -> list[str]:
    """Return the titles of the graphs that a trial tries, in its order."""
    found = []
    for index, pair in enumerate(capture.pairs):
        found += [f"pair_{index} forward", *([f"pair_{index} backward"] if pair.backward is not None else [])]
    found += [f"{title.partition(' ')[0]} step" for title in found if title.endswith("backward")]
    return [title for title in found if title.partition(" ")[2] in directions]


def tried(
    capture: Capture, plan: TrialPlan, known: Mapping[str, str], turns: Turns, begun: Callable[[str], None]
) -> Iterator[BenchCell]:
    """Yield a cell for each graph that has no outcome in `known` (title -> outcome) yet; `begun` is called with the
    title of each before the compiler is."""
    with stage("eager"):
        graphs = bench_graphs(capture)
    trial = Trial(plan, turns, dict(known))
    subjects: list[AnyGraph] = [*graphs, *bench_steps(graphs)]
    for graph in subjects:
        if graph.title not in known and graph.direction in plan.directions:
            begun(graph.title)
            yield trial.cell(graph)


@dataclass(slots=True)
class Trial:
    """A compiler at work on the graphs of a sample: what it has compiled, and how each graph ended."""

    plan: TrialPlan
    turns: Turns
    outcomes: dict[str, str]
    compiled: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def cell(self, graph: AnyGraph) -> BenchCell:
        """Return the cell of one graph: what is known when a stage ends it, or when all have passed."""
        began = time.monotonic()
        eager = eager_of(graph, lambda *values: self.compiled[graph.title](*values))
        cell = BenchCell("", graph.title, graph.direction, self.plan.compiler.name, "", steps=graph.steps)
        for part in (self.before, self.compile, self.judge, self.compile_again, self.time):
            with self.named(graph, part.__name__):
                cell = part(graph, eager, cell)
            if cell.outcome:
                break
        self.outcomes[graph.title] = cell.outcome
        gc.collect()
        return replace(cell, seconds=time.monotonic() - began, peak_bytes=processes.status("VmHWM"))

    def named(self, graph: AnyGraph, part: str) -> AbstractContextManager[None]:
        """Show which part of which graph is at work."""
        return stage(f"{graph.title}: {part.replace('_', ' ')}")

    def before(self, graph: AnyGraph, eager: Eager, cell: BenchCell) -> BenchCell:
        """Run eager a second time, and time it, before the compiler is loaded."""
        _ = eager.again
        return cell

    def compile(self, graph: AnyGraph, eager: Eager, cell: BenchCell) -> BenchCell:
        """Compile with empty caches; a step is made of its forward and its backward."""
        if isinstance(graph, BenchStep):
            return self.join(graph, cell)
        cold, refused = self.compile_as(graph, cold=True)
        return replace(cell, outcome="refused", reason=refused) if refused else replace(cell, cold=cold)

    def compile_as(self, graph: BenchGraph, cold: bool) -> tuple[float | None, str]:
        """Compile a graph for its inputs, unless that was done; return how many seconds that took, and why the compiler
        refused it."""
        inputs = copies(graph.run.inputs)
        try:
            made, seconds = compile_timed(self.plan.compiler, graph.module, inputs, self.plan.caches, cold)
        except Exception as error:
            return None, reason_of(error)
        self.compiled.setdefault(graph.title, made)  # what is timed is what was judged
        return seconds, ""

    def join(self, graph: BenchStep, cell: BenchCell) -> BenchCell:
        """Join the compiled forward and backward of a step."""
        for part in (graph.forward, graph.backward):
            ended = self.outcomes.get(part.title, "")
            if ended in (*STOPPED, *NOT_JUDGED):
                return replace(cell, outcome="skipped", reason=f"{part.title}: {ended}")
            if part.title not in self.compiled:
                _, refused = self.compile_as(part, cold=False)
                if refused:
                    return replace(cell, outcome="skipped", reason=f"{part.title}: {refused}")
        forward, backward = (self.compiled[part.title] for part in (graph.forward, graph.backward))
        self.compiled[graph.title] = graph.joined(forward, backward)
        return cell

    def judge(self, graph: AnyGraph, eager: Eager, cell: BenchCell) -> BenchCell:
        """Compare each output with eager's and float64's, on these inputs and on moved ones."""
        try:
            results = graph.run.again(self.compiled[graph.title])
        except Exception as error:
            return replace(cell, outcome="failed", reason=reason_of(error))
        if not isinstance(results, (tuple, list)) or len(results) != len(graph.run.outputs):
            count = len(results) if isinstance(results, (tuple, list)) else type(results).__name__
            return replace(cell, outcome="wrong", reason=f"{count} results where eager gives {len(graph.run.outputs)}")
        outputs = judged_outputs(eager, results)
        outcome, reason = outcome_of_outputs(outputs)
        if not outcome:
            moves, fault = check_honest(graph, self.compiled[graph.title], eager)
            outputs = tuple(replace(output, power=power) for output, power in zip(outputs, moves, strict=True))
            outcome, reason = ("wrong", fault) if fault else ("", "")
        return replace(cell, outputs=outputs, outcome=outcome, reason=one_line(reason))

    def compile_again(self, graph: AnyGraph, eager: Eager, cell: BenchCell) -> BenchCell:
        """Compile with the caches that the first time has filled."""
        if isinstance(graph, BenchStep) or not self.plan.timed:
            return cell
        warm, refused = self.compile_as(graph, cold=False)
        note = (f"refused when compiled again: {refused}",) if refused else ()
        return replace(cell, warm=warm, notes=(*cell.notes, *note))

    def time(self, graph: AnyGraph, eager: Eager, cell: BenchCell) -> BenchCell:
        """Time it beside eager, alone on the machine."""
        if not self.plan.timed:
            return replace(cell, outcome=UNTIMED, reason="times were not asked for")
        with self.turns.alone():
            timing, fault = time_graph(graph, self.compiled[graph.title], eager, self.plan.seconds)
        if fault:
            return replace(cell, outcome="wrong", reason=fault)
        return replace(cell, outcome=timing.answer, timing=timing)


def reason_of(error: BaseException) -> str:
    """Return an error as one line, that of the compiler's own where torch.compile wraps it."""
    inner = getattr(error, "inner_exception", error)
    return one_line(f"{type(inner).__name__}: {first_line(inner)}")

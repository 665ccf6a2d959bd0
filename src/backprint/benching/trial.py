"""Try one compiler on one sample, in this process: compile each graph, judge its results, time it; a cell for each.

The order is that of trust. Eager runs twice before the compiler is loaded, so what it cannot repeat is not blamed on
the compiler. Results are judged before the timing, and during it. A cell is given away as soon as it is known, because
the next graph may end the process.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from backprint.benching.baseline import EagerBaseline, eager_baseline
from backprint.benching.cells import NOT_JUDGED, STOPPED, UNTIMED, BenchCell
from backprint.benching.compilers.table import Compiler
from backprint.benching.compilers.timed import compile_timed
from backprint.benching.findings import CheatFound, TimingWithheld
from backprint.benching.gpu import on_gpu, with_device_bytes
from backprint.benching.honest import Agree, agreement, check_honest
from backprint.benching.judging import judged_outputs, notes_of_outputs, outcome_of_outputs
from backprint.benching.moved import moved_graphs
from backprint.benching.roofline import least_step_work, least_work
from backprint.benching.subjects import BenchGraph, BenchStep, bench_graphs, bench_steps
from backprint.benching.timing import honest_and_timed
from backprint.benching.turns import Turns
from backprint.corpus import processes
from backprint.corpus.clock import stage
from backprint.corpus.task import one_line
from backprint.graph.nouns import Capture
from backprint.sample.judged import Eager, first_line
from backprint.sample.rerun import EagerRun, copies

AnyGraph = BenchGraph | BenchStep

Begun = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What a trial does with each graph: with which compiler, in which directions, and whether it times."""

    compiler: Compiler
    directions: tuple[str, ...]
    timed: bool
    caches: Path
    """Where compilers keep what they made, below a name of each graph's own."""


def titles(capture: Capture, directions: Sequence[str]) -> list[str]:
    """Return the titles of the graphs that a trial tries, in its order."""
    found = []
    for index, pair in enumerate(capture.pairs):
        found += [f"pair_{index} forward", *([f"pair_{index} backward"] if pair.backward is not None else [])]
    found += [f"{title.partition(' ')[0]} step" for title in found if title.endswith("backward")]
    return [title for title in found if title.partition(" ")[2] in directions]


def tried(
    capture: Capture, plan: TrialPlan, known: Mapping[str, str], turns: Turns, begun: Begun
) -> Iterator[BenchCell]:
    """Yield a cell for each graph that has no outcome in `known` (title -> outcome) yet; `begun` is called with the
    title of each and the part of the trial that begins."""
    with stage("eager"):
        graphs = bench_graphs(capture)
        moved = [with_steps(each) for each in moved_graphs(capture, graphs)]
    trial = CompilerTrial(plan, turns, begun, dict(known))
    left = {
        title: graph
        for title, graph in with_steps(graphs).items()
        if title not in known and graph.direction in plan.directions
    }
    at_work = [trial.run_eager(graph, [each[title].run for each in moved]) for title, graph in left.items()]
    yield from map(trial.cell, at_work)


def with_steps(graphs: Sequence[BenchGraph]) -> dict[str, AnyGraph]:
    """Return title -> graph, the steps last."""
    found: list[AnyGraph] = [*graphs, *bench_steps(graphs)]
    return {graph.title: graph for graph in found}


@dataclass(frozen=True, slots=True)
class GraphAtWork:
    """A graph, its runs on other inputs, the eager runs that judge it, and eager's time before any compiler was
    loaded."""

    graph: AnyGraph
    others: Sequence[EagerRun]
    eager: Eager
    baseline: EagerBaseline | None


@dataclass(slots=True)
class CompilerTrial:
    """A compiler at work on the graphs of a sample: what it has compiled, and how each graph ended."""

    plan: TrialPlan
    turns: Turns
    begun: Begun
    outcomes: dict[str, str]
    compiled: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def run_eager(self, graph: AnyGraph, others: Sequence[EagerRun]) -> GraphAtWork:
        """Run eager a second time, and time it, before the compiler is loaded."""
        eager = Eager(graph.run, lambda *values: self.compiled[graph.title](*values))
        with stage(f"{graph.title}: eager"):
            _ = eager.again
            if not self.plan.timed:
                return GraphAtWork(graph, others, eager, None)
            with self.turns.alone():
                return GraphAtWork(graph, others, eager, eager_baseline(graph.run, called_eager(graph)))

    def cell(self, work: GraphAtWork) -> BenchCell:
        """Return the cell of one graph: what is known when a part ends it, or when all have passed."""
        began, graph = time.monotonic(), work.graph
        cell = blank_cell(graph, self.plan.compiler.name)
        for name, part in PARTS.items():
            self.begun(graph.title, name)
            with stage(f"{graph.title}: {name}"):
                cell = part(self, work, cell)
            if cell.outcome:
                break
        self.outcomes[graph.title] = cell.outcome
        gc.collect()
        return replace(cell, seconds=time.monotonic() - began, peak_bytes=processes.status("VmHWM"))

    def compile(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compile with empty caches; a step is made of its forward and its backward."""
        if isinstance(work.graph, BenchStep):
            return self.join(work.graph, cell)
        cold, refused = self.compile_as(work.graph, cold=True)
        return replace(cell, outcome="refused", reason=refused) if refused else replace(cell, cold=cold)

    def compile_as(self, graph: BenchGraph, cold: bool) -> tuple[float | None, str]:
        """Compile a graph for its inputs, unless that was done; return how many seconds that took, and why the compiler
        refused it."""
        inputs = copies(graph.run.inputs)
        caches = self.plan.caches.with_name(f"{self.plan.caches.name}_{graph.title.replace(' ', '_')}")
        try:
            made, seconds = compile_timed(self.plan.compiler, graph.module, inputs, caches, cold)
        except (Exception, SystemExit) as error:
            return None, reason_of(error)
        self.compiled.setdefault(graph.title, made)  # what is timed is what was judged
        return seconds, ""

    def join(self, graph: BenchStep, cell: BenchCell) -> BenchCell:
        """Join the compiled forward and backward of a step."""
        for part in (graph.forward, graph.backward):
            ended = self.outcomes.get(part.title, "")
            if ended in (*STOPPED, *NOT_JUDGED, "wrong"):
                outcome = "wrong" if ended == "wrong" else "skipped"
                return replace(cell, outcome=outcome, reason=f"{part.title}: {ended}")
            if part.title not in self.compiled:
                _, refused = self.compile_as(part, cold=False)
                if refused:
                    return replace(cell, outcome="skipped", reason=f"{part.title}: {refused}")
        forward, backward = (self.compiled[part.title] for part in (graph.forward, graph.backward))
        self.compiled[graph.title] = graph.joined(forward, backward)
        return cell

    def judge(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compare each output with eager's and float64's."""
        run, compiled = work.graph.run, self.compiled[work.graph.title]
        try:
            results, taken = with_device_bytes(partial(run.again, compiled), on_gpu(run.inputs))
        except (Exception, SystemExit) as error:
            return replace(cell, outcome="failed", reason=reason_of(error))
        if not isinstance(results, (tuple, list)) or len(results) != len(run.outputs):
            given = f"{len(results)} results" if isinstance(results, (tuple, list)) else f"a {type(results).__name__}"
            wanted = f"a tuple of {len(run.outputs)} results"
            return replace(cell, outcome="wrong", reason=f"{given} where eager gives {wanted}")
        cell, outputs = replace(cell, device_bytes=taken), judged_outputs(self.eager_to_judge_by(work), results)
        outcome, reason = outcome_of_outputs(outputs)
        notes = () if outcome else notes_of_outputs(outputs)
        return replace(cell, outputs=outputs, outcome=outcome, reason=one_line(reason), notes=(*cell.notes, *notes))

    def eager_to_judge_by(self, work: GraphAtWork) -> Eager:
        """Return the eager runs of a graph; of a step, those of its backward after the compiled forward."""
        graph, compiled = work.graph, self.compiled[work.graph.title]
        if not isinstance(graph, BenchStep):
            return work.eager
        return Eager(graph.after(self.compiled[graph.forward.title], graph.run), compiled)

    def agreement(self, graph: AnyGraph) -> Agree:
        """Return the comparison of results with those of an eager run on the same inputs."""
        agree = agreement(self.compiled[graph.title])
        if not isinstance(graph, BenchStep):
            return agree
        return lambda run, results: agree(graph.after(self.compiled[graph.forward.title], run), results)

    def compile_again(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compile with the caches that the first time has filled."""
        if isinstance(work.graph, BenchStep) or not self.plan.timed:
            return cell
        warm, refused = self.compile_as(work.graph, cold=False)
        note = (f"refused when compiled again: {refused}",) if refused else ()
        return replace(cell, warm=warm, notes=(*cell.notes, *note))

    def time(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
        """Call it on other inputs, and time it beside eager, alone on the machine."""
        compiled, agree = self.compiled[work.graph.title], self.agreement(work.graph)
        try:
            if work.baseline is None:
                honest, timing = check_honest(work.graph.run, work.others, compiled, agree), None
            else:
                with self.turns.alone():
                    honest, timing = honest_and_timed(work.others, compiled, work.baseline, agree=agree)
        except CheatFound as error:
            return replace(cell, outcome="wrong", reason=one_line(str(error)))
        except TimingWithheld as error:
            return replace(cell, outcome=UNTIMED, reason=one_line(str(error)))
        except (Exception, SystemExit) as error:
            return replace(cell, outcome="failed", reason=f"on other inputs: {reason_of(error)}")
        outputs = tuple(replace(each, power=moved) for each, moved in zip(cell.outputs, honest.moved, strict=True))
        cell = replace(cell, outputs=outputs, notes=(*cell.notes, *honest.notes), timing=timing)
        if timing is None:
            return replace(cell, outcome=UNTIMED, reason="times were not asked for")
        return replace(cell, outcome=timing.answer)


PARTS: Mapping[str, Callable[[CompilerTrial, GraphAtWork, BenchCell], BenchCell]] = {
    "compile": CompilerTrial.compile,
    "judge": CompilerTrial.judge,
    "compile again": CompilerTrial.compile_again,
    "time": CompilerTrial.time,
}
"""The parts of a trial, in order: each adds to the cell, and one that sets the outcome is the last."""

FIRST_PART = next(iter(PARTS))


def called_eager(graph: AnyGraph) -> Callable[..., Any]:
    """Return eager as it is timed: the module that the compiler is given, without the hooks of a module's call."""
    return graph.module if isinstance(graph, BenchStep) else graph.module.forward


def blank_cell(graph: AnyGraph, compiler: str) -> BenchCell:
    """Return the cell of a graph of which nothing is known but its work."""
    forward = graph.forward.graph if isinstance(graph, BenchStep) else graph.graph
    work = least_step_work(forward, graph.backward.graph) if isinstance(graph, BenchStep) else least_work(forward)
    known: dict[str, Any] = dict(flops=work.flops, moved_bytes=work.bytes, flops_by_dtype=work.flops_by_dtype)
    return BenchCell("", graph.title, graph.direction, compiler, "", steps=graph.steps, **known)


def reason_of(error: BaseException) -> str:
    """Return an error as one line, that of the compiler's own where torch.compile wraps it."""
    inner = getattr(error, "inner_exception", error)
    return one_line(f"{type(inner).__name__}: {first_line(inner)}")

"""One compiler on one sample: compile each graph, judge its results, time it; a cell for each.

A compiler may be wrong, and is no cheat. So what it compiled is called twice on the sample's own inputs and twice on
each of three redraws, in the same tensors; inputs are compared after each call, and the results of the first call are
held and compared once more at the end. A forward is called once more for each edge value among its inputs: zeros, NaN
and infinity. Then it is timed. All this happens in a process of its own for each sample and
compiler, beside eager. A cell is yielded as soon as it is known, because the next graph may end the process.
`bench_sample` is the verb that workers run.

- A graph is a `BenchGraph`, a forward or backward with its run in eager, or a `BenchStep`, both of a Pair as one. Its
  title is `pair_0 forward`, `pair_0 backward` or `pair_0 step`; the word after the space is its direction.
- A `BenchCell` is how the compiler did on one graph; its `outcome` is '' until it is known.
- Contents are one set of inputs for a graph; a redraw is such a set of other values.
- A part is a stage of a graph's trial, from the table PARTS. `stage(name)` names what is at work in the ledger.
- `CompilerFailed` is raised for an exception of the compiler or its function, `NoTuple` if that returns no tuple.
- A solution (`solved`) is a forward and a backward of the user's own in the place of a compiler.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from backprint.child import processes
from backprint.child.child import in_child
from backprint.child.ends import ChildEnd
from backprint.child.strangers import CompilerFailed, compiler_errors
from backprint.common.words import BENCH_DIRECTIONS
from backprint.errors import SampleError
from backprint.graph.fx.to_fx import to_fx
from backprint.graph.nouns import Capture, Graph
from backprint.graph.sizes import at_example_sizes, returning_results_alone, unguarded_graph
from backprint.judge import VERSION
from backprint.prove.other_inputs import held_by_guards
from backprint.tools.bench.calls import (
    AnyGraph,
    Call,
    CompiledCalls,
    NoTuple,
    contents_at_edges,
    contents_that_fit,
    inputs_of,
    join_forward_and_backward,
    results_of,
)
from backprint.tools.bench.cells import NOT_JUDGED, RIGHT, STOPPED, UNTIMED, BenchCell, BenchOutput, cell_from_json
from backprint.tools.bench.compilers.table import GRAPH, Compiler, compiler_named
from backprint.tools.bench.compilers.timed import compiled_now
from backprint.tools.bench.differentiated import fault_of_gradients
from backprint.tools.bench.judge import (
    BY_DRAWS,
    GraphJudge,
    PartJudge,
    moving_outputs,
    notes_of_outputs,
    outcome_of_outputs,
    output_of_port,
    parts_of,
    redrawn_graphs,
)
from backprint.tools.bench.resized import has_symbolic_sizes, resized_graphs
from backprint.tools.bench.timing import TimingWithheld, time_pair
from backprint.tools.cost.work import least_step_work, least_work
from backprint.tools.export.judged import text_of_kind
from backprint.tools.export.rerun import EagerRun, copies, rebuilt
from backprint.tools.jobs.task import Task, failure, one_line, stage
from backprint.tools.jobs.turns import GraphClock, Turns, turns_folder
from backprint.tools.lowering.subjects import (
    BenchGraph,
    BenchStep,
    bench_graphs,
    bench_steps,
    current_random_state,
    graph_classes,
    inputs_of_results,
    opened_graph,
)

if TYPE_CHECKING:
    from backprint.tools.bench.cells import BenchDerivative

# ------------------------------------------------------------------ a compiler at work on the graphs of a sample

Begun = Callable[[str, str], None]
"""Called with the title of a graph, and with the part of its trial that begins."""

REDRAWS = 3
"""How often the inputs of all graphs are redrawn."""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """The plan of a trial: the compiler, the directions, and whether graphs are timed."""

    compiler: Compiler
    directions: tuple[str, ...]
    timed: bool
    caches: Path
    """The path below which compilers keep caches; each graph adds a name of its own."""
    derivative: bool = False
    """Whether each step is compiled in float64 too, to see whether its backward is the derivative of its forward."""


def titles(capture: Capture, directions: Sequence[str]) -> list[str]:
    """Return the titles of the graphs that a trial tries, in its order: `pair_0 forward`, `pair_0 backward`, those of
    the other Pairs, and then the steps, `pair_0 step`."""
    titles_of_pairs = []
    for index, pair in enumerate(capture.pairs):
        titles_of_pairs += [f"pair_{index} forward", *([f"pair_{index} backward"] if pair.backward is not None else [])]
    titles_of_pairs += [f"{title.partition(' ')[0]} step" for title in titles_of_pairs if title.endswith("backward")]
    return [title for title in titles_of_pairs if title.partition(" ")[2] in directions]


def try_compiler(
    capture: Capture, plan: TrialPlan, known: Mapping[str, str], turns: Turns, on_begin: Begun
) -> Iterator[BenchCell]:
    """Yield a cell for each graph without an outcome in `known` (title -> outcome), and that of a step once more when
    its derivative is known. `on_begin` is called with a graph's title and the part of the trial that begins; `turns`
    gives this process the machine alone while it measures times."""
    if plan.compiler.takes != GRAPH:
        yield from _try_solution(capture, plan, known, turns, on_begin)
        return
    with stage("eager"):
        graphs = bench_graphs(capture)
        seeds = [int.from_bytes(os.urandom(6), "little") for _ in range(REDRAWS)]
        redrawn = [with_steps(graphs_of_seed) for graphs_of_seed in redrawn_graphs(capture, graphs, seeds)]
        sizes, resized = resized_graphs(capture, seeds[0]) if has_symbolic_sizes(capture) else ("", {})
    trial = _CompilerTrial(
        plan,
        turns,
        on_begin,
        outcomes=dict(known),
        graphs=with_steps(graphs),
        redrawn=redrawn,
        sizes=sizes,
        resized=resized,
        held_by_guards=held_by_guards(capture),
    )
    for title, graph in trial.graphs.items():
        if title in known or graph.direction not in plan.directions:
            continue
        cell = trial.cell(title)
        yield cell
        if plan.derivative and cell.direction == STEP:
            yield replace(cell, derivative=trial.derivative(capture, title))


def _try_solution(
    capture: Capture, plan: TrialPlan, known: Mapping[str, str], turns: Turns, on_begin: Begun
) -> Iterator[BenchCell]:
    """Yield a cell for the forward and for the step of a solution, which is judged once for both; none if `known` has
    the outcomes of all. They are `skipped` for a Capture of several Pairs."""
    from backprint.tools.bench.solved import cells_of_solution

    wanted = titles(capture, directions_of(plan.compiler, plan.directions))
    if not [title for title in wanted if title not in known]:
        return
    if len(capture.pairs) > 1:
        blanks = {title: _blank_cell_of(capture, title, plan.compiler.name) for title in wanted}
        reason = f"a solution is of one Pair, and the sample has {len(capture.pairs)}: `corpus run split` cuts it up"
        yield from (replace(blank, outcome="skipped", reason=reason) for blank in blanks.values())
        return
    on_begin(wanted[0], FIRST_PART)
    blanks = {title.partition(" ")[2]: _blank_cell_of(capture, title, plan.compiler.name) for title in wanted}
    with stage("solution"):
        yield from cells_of_solution(capture, plan.compiler, blanks, plan.timed, plan.derivative, turns)


def directions_of(compiler: Compiler, directions: Sequence[str]) -> tuple[str, ...]:
    """Return those of `directions` that a compiler has cells of: all, but for a solution. Its backward takes what its
    own forward saved, so there is no cell of the backward alone."""
    return tuple(name for name in directions if compiler.takes == GRAPH or name != BACKWARD)


def with_steps(graphs: Sequence[BenchGraph]) -> dict[str, AnyGraph]:
    """Return title -> graph, the steps last."""
    all_graphs: list[AnyGraph] = [*graphs, *bench_steps(graphs)]
    return {graph.title: graph for graph in all_graphs}


@dataclass(slots=True)
class _GraphAtWork:
    """A graph that the compiler is asked for: how it is judged, what it is called on, and what was compiled."""

    graph: AnyGraph
    judge: GraphJudge
    contents: Sequence[Sequence[Any]]
    """The sample's own inputs, and then others."""
    calls: CompiledCalls | None = None
    """The compiled function; None before it is compiled."""
    held: Call | None = None
    """The first call, whose results are looked at once more at the end."""
    first: str = ""
    """Why the results of the call in which the graph was compiled are wrong; '' if they are right."""

    def fault_of_held(self) -> str:
        """Return why the results that are held are wrong now, or an empty text."""
        return "" if self.held is None else self.held.fault_of_memory()


@dataclass(slots=True)
class _CompilerTrial:
    """A compiler at work on the graphs of a sample: what it compiled, and the outcomes. All mappings are from titles
    of graphs."""

    plan: TrialPlan
    turns: Turns
    begun: Begun
    outcomes: dict[str, str]
    graphs: dict[str, AnyGraph]
    redrawn: Sequence[Mapping[str, AnyGraph]]
    """The graphs on redrawn inputs, a mapping for each redraw."""
    sizes: str = ""
    """Other sizes than the captured ones, in words."""
    resized: Mapping[str, BenchGraph] = field(default_factory=dict)
    """The graphs at these sizes."""
    held_by_guards: frozenset[str] = frozenset()
    """The inputs that a guard holds, which get no edge values."""
    judges: dict[str, PartJudge] = field(default_factory=dict)
    compiled: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def cell(self, title: str) -> BenchCell:
        """Run the PARTS on one graph and return its cell; a part that sets the outcome is the last. If the graph is
        right, it is compiled for other sizes too."""
        began, graph = time.monotonic(), self.graphs[title]
        cell = _blank_cell(graph, self.plan.compiler.name)
        work = self.work_on(graph)
        for part, act in PARTS.items():
            self.begun(title, part)
            with stage(f"{title}: {part}"):
                try:
                    cell = act(self, work, cell)
                except CompilerFailed as error:
                    cell = replace(cell, outcome="refused" if part == FIRST_PART else "failed", reason=str(error))
                except NoTuple as error:
                    cell = replace(cell, outcome="wrong", reason=f"{error} of {len(work.judge.outputs)} results")
            if cell.outcome:
                break
        if cell.right and title in self.resized:
            with stage(f"{title}: other sizes"):
                cell = self.at_other_sizes(cell)
        self.outcomes[title] = cell.outcome
        return replace(cell, seconds=time.monotonic() - began, peak_bytes=processes.status("VmHWM"))

    def work_on(self, graph: AnyGraph) -> _GraphAtWork:
        """Return a graph with its judge and the contents to call it on. The judge of a step shares the judges of its
        forward and backward, which are kept in `judges` for it."""
        inputs, redrawn_inputs = inputs_of(graph), [inputs_of(graphs[graph.title]) for graphs in self.redrawn]
        judge = GraphJudge(graph, self.judges)
        if not isinstance(graph, BenchStep):
            self.judges[graph.title] = judge.parts[0]
        return _GraphAtWork(graph, judge, [inputs, *contents_that_fit(inputs, redrawn_inputs)])

    def at_other_sizes(self, cell: BenchCell) -> BenchCell:
        """Compile a right graph for other sizes, and compare it there; return its cell, which becomes wrong, or gets a
        note. A compiler that refuses other sizes is not wrong."""
        graph = replace(self.resized[cell.graph], title=f"{cell.graph} resized")
        work = _GraphAtWork(graph, GraphJudge(graph), [graph.run.inputs])
        try:
            self.compile_now(work, cold=True)
            wrong = work.first or fault_of_calls(work)
        except (CompilerFailed, NoTuple) as error:
            note = f"compiled for {self.sizes}, it is not compared: {error}"
            return replace(cell, notes=(*cell.notes, one_line(note)))
        if wrong:
            return replace(cell, outcome="wrong", reason=one_line(f"compiled for {self.sizes}: {wrong}"), timing=None)
        return replace(cell, notes=(*cell.notes, f"right for {self.sizes} too"))

    def derivative(self, capture: Capture, title: str) -> BenchDerivative:
        """Return whether the compiled backward of a step is the derivative of its forward; unknown if the compiler
        ended its process on the step or on one of its two graphs, as it would once more."""
        from backprint.tools.bench.widened import derivative_of, unknown

        pair = title.partition(" ")[0]
        outcomes = {name: self.outcomes.get(name, "") for name in (f"{pair} forward", f"{pair} backward", title)}
        if ended := next((f"{name}: {outcome}" for name, outcome in outcomes.items() if outcome in ENDED), ""):
            return unknown(ended)
        self.begun(title, DERIVATIVE)
        with stage(f"{title}: {DERIVATIVE}"):
            return derivative_of(capture, title, self.plan.compiler, self.plan.caches)

    # -------------------------------------------------------------- parts

    def compile(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compile with empty caches; a step is made of its forward and its backward."""
        if isinstance(work.graph, BenchStep):
            return self.join(work, work.graph, cell)
        seconds, notes = self.compile_now(work, cold=True)
        return replace(cell, cold=seconds, notes=(*cell.notes, *notes))

    def compile_now(self, work: _GraphAtWork, cold: bool) -> tuple[float, Sequence[str]]:
        """Compile a graph and call it once; judge the results of the call into `work.first`, and return the seconds and
        notes. What is called from then on is what was compiled first. `cold` is with empty caches."""
        graph, own_inputs = work.graph, work.contents[0]
        assert isinstance(graph, BenchGraph)
        compiled = compiled_now(self.plan.compiler, graph, self.plan.caches, cold)
        self.compiled.setdefault(graph.title, compiled.function)
        returned, results = results_of(compiled.answer)
        call = Call(
            copies(own_inputs),
            returned,
            results,
            random=current_random_state(),
            changed=[],  # further calls on the same inputs show whether the function writes into them
            shared=inputs_of_results(returned, compiled.inputs),
        )
        # With draws that are not returned, compiling may have drawn too: such a call cannot be compared.
        if not work.first:
            work.first = work.judge.wrong_kind(results) or (
                "" if work.judge.has_unreturned_draws else work.judge.fault(call)
            )
        if work.calls is None:
            function = self.compiled[graph.title]
            work.calls = CompiledCalls(function, copies(own_inputs), work.judge.kinds, work.judge.written)
            work.held = call
        return compiled.seconds, compiled.notes

    def join(self, work: _GraphAtWork, step: BenchStep, cell: BenchCell) -> BenchCell:
        """Join the compiled forward and backward of a step into `work.calls`. If one of the two is wrong, so is the
        step; if one did not run, the step is skipped."""
        for part in (step.forward, step.backward):
            outcome, reason = self.end_of_graph(part, cell.compiler)
            if outcome:
                shown = "wrong" if outcome == "wrong" else "skipped"
                return replace(cell, outcome=shown, reason=f"{part.title}: {reason}")
        with compiler_errors():
            function = join_forward_and_backward(
                step, *(self.compiled[part.title] for part in (step.forward, step.backward))
            )
        work.calls = CompiledCalls(function, copies(step.inputs), work.judge.kinds, work.judge.written)
        return cell

    def end_of_graph(self, graph: BenchGraph, compiler: str) -> tuple[str, str]:
        """Return the outcome with which the forward or backward of a step ended that cannot be joined, and the reason;
        two empty texts if it can. A graph that has no cell of its own is compiled and judged here first."""
        known_outcome = self.outcomes.get(graph.title, "")
        if known_outcome in (*STOPPED, *NOT_JUDGED, "wrong"):
            return known_outcome, known_outcome
        if graph.title in self.compiled:
            return "", ""
        work = self.work_on(graph)
        try:
            self.compile_now(work, cold=False)
            cell = self.judge(work, _blank_cell(graph, compiler))
        except (CompilerFailed, NoTuple) as error:
            return "failed", str(error)
        return cell.outcome, cell.reason

    def judge(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compare each output of a call on the sample's own inputs with eager's and float64's, then whole calls on
        redrawn inputs and on edge values, and at last the held results of the first call. Outputs get their `power`:
        whether a redraw moves them."""
        judge, calls = work.judge, work.calls
        assert calls is not None
        call = calls.call(work.contents[0])
        cell = replace(cell, device_bytes=call.device_bytes)
        if len(call.results) != len(judge.outputs):
            return replace(cell, outcome="wrong", reason=judge.wrong_kind(call.results))
        work.held = work.held or call
        # The outputs of one graph are judged one by one below. A step is asked for its first fault already here,
        # because eager's backward could not run below on saved values that are wrong.
        reason = judge.wrong_kind(call.results) or (judge.fault(call) if len(judge.parts) > 1 or call.changed else "")
        if reason:
            return of_another_kind(judge, cell, call.results, reason)
        # A graph that draws is judged by more calls of the compiled function, each from the seed that is set then.
        outputs = judge.outputs_of(call, lambda *values: calls.call(values, seed=torch.initial_seed()).results)
        if any(output.word == "random" for output in outputs) and not isinstance(work.graph, BenchStep):
            outputs = self.judge_by_draws(work, outputs)
        outcome, reason = outcome_of_outputs(outputs)
        if not outcome and work.first:
            outcome, reason = "wrong", f"the call that ends its compilation gives wrong results: {work.first}"
        if not outcome and (reason := fault_of_calls(work) or self.fault_at_edges(work) or work.fault_of_held()):
            outcome = "wrong"
        powers = self.moving_outputs(work.graph)
        is_step = isinstance(work.graph, BenchStep)
        shown = tuple(
            replace(output, power=powers.get((output.role, output.name), True))
            for output in outputs
            if not (is_step and output.role == "saved")  # what a step saves is no result of it
        )
        notes = (*cell.notes, *notes_of_outputs(outputs), *notes_of_memory(judge, call))
        return replace(cell, outputs=shown, outcome=outcome, reason=one_line(reason), notes=notes)

    def judge_by_draws(self, work: _GraphAtWork, outputs: tuple[BenchOutput, ...]) -> tuple[BenchOutput, ...]:
        """Judge outputs that depend on draws of the compiler's own, which the graph does not return, by its opened
        form: the compiler gets the graph once more with its draws as further results. Return the outputs with `close`
        or `wrong` in the place of `random`; they stay `random` if the opened form cannot be made or is not taken."""
        (part,) = work.judge.parts  # a graph has one part; a step, which has two, is not judged here
        part.followed = False
        graph_with_draws, reason, why_not_judged = opened_graph(unguarded_graph(part.bench.graph)), "", ""
        if graph_with_draws is None:
            why_not_judged = "the graph cannot be given with its draws as results"
        else:
            graph = graph_in_eager(f"{work.graph.title} opened", graph_with_draws, part.bench)
            work_with_draws = _GraphAtWork(graph, GraphJudge(graph), work.contents)
            try:
                self.compile_now(work_with_draws, cold=False)
                reason = work_with_draws.first or fault_of_calls(work_with_draws)
            except (CompilerFailed, NoTuple) as error:
                why_not_judged = f"it does not take the graph with its draws as results: {error}"
        part.opened = not (reason or why_not_judged)
        word = "random" if why_not_judged else "wrong" if reason else "close"
        detail = f"with its draws as results: {reason}" if reason else why_not_judged or BY_DRAWS
        return tuple(
            replace(output, word=word, detail=f"{output.detail}; {detail}") if output.word == "random" else output
            for output in outputs
        )

    def differentiate(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compare the gradients of torch.compile by itself with autograd's (`differentiated`), for a step and a
        compiler that is a backend of torch.compile. Compiling this with a real compiler takes as long as the two
        graphs, so it is done with `derivative` only, else noted; `aot_eager` is quick."""
        backend = self.plan.compiler.backend
        if not isinstance(work.graph, BenchStep) or not backend:
            return cell
        if not (backend.startswith("aot_eager") or self.plan.derivative):
            note = "how torch.compile differentiates it by itself is looked at with --derivative only"
            return replace(cell, notes=(*cell.notes, note))
        reason, note = fault_of_gradients(self.plan.compiler, work.graph)
        notes = (*cell.notes, note) if note else cell.notes
        return replace(cell, outcome="wrong" if reason else "", reason=reason, notes=notes)

    def compile_again(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compile with the caches that the first time has filled, and time that. A step is compiled in its parts, and a
        compiler that now refuses the graph gets a note."""
        if isinstance(work.graph, BenchStep) or not self.plan.timed:
            return cell
        try:
            warm, notes = self.compile_now(work, cold=False)
        except CompilerFailed as error:
            return replace(cell, notes=(*cell.notes, f"refused when compiled again: {error}"))
        if work.first:
            return replace(
                cell, outcome="wrong", reason=one_line(f"compiled again, it gives wrong results: {work.first}")
            )
        return replace(cell, warm=warm, notes=tuple(dict.fromkeys((*cell.notes, *notes))))

    def time(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Time the compiled graph in turns with eager, alone on the machine; then look at the results that are held."""
        if not self.plan.timed:
            return replace(cell, outcome=UNTIMED, reason="times were not asked for")
        assert work.calls is not None
        try:
            with self.turns.alone():
                timing = time_pair(eager_of(work.graph), work.calls, work.contents[0])
        except TimingWithheld as error:
            return replace(cell, outcome=UNTIMED, reason=one_line(str(error)))
        if reason := work.fault_of_held():
            return replace(cell, outcome="wrong", reason=reason)
        return replace(cell, outcome=timing.answer, timing=timing)

    def fault_at_edges(self, work: _GraphAtWork) -> str:
        """Return the first output that is wrong for an edge value among the inputs of a forward that draws nothing, or
        an empty text."""
        assert work.calls is not None
        if isinstance(work.graph, BenchStep) or work.judge.draws or work.graph.direction != "forward":
            return ""
        for edge_text, contents in contents_at_edges(work.graph, self.held_by_guards):
            call = work.calls.call(contents)
            part = work.judge.parts[0]
            reason = work.judge.wrong_kind(call.results) or part.fault_at_edge(
                edge_text, contents, call.results, call.random
            )
            if reason:
                return f"{edge_text}: {reason}"
        return ""

    def moving_outputs(self, graph: AnyGraph) -> dict[tuple[str, str], bool]:
        """Return, by role and name, whether an output of eager moves by its tolerance on redrawn inputs."""
        powers: dict[tuple[str, str], bool] = {}
        others = [parts_of(graphs[graph.title]) for graphs in self.redrawn]
        for place, part in enumerate(parts_of(graph)):
            moves = moving_outputs(part.run, [other[place].run for other in others])
            powers |= dict(zip(part.run.outputs, moves, strict=True))
        return powers


def fault_of_calls(work: _GraphAtWork) -> str:
    """Call what was compiled twice on each of the contents, once without gradients being recorded; return the first
    fault of a call, or of what all calls drew, or an empty text."""
    assert work.calls is not None
    for number, contents in enumerate(work.contents):
        for grad in (True, False):
            call = work.calls.call(contents, grad)
            if reason := work.judge.fault(call) or call.fault_of_memory():
                words = "the sample's own inputs" if number == 0 else "redrawn inputs"
                return f"a further call, on {words}{'' if grad else ' without gradients'}: {reason}"
            work.judge.keep_drawn(call, own=number == 0)
    return work.judge.fault_of_draws()


def of_another_kind(judge: GraphJudge, cell: BenchCell, results: Sequence[Any], reason: str) -> BenchCell:
    """Return a cell that is wrong for a reason that is found before outputs are judged one by one: a result's dtype,
    shape or type, an input that was changed, or any fault of a step. The cell of one graph, whose judge has one part,
    shows the outputs of another kind than eager's."""
    outputs = tuple(
        output_of_port(role, name, "wrong", reason, wanted, value)
        for (role, name), wanted, value in zip(judge.outputs, judge.kinds, results, strict=True)
        if len(judge.parts) == 1 and text_of_kind(value) != text_of_kind(wanted)
    )
    return replace(cell, outputs=outputs, outcome="wrong", reason=one_line(reason))


def notes_of_memory(judge: GraphJudge, call: Call) -> Iterator[str]:
    """Yield a note for each result of one graph that has an input's memory where eager's has its own; none for a step,
    whose results are those of two graphs."""
    if len(judge.parts) > 1 or not call.shared:
        return
    (part,) = judge.parts
    values = copies(part.bench.run.inputs)
    eager = inputs_of_results(part.bench.run.module()(*values), values)
    for place, source in call.shared.items():
        if place not in eager:
            yield f"result {place} has the memory of input {judge.names_of_inputs[source]}, eager's has its own"


def graph_in_eager(title: str, graph: Graph, like: BenchGraph) -> BenchGraph:
    """Return a graph with its run in eager on the inputs of another, `like`, from its random state."""
    (module,) = graph_classes({title: graph}).values()
    outputs = [(port.role, port.name) for port in graph.outputs]
    # `rebuilt` gives the class its text, which a run in float64 changes (`judged.widened_class`).
    with_text = rebuilt(module, inspect.getsource(module))
    run = EagerRun(with_text, like.run.inputs, like.run.random, outputs, results=())
    return BenchGraph(title, graph, replace(run, results=tuple(run.again(run.module()))))


def eager_of(graph: AnyGraph) -> Callable[..., Any]:
    """Return eager as it is timed: `forward` of the module that the compiler gets. A call of the module itself would
    also look for its hooks, which takes time."""
    if isinstance(graph, BenchStep):
        return join_forward_and_backward(graph, eager_of(graph.forward), eager_of(graph.backward))
    forward: Callable[..., Any] = to_fx(unguarded_graph(graph.graph)).forward
    return forward


PARTS: Mapping[str, Callable[[_CompilerTrial, _GraphAtWork, BenchCell], BenchCell]] = {
    "compile": _CompilerTrial.compile,
    "judge": _CompilerTrial.judge,
    "differentiate": _CompilerTrial.differentiate,
    "compile again": _CompilerTrial.compile_again,
    "time": _CompilerTrial.time,
}
"""The parts of a trial, in order. Each returns the cell with more fields; one that sets the outcome ends the trial."""

FIRST_PART = next(iter(PARTS))

DERIVATIVE = "derivative"
"""What follows the parts of a step, if it is asked for: its time is limited on its own, as that of another graph."""

BACKWARD, STEP = BENCH_DIRECTIONS[1:]

ENDED = ("crashed", "timeout", "out of memory")
"""Outcomes of a graph that would end the compiler's process in float64 too."""


def _blank_cell_of(capture: Capture, title: str, compiler: str) -> BenchCell:
    """Return the cell of a solution before it is judged, with its operators and its least FLOPs and bytes. A solution
    saves what it likes, so values that eager saves are no part of these; for a compiler they are (`_blank_cell`)."""
    name, _, direction = title.partition(" ")
    pair = capture.pairs[int(name.removeprefix("pair_"))]
    forward, steps = at_example_sizes(pair.forward), len(pair.forward.steps)
    work = least_work(returning_results_alone(forward))
    if direction == STEP and pair.backward is not None:
        work, steps = least_step_work(forward, at_example_sizes(pair.backward)), steps + len(pair.backward.steps)
    return BenchCell(
        sample="",
        graph=title,
        direction=direction,
        compiler=compiler,
        outcome="",
        steps=steps,
        flops=work.flops,
        moved_bytes=work.bytes,
    )


def _blank_cell(graph: AnyGraph, compiler: str) -> BenchCell:
    """Return the cell of a graph before its trial: its operators and its least work."""
    forward = graph.forward.graph if isinstance(graph, BenchStep) else graph.graph
    work = least_step_work(forward, graph.backward.graph) if isinstance(graph, BenchStep) else least_work(forward)
    return BenchCell(
        sample="",
        graph=graph.title,
        direction=graph.direction,
        compiler=compiler,
        outcome="",
        steps=graph.steps,
        flops=work.flops,
        moved_bytes=work.bytes,
    )


# ------------------------------------------------------------------ the verb of a bench run
#
# The process of a sample reads it and runs no code of it. It forks another process, which tries the compiler on each
# graph and writes a cell as soon as it is known. If that process crashes, hangs or uses too much memory, the graph at
# work gets this outcome, and one more process goes on with the next graph.

CELLS = "cells.jsonl"
"""The file of a sample's folder: a cell a line; a line with `begun` names a graph and a part of its trial."""

BEGUN = "begun"


def load_all(options: Mapping[str, Any]) -> dict[str, str]:
    """Load PyTorch and Backprint, for the processes that are forked from this one, and nothing of a compiler, as
    `in_child` asks of a process that forks. Return their versions, and keep the folder of the locks by which processes
    take turns."""
    import torch

    from backprint.tools import target
    from backprint.tools.jobs.task import on_cpu
    from backprint.tools.jobs.verbs import versions, without_device_threads

    _ = target.read_target  # named, so that the import is used
    if options.get(DERIVATIVE):
        from backprint.tools.bench import widened

        _ = widened
    torch.set_num_threads(1)
    if on_cpu(options):  # a process that has used a GPU cannot be forked
        without_device_threads()
    global _turns
    _turns = turns_folder(Path(tempfile.gettempdir()))
    return versions(options)


_turns = Path()
"""The folder of the locks by which processes take turns; `load_all` sets it."""


def bench_sample(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Try a compiler on every graph of a sample, as a verb of `tools/jobs` (the comment above says how processes share
    this); write `cells.jsonl` into `staging`, and return the sample's row. `options` are those of the whole run, as
    plain values: `asked` is the compiler as the user named it, `compiler` its name in the cells."""

    staging.mkdir()
    with stage("read"):
        capture = read_capture(task, options, staging)
    wanted = titles(capture, directions_of(compiler_named(options["asked"]), options["directions"]))
    file = staging / CELLS
    while remaining := [title for title in wanted if title not in outcomes(file)]:
        clock = GraphClock()
        rest = partial(_try_remaining, task, capture, options, file, clock)
        end = in_child(rest, options["timeout"], task.memory, spent=clock.seconds_of)  # the limit is for a graph
        if not end.ended_well:
            blank = BenchCell(
                task.id, graph="", direction="", compiler=options["compiler"], outcome="", family=task.family
            )
            write_end_of_process(file, end, remaining, blank)
        elif [title for title in wanted if title not in outcomes(file)] == remaining:  # else this would never end
            return failure("no cells", f"nothing was tried of {remaining[0]}", "bench")
    caches = _caches_of(task, options)
    for place in caches.parent.glob(f"{caches.name}_*"):  # each graph's, by its title
        shutil.rmtree(place, ignore_errors=True)
    return row_of(list(read_cells(file)))


bench_sample.warm = load_all  # type: ignore[attr-defined]  # a worker calls it once, before its first sample


def read_capture(task: Task, options: Mapping[str, Any], staging: Path) -> Any:
    """Load a sample. A GraphNet sample, or one for another device, is captured first, in another process; SampleError
    if that fails."""
    from backprint import api

    allow, device = tuple(options["allow"]), options["device"]
    if task.kind == "backprint" and device is None:
        return api.load(task.path, allow=allow)
    place = staging / "sample"
    with stage("capture"):
        end = in_child(partial(_capture_sample, task.path, place, device), options["timeout"], task.memory)
    if not end.ended_well:
        raise SampleError(f"could not be captured: {end}")
    return api.load(place, allow=allow)


def _capture_sample(source: Path, place: Path, device: str | None) -> None:
    """Capture a sample on a device, and save it."""
    from backprint import api
    from backprint.tools.target import capture_target, read_target

    api.save(capture_target(read_target(source, device=device)), place)


def _caches_of(task: Task, options: Mapping[str, Any]) -> Path:
    """Return the path below which a compiler keeps its caches of a sample; each graph adds its name."""
    name = hashlib.sha256(f"{options['asked']} {task.id}".encode()).hexdigest()[:16]
    return Path(options["caches"]) / name


ARITHMETIC = ("default_dtype", "flush_denormal")
"""Settings of the capture that its graphs run with, because results depend on them."""


def _try_remaining(task: Task, capture: Any, options: Mapping[str, Any], file: Path, clock: GraphClock) -> None:
    """Try the compiler on the graphs without a cell in `file`, and write each cell there. It runs in a process of its
    own; `clock` tells its parent how long the graph at work has taken."""
    import torch

    from backprint.values.settings import with_settings

    torch.set_num_threads(options["threads"])
    # In TF32, eager and a compiler may compute different operators.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    compiler, directions = compiler_named(options["asked"]), tuple(options["directions"])
    plan = TrialPlan(compiler, directions, options["timed"], _caches_of(task, options), options.get(DERIVATIVE, False))
    turns = Turns(_turns, clock)

    def begun(title: str, part: str) -> None:
        """Note in the file which part of which graph is at work, for `write_end_of_process`; its time counts from now
        on."""
        if part in (FIRST_PART, DERIVATIVE):
            clock.begin_graph()
        append(file, {BEGUN: title, "stage": part})

    environment = dict(capture.environment)
    with turns.working(), with_settings({name: environment[name] for name in ARITHMETIC if name in environment}):
        for cell in try_compiler(capture, plan, outcomes(file), turns, begun):
            named = replace(
                cell, sample=task.id, family=task.family, compiler=options["compiler"], load=_load_average()
            )
            append(file, named.to_json())


def _load_average() -> float | None:
    """Return how many processes have run or waited to run, on average over the last minute; None where unknown."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):  # not every system counts them
        return None


# ------------------------------------------------------------------ the file of cells


def append(file: Path, row: Mapping[str, Any]) -> None:
    """Add a line to the file."""
    with open(file, "a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")


def _rows_of_file(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the file. A last line without its end is of a process that was ended while it wrote: it is left
    out."""
    text = file.read_text("utf-8") if file.exists() else ""
    yield from map(json.loads, text[: text.rfind("\n") + 1].splitlines())


def read_cells(file: Path) -> Iterator[BenchCell]:
    """Yield the cells of the file: of each graph the last one, because a step is written once more when its derivative
    is known."""
    rows = {row["graph"]: row for row in _rows_of_file(file) if BEGUN not in row}
    yield from map(cell_from_json, rows.values())


def outcomes(file: Path) -> dict[str, str]:
    """Return title -> outcome of the graphs that have a cell."""
    return {cell.graph: cell.outcome for cell in read_cells(file)}


def write_end_of_process(file: Path, end: ChildEnd, remaining: list[str], blank: BenchCell) -> None:
    """Write a cell, `blank` with the outcome of the process that ended: for the graph at work, or, if none was, for all
    of `remaining`, because eager itself ended the process. A step at work in float64 has its cell, and gets an unknown
    derivative.

    What a compiler raises is in a cell already, so a process that `raised` did so by an error of ours (`unjudged`).
    """
    known_outcomes = outcomes(file)
    newest_first = [row for row in _rows_of_file(file) if BEGUN in row][::-1]
    if newest_first and newest_first[0]["stage"] == DERIVATIVE and newest_first[0][BEGUN] in known_outcomes:
        _write_without_derivative(file, newest_first[0][BEGUN], f"in float64: {end}")
        return
    at_work = next((row for row in newest_first if row[BEGUN] not in known_outcomes), None)
    if at_work is None:
        outcome, reason, titles_of_cells = "eager failed", end.reason, remaining
    else:
        outcome = "unjudged" if end.kind == "raised" else end.kind
        reason, titles_of_cells = f"{at_work['stage']}: {end.reason}", [at_work[BEGUN]]
    for title in titles_of_cells:
        direction = title.partition(" ")[2]
        cell = replace(blank, graph=title, direction=direction, outcome=outcome, reason=one_line(reason))
        append(file, cell.to_json())


def _write_without_derivative(file: Path, title: str, why: str) -> None:
    """Write the cell of a step once more, whose process was ended while the step was at work in float64."""
    from backprint.tools.bench.widened import unknown

    (cell,) = [cell for cell in read_cells(file) if cell.graph == title]
    append(file, replace(cell, derivative=unknown(why)).to_json())


# ------------------------------------------------------------------ the sample's row


def row_of(cells: list[BenchCell]) -> dict[str, Any]:
    """Return the row of a sample in the ledger of its run: the verdict of its cells, how many have which outcome, and
    the first that is not right."""
    verdict, cause = verdict_of(cells)
    counts = {outcome: sum(cell.outcome == outcome for cell in cells) for outcome in {cell.outcome for cell in cells}}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    first_fault = next((f"; {cell.graph}: {cell.reason}" for cell in cells if cell.outcome not in RIGHT), "")
    return {
        "verdict": verdict,
        "judge": VERSION,
        "cause": cause,
        "detail": one_line(f"{summary}{first_fault}"),
        "notes": [],
    }


def verdict_of(cells: list[BenchCell]) -> tuple[str, str]:
    """Return the verdict of a sample, the worst of its graphs', and the cause of a failure, '' for another verdict."""
    stopped = [cell.outcome for cell in cells if cell.outcome in STOPPED]
    if any(cell.outcome == "wrong" for cell in cells):
        return "wrong", ""
    if stopped:
        return "failed", stopped[0]
    if not cells or not all(cell.right for cell in cells):
        return "unproven", ""
    return ("bitwise" if all(output.equal for cell in cells for output in cell.outputs) else "close"), ""

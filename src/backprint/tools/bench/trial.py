"""One compiler on one sample: compile each graph, judge its results, time it; a cell for each.

The compiler works in a process of its own (`performer`), which is forked before eager has run. Every result that it
sends is compared here with eager's on the same inputs. The order is that of trust: results are judged before the
timing, and during it. A cell is yielded as soon as it is known, because the next graph may end the process.
`bench_sample` is the verb that workers run.
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
from backprint.child.ends import ChildDied, ChildEnd
from backprint.common.text import BENCH_DIRECTIONS
from backprint.errors import BackprintError, SampleError
from backprint.graph.nouns import Capture
from backprint.graph.sizes import at_example_sizes, unguarded_graph
from backprint.tools.bench.asking import CompilerProcess
from backprint.tools.bench.cells import NOT_JUDGED, RIGHT, STOPPED, UNTIMED, BenchCell, BenchOutput, cell_from_json
from backprint.tools.bench.compilers.table import GRAPH, Compiler, compiler_named
from backprint.tools.bench.contents import VariedInputs
from backprint.tools.bench.differentiated import fault_of_gradients
from backprint.tools.bench.edges import check_edges
from backprint.tools.bench.examine import (
    Examination,
    VariedPlan,
    fitting,
    inputs_of,
    pause_after,
    step_told,
    varied_plan,
)
from backprint.tools.bench.judge import (
    AnyGraph,
    GraphJudge,
    PartJudge,
    movement,
    notes_of_outputs,
    other_values,
    outcome_of_outputs,
    output_of_port,
    parts_of,
    redrawn_graphs,
)
from backprint.tools.bench.resized import fault_when_resized, resized_graphs, with_resized, with_sizes
from backprint.tools.bench.timing import time_pair
from backprint.tools.export.export import graphs_needed
from backprint.tools.export.judged import text_of_kind
from backprint.tools.export.rerun import EagerRun, copies, rebuilt
from backprint.tools.jobs.task import Task, failure, one_line, stage
from backprint.tools.jobs.turns import GraphClock, Turns, turns_folder
from backprint.tools.lowering.subjects import (
    BenchGraph,
    BenchStep,
    bench_graphs,
    bench_steps,
    graph_classes,
    opened_graph,
)
from backprint.tools.measuring.asking import CompilerFailed
from backprint.tools.measuring.clocks import CheatFound, TimingWithheld
from backprint.tools.measuring.roofline import least_step_work, least_work

if TYPE_CHECKING:
    from backprint.tools.bench.cells import BenchDerivative
    from backprint.tools.bench.widened import WideGraphs

# ------------------------------------------------------------------ results that depend on the compiler's own draws
#
# A compiler may draw random numbers in its own way. On a graph that does not return its draws, results cannot be
# compared one by one. The compiler gets the graph once more, *opened*: with its draws as further results, which are
# compared exactly. The graph as it is can only be judged by the distribution of its results, from many calls on the
# same inputs.

OPENED_CALLS = 24
"""The number of calls of the opened graph."""

FEWEST_CALLS, MOST_CALLS, MOST_SECONDS, MOST_BYTES = 80, 400, 2.0, 2**27
"""How many calls show a distribution; how many are made, for how long, and with how many bytes of results."""


class _NotJudged(BackprintError):
    """Results that depend on draws could not be judged; the message says why."""


def _opened_fault(examination: Examination) -> str:
    """Return the fault of the compiled opened graph, or an empty text."""
    (part,) = examination.judge.parts
    opened = opened_graph(unguarded_graph(part.bench.graph))
    if opened is None:
        raise _NotJudged("the graph cannot be given with its draws as results")
    try:
        examination.process.request("compile", cold=False, opened=True)
    except CompilerFailed as error:
        raise _NotJudged(f"refused with its draws as results: {error}") from None
    (module,) = graph_classes({"opened": opened}).values()
    outputs = [(port.role, port.name) for port in opened.outputs]
    run = EagerRun(
        rebuilt(module, inspect.getsource(module)), part.bench.run.inputs, part.bench.run.random, outputs, ()
    )
    run = replace(run, results=tuple(run.again(run.module())))
    judge = PartJudge(replace(part.bench, graph=opened, run=run))
    try:
        for count in range(OPENED_CALLS):
            number = examination.number() if count else None
            inputs, results, state, _ = examination.called(None, number, 0.0, opened=True)
            if len(results) != len(outputs):
                return f"{len(results)} results where eager gives {len(outputs)}, with its draws as results"
            if reason := judge.wrong_kind(results) or judge.disagreement(
                judge.eager_run(inputs, results, state), results
            ):
                return f"with its draws as results: {reason}"
            if judge.lifted is not None and judge.lifted.free:
                judge.keep_drawn(results)
        judge.check_drawn()
    except CheatFound as error:
        return str(error)
    except CompilerFailed as error:
        raise _NotJudged(f"fails with its draws as results: {error}") from None
    return ""


def _distribution_fault(examination: Examination, places: Sequence[int]) -> str:
    """Return which of the results at these places has another distribution than eager's, or an empty text."""
    (part,) = examination.judge.parts
    size = sum(part.bench.run.results[place].nbytes for place in places)
    count = min(MOST_CALLS, int(MOST_SECONDS / examination.seconds), MOST_BYTES // max(size, 1))
    if count < FEWEST_CALLS:
        raise _NotJudged(f"{FEWEST_CALLS} calls, which show a distribution, would take too long or too much memory")
    torch.seed()
    eager, module = [], part.bench.run.module()
    for _ in range(count):
        eager.append(picked(module(*copies(part.bench.run.inputs)), places))
    compiled = [picked(examination.called(None, None, 0.0)[1], places) for _ in range(count)]
    for at, place in enumerate(places):
        if reason := other_values(eager, compiled, at):
            role, name = part.bench.run.outputs[place]
            return f"{role} {name} is distributed otherwise than eager's: {reason}"
    return ""


def picked(results: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [results[place] for place in places]


# ------------------------------------------------------------------ a compiler at work on the graphs of a sample

Begun = Callable[[str, str], None]

REDRAWS = 2
"""How often the inputs of all graphs are redrawn, from seeds that the compiler cannot know."""


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
    """Return the titles of the graphs that a trial tries, in its order."""
    titles_of_pairs = []
    for index, pair in enumerate(capture.pairs):
        titles_of_pairs += [f"pair_{index} forward", *([f"pair_{index} backward"] if pair.backward is not None else [])]
    titles_of_pairs += [f"{title.partition(' ')[0]} step" for title in titles_of_pairs if title.endswith("backward")]
    return [title for title in titles_of_pairs if title.partition(" ")[2] in directions]


def tried(
    capture: Capture, plan: TrialPlan, known: Mapping[str, str], turns: Turns, on_begin: Begun
) -> Iterator[BenchCell]:
    """Yield a cell for each graph without an outcome in `known` (title -> outcome), and that of a step once more when
    its derivative is known. `on_begin` is called with a graph's title and the part of the trial that begins. If the
    compiler's process dies, the cell of that graph is the last, and the remaining graphs need another process."""
    if plan.compiler.takes != GRAPH:
        yield from _tried_solution(capture, plan, known, turns, on_begin)
        return
    graphs_of = {title: graph for title, (_, graph) in graphs_needed(capture, "both").items()}
    wide = None
    if plan.derivative:
        from backprint.tools.bench.widened import WideGraphs

        wide = WideGraphs(capture)
        graphs_of |= wide.by_title
    graphs_of = with_resized(capture, graphs_of)
    process = CompilerProcess(plan.compiler, plan.caches, graphs_of)  # before eager runs: it has no results of eager
    try:
        with stage("eager"):
            graphs = bench_graphs(capture)
            seeds = [int.from_bytes(os.urandom(6), "little") for _ in range(REDRAWS)]
            redrawn = [with_steps(graphs_of_seed) for graphs_of_seed in redrawn_graphs(capture, graphs, seeds)]
            sizes, resized = resized_graphs(capture, seeds[0]) if with_sizes(capture) else ("", {})
        trial = _CompilerTrial(plan, turns, on_begin, process, dict(known), with_steps(graphs), redrawn, sizes, resized)
        remaining = [
            title for title, graph in trial.graphs.items() if title not in known and graph.direction in plan.directions
        ]
        for title in remaining:
            trial.run_eager(title)
        for title in remaining:
            cell = trial.cell(title)
            yield cell
            if wide is not None and cell.direction == STEP:
                yield replace(cell, derivative=trial.derivative(wide, title))
            if trial.died:
                return
    finally:
        process.close()


def _tried_solution(
    capture: Capture, plan: TrialPlan, known: Mapping[str, str], turns: Turns, on_begin: Begun
) -> Iterator[BenchCell]:
    """Yield a cell for the forward and for the step of a solution, which is judged once for both."""
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
    """Return the directions that a compiler has cells of: the backward of a solution takes what its own forward saved,
    so there is no cell of it alone."""
    return tuple(name for name in directions if compiler.takes == GRAPH or name != BENCH_DIRECTIONS[1])


def with_steps(graphs: Sequence[BenchGraph]) -> dict[str, AnyGraph]:
    """Return title -> graph, the steps last."""
    all_graphs: list[AnyGraph] = [*graphs, *bench_steps(graphs)]
    return {graph.title: graph for graph in all_graphs}


@dataclass(slots=True)
class _GraphAtWork:
    """A graph that the compiler's process works on."""

    graph: AnyGraph
    examination: Examination
    first: str = ""
    """Why the results of the call that ended the compilation are wrong."""


@dataclass(slots=True)
class _CompilerTrial:
    """A compiler at work on the graphs of a sample: its process, its compiled graphs, and their outcomes."""

    plan: TrialPlan
    turns: Turns
    begun: Begun
    process: CompilerProcess
    outcomes: dict[str, str]
    graphs: dict[str, AnyGraph]
    moved: Sequence[Mapping[str, AnyGraph]]
    sizes: str = ""
    """Other sizes than the captured ones, in words."""
    resized: Mapping[str, BenchGraph] = field(default_factory=dict)
    """The graphs at these sizes."""
    judges: dict[str, GraphJudge] = field(default_factory=dict)
    plans: dict[str, VariedPlan] = field(default_factory=dict)
    compiled: set[str] = field(default_factory=set)
    died: bool = False

    def run_eager(self, title: str) -> None:
        """Choose how the inputs of a graph vary, and time eager on varied inputs, before the compiler is loaded."""
        graph = self.graphs[title]
        judge = self.judge_of(graph)
        with stage(f"{title}: eager"):
            plan = self.plans[title] = varied_plan(judge, int.from_bytes(os.urandom(7), "little"))
            if not self.plan.timed:
                return
            varied = VariedInputs(copies(inputs_of(graph)), plan.pieces, plan.seed, plan.ways)
            varied.put_seed(int.from_bytes(os.urandom(7), "little"))
            with self.turns.alone():
                headers = self.process.send_inputs(varied.values)
                self.process.request("baseline", title=title, inputs=headers, step=step_told(graph))

    def judge_of(self, graph: AnyGraph) -> GraphJudge:
        """Return a new judge of a graph; the judge of a step shares the judges of its forward and backward."""
        known = {title: judge.parts[0] for title, judge in self.judges.items() if len(judge.parts) == 1}
        self.judges[graph.title] = GraphJudge(graph, known)
        return self.judges[graph.title]

    def cell(self, title: str) -> BenchCell:
        """Run the PARTS on one graph and return its cell; a part that sets the outcome is the last."""
        began, graph = time.monotonic(), self.graphs[title]
        cell = _blank_cell(graph, self.plan.compiler.name)
        part = FIRST_PART
        try:
            self.begun(title, part)
            work = self.in_hand(graph)
            for part, act in PARTS.items():
                if part != FIRST_PART:
                    self.begun(title, part)
                with stage(f"{title}: {part}"):
                    cell = act(self, work, cell)
                if cell.outcome:
                    break
            self.process.request("end")
            if cell.right and title in self.resized:
                with stage(f"{title}: other sizes"):
                    cell = self.at_other_sizes(cell)
        except ChildDied as error:
            self.died = True
            cell = replace(cell, outcome="crashed", reason=f"{part}: {error}")
        self.outcomes[title] = cell.outcome
        peak = processes.status("VmHWM") if self.died else processes.status("VmHWM", self.process.pid)
        return replace(cell, seconds=time.monotonic() - began, peak_bytes=peak)

    def at_other_sizes(self, cell: BenchCell) -> BenchCell:
        """Compile a right graph for other sizes, and compare it there."""
        wrong, untried = fault_when_resized(self.process, self.resized[cell.graph])
        if wrong:
            return replace(cell, outcome="wrong", reason=one_line(f"compiled for {self.sizes}: {wrong}"), timing=None)
        note = f"compiled for {self.sizes}, it is not compared: {untried}" if untried else f"right for {self.sizes} too"
        return replace(cell, notes=(*cell.notes, one_line(note)))

    def derivative(self, wide: WideGraphs, title: str) -> BenchDerivative:
        """Return whether the compiled backward of a step is the derivative of its forward."""
        from backprint.tools.bench.widened import unknown

        pair = title.partition(" ")[0]
        outcomes = {name: self.outcomes.get(name, "") for name in (f"{pair} forward", f"{pair} backward", title)}
        if ended := next((f"{name}: {outcome}" for name, outcome in outcomes.items() if outcome in ENDED), ""):
            return unknown(ended)
        self.begun(title, DERIVATIVE)
        with stage(f"{title}: {DERIVATIVE}"):
            derivative, self.died = wide.judged(self.process, title)
        return derivative

    def in_hand(self, graph: AnyGraph) -> _GraphAtWork:
        """Begin work on a graph in the compiler's process."""
        title = graph.title
        if title not in self.judges:
            self.plans[title] = varied_plan(self.judge_of(graph), int.from_bytes(os.urandom(7), "little"))
        examination = Examination(self.process, self.judges[title], self.plans[title])
        examination.begin()
        return _GraphAtWork(graph, examination)

    # -------------------------------------------------------------- parts

    def compile(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compile with empty caches; a step is made of its forward and its backward."""
        if isinstance(work.graph, BenchStep):
            return self.join(work, cell)
        try:
            seconds, notes = self.compile_as(work, cold=True)
        except CompilerFailed as error:
            return replace(cell, outcome="refused", reason=str(error))
        return replace(cell, cold=seconds, notes=(*cell.notes, *notes))

    def compile_as(self, work: _GraphAtWork, cold: bool) -> tuple[float, Sequence[str]]:
        """Compile the active graph and call it once; judge the results of the call, and return the seconds and
        notes."""
        answer = self.process.request("compile", cold=cold, opened=False)
        self.compiled.add(work.graph.title)
        examination, judge = work.examination, work.examination.judge
        if "results" in answer and not judge.by_stream and not work.first:
            work.first = judge.fault(examination.own, self.process.results_in(answer), (torch.get_rng_state(), ()))
        return answer["seconds"], answer["notes"]

    def join(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Join the compiled forward and backward of a step; those that have no cell of their own are judged first."""
        graph = work.graph
        assert isinstance(graph, BenchStep)
        for part in (graph.forward, graph.backward):
            ended = self.outcomes.get(part.title, "")
            if ended in (*STOPPED, *NOT_JUDGED, "wrong"):
                outcome = "wrong" if ended == "wrong" else "skipped"
                return replace(cell, outcome=outcome, reason=f"{part.title}: {ended}")
            if part.title not in self.compiled:
                part_work, part_cell = self.in_hand(part), _blank_cell(part, cell.compiler)
                try:
                    self.compile_as(part_work, cold=False)
                    part_cell = self.judge(part_work, part_cell)
                except CompilerFailed as error:
                    return replace(cell, outcome="skipped", reason=f"{part.title}: {error}")
                if part_cell.outcome:
                    outcome = "wrong" if part_cell.outcome == "wrong" else "skipped"
                    return replace(cell, outcome=outcome, reason=f"{part.title}: {part_cell.reason}")
        work.examination.begin()
        parts = {"forward": graph.forward.title, "backward": graph.backward.title}
        self.process.request("join", **parts, step=step_told(graph))
        return cell

    def judge(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compare each output with eager's and float64's."""
        examination, judge = work.examination, work.examination.judge
        try:
            inputs, results, state, answer = examination.called(None, None, 0.0)
        except CompilerFailed as error:
            return replace(cell, outcome="failed", reason=str(error))
        except CheatFound as error:
            return replace(cell, outcome="wrong", reason=one_line(str(error)))
        if len(results) != len(judge.outputs):
            return replace(
                cell,
                outcome="wrong",
                reason=f"{len(results)} results where eager gives a tuple of {len(judge.outputs)}",
            )
        examination.keep_drawn(inputs, results, own=True)
        cell = replace(cell, device_bytes=answer["device_bytes"])
        several = len(judge.parts) > 1 or judge.parts[0].wrong_kind(results)
        if several and (reason := judge.fault(inputs, results, state)):
            return self.of_another_kind(judge, cell, results, reason)
        return self.judged_cell(work, cell, inputs, results, state)

    def of_another_kind(self, judge: GraphJudge, cell: BenchCell, results: Sequence[Any], reason: str) -> BenchCell:
        """Return a cell that is wrong by a result's dtype, shape or type, or by a part of a step."""
        outputs = tuple(
            output_of_port(role, name, "wrong", reason, wanted, value)
            for (role, name), wanted, value in zip(judge.outputs, judge.kinds, results, strict=True)
            if len(judge.parts) == 1 and text_of_kind(value) != text_of_kind(wanted)
        )
        return replace(cell, outputs=outputs, outcome="wrong", reason=one_line(reason))

    def judged_cell(
        self, work: _GraphAtWork, cell: BenchCell, inputs: Sequence[Any], results: Sequence[Any], state: Any
    ) -> BenchCell:
        """Return the cell with a word for each output of the first call."""
        examination, judge = work.examination, work.examination.judge

        def compiled(*values: Any) -> Any:
            return examination.called_under(torch.initial_seed())

        outputs = judge.outputs_of(inputs, results, state, compiled)
        if any(output.word == "random" for output in outputs):
            outputs = self.by_distribution(work, outputs)
        outcome, reason = outcome_of_outputs(outputs)
        if not outcome and work.first:
            outcome, reason = "wrong", f"the call that ends its compilation gives wrong results: {work.first}"
        if outcome == "wrong":
            try:
                examination.check_late()
            except CheatFound as error:
                reason = str(error)
        notes = notes_of_outputs(outputs)
        shown = tuple(
            output for output in outputs if not (isinstance(work.graph, BenchStep) and output.role == "saved")
        )
        return replace(cell, outputs=shown, outcome=outcome, reason=one_line(reason), notes=(*cell.notes, *notes))

    def by_distribution(self, work: _GraphAtWork, outputs: tuple[BenchOutput, ...]) -> tuple[BenchOutput, ...]:
        """Judge outputs that depend on draws of the compiler's own, which the graph does not return: exactly by its
        opened form, which returns them, and by their distribution."""
        examination = work.examination
        if isinstance(work.graph, BenchStep):
            return outputs
        (part,) = examination.judge.parts
        part.followed = False
        places = [place for place, output in enumerate(outputs) if output.word == "random"]
        try:
            reason, judged_by = _opened_fault(examination), "its draws as results, and by distribution"
            reason = reason or _distribution_fault(examination, places)
        except _NotJudged as error:
            return tuple(
                replace(output, detail=f"{output.detail}; {error}") if output.word == "random" else output
                for output in outputs
            )
        word, part.by_distribution = "wrong" if reason else "close", not reason
        return tuple(
            replace(output, word=word, detail=reason or f"{output.detail}; judged with {judged_by}")
            if output.word == "random"
            else output
            for output in outputs
        )

    def differentiate(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compare the gradients of torch.compile by itself with autograd's. Of a real compiler it takes as long as the
        two graphs, so it is done with `derivative` only."""
        backend = self.plan.compiler.backend
        if not isinstance(work.graph, BenchStep) or not (
            backend.startswith("aot_eager") or (backend and self.plan.derivative)
        ):
            note = "how torch.compile differentiates it by itself is looked at with --derivative only"
            step = isinstance(work.graph, BenchStep) and backend
            return replace(cell, notes=(*cell.notes, note)) if step else cell
        reason, note = fault_of_gradients(self.process, work.graph)
        return replace(
            cell, outcome="wrong" if reason else "", reason=reason, notes=(*cell.notes, *([note] if note else []))
        )

    def compile_again(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compile with the caches that the first time has filled."""
        if isinstance(work.graph, BenchStep) or not self.plan.timed:
            return cell
        try:
            warm, notes = self.compile_as(work, cold=False)
        except CompilerFailed as error:
            return replace(cell, notes=(*cell.notes, f"refused when compiled again: {error}"))
        if work.first:
            return replace(
                cell, outcome="wrong", reason=one_line(f"compiled again, it gives wrong results: {work.first}")
            )
        return replace(cell, warm=warm, notes=tuple(dict.fromkeys((*cell.notes, *notes))))

    def time(self, work: _GraphAtWork, cell: BenchCell) -> BenchCell:
        """Call the compiled graph on other inputs, and time it in turns with eager, alone on the machine."""
        try:
            if not self.plan.timed:
                self.check(work)
                timing = None
                work.examination.finish(timed_calls=False)
            else:
                with self.turns.alone():
                    self.check(work)
                    timing = time_pair(work.examination)
                    work.examination.probe(timed=True)
            work.examination.judge.check_drawn()
            work.examination.check_held()
        except CheatFound as error:
            return replace(cell, outcome="wrong", reason=one_line(str(error)))
        except TimingWithheld as error:
            return replace(cell, outcome=UNTIMED, reason=one_line(str(error)))
        except CompilerFailed as error:
            return replace(cell, outcome="failed", reason=f"on other inputs: {error}")
        powers = self.movement(work.graph)
        outputs = tuple(replace(output, power=powers.get((output.role, output.name), True)) for output in cell.outputs)
        cell = replace(cell, outputs=outputs, notes=(*cell.notes, *work.examination.notes()), timing=timing)
        if timing is None:
            return replace(cell, outcome=UNTIMED, reason="times were not asked for")
        return replace(cell, outcome=timing.answer)

    def check(self, work: _GraphAtWork) -> None:
        """Call the compiled graph on redrawn inputs and on varied ones, and compare every call."""
        examination = work.examination
        contents = fitting(examination.judge, [graphs[work.graph.title] for graphs in self.moved])
        pause = pause_after(examination.seconds)
        for count, values in enumerate([*contents, None]):
            occasion = (
                f"a further call (number {count + 2}, on the same tensors with other contents) gives wrong results"
            )
            number = None if values is not None else examination.number()
            examination.checked_call(values, number, pause, occasion)
        examination.probe()
        check_edges(examination)
        examination.look_again()

    def movement(self, graph: AnyGraph) -> dict[tuple[str, str], bool]:
        """Return, by role and name, whether an output moves on redrawn inputs."""
        powers: dict[tuple[str, str], bool] = {}
        others = [parts_of(graphs[graph.title]) for graphs in self.moved]
        for place, part in enumerate(parts_of(graph)):
            moves = movement(part.run, [other[place].run for other in others])
            powers |= dict(zip(part.run.outputs, moves, strict=True))
        return powers


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

STEP = BENCH_DIRECTIONS[2]

ENDED = ("crashed", "timeout", "out of memory")
"""Outcomes of a graph that would end the compiler's process in float64 too."""


def _blank_cell_of(capture: Capture, title: str, compiler: str) -> BenchCell:
    """Return the cell of a solution before it is judged. Values that eager saves are no part of its least work."""
    from backprint.tools.tasks.writing import without_saved_results

    name, _, direction = title.partition(" ")
    pair = capture.pairs[int(name.removeprefix("pair_"))]
    forward, steps = at_example_sizes(pair.forward), len(pair.forward.steps)
    work = least_work(without_saved_results(forward))
    if direction == STEP and pair.backward is not None:
        work, steps = least_step_work(forward, at_example_sizes(pair.backward)), steps + len(pair.backward.steps)
    known: dict[str, Any] = dict(flops=work.flops, moved_bytes=work.bytes, flops_by_dtype=work.flops_by_dtype)
    return BenchCell("", title, direction, compiler, "", steps=steps, **known)


def _blank_cell(graph: AnyGraph, compiler: str) -> BenchCell:
    """Return the cell of a graph before its trial: its operators and its least work."""
    forward = graph.forward.graph if isinstance(graph, BenchStep) else graph.graph
    work = least_step_work(forward, graph.backward.graph) if isinstance(graph, BenchStep) else least_work(forward)
    known: dict[str, Any] = dict(flops=work.flops, moved_bytes=work.bytes, flops_by_dtype=work.flops_by_dtype)
    return BenchCell("", graph.title, graph.direction, compiler, "", steps=graph.steps, **known)


# ------------------------------------------------------------------ the verb of a bench run
#
# The process of a sample reads it and runs no code of it. It forks another process, which tries the compiler on each
# graph and writes a cell as soon as it is known. If that process crashes, hangs or uses too much memory, the graph at
# work gets this outcome, and one more process goes on with the next graph.

CELLS = "cells.jsonl"
"""The file of a sample's folder: a cell a line; a line with `begun` names a graph and a part of its trial."""

BEGUN = "begun"


def load_all(options: Mapping[str, Any]) -> dict[str, str]:
    """Load PyTorch and Backprint, and nothing of a compiler; return their versions."""
    import torch

    from backprint.tools import target
    from backprint.tools.jobs.task import on_cpu
    from backprint.tools.jobs.verbs import versions, without_device_threads

    _ = target.read_target, titles  # loaded, for the processes that are forked from this one
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


def bench_sample(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Try a compiler on every graph of a sample; return the sample's row."""

    staging.mkdir()
    with stage("read"):
        capture = read_capture(task, options, staging)
    wanted = titles(capture, directions_of(compiler_named(options["asked"]), options["directions"]))
    file = staging / CELLS
    while remaining := [title for title in wanted if title not in outcomes(file)]:
        clock = GraphClock()
        rest = partial(_try_rest, task, capture, options, file, clock)
        end = in_child(rest, options["timeout"], task.memory, clock.seconds_of)
        if not end.ended_well:
            write_ended(file, end, remaining, BenchCell(task.id, "", "", options["compiler"], "", family=task.family))
        elif [title for title in wanted if title not in outcomes(file)] == remaining:
            return failure("no cells", f"nothing was tried of {remaining[0]}", "bench")
    for place in _caches_of(task, options).parent.glob(f"{_caches_of(task, options).name}_*"):
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


def _try_rest(task: Task, capture: Any, options: Mapping[str, Any], file: Path, clock: GraphClock) -> None:
    """Try the compiler on the graphs without a cell and write each cell. It runs in a process of its own."""
    import torch

    from backprint.tools.measuring.clocks import compute_in_float32
    from backprint.values.settings import with_settings

    torch.set_num_threads(options["threads"])
    compute_in_float32()
    compiler, directions = compiler_named(options["asked"]), tuple(options["directions"])
    plan = TrialPlan(compiler, directions, options["timed"], _caches_of(task, options), options.get(DERIVATIVE, False))
    turns = Turns(_turns, clock)

    def begun(title: str, part: str) -> None:
        if part in (FIRST_PART, DERIVATIVE):
            clock.begin_graph()
        append(file, {BEGUN: title, "stage": part})

    own = dict(capture.environment)
    with turns.working(), with_settings({name: own[name] for name in ARITHMETIC if name in own}):
        for cell in tried(capture, plan, outcomes(file), turns, begun):
            named = replace(
                cell, sample=task.id, family=task.family, compiler=options["compiler"], load=_load_average()
            )
            append(file, named.to_json())


def _load_average() -> float | None:
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


def _rows_of_file(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of the file."""
    text = file.read_text("utf-8") if file.exists() else ""
    yield from map(json.loads, text[: text.rfind("\n") + 1].splitlines())


def read_cells(file: Path) -> Iterator[BenchCell]:
    """Yield the cells of the file: of each graph the last, that with its derivative."""
    rows = {row["graph"]: row for row in _rows_of_file(file) if BEGUN not in row}
    yield from map(cell_from_json, rows.values())


def outcomes(file: Path) -> dict[str, str]:
    """Return title -> outcome of the graphs that have a cell."""
    return {cell.graph: cell.outcome for cell in read_cells(file)}


def write_ended(file: Path, end: ChildEnd, left: list[str], blank: BenchCell) -> None:
    """Give the graph at work the outcome of its process; all graphs, if none was at work: eager itself ended it.

    What a compiler raises is in a cell already, so another error is ours.
    """
    known = outcomes(file)
    last = [row for row in _rows_of_file(file) if BEGUN in row][-1:]
    if last and last[0]["stage"] == DERIVATIVE and last[0][BEGUN] in known:
        _write_without_derivative(file, last[0][BEGUN], f"in float64: {end}")
        return
    begun = [row for row in _rows_of_file(file) if BEGUN in row and row[BEGUN] not in known]
    outcome = {"raised": "unjudged"}.get(end.kind, end.kind) if begun else "eager failed"
    reason = one_line(": ".join([*(row["stage"] for row in begun[-1:]), end.reason]))
    for title in [row[BEGUN] for row in begun[-1:]] or left:
        direction = title.partition(" ")[2]
        cell = replace(blank, graph=title, direction=direction, outcome=outcome, reason=reason)
        append(file, cell.to_json())


def _write_without_derivative(file: Path, title: str, why: str) -> None:
    """Write the cell of a step once more, whose process was ended while the step was at work in float64."""
    from backprint.tools.bench.widened import unknown

    (cell,) = [cell for cell in read_cells(file) if cell.graph == title]
    append(file, replace(cell, derivative=unknown(why)).to_json())


# ------------------------------------------------------------------ the sample's row


def row_of(cells: list[BenchCell]) -> dict[str, Any]:
    """Return the row of a sample in the ledger of its run."""
    verdict, cause = verdict_of(cells)
    counts = {outcome: sum(cell.outcome == outcome for cell in cells) for outcome in {cell.outcome for cell in cells}}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    first_fault = next((f"; {cell.graph}: {cell.reason}" for cell in cells if cell.outcome not in RIGHT), "")
    return {"verdict": verdict, "cause": cause, "detail": one_line(f"{summary}{first_fault}"), "notes": []}


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

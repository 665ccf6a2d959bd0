"""Try one compiler on one sample: compile each graph, judge its results, time it; a cell for each.

The compiler works in a process of its own (`performer`), which is forked before eager has run. Here, every result that
it gives is compared with eager's on the same inputs. The order is that of trust: results are judged before the timing,
and during it. A cell is given away as soon as it is known, because the next graph may end the process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from backprint.benching.asking import AskedPerformer, CompilerFailed, PerformerDied
from backprint.benching.cells import NOT_JUDGED, STOPPED, UNTIMED, BenchCell, BenchOutput
from backprint.benching.compilers.table import Compiler
from backprint.benching.examine import Examination, VariedPlan, fitting, inputs_of, pause_after, step_told, varied_plan
from backprint.benching.findings import CheatFound, TimingWithheld
from backprint.benching.judge import GraphJudge, parts_of
from backprint.benching.judging import notes_of_outputs, outcome_of_outputs, output_of_port
from backprint.benching.moved import moved_graphs, movement
from backprint.benching.own_draws import NotJudged, distribution_fault, opened_fault
from backprint.benching.roofline import least_step_work, least_work
from backprint.benching.subjects import BenchGraph, BenchStep, bench_graphs, bench_steps
from backprint.benching.timing import time_pair
from backprint.benching.turns import Turns
from backprint.benching.varied import VariedInputs
from backprint.corpus import processes
from backprint.corpus.clock import stage
from backprint.corpus.task import one_line
from backprint.graph.nouns import Capture
from backprint.sample.export import graphs_needed
from backprint.sample.judged import text_of_kind
from backprint.sample.rerun import copies

AnyGraph = BenchGraph | BenchStep

Begun = Callable[[str, str], None]

REDRAWS = 2
"""How often the inputs of all graphs are redrawn, from seeds that the compiler cannot know."""


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
    title of each and the part of the trial that begins. The last is that in which the compiler's process died, if it
    did: graphs that are left need another."""
    graphs_of = {title: graph for title, (_, graph) in graphs_needed(capture, "both").items()}
    asked = AskedPerformer(plan.compiler, plan.caches, graphs_of)  # before eager runs: it has no results of eager
    try:
        with stage("eager"):
            graphs = bench_graphs(capture)
            drawn = [int.from_bytes(os.urandom(6), "little") for _ in range(REDRAWS)]
            moved = [with_steps(each) for each in moved_graphs(capture, graphs, drawn)]
        trial = CompilerTrial(plan, turns, begun, asked, dict(known), with_steps(graphs), moved)
        left = [
            title for title, graph in trial.graphs.items() if title not in known and graph.direction in plan.directions
        ]
        for title in left:
            trial.run_eager(title)
        for title in left:
            cell = trial.cell(title)
            yield cell
            if trial.died:
                return
    finally:
        asked.close()


def with_steps(graphs: Sequence[BenchGraph]) -> dict[str, AnyGraph]:
    """Return title -> graph, the steps last."""
    found: list[AnyGraph] = [*graphs, *bench_steps(graphs)]
    return {graph.title: graph for graph in found}


@dataclass(slots=True)
class GraphAtWork:
    """A graph in the hands of the compiler's process."""

    graph: AnyGraph
    examination: Examination
    first: str = ""
    """Why the results of the call that ended the compilation are wrong."""


@dataclass(slots=True)
class CompilerTrial:
    """A compiler at work on the graphs of a sample: what it has compiled, and how each graph ended."""

    plan: TrialPlan
    turns: Turns
    begun: Begun
    asked: AskedPerformer
    outcomes: dict[str, str]
    graphs: dict[str, AnyGraph]
    moved: Sequence[Mapping[str, AnyGraph]]
    judges: dict[str, GraphJudge] = field(default_factory=dict)
    plans: dict[str, VariedPlan] = field(default_factory=dict)
    compiled: set[str] = field(default_factory=set)
    died: bool = False

    def run_eager(self, title: str) -> None:
        """See how the inputs of a graph can vary, and time eager on such, before the compiler is loaded."""
        graph = self.graphs[title]
        judge = self.judge_of(graph)
        with stage(f"{title}: eager"):
            plan = self.plans[title] = varied_plan(judge, int.from_bytes(os.urandom(7), "little"))
            if not self.plan.timed:
                return
            varied = VariedInputs(copies(inputs_of(graph)), plan.pieces, plan.seed, plan.ways)
            varied.put_seed(int.from_bytes(os.urandom(7), "little"))
            with self.turns.alone():
                given = self.asked.giving(varied.values)
                self.asked.ask("baseline", title=title, inputs=given, step=step_told(graph))

    def judge_of(self, graph: AnyGraph) -> GraphJudge:
        """Return a new judge of a graph; that of a step knows what those of its parts know."""
        known = {title: judge.parts[0] for title, judge in self.judges.items() if len(judge.parts) == 1}
        self.judges[graph.title] = GraphJudge(graph, known)
        return self.judges[graph.title]

    def cell(self, title: str) -> BenchCell:
        """Return the cell of one graph: what is known when a part ends it, or when all have passed."""
        began, graph = time.monotonic(), self.graphs[title]
        cell = blank_cell(graph, self.plan.compiler.name)
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
            self.asked.ask("end")
        except PerformerDied as error:
            self.died = True
            cell = replace(cell, outcome="crashed", reason=f"{part}: {error}")
        self.outcomes[title] = cell.outcome
        peak = processes.status("VmHWM") if self.died else processes.status("VmHWM", self.asked.pid)
        return replace(cell, seconds=time.monotonic() - began, peak_bytes=peak)

    def in_hand(self, graph: AnyGraph) -> GraphAtWork:
        """Give a graph to the compiler's process."""
        title = graph.title
        if title not in self.judges:
            self.plans[title] = varied_plan(self.judge_of(graph), int.from_bytes(os.urandom(7), "little"))
        examination = Examination(self.asked, self.judges[title], self.plans[title])
        examination.begin()
        return GraphAtWork(graph, examination)

    # -------------------------------------------------------------- parts

    def compile(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
        """Compile with empty caches; a step is made of its forward and its backward."""
        if isinstance(work.graph, BenchStep):
            return self.join(work, cell)
        try:
            seconds, notes = self.compile_as(work, cold=True)
        except CompilerFailed as error:
            return replace(cell, outcome="refused", reason=str(error))
        return replace(cell, cold=seconds, notes=(*cell.notes, *notes))

    def compile_as(self, work: GraphAtWork, cold: bool) -> tuple[float, Sequence[str]]:
        """Compile the graph in hand and call it once; return the seconds and notes, and judge what the call gave."""
        answer = self.asked.ask("compile", cold=cold, opened=False)
        self.compiled.add(work.graph.title)
        examination, judge = work.examination, work.examination.judge
        if "results" in answer and not judge.by_stream and not work.first:
            work.first = judge.fault(examination.own, self.asked.results_of(answer), (torch.get_rng_state(), ()))
        return answer["seconds"], answer["notes"]

    def join(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
        """Join the compiled forward and backward of a step; those that have no cell of their own are judged first."""
        graph = work.graph
        assert isinstance(graph, BenchStep)
        for part in (graph.forward, graph.backward):
            ended = self.outcomes.get(part.title, "")
            if ended in (*STOPPED, *NOT_JUDGED, "wrong"):
                outcome = "wrong" if ended == "wrong" else "skipped"
                return replace(cell, outcome=outcome, reason=f"{part.title}: {ended}")
            if part.title not in self.compiled:
                inner, known = self.in_hand(part), blank_cell(part, cell.compiler)
                try:
                    self.compile_as(inner, cold=False)
                    known = self.judge(inner, known)
                except CompilerFailed as error:
                    return replace(cell, outcome="skipped", reason=f"{part.title}: {error}")
                if known.outcome:
                    outcome = "wrong" if known.outcome == "wrong" else "skipped"
                    return replace(cell, outcome=outcome, reason=f"{part.title}: {known.reason}")
        work.examination.begin()
        both = {"forward": graph.forward.title, "backward": graph.backward.title}
        self.asked.ask("join", **both, step=step_told(graph))
        return cell

    def judge(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
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
        self, work: GraphAtWork, cell: BenchCell, inputs: Sequence[Any], results: Sequence[Any], state: Any
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
        shown = tuple(each for each in outputs if not (isinstance(work.graph, BenchStep) and each.role == "saved"))
        return replace(cell, outputs=shown, outcome=outcome, reason=one_line(reason), notes=(*cell.notes, *notes))

    def by_distribution(self, work: GraphAtWork, outputs: tuple[BenchOutput, ...]) -> tuple[BenchOutput, ...]:
        """Judge outputs that depend on draws of the compiler's own, which the graph does not return: exactly by its
        opened form, which returns them, and by their distribution."""
        examination = work.examination
        if isinstance(work.graph, BenchStep):
            return outputs
        (part,) = examination.judge.parts
        part.followed = False
        places = [place for place, output in enumerate(outputs) if output.word == "random"]
        try:
            reason, judged_by = opened_fault(examination), "its draws as results, and by distribution"
            reason = reason or distribution_fault(examination, places)
        except NotJudged as error:
            return tuple(
                replace(each, detail=f"{each.detail}; {error}") if each.word == "random" else each for each in outputs
            )
        word, part.by_distribution = "wrong" if reason else "close", not reason
        return tuple(
            replace(each, word=word, detail=reason or f"{each.detail}; judged with {judged_by}")
            if each.word == "random"
            else each
            for each in outputs
        )

    def compile_again(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
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

    def time(self, work: GraphAtWork, cell: BenchCell) -> BenchCell:
        """Call it on other inputs, and time it beside eager, alone on the machine."""
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
        moved = self.movement(work.graph)
        outputs = tuple(replace(each, power=moved.get((each.role, each.name), True)) for each in cell.outputs)
        cell = replace(cell, outputs=outputs, notes=(*cell.notes, *work.examination.notes()), timing=timing)
        if timing is None:
            return replace(cell, outcome=UNTIMED, reason="times were not asked for")
        return replace(cell, outcome=timing.answer)

    def check(self, work: GraphAtWork) -> None:
        """Call it on the inputs of other runs and on varied ones, and compare every call."""
        examination = work.examination
        contents = fitting(examination.judge, [each[work.graph.title] for each in self.moved])
        pause = pause_after(examination.seconds)
        for count, values in enumerate([*contents, None]):
            occasion = (
                f"a further call (number {count + 2}, on the same tensors with other contents) gives wrong results"
            )
            number = None if values is not None else examination.number()
            examination.checked_call(values, number, pause, occasion)
        examination.probe()
        examination.look_again()

    def movement(self, graph: AnyGraph) -> dict[tuple[str, str], bool]:
        """Return which outputs the redrawn inputs move."""
        found: dict[tuple[str, str], bool] = {}
        others = [parts_of(each[graph.title]) for each in self.moved]
        for place, part in enumerate(parts_of(graph)):
            moved = movement(part.run, [other[place].run for other in others])
            found |= dict(zip(part.run.outputs, moved, strict=True))
        return found


PARTS: Mapping[str, Callable[[CompilerTrial, GraphAtWork, BenchCell], BenchCell]] = {
    "compile": CompilerTrial.compile,
    "judge": CompilerTrial.judge,
    "compile again": CompilerTrial.compile_again,
    "time": CompilerTrial.time,
}
"""The parts of a trial, in order: each adds to the cell, and one that sets the outcome is the last."""

FIRST_PART = next(iter(PARTS))


def blank_cell(graph: AnyGraph, compiler: str) -> BenchCell:
    """Return the cell of a graph of which nothing is known but its work."""
    forward = graph.forward.graph if isinstance(graph, BenchStep) else graph.graph
    work = least_step_work(forward, graph.backward.graph) if isinstance(graph, BenchStep) else least_work(forward)
    known: dict[str, Any] = dict(flops=work.flops, moved_bytes=work.bytes, flops_by_dtype=work.flops_by_dtype)
    return BenchCell("", graph.title, graph.direction, compiler, "", steps=graph.steps, **known)

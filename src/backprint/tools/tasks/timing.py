"""Times of a solution and of eager, by the judge's clock.

A solution could lie about a time that is measured in its process. So the time is that between a request and its answer,
with a batch of calls in between; inputs are written into shared memory after the clock was started. The same batch goes
to a process that runs the reference, and to one that returns results without computing them, whose time is subtracted
from both. The three take turns. Contents are drawn anew for each batch, and the results of every timed call are
compared with the reference's.

Words of this file: eager is the reference, as fx runs its graphs. Carrying is what it takes to send tensors to a
process and back. A step is a forward and its backward. A SolutionProcess is a process that loads a solution and answers
requests, and a Remote is a solution as a function of tensors.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint.child.processes import processor_seconds
from backprint.child.strangers import CompilerFailed
from backprint.child.tensors import put_inputs
from backprint.derive.called import Forward
from backprint.derive.checked import WRONG
from backprint.derive.compared import expected_of, forward_rows, gradient_rows
from backprint.derive.setting import drawn_like, is_inexact
from backprint.errors import BackprintError
from backprint.graph.nouns import TensorSpec
from backprint.judge.closeness import LEAST, size_of
from backprint.judge.timing import FEWEST_ROUNDS, compare_timings, lower_decile, round_in_turns
from backprint.tools.export.rerun import laid
from backprint.tools.tasks.nouns import SolutionTime, Task
from backprint.tools.tasks.program import Reference, TaskProgram, fresh_values
from backprint.tools.tasks.relied_on import CheatFound
from backprint.tools.tasks.solver import solution_of_file
from backprint.tools.tasks.solving import SMALL, Remote, SolutionFailed, SolutionProcess, relative
from backprint.tools.tasks.writing import subject_of

BATCH_SECONDS, MOST_CALLS, MOST_BYTES = 0.01, 32, 64 << 20
"""A batch has about so many seconds of eager, at most so many calls, and about so many bytes of inputs and results."""

ROUNDS = 2 * FEWEST_ROUNDS

SEVERAL, TICKS = 1.3, 0.05
"""A solution that uses so many times more seconds of processors than its calls took, and so many seconds, has several
threads."""

CONFIRMED = 2
"""How often a solution that is faster than eager is measured."""

RESOLVED = 0.02
"""A time that is shorter than this part of what carrying its tensors takes is not resolved."""

ROUNDINGS, LOOSER = 8.0, 4.0
"""A timed call's result that is off from eager's by no more roundings, or by no more times what was allowed when the
solution was judged, is not looked at again: here eager rounds too."""

TIMED = "timed call"
"""The check of a timed call whose results are further from eager's."""


class Timing(NamedTuple):
    """The times of a solution; why one was not measured, or ''; and what was wrong with a timed call, or ''."""

    times: tuple[SolutionTime, ...] = ()
    untimed: str = ""
    wrong: str = ""


def time_against_eager(task: Task, remote: Remote, seed: int, limit: float, allowed: Mapping[str, float]) -> Timing:
    """Time the forward and the step of a right solution, against eager. Contents are drawn from the `seed`, and `limit`
    is the seconds that a process has for an answer. `allowed` is how far each result was allowed to be off when it was
    judged, by its name."""
    program = remote.program
    with Beside(program, limit) as beside:
        times: list[SolutionTime] = []
        try:
            for what, step in (("forward", False), ("step", True)):
                measured: list[SolutionTime] = []
                # What is faster is measured once more, and the less certain of both counts: on a machine that others
                # use, one of some thirty references was certainly faster than itself.
                while not measured or (len(measured) < CONFIRMED and measured[-1].low > 1):
                    processes = (remote.process, *beside.processes)
                    rounds = Rounds(program, processes, seed + len(measured), step, allowed)
                    wrong = rounds.run()
                    if wrong:
                        return Timing(wrong=wrong)
                    time_ = _time_of(what, rounds)
                    if time_ is None:
                        untimed = f"{what}: too short beside carrying its tensors to and fro"
                        return Timing(tuple(times), untimed)
                    measured.append(time_)
                times.append(min(measured, key=lambda time_: time_.low))
        except _EagerFailed as error:
            return Timing(untimed=f"{error}")
        except (SolutionFailed, CompilerFailed) as error:
            return Timing(wrong=f"a timed call raised {error}")
        except BackprintError as error:  # its process ended, it cheats, or it has several threads
            return Timing(wrong=f"{error}")
    return Timing(tuple(times))


def _time_of(what: str, rounds: Rounds) -> SolutionTime | None:
    """Return the times of one kind of call (`what` is `forward` or `step`); None if carrying tensors hides them."""
    ours, eager = rounds.without_carrying(SOLUTION), rounds.without_carrying(EAGER)
    # Eager's whole seconds less those without carrying are what carrying takes.
    shortest = RESOLVED * (lower_decile(rounds.seconds[EAGER]) - lower_decile(eager))
    if min(lower_decile(ours), lower_decile(eager)) <= shortest:
        return None
    # No less than `shortest`, because a round without carrying may be below 0, which has no ratio.
    change = compare_timings([max(value, shortest) for value in ours], [max(value, shortest) for value in eager])
    return SolutionTime(
        what,
        seconds=lower_decile(ours),
        eager=lower_decile(eager),
        faster=change.ratio,  # of eager over the solution
        low=change.low,
        high=change.high,
        mean=statistics.fmean(ours),
        mean_of_eager=statistics.fmean(eager),
        rounds=len(ours),
    )


class _EagerFailed(BackprintError):
    """Eager raises on what is timed, which is no fault of the solution."""


class _SeveralThreads(BackprintError):
    """A solution computes with more threads than eager."""


class Beside:
    """The processes that are timed beside a solution, open in its block: the reference, and one that computes nothing.
    The solution cannot read their memory (`hidden`)."""

    def __init__(self, program: TaskProgram, limit: float) -> None:
        self.processes = (
            SolutionProcess(lambda: _reference_of(program), limit, memory=0, hidden=True),
            SolutionProcess(lambda: _without_work(program), limit, memory=0, hidden=True),
        )

    def __enter__(self) -> Beside:
        for process in self.processes:
            process.request("load")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.close()


def _reference_of(program: TaskProgram) -> Callable[..., Any]:
    """Return the reference as a solution, as fx runs it: eager, without the checks that `Reference` makes."""
    forward, backward = program.forward.to_fx(), program.backward.to_fx()
    return _EagerGraphs(program, forward.forward, backward.forward)


class _Source(NamedTuple):
    """Where an input of the backward graph comes from: `tangents`, `results` or `inputs` of the forward graph, and its
    place among these."""

    values: str
    place: int


def _sources_of_backward(program: TaskProgram) -> list[_Source]:
    """Return where each input of the backward graph comes from. Of `exp` it is a tangent and the saved result:
    `[_Source("tangents", 0), _Source("results", 1)]`."""
    inputs = [port.name for port in program.forward.inputs]
    results = [port.key for port in program.forward.outputs]
    returned = [name for name, _ in program.outputs]
    sources = []
    for port in program.backward.inputs:
        if port.role == "tangent":
            sources.append(_Source("tangents", returned.index(port.name)))
        elif port.key in results:
            sources.append(_Source("results", results.index(port.key)))
        else:
            sources.append(_Source("inputs", inputs.index(port.name)))
    return sources


class _EagerGraphs:
    """The two graphs of a program, which are functions here, as one function that autograd differentiates by the
    second."""

    def __init__(self, program: TaskProgram, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        results = [port.key for port in program.forward.outputs]
        # Of the forward graph's results, some are only saved: the places of those that the program returns.
        shown = [results.index(port.key) for _, port in program.outputs]
        constant = [place for place, (name, _) in enumerate(program.outputs) if name not in program.tangents]
        sources = _sources_of_backward(program)
        # For each input, the place of its gradient among the backward's results; None if it has none.
        gradients = {port.name: place for place, port in enumerate(program.backward.outputs)}
        wanted = [gradients.get(port.name) if port.name in program.wanted else None for port in program.forward.inputs]

        class Eager(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Tensor) -> Any:
                values = forward(*inputs)
                ctx.values = {"inputs": inputs, "results": values}
                returned = tuple(values[place].clone() if aliased(values, place) else values[place] for place in shown)
                ctx.mark_non_differentiable(*(returned[place] for place in constant))
                return returned

            @staticmethod
            def backward(ctx: Any, *tangents: Tensor) -> Any:
                values = {**ctx.values, "tangents": tangents}
                returned = backward(*(values[source.values][source.place] for source in sources))
                return tuple(None if place is None else dense(returned[place]) for place in wanted)

        self.function = Eager.apply

    def __call__(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def aliased(values: Sequence[Any], place: int) -> bool:
    """Whether a result is an input, or is saved too: autograd wants tensors of its own."""
    return sum(other is values[place] for other in values) > 1


def dense(value: Any) -> Any:
    """Return a gradient without its sparse layout, as `program.dense` does for the judge."""
    return value.to_dense() if isinstance(value, Tensor) and value.layout is not torch.strided else value


def _without_work(program: TaskProgram) -> Callable[..., Any]:
    """Return a solution that returns zeros of the right shapes, and gradients with no values in particular, and
    computes nothing: what it takes is what carrying takes."""

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Any:
            ctx.inputs = inputs
            returned = tuple(zeros[name].clone() for name, _ in program.outputs)  # autograd marks what is returned
            ctx.mark_non_differentiable(
                *(value for (name, _), value in zip(program.outputs, returned, strict=True) if name not in graded)
            )
            return returned

        @staticmethod
        def backward(ctx: Any, *tangents: Tensor) -> Any:
            return tuple(
                torch.empty_like(value) if port.name in wanted else None
                for port, value in zip(program.inputs, ctx.inputs, strict=True)
            )

    graded, wanted = set(program.tangents), set(program.wanted)
    values = fresh_values(program, seed=0)  # any will do: only the shapes of the results count
    zeros = {name: torch.zeros_like(value) for name, value in Reference(program)(*values.values()).items()}

    def call(*inputs: Tensor) -> Any:
        return Nothing.apply(*inputs)

    return call


@dataclass(frozen=True, slots=True)
class Batch:
    """The tensors of several calls: of each its inputs and, behind them, its tangents."""

    sets: list[list[Tensor]]


class _TimedAnswer(NamedTuple):
    """The seconds from the request of a batch to its answer, by the judge's clock, and the results of all its calls."""

    seconds: float
    results: list[Any]


SOLUTION, EAGER, NOTHING = range(3)
"""The places of the three processes in `Rounds`."""


class Rounds:
    """Batches of calls of three processes, in turns: the solution, the reference, and one that computes nothing.

    With `step`, a call is a forward and its backward, else a forward. `allowed` is how far each result was allowed to
    be off when the solution was judged, by its name. `seconds` has those of one call in each round, by process.
    """

    def __init__(
        self,
        program: TaskProgram,
        processes: Sequence[SolutionProcess],
        seed: int,
        step: bool,
        allowed: Mapping[str, float],
    ) -> None:
        self.program, self.processes, self.seed, self.step = program, processes, seed, step
        self.allowed = allowed
        self.seconds: list[list[float]] = [[] for _ in processes]
        self.wanted = [place for place, port in enumerate(program.inputs) if port.name in program.wanted]
        self.differentiable = [place for place, (name, _) in enumerate(program.outputs) if name in program.tangents]
        # `base` are the inputs from which those of all calls are made, and `results` the reference's for them, of which
        # shapes and dtypes are used. 1000: a draw that no comparison of the judge has.
        self.base = list(fresh_values(program, seed + 1000).values())
        results = Reference(program)(*self.base)
        self.results = [results[name] for name, _ in program.outputs]
        self.strides = {
            port.name: tuple(map(int, port.spec.stride))
            for port in program.backward.by_role("tangent")
            if isinstance(port.spec, TensorSpec) and port.spec.stride is not None and not program.sized
        }
        """Of tangents, the strides for which the backward was captured: they are passed so, as in the model."""
        self.source = torch.Generator().manual_seed(seed)  # of contents
        self.chance = random.Random(seed)  # of the order in a round
        self.count = 1  # the calls of a batch
        self.schedule = processes[-1].schedule  # of the process that computes nothing: all must have the same
        for process in processes:
            process.stop()  # a process runs only while it is timed

    def run(self) -> str:
        """Choose the size of a batch by eager's time, and run all rounds; return what was wrong with a call, or ''.
        Raise _SeveralThreads for a solution that uses more seconds of processors than its calls took."""
        try:
            return self.run_rounds()
        finally:
            for process in self.processes:
                process.go_on()

    def run_rounds(self) -> str:
        """Do what `run` says, and leave all processes stopped."""
        for place in range(len(self.processes)):
            self.time_batch(place, self.batch())  # not counted: a first call may take longer
        self.count = self.calls_of_batch()  # by the time of eager, which it measures
        before = processor_seconds(self.processes[SOLUTION].pid)
        for _ in range(ROUNDS):
            batch = self.batch()
            turns = [partial(self.time_batch, place, batch) for place in range(len(self.processes))]
            answers = round_in_turns(turns, self.chance)
            for times, answer in zip(self.seconds, answers, strict=True):
                times.append(answer.seconds / self.count)
            if wrong := self.fault_of_results(batch, answers[SOLUTION].results, answers[EAGER].results):
                return wrong
        seconds_used = processor_seconds(self.processes[SOLUTION].pid) - before
        if seconds_used > SEVERAL * sum(self.seconds[SOLUTION]) * self.count + TICKS:
            raise _SeveralThreads("it computes with several threads, and eager with one")
        return ""

    def calls_of_batch(self) -> int:
        """Return how many calls a batch has: as many as eager makes in BATCH_SECONDS, if their number and the bytes of
        their tensors are not too large."""
        seconds_of_eager = min(self.time_batch(EAGER, self.batch()).seconds for _ in range(3))
        # A step has tangents and gradients too, about as many bytes again.
        bytes_of_call = sum(value.nbytes for value in (*self.base, *self.results)) * (2 if self.step else 1)
        calls_in_time = int(BATCH_SECONDS / max(seconds_of_eager, 1e-6))
        return max(1, min(MOST_CALLS, calls_in_time, MOST_BYTES // max(bytes_of_call, 1)))

    def batch(self) -> Batch:
        """Return inputs of several calls, all drawn anew: floats with a gradient are those of one draw, each moved by a
        random share of its size, so that operators still take them; tangents, of a step, are normal numbers in the
        memory that the backward was captured for."""
        sets = []
        for _ in range(self.count):
            values = [
                value + 0.25 * value.abs() * drawn_like(value, self.source)
                if is_inexact(value) and port.name in self.program.wanted
                else value
                for port, value in zip(self.program.inputs, self.base, strict=True)
            ]
            tangents = [
                laid(drawn_like(value, self.source), self.strides.get(name, value.stride()))
                for (name, _), value in zip(self.program.outputs, self.results, strict=True)
                if self.step and name in self.program.tangents
            ]
            sets.append([*values, *tangents])
        return Batch(sets)

    def time_batch(self, place: int, batch: Batch) -> _TimedAnswer:
        """Send a batch to the process of this place, which runs only meanwhile, and return its answer.

        CheatFound says that a process changed how processors are shared out. CompilerFailed is an error of the
        solution, and _EagerFailed one of the others.
        """
        process = self.processes[place]
        if any(other.schedule != self.schedule for other in self.processes):
            raise CheatFound("changes the priority or the processors of a process that it is timed beside")
        process.go_on()
        flat = [value for values in batch.sets for value in values]
        began = time.perf_counter()
        # Only now: a process that knew the inputs before could compute before it is asked.
        headers = list(put_inputs(process.inputs_memory, flat))
        length = len(batch.sets[0])
        sets = [headers[first : first + length] for first in range(0, len(headers), length)]
        calls: dict[str, Any] = dict(count=len(self.program.inputs), wanted=self.wanted)
        calls |= dict(step=self.step, differentiable=self.differentiable)
        try:
            answer = process.request("calls", sets=sets, **calls)
        except CompilerFailed as error:
            if place != SOLUTION:
                raise _EagerFailed(f"eager raised {error}") from error
            raise
        seconds = time.perf_counter() - began
        process.stop()  # so that no thread of a solution runs while eager is timed
        return _TimedAnswer(seconds, process.results_in(answer))

    def fault_of_results(self, batch: Batch, ours: list[Any], eager: list[Any]) -> str:
        """Return what is wrong with the results of timed calls, or ''. Both lists have those of all calls of a batch,
        one after the other: the outputs of each call, and, of a step, its gradients.

        A call that is far from eager's is only suspected, because eager rounds too: `fault_of_call` decides.
        """
        if len(ours) != len(eager):
            return f"timed calls return {len(ours)} results, and the reference {len(eager)}"
        names = [name for name, _ in self.program.outputs]  # of the results of one call
        names += [self.program.inputs[place].name for place in self.wanted] if self.step else []
        largest = max((size_of(other) for other in eager if isinstance(other, Tensor)), default=0.0)
        suspected: dict[int, None] = {}  # numbers of calls
        for place, (value, expected) in enumerate(zip(ours, eager, strict=True)):
            name = names[place % len(names)]
            if not isinstance(expected, Tensor):
                continue
            if value is None:  # a gradient of 0
                value = torch.zeros_like(expected)
            if not isinstance(value, Tensor) or (value.shape, value.dtype) != (expected.shape, expected.dtype):
                return f"{name} of a timed call is {value if not isinstance(value, Tensor) else list(value.shape)}"
            roundings_apart = relative(expected, value, SMALL * largest)
            # What one rounding is: `self.allowed` is in the numbers' own unit, and `roundings_apart` in roundings.
            rounding = max(size_of(expected), SMALL * largest) * LEAST.get(expected.dtype, 1e-6)
            roundings_allowed = max(ROUNDINGS, LOOSER * self.allowed.get(name, 0.0) / (rounding or 1.0))
            is_comparable = not is_inexact(expected) or bool(expected.isfinite().all())
            if roundings_apart > roundings_allowed and is_comparable:
                suspected[place // len(names)] = None
        faults = (
            self.fault_of_call(batch.sets[call], ours[call * len(names) : (call + 1) * len(names)])
            for call in suspected
        )
        return next(filter(None, faults), "")

    def fault_of_call(self, tensors: Sequence[Tensor], results: Sequence[Tensor | None]) -> str:
        """Return what the judge finds wrong with the results of a call, or ''. `tensors` are its inputs and, behind
        them, its tangents; `results` are its outputs and, behind them, its gradients.

        Two right results may be far apart where terms cancel, as in the gradient of a bias in front of a
        normalization, which is 0 but for rounding: float64 tells.
        """
        values = dict(zip((port.name for port in self.program.inputs), tensors, strict=False))  # without the tangents
        subject = subject_of(self.program, values)
        expected = expected_of(subject, values, random=False)  # a right solution draws nothing: it was judged before
        count = len(self.program.outputs)
        keys = list(expected.exact.outputs)
        outputs = {key: value for key, value in zip(keys, results[:count], strict=True) if value is not None}
        ours = Forward(outputs, leaves={})  # what the solution returned then: it is not called again
        rows = forward_rows(subject, TIMED, ours, expected, values)
        if self.step:
            differentiable = [
                key for key, (name, _) in zip(keys, self.program.outputs, strict=True) if name in self.program.tangents
            ]
            tangents = dict(zip(differentiable, tensors[len(values) :], strict=True))
            wanted = [self.program.inputs[place].name for place in self.wanted]
            gradients = dict(zip(wanted, results[count:], strict=True))
            of_gradients = gradient_rows(subject, TIMED, values, tangents, expected, run=lambda _: (ours, gradients))
            rows = itertools.chain(rows, of_gradients)
        wrong = next((row for row, _ in rows if row.verdict == WRONG), None)
        if wrong is None:
            return ""
        if wrong.error is None:
            return f"{wrong.name} of a {TIMED}: {wrong.detail}"
        return f"{wrong.name} of a {TIMED} is off by {wrong.error:.3g}, where {wrong.allowed:.3g} is allowed"

    def without_carrying(self, place: int) -> list[float]:
        """Return the seconds of a call of one process in each round, without those of the process that computes
        nothing, which are what carrying takes."""
        carrying = lower_decile(self.seconds[NOTHING])
        return [seconds - carrying for seconds in self.seconds[place]]


def times_of_reference(program: TaskProgram, folder: Path) -> tuple[tuple[str, float], ...]:
    """Measure a step of eager and of Inductor as a solution's is, in processes; return the name and the seconds of
    each. Inductor, as the solution, compiles the folder's `reference.py`. Raise BackprintError if its results are
    wrong."""
    text = INDUCTOR.format(folder=str(folder))
    place = folder / ".inductor.py"
    place.write_text(text)
    try:
        with Beside(program, limit=300.0) as beside:
            process = SolutionProcess(solution_of_file(place), limit=300.0, memory=0)  # in seconds; 0 is no limit
            try:
                process.request("load")
                rounds = Rounds(program, (process, *beside.processes), seed=0, step=True, allowed={})
                if wrong := rounds.run():
                    raise BackprintError(f"Inductor's results: {wrong}")
                rows = []
                for what, place_in_rounds in (("eager", EAGER), ("Inductor", SOLUTION)):
                    seconds = lower_decile(rounds.without_carrying(place_in_rounds))
                    if seconds > 0:  # else carrying hides it
                        rows.append((what, seconds))
                return tuple(rows)
            finally:
                process.close()
    finally:
        place.unlink(missing_ok=True)


INDUCTOR = """
import sys
sys.path.insert(0, {folder!r})
import torch
import reference

reference.forward_graph = torch.compile(reference.forward_graph, fullgraph=True)
reference.backward_graph = torch.compile(reference.backward_graph, fullgraph=True)
Solution = reference.Reference
"""

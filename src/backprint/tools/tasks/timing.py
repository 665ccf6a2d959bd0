"""Times of a solution and of eager, by the judge's clock.

A solution could lie about a time that is measured in its process. So the time is that between a request and its answer,
with a batch of calls in between; inputs are written into shared memory after the clock was started. The same batch goes
to a process that runs the reference, and to one that returns results without computing them, whose time is subtracted
from both. The three take turns. Contents are drawn anew for each batch, and the results of every timed call are
compared with the reference's.
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

from backprint.child.ends import ChildDied
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


def time_against_eager(
    task: Task, remote: Remote, seed: int, limit: float, allowed: Mapping[str, float]
) -> tuple[tuple[SolutionTime, ...], str, str]:
    """Time the forward and the step of a right solution; return the times, why there are none, and what was wrong with
    a timed call. `allowed` is how far each result was allowed to be off when it was judged."""
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
                        return (), "", wrong
                    time_ = _time_of(what, rounds)
                    if time_ is None:
                        return tuple(times), f"{what}: too short beside carrying its tensors to and fro", ""
                    measured.append(time_)
                times.append(min(measured, key=lambda time_: time_.low))
        except _EagerFailed as error:
            return (), f"{error}", ""
        except (SolutionFailed, CompilerFailed) as error:
            return (), "", f"a timed call raised {error}"
        except (ChildDied, CheatFound) as error:
            return (), "", f"{error}"
        except BackprintError as error:
            return (), "", f"{error}"
    return tuple(times), "", ""


def _time_of(what: str, rounds: Rounds) -> SolutionTime | None:
    """Return the times of one kind of call; None if carrying tensors hides them."""
    # Eager's own seconds less those without carrying are what carrying takes.
    ours, eager = rounds.without_carrying(0), rounds.without_carrying(1)
    shortest = RESOLVED * (lower_decile(rounds.seconds[1]) - lower_decile(eager))
    if min(lower_decile(ours), lower_decile(eager)) <= shortest:
        return None
    # No less than `shortest`, because a round without carrying may be below 0, which has no ratio.
    change = compare_timings([max(value, shortest) for value in ours], [max(value, shortest) for value in eager])
    seconds = lower_decile(ours)
    interval = change.ratio, change.low, change.high
    means = statistics.fmean(ours), statistics.fmean(eager)
    return SolutionTime(what, seconds, lower_decile(eager), *interval, *means, len(ours))


class _EagerFailed(BackprintError):
    """Eager raises on what is timed, which is no fault of the solution."""


class _SeveralThreads(BackprintError):
    """A solution computes with more threads than eager."""


class Beside:
    """The processes that are timed beside a solution: the reference, and one that computes nothing."""

    def __init__(self, program: TaskProgram, limit: float) -> None:
        self.processes = (
            SolutionProcess(lambda: _reference_of(program), limit, 0, hidden=True),
            SolutionProcess(lambda: _without_work(program), limit, 0, hidden=True),
        )

    def __enter__(self) -> Beside:
        for process in self.processes:
            process.request("load")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.close()


def _reference_of(program: TaskProgram) -> Callable[..., Any]:
    """Return the reference as a solution, as fx runs it: eager without this house's checks."""
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
    """The two graphs, as functions, as an autograd.Function."""

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
    """Return a solution that returns tensors of the right shapes and computes nothing."""

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Any:
            ctx.inputs = inputs
            returned = tuple(zeros[name].clone() for name, _ in program.outputs)
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
    values = fresh_values(program, 0)
    zeros = {name: torch.zeros_like(value) for name, value in Reference(program)(*values.values()).items()}

    def call(*inputs: Tensor) -> Any:
        return Nothing.apply(*inputs)

    return call


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs, and tangents behind them, of several calls."""

    sets: list[list[Tensor]]


class Rounds:
    """Batches of calls of several processes, in turns: the solution (0), the reference (1), and one that computes
    nothing (2). `seconds` has those of a call in each round, by process."""

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
        self.base = list(fresh_values(program, seed + 1000).values())  # a draw that no comparison of the judge has
        results = Reference(program)(*self.base)
        self.results = [results[name] for name, _ in program.outputs]
        self.strides = {
            port.name: tuple(map(int, port.spec.stride))
            for port in program.backward.by_role("tangent")
            if isinstance(port.spec, TensorSpec) and port.spec.stride is not None and not program.sized
        }
        """Of tangents, the strides for which the backward was captured: they are passed so, as in the model."""
        self.source = torch.Generator().manual_seed(seed)
        self.chance = random.Random(seed)
        self.count = 1
        self.schedule = processes[-1].schedule  # of the process that computes nothing: all must have the same
        for process in processes:
            process.stop()

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
        for process in range(len(self.processes)):
            self.time_batch(process, self.batch())  # warm
        eager = min(self.time_batch(1, self.batch())[0] for _ in range(3))
        size = sum(value.nbytes for value in (*self.base, *self.results)) * (2 if self.step else 1)
        self.count = max(1, min(MOST_CALLS, int(BATCH_SECONDS / max(eager, 1e-6)), MOST_BYTES // max(size, 1)))
        before = processor_seconds(self.processes[0].pid)
        for _ in range(ROUNDS):
            batch = self.batch()
            turns = [partial(self.time_batch, place, batch) for place in range(len(self.processes))]
            round_ = round_in_turns(turns, self.chance)
            for times, (seconds, _) in zip(self.seconds, round_, strict=True):
                times.append(seconds / self.count)
            if wrong := self.fault_of_results(batch, round_[0][1], round_[1][1]):
                return wrong
        seconds_used = processor_seconds(self.processes[0].pid) - before
        if seconds_used > SEVERAL * sum(self.seconds[0]) * self.count + TICKS:
            raise _SeveralThreads("it computes with several threads, and eager with one")
        return ""

    def batch(self) -> Batch:
        """Return inputs of several calls, all drawn anew: floats with a gradient are those of one draw, each moved by a
        random share of its size, so that operators still take them; tangents are normal numbers."""
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

    def time_batch(self, place: int, batch: Batch) -> tuple[float, list[Any]]:
        """Send a batch to the process of this place; return the seconds until its answer, by the clock of this process,
        and its results. A process that changed how processors are shared out is a CheatFound."""
        process = self.processes[place]
        if any(other.schedule != self.schedule for other in self.processes):
            raise CheatFound("changes the priority or the processors of a process that it is timed beside")
        process.go_on()
        flat = [value for values in batch.sets for value in values]
        began = time.perf_counter()
        headers = list(put_inputs(process.inputs_memory, flat))
        length = len(batch.sets[0])
        sets = [headers[first : first + length] for first in range(0, len(headers), length)]
        calls: dict[str, Any] = dict(count=len(self.program.inputs), wanted=self.wanted, step=self.step)
        try:
            answer = process.request("calls", sets=sets, **calls)
        except CompilerFailed as error:
            if place:  # no fault of the solution
                raise _EagerFailed(f"eager raised {error}") from error
            raise
        seconds = time.perf_counter() - began
        process.stop()  # so that no thread of a solution runs while eager is timed
        return seconds, process.results_in(answer)

    def fault_of_results(self, batch: Batch, ours: list[Any], eager: list[Any]) -> str:
        """Return what is wrong with the results of timed calls, or ''; both lists have those of all calls of a batch,
        one after the other."""
        if len(ours) != len(eager):
            return f"timed calls return {len(ours)} results, and the reference {len(eager)}"
        names = [name for name, _ in self.program.outputs]
        names += [self.program.inputs[place].name for place in self.wanted] if self.step else []
        largest = max((size_of(other) for other in eager if isinstance(other, Tensor)), default=0.0)
        suspected: dict[int, None] = {}  # calls
        for place, (value, expected) in enumerate(zip(ours, eager, strict=True)):
            name = names[place % len(names)]
            if not isinstance(expected, Tensor):
                continue
            if value is None:
                value = torch.zeros_like(expected)
            if not isinstance(value, Tensor) or (value.shape, value.dtype) != (expected.shape, expected.dtype):
                return f"{name} of a timed call is {value if not isinstance(value, Tensor) else list(value.shape)}"
            error = relative(expected, value, SMALL * largest)
            size = max(size_of(expected), SMALL * largest) * LEAST.get(expected.dtype, 1e-6)
            allowed = max(ROUNDINGS, LOOSER * self.allowed.get(name, 0.0) / (size or 1.0))
            if error > allowed and (not is_inexact(expected) or bool(expected.isfinite().all())):
                suspected[place // len(names)] = None
        faults = (
            self.fault_of_call(batch.sets[call], ours[call * len(names) : (call + 1) * len(names)])
            for call in suspected
        )
        return next(filter(None, faults), "")

    def fault_of_call(self, tensors: Sequence[Tensor], results: Sequence[Tensor | None]) -> str:
        """Return what the judge finds wrong with the results of a call on these inputs and tangents, or ''.

        Two right results may be far apart where terms cancel, as in the gradient of a bias in front of a
        normalization, which is 0 but for rounding: float64 tells.
        """
        values = dict(zip((port.name for port in self.program.inputs), tensors, strict=False))
        subject = subject_of(self.program, values)
        expected = expected_of(subject, values, random=False)
        count = len(self.program.outputs)
        keys = list(expected.exact.outputs)
        ours = Forward({key: value for key, value in zip(keys, results[:count], strict=True) if value is not None}, {})
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
        """Return the seconds of a call in each round, without those of the process that computes nothing."""
        nothing = lower_decile(self.seconds[2])
        return [seconds - nothing for seconds in self.seconds[place]]


def times_of_reference(program: TaskProgram, folder: Path) -> tuple[tuple[str, float], ...]:
    """Measure a step of eager and of Inductor as a solution's is, in processes; return the seconds of each. Inductor
    compiles the folder's `reference.py`. Raise BackprintError if its results are wrong."""
    text = INDUCTOR.format(folder=str(folder))
    place = folder / ".inductor.py"
    place.write_text(text)
    try:
        with Beside(program, 300.0) as beside:
            process = SolutionProcess(solution_of_file(place), 300.0, 0)
            try:
                process.request("load")
                rounds = Rounds(program, (process, *beside.processes), 0, True, {})
                if wrong := rounds.run():
                    raise BackprintError(f"Inductor's results: {wrong}")
                rows = []
                for what, number in (("eager", 1), ("Inductor", 0)):
                    seconds = lower_decile(rounds.without_carrying(number))
                    if seconds > 0:
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

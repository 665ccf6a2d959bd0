"""A solution in the place of a compiler: a forward and a backward of the user's own, which saves what it likes.

A compiler of single graphs returns every value that eager saves, or eager's backward could not be called on them. A
solution need not: it is judged as a whole, by the judge of tasks (`tools/tasks/judge`) and with the comparisons of
`bp.check`. Here its report becomes cells like those of a compiler: one of the forward, and one of the step.

- `Judging`: a solution in a process of its own (`remote`), with the contents that it is called on.
- `TaskReport`: what the judge says of it. Each of its `rows` is a `CheckRow`, one comparison: `check` is what was
  compared (`gradient, …`, `derivative`, or results), `verdict` is `ok`, `wrong` or `not tried: …`.
- `TaskProgram`: the one Pair of a Capture as a task; `wanted` are the inputs whose gradients are compared.
- A direction is `forward` or `step`. A solution has no cell of its backward alone, which takes what only it has saved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from backprint.child import processes
from backprint.child.ends import NO_MEMORY, TIMEOUT
from backprint.common.words import BENCH_DIRECTIONS
from backprint.derive.called import run_forward
from backprint.derive.checked import DERIVATIVE, OK, WRONG, CheckRow
from backprint.derive.compared import expected_of, reference_gradients
from backprint.errors import RefusedError
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import CANNOT_TELL, NOT_THE_DERIVATIVE
from backprint.judge.timing import timing_answer
from backprint.tools.bench.cells import UNTIMED, BenchCell, BenchDerivative, BenchOutput, BenchTiming
from backprint.tools.bench.compilers.table import PAIR, Compiler, loaded_build
from backprint.tools.bench.judge import output_of_port
from backprint.tools.export.judged import one_to_the_bit
from backprint.tools.jobs.task import one_line
from backprint.tools.jobs.turns import Turns
from backprint.tools.tasks.folder import ReadTask
from backprint.tools.tasks.judge import Judging, judging, reason_of
from backprint.tools.tasks.nouns import SolutionTime, TaskReport
from backprint.tools.tasks.program import TaskProgram, captured_values, program_of
from backprint.tools.tasks.solver import function_of
from backprint.tools.tasks.solving import SolutionFailed
from backprint.tools.tasks.usage import tangents_of
from backprint.tools.tasks.writing import task_of

FORWARD, _, STEP = BENCH_DIRECTIONS

SKIPPED = "skipped"


def cells_of_solution(
    capture: Capture,
    compiler: Compiler,
    blanks: Mapping[str, BenchCell],
    timed: bool,
    derivative: bool,
    turns: Turns,
) -> Iterator[BenchCell]:
    """Judge a solution on the one Pair of a Capture, and yield a cell for each of `blanks` (direction -> the cell to
    fill in); all are `skipped` if the Pair is refused as a task. `turns` gives the solution the machine alone while it
    is timed. With `derivative`, the step's cell says whether its backward is the derivative of its forward."""
    start = time.monotonic()
    try:
        program = program_of(capture)
        read = ReadTask(folder=Path(), task=task_of(program, capture.name), program=program)  # it was read from none
        with judging(read, [_loader_of(compiler, program)]) as (solution,):
            report = solution.report(compiler.name, timed, turns.alone)
            peak_bytes = processes.status("VmHWM", solution.remote.process.pid) if solution.remote.process.pid else None
            outputs = outputs_of(solution, report)
    except RefusedError as error:  # the Pair is no task: nothing is known of the solution
        yield from (replace(blank, outcome=SKIPPED, reason=one_line(str(error))) for blank in blanks.values())
        return
    for direction, blank in blanks.items():
        outcome, reason = outcome_of(solution, report, direction)
        shown_outputs = tuple(output for output in outputs if direction == STEP or output.role != "gradient")
        cell = replace(
            blank,
            outcome=outcome,
            reason=one_line(reason),
            outputs=shown_outputs,
            timing=None,
            seconds=time.monotonic() - start,
            peak_bytes=peak_bytes,
            notes=tuple(map(one_line, notes_of(report))),
            derivative=_derivative_of_solution(report) if derivative and direction == STEP else None,
        )
        solution_time = next((measured for measured in report.times if measured.what == direction), None)
        if outcome == UNTIMED and solution_time is not None:
            timing = timing_of(solution_time)
            cell = replace(cell, outcome=timing.answer, reason="", timing=timing)
        yield cell


def _loader_of(compiler: Compiler, program: TaskProgram) -> Callable[[], Callable[..., Any]]:
    """Return the function with which the process of a solution loads it: it imports the user's class, or calls the
    user's function of both graphs (a compiler that takes a PAIR) with the captured inputs."""

    def load() -> Callable[..., Any]:
        build = loaded_build(compiler)
        if compiler.takes != PAIR:
            return function_of(build)
        graphs = program.forward.to_fx(), program.backward.to_fx()
        return function_of(build(*graphs, list(captured_values(program).values())))

    return load


# ---- The outcome


def outcome_of(solution: Judging, report: TaskReport, direction: str) -> tuple[str, str]:
    """Return the outcome of a direction, and the reason; UNTIMED is right so far, and the times decide the rest. A
    forward is right where only gradients are wrong."""
    if report.right:
        return UNTIMED, report.untimed
    end_of_process = solution.remote.ended  # in words; '' while the process lives
    if solution.raised:
        return "failed", report.reason
    if solution.remote.cheats:  # in any direction, and also where its process was ended for it
        return "wrong", report.reason
    if end_of_process:
        return _ended_as(end_of_process), end_of_process
    if direction == FORWARD and not any(of_forward(row) for row in report.wrong):
        return UNTIMED, f"its backward is wrong: {report.reason}"
    first_wrong = next((row for row in report.wrong if direction == STEP or of_forward(row)), None)
    return "wrong", report.reason if first_wrong is None or direction == STEP else reason_of(first_wrong)


def _ended_as(text: str) -> str:
    """Return the outcome of a process that ended, by the words for its end, which begin with its cause."""
    if text.startswith(TIMEOUT):
        return TIMEOUT
    return NO_MEMORY if text.startswith(NO_MEMORY) else "crashed"


def of_forward(row: CheckRow) -> bool:
    """Whether a comparison is of results, and not of gradients."""
    return not row.check.startswith("gradient") and row.check != DERIVATIVE and row.name != "a tangent"


def notes_of(report: TaskReport) -> Iterator[str]:
    """Yield what is noted of a solution."""
    tried = [row for row in report.rows if row.tried]
    yield f"{len(tried)} comparisons in {report.calls} calls, contents from seed {report.seed}"
    if report.refused:
        yield f"it raises for, which is allowed: {', '.join(report.refused)}"
    yield from report.notes


# ---- Its results beside eager's


def outputs_of(solution: Judging, report: TaskReport) -> tuple[BenchOutput, ...]:
    """Call a solution once more, and return its results and gradients beside eager's, which GraphNet's scores read;
    nothing if it cannot be called, or if the judge did not come to calling it on contents (seed 0)."""
    program, task = solution.program, solution.read.task
    if solution.remote.ended or not report.seed:
        return ()
    subject = solution.subject(solution.contents.draw_inputs())
    expected = expected_of(subject, subject.values)
    if expected.own is None:  # the captured program, which is the reference, does not run on them
        return ()
    tangents = tangents_of(expected)
    try:
        forward = run_forward(subject.ours, subject.call, subject.values)
        gradients = forward.gradients(tangents)
    except SolutionFailed:
        return ()
    roles = {name: port.role for name, port in program.outputs}
    wrong = {row.name: row.detail or row.verdict for row in reversed(report.wrong)}  # of a name the first row counts
    eager = reference_gradients(expected.own, tangents) or {}

    def output(role: str, name: str, value: Any, wanted: Any) -> BenchOutput:
        """Return one result or gradient of the solution beside eager's, `wanted`."""
        judged = output_of_port(role, name, word_of(name in wrong, value, wanted), wrong.get(name, ""), wanted, value)
        label_of_power = f"gradient of {name}" if role == "gradient" else name
        return replace(judged, power=label_of_power not in task.without_power)

    outputs = []
    for name, value in forward.outputs.items():
        label = name.removeprefix("output.")  # as `derive.called` names the results of a function
        outputs.append(output(roles[label], label, value, expected.own.outputs[name]))
    for name in program.wanted:
        wanted = eager.get(name)
        value = gradients[name]
        # A gradient that autograd does not have is one of zeros.
        outputs.append(output("gradient", name, value, wanted if wanted is not None or value is None else value * 0))
    return tuple(outputs)


def word_of(wrong: bool, value: Any, wanted: Any) -> str:
    """Return the word for a result that the judge has found `wrong` or right: it may still be equal to the bit."""
    if wrong:
        return "wrong"
    return "bitwise" if one_to_the_bit(value, wanted) else "close"


def timing_of(measured: SolutionTime) -> BenchTiming:
    """Return the times of a solution as those of a compiler. A SolutionTime says how many times faster than eager, a
    BenchTiming has its time over eager's: the inverse, with low and high changed round."""
    low, high = 1 / measured.high, 1 / measured.low
    return BenchTiming(
        answer=timing_answer(math.log(low), math.log(high), math.log1p(SAME)),
        eager=measured.eager,
        compiled=measured.seconds,
        eager_mean=measured.mean_of_eager,
        compiled_mean=measured.mean,
        ratio=1 / measured.faster,
        low=low,
        high=high,
        rounds=measured.rounds,
    )


SAME = 0.05
"""Times whose ratio is certainly within this are the same, as those of compilers are."""


def _derivative_of_solution(report: TaskReport) -> BenchDerivative:
    """Return whether the backward of a solution is the derivative of its own forward, with the largest error of the
    comparisons as its gap; unknown if none was tried."""
    rows = [row for row in report.rows if row.check == DERIVATIVE and row.tried]
    gap = max((row.error for row in rows if row.error is not None), default=None)
    if not rows:  # `Judging.derivative` tried none
        return BenchDerivative(
            CANNOT_TELL, "differences do not show it, or the captured backward is not the derivative"
        )
    word = NOT_THE_DERIVATIVE if any(row.verdict == WRONG for row in rows) else DERIVATIVE
    return BenchDerivative(word, next((row.detail for row in rows if row.verdict != OK), ""), gap)

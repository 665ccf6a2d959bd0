"""The judge of a solution: whether it is right, why not, and how fast.

The solution works in a process of its own (`solver`). Here, the reference runs, results are compared, and the clock is
read. Contents are drawn from a seed that is chosen after the solution was loaded and called once. The comparisons are
those of `bp.check`, with the solution as the function; more follow that only a judge makes: draws of other sizes of
values, inputs of which half are those of the call before, calls as a model makes them (`usage`), edge values (`edges`),
other shapes (`sizes`), and at the end, whether equal calls were equal and whether results are still what they were.

Words of this file:

- contents: the values of a task's inputs, by name.
- Remote: the solution as a function of tensors, which autograd differentiates: its calls are requests to the process.
  It notes what the solution wrote into (`written`), which results share memory (`shared`), and how it `cheats`; `ended`
  says why the process is no more, or ''.
- Program, Call, Subject: the words of `bp.check`: a callable, the arguments of one call, and what is checked with what.
- row: one comparison (CheckRow): a check, a dtype ('' if it is of none), the name of a result (`all` for all of them),
  the error, what is allowed, and a verdict: OK, WRONG, or NOT_TRIED with a reason. A Result is a row and, if one call
  shows that it is wrong, the Fault for that.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from backprint.child.processes import check_platform, prctl
from backprint.common.memory import available_bytes
from backprint.derive.called import Call, Program, in_dtype, run_forward
from backprint.derive.checked import DERIVATIVE, NOT_TRIED, OK, WRONG, CheckRow
from backprint.derive.compared import NUMBERS, NoReference, Result, Subject, expected_of
from backprint.derive.differences import products_by_differences
from backprint.derive.function import rows_of_dtype
from backprint.derive.hostile import indices_of
from backprint.derive.otherwise import excuse_rounding
from backprint.derive.reproduced import Fault
from backprint.derive.setting import is_inexact, to_float64
from backprint.derive.unusual import rows_for_inputs
from backprint.errors import RefusedError
from backprint.judge.closeness import LEAST, distance, precise
from backprint.tools.tasks.edges import edge_rows
from backprint.tools.tasks.folder import ReadTask
from backprint.tools.tasks.nouns import FirstWrong, SolutionTime, TaskReport, row_without_numbers
from backprint.tools.tasks.program import Reference, ReferenceFailed, TaskProgram, captured_values, fresh_values
from backprint.tools.tasks.sizes import other_sizes
from backprint.tools.tasks.solver import PR_SET_DUMPABLE
from backprint.tools.tasks.solving import Remote, SolutionFailed, SolutionProcess, SolutionRaised
from backprint.tools.tasks.timing import time_against_eager
from backprint.tools.tasks.usage import usage_rows
from backprint.values.settings import outside_modes, preserving_random_states

SCALES = (1.0, 1.0, 1e-2, 8.0)
"""How large the contents of further draws are, relative to the captured ones. The first draw has all checks."""

LARGER = "inputs times 8"
"""The check of larger draws, at which functions saturate: other rounding is allowed there, as for edge values."""

DRAWS = 8
"""How often contents are drawn until they move an output: those of a spiking program may not."""

PAUSE = 0.4
"""Seconds before results are looked at again: what a thread of the solution does to them later is seen."""

LIMIT = 60.0
"""Seconds that a solution has for an answer."""

WARM_UP = 300.0
"""Seconds that a solution has to load, and for its first call: compilers take long."""


def judge(
    read: ReadTask,
    load: Callable[[], Callable[..., Any]],
    title: str,
    *,
    timed: bool = True,
    times: float = 2.0,
    limit: float = LIMIT,
    warm_up: float = WARM_UP,
    memory: int = 0,
    first: bool = False,
) -> TaskReport:
    """Judge a solution of a task, which `load` returns in the solution's own process, and return the report, with
    `title` as the name of the solution.

    If it is right, and `timed`, it is timed too. Results may be off by `times` as much as eager is. `limit` and
    `warm_up` are seconds (LIMIT, WARM_UP), `memory` the bytes that the process may take: with 0, nine tenths of what is
    free. With `first`, the judge stops at the first fault.
    """
    options: dict[str, Any] = dict(times=times, limit=limit, warm_up=warm_up, memory=memory, first=first)
    (report,) = judge_together(read, [(title, load)], timed=timed, **options)
    return report


def judge_together(
    read: ReadTask,
    solutions: Sequence[tuple[str, Callable[[], Callable[..., Any]]]],
    *,
    timed: bool = False,
    times: float = 2.0,
    limit: float = LIMIT,
    warm_up: float = WARM_UP,
    memory: int = 0,
    first: bool = False,
) -> list[TaskReport]:
    """Return the reports of several solutions of a task, each a title and what loads it; the options are those of
    `judge`.

    All are loaded and called once before the seed is drawn, so that they are judged by the same contents, for which the
    reference runs once.
    """
    options: dict[str, Any] = dict(times=times, limit=limit, warm_up=warm_up, memory=memory, first=first)
    reports = []
    with judging(read, [load for _, load in solutions], **options) as judgings:
        for (title, _), solution in zip(solutions, judgings, strict=True):
            reports.append(solution.report(title, timed))
            solution.remote.process.close()
    return reports


@contextlib.contextmanager
def judging(
    read: ReadTask,
    loads: Sequence[Callable[[], Callable[..., Any]]],
    *,
    times: float = 2.0,
    limit: float = LIMIT,
    warm_up: float = WARM_UP,
    memory: int = 0,
    first: bool = False,
) -> Iterator[list[Judging]]:
    """Open a block with the processes of solutions: each is forked, loads its solution and calls it once, and is ended
    with the block. The block gets a Judging of each. UsageError where processes cannot be watched."""
    check_platform()
    bytes_of_each = memory or int(available_bytes() * 0.9)
    contents = Contents(read)
    processes: list[SolutionProcess] = []
    with outside_modes(), preserving_random_states():
        try:
            for load in loads:
                processes.append(SolutionProcess(load, warm_up, bytes_of_each))
            remotes = [Remote(read.program, process) for process in processes]
            judgings = [Judging(read, contents, remote, times, limit, first) for remote in remotes]
            for solution in judgings:
                solution.load()
            yield judgings
        finally:
            for process in processes:
                process.close()
            prctl(PR_SET_DUMPABLE, 1)  # SolutionProcess has hidden this process's memory from others: show it again


class Contents:
    """What solutions of a task are judged by: inputs that are drawn from one seed, and the reference's results.

    `captured` are the inputs of the capture, and `drawn` those that were drawn, by offset and scale (`draw_inputs`).
    """

    def __init__(self, read: ReadTask) -> None:
        self.task, self.program = read.task, read.program
        # It remembers results, for calls on equal inputs; `without_cache` is the same where operators must be seen to
        # run. Neither has parameters of a module, and what it draws are inputs, so the seed says nothing.
        self.reference = Program(
            Reference(read.program, MOST_REMEMBERED),
            state={},
            seed=0,
            is_pure=True,
            without_cache=Program(Reference(read.program), state={}, seed=0, is_pure=True),
        )
        self.captured = captured_values(read.program)
        self.drawn: dict[tuple[int, float], dict[str, Tensor]] = {}
        self.seed = 0

    def draw(self) -> None:
        """Draw the seed, with which the contents move an output; RefusedError if several draws move none. A seed that
        was drawn stays, so that all solutions get the same contents."""
        if self.seed:  # 0: not drawn
            return
        for _ in range(DRAWS):
            self.seed = int.from_bytes(os.urandom(6), "little") or 1
            self.drawn.clear()
            if self.has_power(self.draw_inputs()):
                return
        raise RefusedError(
            f"{self.task.name}: no output moves with contents that were drawn {DRAWS} times, so nothing would be "
            "seen of a wrong solution"
        )

    def draw_inputs(self, offset: int = 0, scale: float = 1.0) -> dict[str, Tensor]:
        """Return inputs drawn from the seed plus `offset`, floats times `scale`. Each number is another draw: callers
        choose numbers (1 to 4, 51, 101) that no other has."""
        if (offset, scale) not in self.drawn:
            self.drawn[offset, scale] = fresh_values(self.program, self.seed + offset, scale)
        return self.drawn[offset, scale]

    def has_power(self, values: Mapping[str, Tensor]) -> bool:
        """Whether these contents move an output by more than rounding, from what it is on the captured ones."""
        before, now = (self.exact(contents) for contents in (self.captured, values))
        least = LEAST.get(self.kind, 1e-3)  # what rounding may make, relative to the largest value
        return any(is_inexact(exact) and distance(exact, before[name]) > least for name, exact in now.items())

    def exact(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the reference's results in float64."""
        widened = {name: to_float64(value) for name, value in values.items()}
        return run_forward(self.reference, self.program.call, widened).outputs

    @property
    def kind(self) -> torch.dtype:
        """The dtype of the first input with a gradient, by which rounding is measured."""
        kind: torch.dtype = getattr(torch, next(port.dtype for port in self.task.inputs if port.differentiable))
        return kind


MOST_REMEMBERED = 512 << 20
"""The bytes of the reference's results that the judge keeps, for calls on equal inputs."""


class Judging:
    """One solution being judged.

    `rows` are the comparisons so far, `reason` says why it is not right ('' as long as it is), and `wrong` is the first
    wrong element. `refused` has the checks for which it raised and may, and `notes` what else the report says. With
    `first`, the judge stops at the first fault.
    """

    def __init__(
        self, read: ReadTask, contents: Contents, remote: Remote, times: float, limit: float, first: bool
    ) -> None:
        self.read, self.contents, self.remote = read, contents, remote
        self.times, self.limit, self.first = times, limit, first
        self.program: TaskProgram = read.program
        self.rows: list[CheckRow] = []
        self.wrong: FirstWrong | None = None
        self.reason = ""
        self.refused: dict[str, None] = {}
        self.notes: list[str] = []
        self.text = ""
        """The captured dtype, in words."""
        self.raised = False
        """Whether it raised when it was loaded or called first."""

    def report(
        self, title: str, timed: bool, alone: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    ) -> TaskReport:
        """Judge the solution, and return the report, with `title` as its name.

        If it is right and `timed`, it is timed: in a block of `alone`, in which nothing else runs on the machine. Each
        timed call is compared too, so that a solution may turn out wrong there. One that failed when it was loaded is
        wrong, and not called again.
        """
        measured: tuple[SolutionTime, ...] = ()
        untimed = ""  # why it was not timed
        if not self.reason:
            self.contents.draw()
            values = self.contents.draw_inputs()
            self.text = self.subject(values).text
            for result in self.results(values):
                self.add_row(*result)
                if self.reason and self.first:
                    break
        if not self.reason and timed:
            # Of several rows of a name, the first counts: `reversed`, because the last one written stays.
            allowed = {row.name: row.allowed for row in reversed(self.rows) if row.allowed and row.check in FIRST_DRAW}
            seed = self.contents.seed
            with alone():
                timing = time_against_eager(self.read.task, self.remote, seed, self.limit, allowed)
            measured, untimed = timing.times, timing.untimed
            if timing.wrong:
                self.add_row(row_without_numbers("timed calls", "", "all", WRONG, timing.wrong), fault=None)
        self.remote.process.listen()  # reads what it printed
        if self.remote.process.printed > MOST_PRINTED:
            self.notes.append(f"it printed {self.remote.process.printed:,} bytes")
        if self.reason:
            measured, untimed = (), "it is wrong" if timed else ""
        return TaskReport(
            task=self.read.task.name,
            solution=title,
            right=not self.reason,
            reason=self.reason,
            rows=tuple(self.rows),
            first=self.wrong,
            refused=tuple(self.refused),
            notes=tuple(self.notes),
            times=measured,
            untimed=untimed or ("" if timed else "it was not asked for"),
            seed=self.contents.seed,
            calls=self.remote.calls,
        )

    # ---- What is done

    def load(self) -> None:
        """Load the solution, and call and differentiate it once, on the captured inputs: what it compiles, it compiles
        now. If it fails, note why (`fail`).

        Of its results only the shapes are compared, and they are forgotten: later calls on equal inputs are not
        compared with this one. From now on the process has `limit` seconds for an answer.
        """
        values = self.contents.captured
        try:
            self.remote.ask("load", draws=bool(self.program.draws))
            call = replace(self.program.call, values=values)
            forward = run_forward(self.ours, call, values)
            for name, right in run_forward(self.contents.reference, call, values).outputs.items():
                if (shape := list(forward.outputs[name].shape)) != list(right.shape):
                    self.fail(f"{shown(name)} has the shape {shape}, and the reference's {list(right.shape)}")
                    return
            forward.gradients({name: torch.ones_like(forward.outputs[name]) for name in forward.differentiable})
        except SolutionFailed as error:
            self.raised = isinstance(error, SolutionRaised)
            self.fail(str(error))
        self.remote.process.limit_answers(self.limit)
        self.remote.heard.clear()

    def results(self, values: Mapping[str, Tensor]) -> Iterator[Result]:
        """Make every comparison and yield its row; a stage that ends in an error becomes a row. `values` are the first
        draw. Raise RefusedError if nothing is wrong, but what has to be compared (NEEDED) could not be: the task is at
        fault then.

        The caller adds each row to `self.rows` before it asks for the next.
        """
        stages: dict[str, Callable[[], Iterator[Result]]] = {
            "first draw": lambda: rows_of_dtype(self.subject(values), order=1, indices=self.indices),
            "memory": self.memory_rows,
            "usage": lambda: usage_rows(self.subject(values), self.remote, self.contents.draw_inputs(51)),
            "further draws": lambda: self.further_draws(values),
            "edge values": lambda: edge_rows(self.subject(values), self.names_of_inputs()),
            "other sizes": lambda: other_sizes(self.program, self.subject, self.contents.seed),
            **{name: partial(self.in_dtype, values, getattr(torch, name)) for name in self.read.task.dtypes},
            DERIVATIVE: lambda: self.derivative(values),
            "at the end": self.rows_on_all_calls,
        }
        for stage, rows in stages.items():
            try:
                yield from rows()
            except SolutionFailed as error:
                yield Result(row_without_numbers(stage, "", "all", WRONG, f"it raised {error}"))
            except ReferenceFailed as error:
                self.remote.again = False  # `further_draws` sets it, and may have ended here
                yield Result(row_without_numbers(stage, "", "all", f"{NOT_TRIED}: the reference raised {error}"))
        tried = {row.check for row in self.rows if row.tried}
        compared = {row.name for row in self.rows if row.tried}
        names = [*(name for name, _ in self.program.outputs), *self.program.wanted]
        if never := [name for name in names if name not in compared]:
            self.notes.append(f"never compared, as the reference has no numbers there: {', '.join(never)}")
        if not self.reason and not tried.issuperset(NEEDED):
            raise RefusedError(
                f"{self.read.task.name}: the reference does not run on contents that were drawn: "
                f"{'; '.join(row.verdict for row in self.rows if not row.tried)[:400]}"
            )

    def subject(self, values: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> Subject:
        """Return the solution beside its reference, on these values, with floats in `dtype`, or as they are with
        None."""
        call = replace(self.program.call, values=dict(values))
        return Subject(
            call,
            self.ours,
            self.contents.reference,
            has_reference=True,
            dtype=dtype,
            values=in_dtype(values, dtype),
            times=self.times,
        )

    @property
    def ours(self) -> Program:
        """The solution as a program: without parameters of a module, and with a seed that its process does not see."""
        return Program(self.remote, state={}, seed=0)

    def indices(self) -> tuple[str, ...]:
        """Return the inputs with which the reference reads or adds at indices."""
        known = {port.name for port in self.program.inputs}
        return tuple(name for name in indices_of(self.program.forward) if name in known)

    def names_of_inputs(self) -> list[str]:
        """Return the inputs with a gradient: those of the call first, then parameters."""
        roles = {port.name: port.role for port in self.program.inputs}
        return sorted(self.program.wanted, key=lambda name: roles[name] != "input")

    def further_draws(self, values: Mapping[str, Tensor]) -> Iterator[Result]:
        """Yield rows for further draws, and for inputs that differ from `values`, the first draw, in a part alone.
        Those of every second draw are put in the memory of the call before (`again`), so that a solution that remembers
        results by the address of its inputs is wrong."""
        for number, scale in enumerate(SCALES, 1):
            self.remote.again = number % 2 == 1
            drawn = self.contents.draw_inputs(number, scale)
            check = f"draw {number + 1}" if scale == 1.0 else f"inputs times {scale:g}"
            yield from self.compare_results(check, drawn)
        for check, drawn in _partly_changed_inputs(
            self.names_of_inputs(), values, self.contents.draw_inputs(101), self.contents.seed
        ):
            yield from self.compare_results(check, drawn)
        self.remote.again = False

    def compare_results(self, check: str, values: Mapping[str, Tensor]) -> Iterator[Result]:
        """Yield rows for outputs, and gradients for random tangents, with these inputs. A solution that raises is
        wrong: the inputs are of the captured dtypes and shapes."""
        subject = self.subject(values)
        try:
            expected = expected_of(subject, subject.values)
        except NoReference as error:
            yield Result(row_without_numbers(check, subject.text, "all", f"{NOT_TRIED}: {error}"))
            return
        results = rows_for_inputs(subject, check, values, expected)
        # `excuse_rounding`: not wrong if the reference's result moves as far when its operators round otherwise.
        for row, fault in excuse_rounding(subject, results) if check == LARGER else results:
            yield Result(_refusal_is_wrong(row), fault)

    def in_dtype(self, values: Mapping[str, Tensor], dtype: torch.dtype) -> Iterator[Result]:
        """Yield rows in another dtype, if the solution takes it."""
        subject = self.subject(values, dtype)
        try:
            run_forward(self.ours, subject.call, subject.values)
        except SolutionFailed as error:
            yield Result(
                row_without_numbers("forward", subject.text, "all", f"{NOT_TRIED}: the function raised {error}")
            )
            return
        yield from rows_of_dtype(subject, order=1, indices=self.indices)

    def derivative(self, values: Mapping[str, Tensor]) -> Iterator[Result]:
        """Yield a row for each input: whether the backward is the derivative of the solution's own forward, by
        differences in float64. Where the reference's own backward does not pass this, nothing is said.

        A gap is how far the two sides of the product of a gradient and a direction are apart, relative to their terms.
        """
        if not self.read.task.is_derivative:
            return
        call = replace(self.program.call, values=dict(values))
        if not self.takes_float64(call):
            why = "in float64 it does not return what it returns in the task's dtypes"
            yield Result(row_without_numbers(DERIVATIVE, "float64", "all", f"{NOT_TRIED}: {why}"))
            return
        reference = {product.name: product for product in products_by_differences(call, self.contents.reference)}
        for product in products_by_differences(call, self.ours):
            other = reference.get(product.name)
            if product.not_tried or other is None or other.not_tried or other.gap > other.allowed:
                why = product.not_tried or "differences do not show it of the reference either"
                yield Result(row_without_numbers(DERIVATIVE, "float64", product.name, f"{NOT_TRIED}: {why}"))
                continue
            allowed = max(product.allowed, self.times * other.gap, LOOSE)
            verdict = OK if product.gap <= allowed else WRONG
            detail = "its backward is not the derivative of its own forward" if verdict == WRONG else ""
            yield Result(CheckRow(DERIVATIVE, "float64", product.name, product.gap, allowed, verdict, detail))

    def takes_float64(self, call: Call) -> bool:
        """Whether the solution returns in float64 about what the reference does: no task has float64 among its dtypes,
        and kernels of torch 2.13 return other numbers for a mask in float32 beside inputs in float64."""
        widened = {name: to_float64(value) for name, value in call.values.items()}
        right = self.contents.exact(call.values)
        try:
            outputs = run_forward(self.ours, call, widened).outputs
        except SolutionFailed:
            return True  # the differences say why it raises
        return all(
            value.shape == right[name].shape and distance(value, right[name]) <= ABOUT
            for name, value in outputs.items()
            if is_inexact(value)
        )

    def memory_rows(self) -> Iterator[Result]:
        """Yield a row that is wrong if a result is a view of an input or of another: the reference's never is."""
        for text in self.remote.shared:  # `y is a view of x`: the first word is the name of a result
            yield Result(row_without_numbers("memory", "", text.split(" ")[0], WRONG, text))

    def rows_on_all_calls(self) -> Iterator[Result]:
        """Yield rows on all calls together: what was written, whether equal calls were equal, whether the results that
        the process holds are still what they were, and shared memory once more, which a later call may have shown."""
        for name in self.remote.written:  # an input, `a tangent`, or `what it saved, …`
            yield Result(row_without_numbers("mutation", "", name.partition(",")[0], WRONG, f"it writes into {name}"))
        worst = max((heard.apart for heard in self.remote.heard.values()), default=0.0)  # in roundings
        verdict = OK if worst <= ROUNDINGS else WRONG
        detail = "two calls on equal inputs return different results" if verdict == WRONG else ""
        if verdict == OK and worst:
            self.notes.append(f"two equal calls differ by up to {worst:.1e} roundings of the largest value")
        yield Result(CheckRow("equal calls", "", "all", worst, ROUNDINGS, verdict, detail))
        time.sleep(PAUSE)  # so that a thread of the solution has time to change what it returned
        changed = self.remote.changed_later()
        yield Result(row_without_numbers("held results", "", "all", WRONG if changed else OK, changed))
        yield from self.memory_rows()

    # ---- What came of it

    def add_row(self, row: CheckRow, fault: Fault | None) -> None:
        """Note a comparison, and the reason if it is the first that is wrong.

        A function that `bp.check` leaves open is no solution: one with random numbers of its own is wrong, and so is
        one that raises, except for the checks in ALLOWED and in another dtype, where that is only noted (`refused`).
        """
        row = replace(row, name=shown(row.name))
        if NUMBERS in row.verdict:  # `bp.check` saw random numbers; the task's own are inputs
            row = replace(row, verdict=WRONG, detail="it does not return the same for equal inputs")
        if RAISED in row.verdict:
            if self.remote.ended:  # its process has ended: no refusal
                row = replace(row, verdict=WRONG, detail=self.remote.ended)
            elif row.dtype == self.text and not row.check.endswith(ALLOWED):
                row = _refusal_is_wrong(row)
            else:
                self.refused[f"{row.check} ({row.dtype})"] = None
        self.rows.append(row)
        if row.verdict == WRONG and not self.reason:
            self.wrong = first_wrong(fault, self.remote)
            self.fail(reason_of(row))

    def fail(self, reason: str) -> None:
        """Note why it is not right. The first call counts; if the solution was found to cheat until then, that is the
        reason, else `reason`, with what it wrote into. A failure before any row, as of the first call, becomes one."""
        cheats = "; ".join(self.remote.cheats)
        written = [f"it writes into {name}" for name in self.remote.written]
        reason = "; ".join([reason, *(text for text in written if text not in reason)])
        self.reason = self.reason or cheats or reason
        if not self.rows:
            self.rows.append(row_without_numbers("first call", "", "all", WRONG, self.reason))


ALLOWED = ("transposed inputs", "sliced inputs", "strided inputs")
"""The checks for which a solution may raise, as it may in every other dtype."""

ROUNDINGS = 64.0
"""How many roundings two equal calls may differ by: kernels add up in other orders in memory that begins elsewhere."""

RAISED = "the function raised"
"""What `bp.check` writes into a verdict where the solution raised."""

NEEDED = ("forward", "gradient, random tangents", "forward, draw 2", "gradient, draw 2", "equal calls", "held results")
"""What must have been compared, so that a solution is right: else nothing is known."""

FIRST_DRAW = ("forward", "gradient, random tangents")
"""The checks of the first draw that say how far results may be off."""

LOOSE = 1e-4
"""A gap of the derivative by differences that is no fault: what a float32 kernel in a float64 call has."""

ABOUT = 1e-2
"""How far results in float64 may be off, relative to the largest value, so that they are the function's."""

MOST_PRINTED = 10_000
"""Bytes of output from which on a note says so."""


def _refusal_is_wrong(row: CheckRow) -> CheckRow:
    """Return a row in which a refusal is a fault: the inputs have the captured dtypes, shapes and strides."""
    if RAISED in row.verdict:
        return replace(row, verdict=WRONG, detail=row.verdict.removeprefix(f"{NOT_TRIED}: "))
    return row


def _partly_changed_inputs(
    inputs: Sequence[str], values: Mapping[str, Tensor], other: Mapping[str, Tensor], seed: int
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield inputs of which one at a time has other contents (those in `other`) but for its first elements, or in one
    element alone, which `seed` chooses; each with the name of its check. A solution that recognizes inputs by a few of
    their elements is wrong on them."""
    source = torch.Generator().manual_seed(seed)
    names = [name for name in inputs if values[name].numel() > 1]
    for name in names[:MOST_INPUTS]:
        value = values[name]
        is_unchanged = torch.arange(value.numel()).reshape(value.shape) < min(8, value.numel() // 2)
        yield (
            f"other elements of {name}",
            {**values, name: torch.where(is_unchanged.to(value.device), value, other[name])},
        )
        one_changed = value.clone()
        flat_index = int(torch.randint(1, value.numel(), (1,), generator=source))
        index = tuple(int(part) for part in torch.unravel_index(torch.tensor(flat_index), value.shape))
        one_changed[index] += 3 * value.abs().max() + 1  # by more than any other element has, so that it shows
        yield f"one element of {name}", {**values, name: one_changed}


MOST_INPUTS = 4
"""Of how many inputs the elements are changed in part."""


def shown(name: str) -> str:
    """Return the name of a result without the word that every result of a function has: `output.y` -> `y`."""
    return name.removeprefix("output.")


def reason_of(row: CheckRow) -> str:
    """Return why a row is wrong, in words."""
    what = f"{row.name}: " if row.name != "all" else ""
    if row.error is not None and row.allowed is not None:
        numbers = f"off by {row.error:.3g}, where {row.allowed:.3g} is allowed"
        where = f"{row.check}, {row.dtype}" if row.dtype else row.check
        return f"{where}: {what}{numbers}{f': {row.detail}' if row.detail else ''}"
    return f"{row.check}: {what}{row.detail or row.verdict}"


def first_wrong(fault: Fault | None, remote: Remote) -> FirstWrong | None:
    """Return the element of the wrong result that is off by most; None if it is not among the last results, or has no
    real numbers of the reference's shape."""
    if fault is None:
        return None
    value = remote.last.get(shown(fault.name))  # of the last call, which is mostly the one that was compared
    wanted = fault.expected
    if value is None or value.shape != wanted.shape or not wanted.numel() or wanted.is_complex():
        return None
    ours, right = precise(value), precise(wanted)
    # 0 where equal infinities would make NaN, and where the reference has NaN; infinite where the solution has NaN.
    off = torch.where((ours == right) | right.isnan(), 0.0, (ours - right).abs().nan_to_num(float("inf")))
    flat_index = int(off.argmax())
    index = (
        tuple(int(part) for part in torch.unravel_index(torch.tensor(flat_index), right.shape)) if right.dim() else ()
    )
    return FirstWrong(shown(fault.name), index, float(ours[index]), float(right[index]))

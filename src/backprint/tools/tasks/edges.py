"""Edge values among the inputs: zeros, infinities, NaN, very large and very small numbers.

A program need not take them: what the reference returns in its own dtype and in float64 for such an input counts only
where both are of one kind, a number, NaN or an infinity. A NaN that it makes of an infinity, as inf - inf is, does not
count. Gradients are compared for finite edge values alone.

A Subject is a solution (`ours`) beside its reference, with the call and its values by name. An Expected has the results
of the reference: in float64 (`exact`), in the inputs' dtype (`own`, or None if it does not run so), and in float64 on
inputs that are rounded once more (`moved`, or None). A Result is a row of the table of comparisons and the Fault, the
call that shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backprint.derive.called import run_forward
from backprint.derive.checked import NOT_TRIED, OK, WRONG, CheckRow
from backprint.derive.compared import NoReference, Result, Subject, expected_of, measure_difference
from backprint.derive.otherwise import excuse_rounding
from backprint.derive.reproduced import Fault
from backprint.derive.setting import is_inexact
from backprint.derive.unusual import rows_for_inputs
from backprint.judge.closeness import precise, size_of
from backprint.judge.occasions import EDGES, OCCASIONS, certain_elements, first_of_other_kind
from backprint.tools.tasks.nouns import row_without_numbers
from backprint.tools.tasks.program import ReferenceFailed
from backprint.tools.tasks.solving import SolutionFailed

MOST_INPUTS = 3
"""In how many inputs edge values are put."""


def edge_rows(subject: Subject, names: Sequence[str]) -> Iterator[Result]:
    """Yield rows for edge values in one of these inputs at a time, the first MOST_INPUTS of them, and for zeros in all
    of one."""
    for name in names[:MOST_INPUTS]:
        value = subject.values[name]
        if not value.is_floating_point() or not value.numel():
            continue
        for word, edge in EDGES.items():
            changed = {**subject.values, name: OCCASIONS[word].make(value)}  # with the edge value in some elements
            yield from _at_edge(subject, f"{word} in {name}", changed, finite=math.isfinite(edge))
        zeros = {**subject.values, name: torch.zeros_like(value)}
        yield from _at_edge(subject, f"{name} of zeros", zeros, finite=True)


def _at_edge(subject: Subject, check: str, values: dict[str, Tensor], finite: bool) -> Iterator[Result]:
    """Yield rows for these inputs: where the edge value (`finite`) and all results are finite, outputs and gradients as
    for any inputs; else outputs alone, by their kind. Nothing, if the reference does not run on them; a solution may
    raise too, and is then not tried."""
    try:
        expected = expected_of(subject, values)
    except (NoReference, ReferenceFailed):
        return
    except SolutionFailed as error:  # it is called too, to see whether it draws random numbers
        yield Result(row_without_numbers(check, subject.text, "output", f"{NOT_TRIED}: the function raised {error}"))
        return
    if expected.own is None:
        return
    if finite and all(is_finite(value) for value in (*expected.exact.outputs.values(), *expected.own.outputs.values())):
        subject_at_edge = replace(subject, values=values)
        # A wrong row is excused if the reference's result moves as far when its operators round otherwise.
        yield from excuse_rounding(subject_at_edge, rows_for_inputs(subject_at_edge, check, values, expected))
        return
    try:
        outputs = run_forward(subject.ours, subject.call, values).outputs
    except SolutionFailed as error:
        yield Result(row_without_numbers(check, subject.text, "output", f"{NOT_TRIED}: the function raised {error}"))
        return
    for name, exact in expected.exact.outputs.items():
        ours, own = outputs.get(name), expected.own.outputs[name]
        if ours is None or ours.shape != exact.shape or not is_inexact(exact) or not exact.numel():
            continue  # another shape is wrong for other inputs too, and is said there
        moved = None if expected.moved is None else expected.moved.outputs[name]
        yield compare_at_edge(subject, check, name, values, ours, exact, own, moved)


def compare_at_edge(
    subject: Subject,
    check: str,
    name: str,
    values: dict[str, Tensor],
    ours: Tensor,
    exact: Tensor,
    own: Tensor,
    moved: Tensor | None,
) -> Result:
    """Return the row of one output, that of the solution being `ours`: wrong if an element is of another kind where the
    reference is sure of its kind, or too far from it where it is finite."""
    ours, exact, own = precise(ours), precise(exact), precise(own)
    moved = None if moved is None else precise(moved)
    certain = certain_elements(check, exact, [own, *([] if moved is None else [moved])])
    fault = Fault(
        program=subject.ours,
        call=subject.call,
        values=values,
        name=name,
        expected=exact,
        check=check,
        outputs=(),  # only a file that reproduces a fault needs them, and none is written for a task
    )
    if detail := first_of_other_kind(certain, ours, exact):
        return Result(row_without_numbers(check, subject.text, name, WRONG, detail), fault)
    certain_and_finite = certain & exact.isfinite()
    if not bool(certain_and_finite.any()):
        return Result(CheckRow(check, subject.text, name, 0.0, 0.0, OK))

    def zero_elsewhere(value: Tensor) -> Tensor:
        """Return a tensor with 0 where it is not compared: equal on both sides, because it is no number, or not sure
        to be one."""
        return torch.where(certain_and_finite, value, 0.0)

    ours, exact, own = zero_elsewhere(ours), zero_elsewhere(exact), zero_elsewhere(own)
    moved = None if moved is None else zero_elsewhere(moved)
    difference = measure_difference(subject, ours, exact, own, moved, largest=size_of(exact))
    return Result(CheckRow(check, subject.text, name, difference.error, difference.allowed, difference.verdict), fault)


def is_finite(value: Tensor) -> bool:
    """Whether a tensor has neither NaN nor infinities; integers have none."""
    return not is_inexact(value) or bool(value.isfinite().all())

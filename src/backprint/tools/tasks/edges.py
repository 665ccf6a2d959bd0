"""Edge values among the inputs: zeros, infinities, NaN, very large and very small numbers.

A program need not take them: what the reference returns in its own dtype and in float64 for such an input counts only
where both are of one kind, a number, NaN or an infinity. A NaN that it makes of an infinity, as inf - inf is, does not
count. Gradients are compared for finite edge values alone.
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
from backprint.tools.tasks.program import ReferenceFailed
from backprint.tools.tasks.solving import SolutionFailed

MOST_INPUTS = 3
"""In how many inputs edge values are put."""


def edge_rows(subject: Subject, names: Sequence[str]) -> Iterator[Result]:
    """Yield rows for edge values in one of these inputs at a time, and zeros in all of one."""
    for name in names[:MOST_INPUTS]:
        value = subject.values[name]
        if not value.is_floating_point() or not value.numel():
            continue
        for word, edge in EDGES.items():
            changed = {**subject.values, name: OCCASIONS[word].make(value)}
            yield from _at_edge(subject, f"{word} in {name}", changed, math.isfinite(edge))
        yield from _at_edge(subject, f"{name} of zeros", {**subject.values, name: torch.zeros_like(value)}, True)


def _at_edge(subject: Subject, check: str, values: dict[str, Tensor], finite: bool) -> Iterator[Result]:
    """Yield rows for these inputs: where the edge value and all results are finite, outputs and gradients as for any
    inputs; else outputs alone, by their kind."""
    try:
        expected = expected_of(subject, values)
    except (NoReference, ReferenceFailed):
        return  # the reference refuses such a value
    except SolutionFailed as error:
        yield Result(CheckRow(check, subject.text, "output", None, None, f"{NOT_TRIED}: the function raised {error}"))
        return
    if expected.own is None:
        return
    if finite and all(is_finite(value) for value in (*expected.exact.outputs.values(), *expected.own.outputs.values())):
        subject_at_edge = replace(subject, values=values)
        yield from excuse_rounding(subject_at_edge, rows_for_inputs(subject_at_edge, check, values, expected))
        return
    try:
        outputs = run_forward(subject.ours, subject.call, values).outputs
    except SolutionFailed as error:
        yield Result(CheckRow(check, subject.text, "output", None, None, f"{NOT_TRIED}: the function raised {error}"))
        return
    for name, exact in expected.exact.outputs.items():
        ours, own = outputs.get(name), expected.own.outputs[name]
        if ours is None or ours.shape != exact.shape or not is_inexact(exact) or not exact.numel():
            continue
        moved = None if expected.moved is None else expected.moved.outputs[name]
        yield compare_at_edge(subject, check, name, values, (ours, exact, own, moved))


def compare_at_edge(
    subject: Subject,
    check: str,
    name: str,
    values: dict[str, Tensor],
    results: tuple[Tensor, Tensor, Tensor, Tensor | None],
) -> Result:
    """Return the row of one output: of the same kind where the reference's is sure, and near it where it is finite."""
    ours, exact, own, moved = (None if value is None else precise(value) for value in results)
    assert ours is not None
    assert exact is not None
    assert own is not None
    certain = certain_elements(check, exact, [own, *([] if moved is None else [moved])])
    fault = Fault(
        program=subject.ours, call=subject.call, values=values, name=name, expected=exact, check=check, outputs=()
    )
    if detail := first_of_other_kind(certain, ours, exact):
        return Result(CheckRow(check, subject.text, name, None, None, WRONG, detail), fault)
    certain_and_finite = certain & exact.isfinite()
    if not bool(certain_and_finite.any()):
        return Result(CheckRow(check, subject.text, name, 0.0, 0.0, OK))
    # What is no number, or not sure to be one, is 0 on both sides, and so not compared.
    compared = [
        None if value is None else torch.where(certain_and_finite, value, 0.0) for value in (ours, exact, own, moved)
    ]
    assert compared[1] is not None
    difference = measure_difference(subject, compared[0], compared[1], compared[2], compared[3], size_of(compared[1]))
    return Result(CheckRow(check, subject.text, name, difference.error, difference.allowed, difference.verdict), fault)


def is_finite(value: Tensor) -> bool:
    """Whether a tensor has neither NaN nor infinities; integers have none."""
    return not is_inexact(value) or bool(value.isfinite().all())

"""NaN in the values that a mask hides: nothing else of a function's results may change.

A Subject is a function (`ours`) with its reference and a call; `values` are the values of the call's tensors by name,
and `wanted` names the tensors whose gradients are compared. `hidden` is a tensor of bools in the shape of the input
`name`: True at the places that a mask hides. A Result is a row of the table of `bp.check`, with what a file needs that
shows its fault; `check` is the row's name. `subject.tiny` is the least error that the reference is taken to have,
relative to the largest value of a result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from backprint.derive.called import error_text, run_forward
from backprint.derive.compared import Difference, Expected, Result, Subject, result_not_tried, row_of_difference
from backprint.derive.reproduced import Fault
from backprint.derive.setting import drawn_like, own_source
from backprint.judge.closeness import largest_difference, size_of


def mask_rows(subject: Subject, expected: Expected) -> Iterator[Result]:
    """Yield rows for values that the reference does not read, because a mask hides them: with NaN there, nothing else
    may change."""
    masks = [name for name in subject.call.inputs if subject.values[name].dtype is torch.bool]
    for mask in masks:
        for name in subject.call.inputs:
            value = subject.values[name]
            if not value.is_floating_point() or not value.numel():
                continue
            for hidden in _hidden_places(subject, name, subject.values[mask], expected):
                seen = _independent_of_hidden(subject, name, hidden)
                if seen is not None:  # the reference does not read these places: they are hidden
                    yield from _rows_with_nan(subject, f"NaN in {name} behind {mask}", name, hidden, seen)
                    break


def _hidden_places(subject: Subject, name: str, mask: Tensor, expected: Expected) -> Iterator[Tensor]:
    """Yield guesses at the places of an input that a mask hides, each a tensor of bools: where the mask is False, where
    it is True, and rows whose gradient is 0. `_independent_of_hidden` says which guess is right."""
    value = subject.values[name]
    # A mask broadcasts from the last dimensions, as in attention, or covers the first, as one of padded tokens does.
    for shown in (mask, mask.reshape([*mask.shape, *[1] * max(0, value.dim() - mask.dim())])):
        try:
            places = shown.expand(value.shape)
        except RuntimeError:
            continue  # it has another shape
        yield from (guess for guess in (~places, places) if bool(guess.any()) and not bool(guess.all()))
    if name in subject.call.wanted and value.dim():
        source = own_source(subject.ours.seed)
        tangents = {n: drawn_like(expected.exact.outputs[n].detach(), source) for n in expected.exact.differentiable}
        gradient = expected.exact.gradients(tangents, retain_graph=True)[name]
        if gradient is not None:
            # A mask over scores hides rows of keys and values: they have another shape than the mask, and no gradient.
            rows = (gradient == 0).all(-1, keepdim=True).expand(value.shape)
            if bool(rows.any()) and not bool(rows.all()):
                yield rows


def _independent_of_hidden(subject: Subject, name: str, hidden: Tensor) -> dict[str, Tensor] | None:
    """Return a mask for each output of the reference: True where the output does not depend on the hidden places. None
    if an output depends on them at other places than these themselves."""
    source = own_source(subject.ours.seed)
    value = subject.values[name]

    draws = [torch.where(hidden, drawn_like(value, source), value) for _ in range(2)]
    outputs_before, *outputs_after = (
        run_forward(subject.reference, subject.call, subject.values | {name: new_value}).outputs
        for new_value in (value, *draws)
    )
    seen = {}
    for output, base in outputs_before.items():
        same = torch.ones(base.shape, dtype=torch.bool, device=base.device)
        for outputs in outputs_after:
            same &= (outputs[output] == base) | (outputs[output].isnan() & base.isnan())
        if not bool(same.all()) and (base.shape != value.shape or bool((~same & ~hidden).any())):
            return None
        seen[output] = same
    return seen


class _RunWithGradients(NamedTuple):
    """The outputs of a run, and the gradients of its inputs, by name."""

    outputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None]


class _Runs(NamedTuple):
    """The runs that are compared: of the function without NaN, of the function with NaN at the hidden places, and of
    the reference with it. `values` are the inputs with NaN, and `tangents` those of all three runs."""

    without_nan: _RunWithGradients
    ours: _RunWithGradients
    reference: _RunWithGradients
    values: dict[str, Tensor]
    tangents: dict[str, Tensor]


def _is_nan_where_number(gradient: Tensor, expected: Tensor | None, places: Tensor) -> bool:
    """Whether a gradient is NaN or Inf at one of some places where the expected one is a number."""
    return expected is not None and bool((places & expected.isfinite() & ~gradient.isfinite()).any())


def _rows_with_nan(
    subject: Subject, check: str, name: str, hidden: Tensor, seen: Mapping[str, Tensor]
) -> Iterator[Result]:
    """Yield rows for the outputs and gradients with NaN at the hidden places of the input `name`: where the reference's
    results do not become NaN, the function's must stay as they were without NaN. `seen` says for each output where it
    does not depend on the hidden places.

    If x is hidden by `mask`, the function computes `x * mask`, and the reference `x.masked_fill(~mask, 0)`: of a NaN
    that is hidden, the function makes NaN, and the reference 0.
    """
    runs = _runs_with_nan(subject, name, hidden, seen)
    if isinstance(runs, str):
        yield result_not_tried(subject, check, "all", runs)
        return
    title = f"{subject.output_check}, {check}"
    for output, value in runs.ours.outputs.items():
        places = seen[output]
        if bool((runs.reference.outputs[output].isnan() & places).any()):
            yield result_not_tried(subject, title, output, "the reference passes NaN on too")
            return
        right = runs.without_nan.outputs[output].detach()
        difference = Difference(largest_difference(value[places], right[places]), subject.tiny * size_of(right))
        fault = Fault(
            program=subject.ours,
            call=subject.call,
            values=runs.values,
            name=output,
            expected=right,
            check=check,
            outputs=tuple(runs.without_nan.outputs),
        )
        yield Result(row_of_difference(subject, title, output, difference, random=False), fault)
    yield from _gradient_rows_with_nan(subject, check, name, hidden, runs)


def _runs_with_nan(subject: Subject, name: str, hidden: Tensor, seen: Mapping[str, Tensor]) -> _Runs | str:
    """Run the function without NaN, then the function and the reference with NaN at the hidden places; or return which
    of them raised. Tangents are 0 where an output depends on the hidden places."""
    values = subject.values | {name: subject.values[name].detach().masked_fill(hidden, math.nan)}
    source = own_source(subject.ours.seed)
    runs: list[_RunWithGradients] = []
    tangents: dict[str, Tensor] = {}
    for which, program, run_values in (
        ("ours", subject.ours, subject.values),
        ("ours with NaN", subject.ours, values),
        ("reference with NaN", subject.reference, values),
    ):
        try:
            forward = run_forward(program, subject.call, run_values)
            if not tangents:
                tangents = {
                    output: torch.where(seen[output], drawn_like(forward.outputs[output].detach(), source), 0.0)
                    for output in forward.differentiable
                }
            tangents_in_dtype = {
                output: tangent.to(forward.outputs[output].dtype) for output, tangent in tangents.items()
            }
            runs.append(_RunWithGradients(forward.outputs, forward.gradients(tangents_in_dtype)))
        except Exception as error:  # whatever it raises
            return f"{which} raised {error_text(error)}"
    without_nan, ours, reference = runs
    return _Runs(without_nan, ours, reference, values, tangents)


def _gradient_rows_with_nan(subject: Subject, check: str, name: str, hidden: Tensor, runs: _Runs) -> Iterator[Result]:
    """Yield rows for the gradients of `_rows_with_nan`. The gradient of `name` itself is compared where it is not
    hidden; at the hidden places it must only be a number, if the reference's is one."""
    title = f"{subject.gradient_check}, {check}"
    for wanted in subject.call.wanted:
        gradient, right = runs.ours.gradients[wanted], runs.without_nan.gradients[wanted]
        if right is None and gradient is None:
            continue
        # None is a gradient of 0: a function may not lose a gradient because of what is hidden.
        gradient = torch.zeros_like(right) if gradient is None else gradient
        right = torch.zeros_like(gradient) if right is None else right
        expected = runs.reference.gradients[wanted]
        places = torch.ones_like(right, dtype=torch.bool) if expected is None else ~expected.isnan()
        if not bool(places.any()):
            yield result_not_tried(subject, title, wanted, "the reference passes NaN on too")
            continue
        compared = places & ~hidden if wanted == name else places
        distance, detail = largest_difference(gradient[compared], right[compared]), ""
        if wanted == name and _is_nan_where_number(gradient, expected, hidden):
            distance = math.inf
            detail = f"it is NaN or Inf at the hidden values of {name}, and the reference's is a number"
        difference = Difference(distance, 8 * subject.tiny * size_of(right))
        fault = Fault(
            program=subject.ours,
            call=subject.call,
            values=runs.values,
            tangents=runs.tangents,
            name=wanted,
            expected=right,
            check=check,
            outputs=tuple(runs.without_nan.outputs),
        )
        yield Result(row_of_difference(subject, title, wanted, difference, random=False, detail=detail), fault)

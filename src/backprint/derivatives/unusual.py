"""Tangents and inputs that a function meets in a model and not in its test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import torch
from torch import Tensor

from backprint.derivatives.called import (
    Forward,
    in_words,
    run_forward,
)
from backprint.derivatives.compared import (
    NO_ELEMENTS,
    Expected,
    NoReference,
    Result,
    Subject,
    comparable,
    distance,
    expected_of,
    forward_rows,
    gradient_rows,
    not_tried,
    size_of,
)
from backprint.derivatives.hostile import (
    LAYOUTS,
    MOST_ALONE,
    changed_masks,
    one_hot,
    ones,
    repeated_indices,
    with_ties,
    with_zero_row,
    with_zeros,
)
from backprint.derivatives.setting import drawn_like, is_inexact

Make = Callable[[Tensor, torch.Generator], Tensor | None]


VALUES: Mapping[str, Make] = {
    "random tangents": drawn_like,
    "tangents of ones": ones,
    "one-hot tangents": one_hot,
    "a zero row": with_zero_row,
}
"""Kinds of tangents in new memory; those in other memory are LAYOUTS."""


def kinds_of(subject: Subject, shapes: Mapping[str, Tensor]) -> dict[str, Callable[[str], Make]]:
    """Return the kinds of tangents to try, each with what makes that of an output."""
    kinds: dict[str, Callable[[str], Make]] = {}
    if subject.has_reference:
        kinds |= {check: always(make) for check, make in VALUES.items()}
        if len(shapes) > 1:
            kinds |= {f"{name} alone": only(name) for name in list(shapes)[:MOST_ALONE]}
    return kinds | {f"{layout} tangents": always(make) for layout, make in LAYOUTS.items()}


def always(make: Make) -> Callable[[str], Make]:
    return lambda name: make


def only(name: str) -> Callable[[str], Make]:
    """Return what makes tangents of one output alone: nothing depends on the others."""
    return lambda other: drawn_like if other == name else skipped


def skipped(value: Tensor, source: torch.Generator) -> Tensor | None:
    return None


def tangents_for(
    shapes: Mapping[str, Tensor], make: Callable[[str], Make], source: torch.Generator
) -> dict[str, Tensor] | None:
    """Return a tangent for each output, those of one kind where it can be; None if it can be nowhere."""
    makers = {name: make(name) for name in shapes}
    tangents = {name: makers[name](output, source) for name, output in shapes.items()}
    if all(tangent is None for tangent in tangents.values()):
        return None
    return {
        name: drawn_like(shapes[name], source) if tangent is None else tangent
        for name, tangent in tangents.items()
        if tangent is not None or makers[name] is not skipped
    }


def outputs_with_gradients(forward: Forward, expected: Expected) -> dict[str, Tensor]:
    """Return the outputs that tangents are made for: those that require grad, of the function or of the reference."""
    names = {*forward.differentiable, *expected.exact.differentiable}
    return {
        name: output.detach()
        for name, output in forward.outputs.items()
        if name in names and is_inexact(output) and output.layout is torch.strided
    }


# ---- Inputs in other memory, and other inputs


def transposed(value: Tensor) -> Tensor:
    """Return the same values with the last two dimensions the other way round in memory."""
    return value.mT.contiguous().mT if value.dim() > 1 and min(value.shape[-2:]) > 1 else value


def sliced(value: Tensor) -> Tensor:
    """Return the same values as a part of a wider tensor."""
    if not value.dim() or not value.numel():
        return value
    return torch.cat([value, value, value], -1).narrow(-1, value.shape[-1], value.shape[-1])


def strided(value: Tensor) -> Tensor:
    """Return the same values with a last stride of 2."""
    return torch.stack([value, value], -1)[..., 0] if value.dim() and value.numel() else value


MEMORIES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "transposed inputs": transposed,
    "sliced inputs": sliced,
    "strided inputs": strided,
}


def other_memory(subject: Subject, expected: Expected) -> Iterator[Result]:
    """Yield rows for inputs with the same values in other memory."""
    for check, change in MEMORIES.items():
        values = dict(subject.values)
        for name in subject.call.inputs:
            values[name] = change(values[name].detach())
        if all(values[name].stride() == subject.values[name].stride() for name in subject.call.inputs):
            continue
        if subject.has_reference and expected.own is not None and depends_on_memory(subject, values, expected):
            reason = "the reference's own results depend on the memory of its inputs"
            yield not_tried(subject, f"{subject.output}, {check}", "all", reason)
            continue
        yield from with_inputs(subject, check, values, expected)


def depends_on_memory(subject: Subject, values: Mapping[str, Tensor], expected: Expected) -> bool:
    """Whether the reference returns something else for the same inputs in other memory, as `as_strided` does."""
    if expected.random:
        return False
    try:
        outputs = run_forward(subject.reference, subject.call, values).outputs
    except RuntimeError:
        return False  # it refuses this memory, as `view` does; the function need not
    assert expected.own is not None
    own = expected.own.outputs
    return any(distance(outputs[name], right) > LARGE * size_of(right) for name, right in own.items())


LARGE = 0.1
"""A difference of more than this part of the values is not that of another order of sums."""


def with_inputs(subject: Subject, check: str, values: Mapping[str, Tensor], expected: Expected) -> Iterator[Result]:
    """Yield rows for outputs and gradients with other inputs, and random tangents."""
    try:
        forward = run_forward(subject.ours, subject.call, values)
    except Exception as error:
        yield not_tried(subject, f"{subject.output}, {check}", "output", f"the function raised {in_words(error)}")
        return
    results = list(forward_rows(subject, f"{subject.output}, {check}", forward, expected, values))
    yield from results
    if not comparable(results):
        return
    shapes = outputs_with_gradients(forward, expected)
    source = torch.Generator().manual_seed(subject.ours.seed)
    tangents = tangents_for(shapes, always(drawn_like), source)
    if tangents:
        yield from gradient_rows(subject, f"{subject.gradient}, {check}", values, tangents, expected)


HOSTILE: Mapping[str, Callable[[Tensor], Tensor]] = {"zeros among inputs": with_zeros, "equal inputs": with_ties}


def other_values(subject: Subject) -> Iterator[Result]:
    """Yield rows for inputs with zeros, and with many equal values."""
    for check, change in HOSTILE.items():
        values = {
            name: change(value)
            if name in subject.call.wanted and name in subject.call.inputs and value.is_floating_point()
            else value
            for name, value in subject.values.items()
        }
        try:
            expected = expected_of(subject, values)
        except NoReference as error:
            yield not_tried(subject, f"{subject.gradient}, {check}", "all", str(error))
            continue
        yield from with_inputs(subject, check, values, expected)


# ---- Masks, indices and sizes


def at_borders(subject: Subject, indices: Callable[[], Collection[str]]) -> Iterator[Result]:
    """Yield rows for masks that hide a row, all or nothing, for repeated indices, and for inputs without elements.

    `indices` returns the inputs with which the reference reads or adds at indices. A program need not take any of
    these: it takes those for which it returns finite numbers, as the reference does. The backward of a reference may
    refuse what its forward takes: that of a captured one has the count of a mask's elements in its shapes.
    """
    for check, changed in other_calls(subject, indices):
        values = subject.values | changed
        try:
            expected = expected_of(subject, values)
            own = run_forward(subject.ours, subject.call, values).outputs
            exact = expected.exact
            exact.gradients({name: torch.ones_like(exact.outputs[name]) for name in exact.differentiable}, keep=True)
        except Exception:
            continue  # one of the two refuses such inputs, in whatever way
        if all_finite(exact.outputs) and all_finite(own):
            results = with_inputs(subject, check, values, expected)
            yield from (result for result in results if not result[0].verdict.endswith(NO_ELEMENTS))


def other_calls(subject: Subject, indices: Callable[[], Collection[str]]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield kinds of masks, indices and sizes, each with the inputs that are changed for it."""
    inputs = {name: subject.values[name] for name in subject.call.inputs if subject.values[name].numel()}
    yield from changed_masks({name: value for name, value in inputs.items() if value.dtype is torch.bool})
    repeated = dict(repeated_indices({name: value for name, value in inputs.items() if is_integer(value)}))
    if repeated:
        known = indices()
        for name, value in repeated.items():
            if name in known:
                yield f"repeated indices in {name}", {name: value}
    first = next((inputs[name] for name in subject.call.wanted if name in inputs), None)
    for side in range(0 if first is None else min(first.dim(), MOST_SIDES)):
        assert first is not None
        size = first.shape[side]
        alike = {
            name: value.narrow(side, 0, 0)
            for name, value in inputs.items()
            if value.dim() > side and value.shape[side] == size
        }
        yield f"no elements in dimension {side}", alike


MOST_SIDES = 3
"""In how many dimensions of the first input a size of 0 is tried."""


def is_integer(value: Tensor) -> bool:
    return not value.is_floating_point() and not value.is_complex() and value.dtype is not torch.bool


def all_finite(outputs: Mapping[str, Tensor]) -> bool:
    """Whether no output has NaN or Inf."""
    return all(bool(output.isfinite().all()) for output in outputs.values() if is_inexact(output))

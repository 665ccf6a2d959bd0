"""Tangents and inputs that a function meets in a model and not in its test: rows of `bp.check` for them.

A Subject has the function and its reference, in one dtype; `expected` has the reference's results (`exact` in float64,
`own` in the dtype of the function), and `shapes` the outputs that get a tangent, of which only shape and dtype count.
`random` says whether the function or the reference draws random numbers. A Result is a row of the table, with what a
file needs that shows its fault; `check` is the row's name. An *occasion* (`judge/occasions`) has a name and `make`,
which returns a tensor with unusual values or in unusual memory, None where that is not possible. A Make takes an output
and a generator, and returns a tangent of one kind for the output, None where that is not possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from backprint.derive.called import Forward, error_text, run_forward
from backprint.derive.checked import WRONG
from backprint.derive.compared import (
    Expected,
    NoReference,
    Result,
    Subject,
    are_gradients_comparable,
    expected_of,
    forward_rows,
    gradient_rows,
    gradients_of_reference_runs,
    result_not_tried,
)
from backprint.derive.hostile import MAX_OUTPUTS_ALONE
from backprint.derive.live import Gradients, sizes_in
from backprint.derive.otherwise import excuse_rounding
from backprint.derive.setting import drawn_like, is_inexact, own_source
from backprint.errors import is_defect
from backprint.judge.closeness import NO_ELEMENTS, distance
from backprint.judge.occasions import (
    FACTORS,
    MASKS,
    MEMORIES_OF_INPUTS,
    MEMORIES_OF_TANGENTS,
    OCCASIONS,
    TANGENTS,
    Occasion,
    changed_masks,
    repeated_indices,
)

Make = Callable[[Tensor, torch.Generator], Tensor | None]
"""Makes a tangent for an output, with random numbers of the generator; None if the kind is not possible for it."""


def draw_for_occasion(row: Occasion) -> Make:
    """Return the Make of an occasion: it draws random numbers for an output, and the occasion changes these."""
    return lambda output, source: row.make(drawn_like(output, source))


def tangent_kinds(subject: Subject, shapes: Mapping[str, Tensor]) -> dict[str, Callable[[str], Make]]:
    """Return the kinds of tangents to try, by their names in the table, each with a function that returns the Make for
    the name of an output."""
    kinds: dict[str, Callable[[str], Make]] = {}
    if subject.has_reference:
        kinds |= {row.name: make_for_every_output(draw_for_occasion(row)) for row in TANGENTS}
        if len(shapes) > 1:
            kinds |= {f"{name} alone": make_for_outputs([name]) for name in list(shapes)[:MAX_OUTPUTS_ALONE]}
        if len(shapes) > 2:  # of two outputs, all but one is one alone
            kinds |= {
                f"all but {name}": make_for_outputs([other for other in shapes if other != name])
                for name in list(shapes)[:MAX_OUTPUTS_ALONE]
            }
    return kinds | {row.name: make_for_every_output(draw_for_occasion(row)) for row in MEMORIES_OF_TANGENTS}


def make_for_every_output(make: Make) -> Callable[[str], Make]:
    """Return a function that returns this Make for every output."""
    return lambda name: make


def make_for_outputs(wanted: Collection[str]) -> Callable[[str], Make]:
    """Return a function that returns a Make of random tangents for the wanted outputs, and `skip_output` for all other
    outputs: as if no loss depended on these."""
    return lambda name: drawn_like if name in wanted else skip_output


def skip_output(value: Tensor, source: torch.Generator) -> Tensor | None:
    """Make no tangent: the output takes no part in the backward."""
    return None


def tangents_for(
    shapes: Mapping[str, Tensor], make: Callable[[str], Make], source: torch.Generator
) -> dict[str, Tensor] | None:
    """Return a tangent for each output: of the kind that `make` makes where it is possible, and else random; no tangent
    for an output that `make` skips (`skip_output`). None if the kind is possible for no output."""
    makers = {name: make(name) for name in shapes}
    tangents = {name: makers[name](output, source) for name, output in shapes.items()}
    if all(tangent is None for tangent in tangents.values()):
        return None
    return {
        name: drawn_like(shapes[name], source) if tangent is None else tangent
        for name, tangent in tangents.items()
        if tangent is not None or makers[name] is not skip_output
    }


def outputs_with_gradients(forward: Forward, expected: Expected) -> dict[str, Tensor]:
    """Return the outputs that tangents are made for: those that require grad, of the function or of the reference."""
    names = {*forward.differentiable, *expected.exact.differentiable}
    return {
        name: output.detach()
        for name, output in forward.outputs.items()
        if name in names and is_inexact(output) and output.layout is torch.strided
    }


# ---- Tangents of other sizes

SIZES, OF_FLOAT16 = ("2^16", "2^-20", "2^-24"), ("2^8", "2^-8")
"""The factors of tangents, and those in float16."""


def rows_for_other_sizes(
    subject: Subject, tangents: Mapping[str, Tensor], expected: Expected, linear: bool
) -> Iterator[Result]:
    """Yield rows for tangents that are much larger, and much smaller; `live.size_tries` does so for a program.

    Without a reference the gradients are compared with those for `tangents`, times as much, if they are to be `linear`:
    a gradient that is meant to differ need not be.
    """
    is_half = torch.float16 in {value.dtype for value in (*tangents.values(), *subject.values.values())}
    if not subject.has_reference and (is_half or not linear):
        return
    usual = None if subject.has_reference else gradients_of_reference_runs(expected, tangents)
    for word in OF_FLOAT16 if is_half else SIZES:
        size = FACTORS[word]
        check = f"{subject.gradient_check}, tangents times {word}"
        sized = {name: tangent * size for name, tangent in tangents.items()}
        right = None if usual is None else usual.scaled_by(size)
        rows = list(gradient_rows(subject, check, subject.values, sized, expected, right=right))
        is_wrong = any(row.verdict == WRONG for row, _ in rows)
        if usual is not None and is_wrong and _computes_in_float16(subject, tangents):
            yield result_not_tried(
                subject, check, "all", "the function computes in float16 inside, which has no such numbers"
            )
            continue
        for result in rows:
            error = result.row.error
            if is_half and error is not None and not math.isfinite(error):  # Inf, where the reference has a number
                yield result_not_tried(
                    subject, check, result.row.name, "it is larger than the largest number of float16"
                )
            else:
                yield result


def _computes_in_float16(subject: Subject, tangents: Mapping[str, Tensor]) -> bool:
    """Whether an operator of the function, or of its backward, returns float16."""

    def both(given: Gradients) -> Gradients:
        """Run the function and its backward."""
        known = {name: tangent for name, tangent in given.items() if tangent is not None}
        return run_forward(subject.ours, subject.call, subject.values).gradients(known)

    return any(size.dtype is torch.float16 for size in sizes_in(both, tangents))


# ---- Inputs in other memory, and other inputs


def rows_for_other_memory(subject: Subject, expected: Expected) -> Iterator[Result]:
    """Yield rows for inputs with the same values in other memory."""
    for row in MEMORIES_OF_INPUTS:
        check, values = row.name, dict(subject.values)
        for name in subject.call.inputs:
            changed = row.make(values[name].detach())
            values[name] = values[name].detach() if changed is None else changed
        # No input can have such memory.
        if all(values[name].stride() == subject.values[name].stride() for name in subject.call.inputs):
            continue
        if subject.has_reference and expected.own is not None and _depends_on_memory(subject, values, expected):
            reason = "the reference's own results depend on the memory of its inputs"
            yield result_not_tried(subject, f"{subject.output_check}, {check}", "all", reason)
            continue
        yield from rows_for_inputs(subject, check, values, expected)


def _depends_on_memory(subject: Subject, values: Mapping[str, Tensor], expected: Expected) -> bool:
    """Whether the reference returns something else for the same inputs in other memory, as `as_strided` does."""
    if expected.random:
        return False
    try:
        outputs = run_forward(subject.reference, subject.call, values).outputs
    except RuntimeError:
        return False  # it refuses this memory, as `view` does; the function need not
    assert expected.own is not None
    own = expected.own.outputs
    return any(distance(outputs[name], right) > LARGE for name, right in own.items())


LARGE = 0.1
"""A difference of more than this part of the values is more than another order of sums makes."""


def rows_for_inputs(subject: Subject, check: str, values: Mapping[str, Tensor], expected: Expected) -> Iterator[Result]:
    """Yield rows for outputs and gradients with other inputs (`values`), and random tangents; one row that was not
    tried, if the function raises. `check` says in the rows' names what is unusual."""
    try:
        forward = run_forward(subject.ours, subject.call, values)
    except Exception as error:  # the function need not take such inputs
        yield result_not_tried(
            subject, f"{subject.output_check}, {check}", "output", f"the function raised {error_text(error)}"
        )
        return
    results = list(forward_rows(subject, f"{subject.output_check}, {check}", forward, expected, values))
    yield from results
    if not are_gradients_comparable(results):
        return
    shapes = outputs_with_gradients(forward, expected)
    source = own_source(subject.ours.seed)
    tangents = tangents_for(shapes, make_for_every_output(drawn_like), source)
    if tangents:
        yield from gradient_rows(subject, f"{subject.gradient_check}, {check}", values, tangents, expected)


def rows_for_other_values(subject: Subject, random: bool) -> Iterator[Result]:
    """Yield rows for inputs with zeros, with many equal values, and with a row of zeros."""
    for check in ("zeros among inputs", "equal inputs"):
        values = dict(subject.values)
        for name in subject.call.wanted:
            if name in subject.call.inputs and values[name].is_floating_point():
                changed = OCCASIONS[check].make(values[name])
                values[name] = values[name] if changed is None else changed
        try:
            expected = expected_of(subject, values, random)
        except NoReference as error:
            yield result_not_tried(subject, f"{subject.gradient_check}, {check}", "all", str(error))
            continue
        yield from rows_for_inputs(subject, check, values, expected)
    yield from _row_of_zeros(subject, random)


ROW_OF_ZEROS = "a row of zeros"


def _row_of_zeros(subject: Subject, random: bool) -> Iterator[Result]:
    """Yield rows for inputs whose first row is 0, as it is for padding, where the reference and its gradients are
    finite. Results that are finite and differ are not judged, and the row says so: two good ways to divide by a length
    need not agree at 0."""
    inputs_changed = {
        name: OCCASIONS[ROW_OF_ZEROS].make(value)
        for name, value in subject.values.items()
        if name in subject.call.wanted and name in subject.call.inputs and _may_have_row_of_zeros(value)
    }
    values = subject.values | {name: value for name, value in inputs_changed.items() if value is not None}
    if all(value is None for value in inputs_changed.values()):
        return
    try:
        expected = expected_of(subject, values, random)
        # A reference that is NaN there itself, as a plain division by a length is, asks for nothing.
        if not _is_finite_with_gradients(expected.exact):
            return
        if expected.own is not None and not _is_finite_with_gradients(expected.own):
            return
    except NoReference:
        return
    except Exception as error:
        if is_defect(error):
            raise
        return  # its backward refuses such inputs, in whatever way
    for result in rows_for_inputs(subject, ROW_OF_ZEROS, values, expected):
        row = result.row
        # None: another shape, dtype or name. Inf: NaN or Inf where the reference has a number.
        if row.verdict != WRONG or row.error is None or row.error == math.inf:
            yield result
        else:
            reason = "it is another number there, as a division by a length may give"
            yield result_not_tried(subject, row.check, row.name, reason)


def _may_have_row_of_zeros(value: Tensor) -> bool:
    """Whether a tensor has rows of floats. Those of float16 do not count: a length of 1e-3 has no third power there, so
    a good backward may return NaN."""
    is_wide_enough = value.is_floating_point() and value.dtype is not torch.float16
    return value.dim() > 1 and value.numel() > 0 and is_wide_enough


def _is_finite_with_gradients(forward: Forward) -> bool:
    """Whether the outputs of a run and its gradients for tangents of ones have no NaN or Inf. The graph is retained."""
    tangents = {name: torch.ones_like(forward.outputs[name]) for name in forward.differentiable}
    gradients = forward.gradients(tangents, retain_graph=True)
    known_gradients = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    return _all_finite(forward.outputs) and _all_finite(known_gradients)


LARGE_MEAN = "a large mean"

MOST_MEANS = 3
"""In how many inputs a large mean is tried."""

FAIR = 8.0
"""With a large mean, results may be off by so many times more: two ways to compute a variance, or a logarithm of a sum,
that are both good differ by as much."""


def rows_for_large_means(subject: Subject, random: bool) -> Iterator[Result]:
    """Yield rows for one input at a time with a mean that is large beside its deviation, as activations have.

    A program need not take such a value: it is compared where both return numbers. A variance that is
    computed as the mean of squares less the square of the mean is off by a tenth there, where eager is off by a
    millionth. Gradients of other inputs are left out: they are sums of large terms, as those of an attention's queries
    are of its keys, and good ways to compute them differ by more.
    """
    inputs = [name for name in subject.call.wanted if name in subject.call.inputs]
    for name in [name for name in inputs if is_inexact(subject.values[name])][:MOST_MEANS]:
        value = subject.values[name].detach()
        shifted = OCCASIONS[LARGE_MEAN].make(value)
        if shifted is None:
            continue
        values = subject.values | {name: shifted}
        try:
            expected = expected_of(subject, values, random)
        except (NoReference, RuntimeError):
            continue
        if expected.own is None or not _all_finite(expected.exact.outputs) or not _all_finite(expected.own.outputs):
            continue
        shifted_subject = replace(subject, values=values, times=subject.times * FAIR)
        check = f"{LARGE_MEAN} in {name}"
        results = list(rows_for_inputs(shifted_subject, check, values, expected))
        overflows = any(result.row.error == math.inf for result in results)
        if overflows and not (subject.has_reference and value.dtype in (torch.float32, torch.float64)):
            # In float16 and bfloat16 the reference may be finite by luck; without a reference nothing asks for more.
            yield result_not_tried(
                subject, f"{subject.output_check}, {check}", "all", "the function returns NaN or Inf there"
            )
            continue
        # `excuse_rounding` clears rows whose error is no larger than what other rounding makes of the reference.
        for result in excuse_rounding(shifted_subject, iter(results)):
            if result.row.check.startswith(subject.output_check) or result.row.name == name:
                yield result


# ---- Masks, indices and sizes


def rows_for_borders(subject: Subject, random: bool, indices: Callable[[], Collection[str]]) -> Iterator[Result]:
    """Yield rows for masks that hide a row, all or nothing, for repeated indices, and for inputs without elements.

    `indices` returns the inputs with which the reference reads or adds at indices. Inputs are tried if the reference
    returns finite numbers for them; with repeated indices, or without elements, also the function must, because it need
    not take such inputs. The backward of a reference may refuse inputs that its forward takes: the backward of a
    captured reference has the count of a mask's elements in its shapes.
    """
    for check, changed in _other_calls(subject, indices):
        values = subject.values | changed
        try:
            expected = expected_of(subject, values, random)
            own = run_forward(subject.ours, subject.call, values).outputs
            exact = expected.exact
            # To see whether the backward takes such inputs; the gradients are not needed yet.
            exact.gradients(
                {name: torch.ones_like(exact.outputs[name]) for name in exact.differentiable}, retain_graph=True
            )
        except Exception:
            continue  # one of the two refuses such inputs, in whatever way
        is_mask = OCCASIONS.get(check) in MASKS  # an input like others, which the function must take
        refused = not is_mask and not _all_finite(own)
        is_reference_finite = all(
            _all_finite(forward.outputs) for forward in (exact, expected.own) if forward is not None
        )
        if not refused and is_reference_finite:
            results = rows_for_inputs(subject, check, values, expected)
            # A result without elements has nothing to compare.
            yield from (result for result in results if not result.row.verdict.endswith(NO_ELEMENTS))


def _other_calls(subject: Subject, indices: Callable[[], Collection[str]]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield kinds of masks, indices and sizes, each with the inputs that are changed for it. `indices` is called only
    if there are integers that can be repeated, because it takes a capture of the reference."""
    inputs = {name: subject.values[name] for name in subject.call.inputs if subject.values[name].numel()}
    yield from changed_masks({name: value for name, value in inputs.items() if value.dtype is torch.bool})
    repeated = dict(repeated_indices({name: value for name, value in inputs.items() if is_integer(value)}))
    if repeated:
        known_indices = indices()
        for name, value in repeated.items():
            if name in known_indices:
                yield f"repeated indices in {name}", {name: value}
    # Without elements in one dimension of the first input; inputs of the same size there lose them too.
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
    """Whether a tensor has integers, which bools do not count as."""
    return not value.is_floating_point() and not value.is_complex() and value.dtype is not torch.bool


def _all_finite(outputs: Mapping[str, Tensor]) -> bool:
    """Whether no output has NaN or Inf."""
    return all(bool(output.isfinite().all()) for output in outputs.values() if is_inexact(output))

"""A function's outputs and gradients beside those of its reference, for one set of inputs and tangents.

The reference runs in float64, and in the function's own dtype: rounding explains as much as its error there. For a
result of the function (`ours`), three results of the reference have the same names throughout this file:

- `exact`: in float64, with which `ours` is compared;
- `own`: in the function's dtype, or None if the reference does not run in it;
- `moved`: in float64, on inputs that are moved by as much as rounding to the function's dtype moves them.

`check` is the name of a comparison in the table of `bp.check`, and a CheckRow is a row of this table: the check, the
dtype, the name of a result, its error, the error that is allowed, a verdict, and a detail. `subject` says what is
checked: `text` is its dtype in words, `times` how many times the reference's error is allowed, and `tiny` the least
error that the reference is taken to have, relative to the largest value of a result. A Call has the arguments of one
call, its tensors by name; a Program is a function with a seed, and a Forward what a run of it returned (`called`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from backprint.derive.called import Call, Forward, Program, draws_random_numbers, error_text, run_forward
from backprint.derive.checked import NOT_TRIED, OK, WRONG, CheckRow
from backprint.derive.reproduced import Fault
from backprint.derive.setting import drawn_like, is_inexact, own_source, products_to_both_sides, to_float64
from backprint.judge.closeness import (
    LEAST,
    NO_ELEMENTS,
    REAL,
    compare,
    largest_difference,
    precise,
    rounded_again,
    size_of,
    tolerance_of,
)


class Result(NamedTuple):
    """A row of the table, with the Fault from which a file is written that shows it if it is wrong; None where no one
    call shows it."""

    row: CheckRow
    fault: Fault | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """What is checked, and with what, in one dtype; None is the dtype that the inputs have.

    `ours` is the function. Without a reference, `reference` is the function itself. The function may be off by `times`
    what the reference is off by in this dtype. `values` are the values of the call's tensors by name.
    """

    call: Call
    ours: Program
    reference: Program
    has_reference: bool
    dtype: torch.dtype | None
    values: dict[str, Tensor]
    times: float

    @property
    def output_check(self) -> str:
        """The first word of checks of outputs. Without a reference, outputs are compared with the outputs for other
        memory."""
        return "forward" if self.has_reference else "same output"

    @property
    def gradient_check(self) -> str:
        """The first word of checks of gradients."""
        return "gradient" if self.has_reference else "same gradient"

    @property
    def text(self) -> str:
        """The dtype in words; if the inputs have several, the one with the fewest digits."""
        return str(self.coarsest)[6:]  # without `torch.`

    @property
    def coarsest(self) -> torch.dtype:
        """The dtype of the inputs with the fewest digits."""
        kinds = [self.values[name].dtype for name in self.call.wanted]
        return max((REAL.get(kind, kind) for kind in kinds), key=lambda kind: torch.finfo(kind).eps)

    @property
    def tiny(self) -> float:
        """The least error that the reference is taken to have, relative to the largest value of a result."""
        return LEAST.get(self.coarsest, 2 * torch.finfo(self.coarsest).eps)


def are_gradients_comparable(results: Sequence[Result]) -> bool:
    """Whether gradients can be compared, by the rows of the outputs: not where others are returned, or outputs of other
    shapes, or where the function and the reference draw different random numbers."""
    # A row with an error is of outputs of one shape: however wrong their numbers are, they take the same tangents.
    outputs = [output for output, _ in results if output.error is None and not output.check.endswith(", dtype")]
    return not any(output.verdict == WRONG or NUMBERS in output.verdict for output in outputs)


def result_not_tried(subject: Subject, check: str, name: str, reason: str) -> Result:
    """Return the result of a comparison that was not made, with the reason."""
    return Result(row_without_error(subject, check, name, f"{NOT_TRIED}: {reason}"))


def row_without_error(subject: Subject, check: str, name: str, verdict: str, detail: str = "") -> CheckRow:
    """Return the row of a comparison that has no error, such as one of shapes."""
    return CheckRow(check, subject.text, name, error=None, allowed=None, verdict=verdict, detail=detail)


# ---- The reference


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """The reference's results `exact`, `own` and `moved` (see the top of this file), None where the reference does not
    run so. `random` says that the function or the reference draws random numbers."""

    exact: Forward
    own: Forward | None
    moved: Forward | None
    random: bool


class NoReference(Exception):
    """The reference does not run, for the reason in the message."""


OUTSIDE = "all that it takes is in float64, so what it reads from elsewhere has to be converted"


def expected_of(subject: Subject, values: Mapping[str, Tensor], random: bool | None = None) -> Expected:
    """Run the reference on these values. Without one, the function itself on copies in new memory stands for it. Raise
    NoReference if the reference does not run in float64.

    `random` says whether the function or the reference draws random numbers, where that is known from a call on other
    values.
    """
    program, call = subject.reference, subject.call
    if not subject.has_reference:
        contiguous = {name: value.contiguous() for name, value in values.items()}
        forward = run_forward(program, call, contiguous)
        if random is None:
            random = draws_random_numbers(program, call, contiguous)
        return Expected(exact=forward, own=forward, moved=None, random=random)
    widened = {name: to_float64(value) for name, value in values.items()}
    try:
        exact = run_forward(program, call, widened)
    except Exception as error:
        raise NoReference(f"in float64 the reference raised {error_text(error)}: {OUTSIDE}") from error
    try:
        own = run_forward(program, call, values)
    except (RuntimeError, NotImplementedError, TypeError):
        own = None  # it has no such dtype: then rounding of the results themselves is what is allowed
    moved = {
        name: rounded_again(value, values[name].dtype, subject.ours.seed) if is_inexact(value) else value
        for name, value in widened.items()
    }
    if random is None:
        random = draws_random_numbers(program, call, widened) or draws_random_numbers(subject.ours, call, values)
    return Expected(exact, own, run_forward(program, call, moved), random)


# ---- Comparing


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a result is from the exact one, how far it may be, why nothing was compared, if so, and which measure
    decided, if it is not the largest difference."""

    error: float
    allowed: float
    not_tried: str = ""
    measure: str = ""

    @property
    def verdict(self) -> str:
        """The verdict of a row."""
        if self.not_tried:
            return f"{NOT_TRIED}: {self.not_tried}"
        return OK if self.error <= self.allowed else WRONG


def measure_difference(
    subject: Subject, ours: Tensor | None, exact: Tensor, own: Tensor | None, moved: Tensor | None, largest: float
) -> Difference:
    """Return how far a result is from the reference's, and how far it may be. `ours` is None for a gradient of 0, and
    `largest` is the largest value of all outputs, or gradients. Without a reference, `exact` is the function's own
    result for other memory, and the tolerance of its dtype is allowed."""
    ours = torch.zeros_like(exact) if ours is None else ours
    nan = exact.isnan()
    if bool(nan.any()) and ours.shape == exact.shape:
        # Where the reference has NaN, any number is right: a function may be more robust than its reference.
        ours = torch.where(nan, exact.to(ours.dtype), ours)
    if not subject.has_reference:
        if not exact.numel():
            return Difference(math.nan, math.nan, NO_ELEMENTS)
        # A result that is small beside the largest may be 0 but for rounding.
        allowed = tolerance_of(exact.dtype) * max(size_of(exact), 1e-3 * largest)
        return Difference(largest_difference(ours, exact), allowed)
    # The error and what is allowed are in multiples of `unit`, a size that they are relative to.
    closeness = compare(
        ours,
        exact,
        own,
        moved=() if moved is None else (moved,),
        dtype=subject.coarsest,
        largest=largest,
        times=subject.times,
    )
    if closeness.word in ("unknown", "unsteady"):
        return Difference(closeness.error, closeness.allowed, not_tried=closeness.detail)
    error, allowed = closeness.error * closeness.unit, closeness.allowed * closeness.unit
    return Difference(error, allowed, measure=closeness.detail)


def forward_rows(
    subject: Subject, check: str, forward: Forward, expected: Expected, values: Mapping[str, Tensor]
) -> Iterator[Result]:
    """Yield a row for each output, and one for a dtype that is not the reference's; or one row in all, if the names of
    the outputs are not the reference's. Only a row of numbers has a Fault."""
    exact, own = expected.exact.outputs, None if expected.own is None else expected.own.outputs
    if list(forward.outputs) != list(exact):
        ours, theirs = (", ".join(names) or "none" for names in (forward.outputs, exact))
        detail = f"it returns {ours}, and the reference {theirs}"
        yield Result(row_without_error(subject, check, "output", WRONG, detail))
        return
    for name, output in forward.outputs.items():
        right = exact[name]
        if output.shape != right.shape:
            detail = f"its shape is {tuple(output.shape)}, and the reference's {tuple(right.shape)}"
            yield Result(row_without_error(subject, check, name, WRONG, detail))
            continue
        if own is not None and output.dtype != own[name].dtype:
            detail = (  # [6:]: without `torch.`
                f"its dtype is {str(output.dtype)[6:]}, and the reference's {str(own[name].dtype)[6:]}: if that is "
                "meant, let the reference convert its result"
            )
            yield Result(row_without_error(subject, f"{check}, dtype", name, WRONG, detail))
        moved = None if expected.moved is None else expected.moved.outputs[name]
        if right.numel():
            difference = measure_difference(subject, output, right, value_if_known(own, name), moved, size_of(right))
        else:
            difference = Difference(0.0, 0.0)  # its shape and its dtype are all that there is
        fault = Fault(
            program=subject.ours,
            call=subject.call,
            values=values,
            name=name,
            expected=right.detach(),
            check=check,
            outputs=tuple(forward.outputs),
        )
        yield Result(row_of_difference(subject, check, name, difference, expected.random), fault)


NUMBERS = "the function or the reference draws other random numbers here: pass them as an input"


def row_of_difference(
    subject: Subject, check: str, name: str, difference: Difference, random: bool, detail: str = ""
) -> CheckRow:
    """Return the row of a Difference. If functions draw random numbers (`random`), a difference may come from these, so
    the row says that it was not tried, and not `wrong`."""
    verdict = difference.verdict
    if verdict == WRONG and random:
        verdict = f"{NOT_TRIED}: {NUMBERS}"
    tried = not verdict.startswith(NOT_TRIED)
    error, allowed = (difference.error, difference.allowed) if tried else (None, None)
    return CheckRow(check, subject.text, name, error, allowed, verdict, detail or difference.measure)


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceGradients:
    """The reference's gradients `exact`, `own` and `moved` (see the top of this file) for some tangents, None where the
    reference does not run so."""

    exact: dict[str, Tensor | None]
    own: dict[str, Tensor | None] | None
    moved: dict[str, Tensor | None] | None

    def scaled_by(self, size: float) -> ReferenceGradients:
        """Return the gradients for tangents that are `size` times larger: gradients are linear in tangents."""

        def scaled(gradients: dict[str, Tensor | None] | None) -> dict[str, Tensor | None] | None:
            """Return gradients times `size`; None for None."""
            if gradients is None:
                return None
            return {name: None if value is None else size * value for name, value in gradients.items()}

        return ReferenceGradients(scaled(self.exact) or {}, scaled(self.own), scaled(self.moved))


def gradients_of_reference_runs(expected: Expected, tangents: Mapping[str, Tensor]) -> ReferenceGradients:
    """Return the reference's gradients for these tangents."""
    exact = reference_gradients(expected.exact, tangents)
    assert exact is not None
    return ReferenceGradients(
        exact, reference_gradients(expected.own, tangents), reference_gradients(expected.moved, tangents)
    )


Run = Callable[[Mapping[str, Tensor]], tuple[Forward, dict[str, Tensor | None]]]
"""Differentiates a function: returns its results, and its gradients for these tangents."""


def _with_room_for_terms(
    difference: Difference,
    subject: Subject,
    expected: Expected,
    tangents: Mapping[str, Tensor],
    name: str,
    exact: Tensor,
) -> Difference:
    """Return a `difference` of the gradient of `name` that is wrong so far, with the error that rounding of its terms
    allows, where that is more: the exact gradient (`exact`) may be a sum of terms that cancel, up to exactly 0 in
    float64. Then the size of the terms says how much rounding is allowed."""
    typical_size = _typical_size(expected, tangents, name, subject.ours.seed)
    if size_of(exact) >= CANCELLED * typical_size:
        return difference
    allowed = subject.times * OF_TERMS * subject.tiny * typical_size
    return Difference(difference.error, allowed) if allowed > difference.allowed else difference


def gradient_rows(
    subject: Subject,
    check: str,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    expected: Expected,
    hostile: bool = True,
    *,
    run: Run | None = None,
    right: ReferenceGradients | None = None,
) -> Iterator[Result]:
    """Yield a row for each gradient, for these tangents of the outputs, and one for each tangent that the backward
    writes into. The reference gets copies of the tangents in new memory. If the function raises, yield one row.

    With `hostile`, an error that the function raises is a refusal of unusual tangents or inputs, and no wrong row, but
    for the FIRST check, which has nothing unusual.
    `run` calls and differentiates the function, if not once and on `values`; `right` has the reference's gradients, if
    they are known already.
    """
    call = subject.call
    # Copies in new memory: the reference gets these, and they show whether the function has written into its tangents.
    tangents_copied = {name: tangent.clone(memory_format=torch.contiguous_format) for name, tangent in tangents.items()}
    try:
        if run is None:
            forward = run_forward(subject.ours, call, values)
            gradients = forward.gradients(tangents)
        else:
            forward, gradients = run(tangents)
    except Exception as error:  # whatever the function raises
        text = f"the function raised {error_text(error)}"
        if hostile and check != FIRST:
            yield result_not_tried(subject, check, "all", text)
        else:
            yield Result(row_without_error(subject, check, "all", WRONG, text))
        return
    for name, tangent in tangents.items():
        if not bool(((tangent == tangents_copied[name]) | tangent.isnan()).all()):
            text = "the backward writes into its tangent, which others may need: autograd passes it to them too"
            yield Result(row_without_error(subject, check, f"tangent of {name}", WRONG, text))
            tangents = tangents_copied  # for the file that shows a fault, as they were
    right = right or gradients_of_reference_runs(expected, tangents_copied)
    largest = max(map(size_of, right.exact.values()), default=0.0)
    for name, gradient in gradients.items():
        exact = right.exact[name]
        # `state` has the parameters and buffers of a reference that is a module.
        is_unknown = name not in call.inputs and name not in subject.reference.state.values()
        if exact is None and is_unknown and subject.has_reference:
            yield result_not_tried(subject, check, name, f"the reference has no parameter {name}")
            continue
        if exact is None:
            exact = torch.zeros_like(to_float64(values[name]))
        difference = measure_difference(
            subject, gradient, exact, value_if_known(right.own, name), value_if_known(right.moved, name), largest
        )
        detail = ""
        # What looks wrong may be rounding of large terms that cancel, or another subgradient at a kink.
        if difference.verdict == WRONG:
            difference = _with_room_for_terms(difference, subject, expected, tangents_copied, name, exact)
        if difference.verdict == WRONG:
            detail = "the function returns no gradient for it" if gradient is None else ""
            # Last, because it runs the reference dozens of times.
            if subject.has_reference and is_kink(subject, values, tangents_copied, gradients):
                # There is no one gradient, so any error is allowed.
                difference, detail = Difference(difference.error, math.inf), OTHER_SUBGRADIENT
        fault = Fault(
            program=subject.ours,
            call=call,
            values=values,
            tangents=tangents,
            name=name,
            expected=exact,
            check=check,
            outputs=tuple(forward.outputs),
        )
        yield Result(row_of_difference(subject, check, name, difference, random=False, detail=detail), fault)


CANCELLED = 0.05
"""A gradient that is smaller than this part of the gradient for random tangents is a sum of terms that cancel, such as
the gradient of a softmax for tangents of ones."""

OF_TERMS = 0.5
"""The part of the size for random tangents that the terms of such a sum are taken to have."""


def _typical_size(expected: Expected, tangents: Mapping[str, Tensor], name: str, seed: int) -> float:
    """Return the size of the reference's gradient of an input for random tangents that are as large as these."""
    source = own_source(seed)
    random_tangents = {port: drawn_like(precise(tangent), source) for port, tangent in tangents.items()}
    gradients = reference_gradients(expected.exact, random_tangents)
    size_of_random = max(map(size_of, random_tangents.values()), default=0.0)
    size_of_tangents = max(map(size_of, tangents.values()), default=0.0)
    return size_of(value_if_known(gradients, name)) * size_of_tangents / size_of_random if size_of_random else 0.0


FIRST = "gradient, random tangents"
"""The first check of gradients: nothing about this call is unusual, so an error that it raises is a wrong row."""


def value_if_known(values: Mapping[str, Tensor | None] | None, name: str) -> Tensor | None:
    """Return the output, or the gradient, of this name; None if the reference did not run (`values` is None), or has no
    such gradient."""
    return None if values is None else values[name]


def reference_gradients(forward: Forward | None, tangents: Mapping[str, Tensor]) -> dict[str, Tensor | None] | None:
    """Return the gradients of the reference for these tangents, converted to the dtypes of its outputs; None if it did
    not run. Its autograd graph is retained."""
    if forward is None:
        return None
    names = [name for name in tangents if forward.outputs[name].requires_grad]
    return forward.gradients(
        {name: tangents[name].to(forward.outputs[name].dtype) for name in names}, retain_graph=True
    )


# ---- Kinks


OTHER_SUBGRADIENT = "a kink: another subgradient than the reference's"

STEP = 1e-6
"""How far inputs are moved along a direction for differences to one side."""

DIRECTIONS = 4
"""Along how many random directions a kink is looked for."""

PARTS = 8
"""In how many directions a part of the elements moves up, and no other. A gradient for each of equal values whose
maximum is taken may be between the derivatives along directions that move some up and some down; along these it is not.
"""

ROUNDINGS = 4.0
"""How many times as much as one rounding of each element moves the product of a gradient with a direction it may be
off: a backward in 16 bits rounds several times."""


def is_kink(
    subject: Subject,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor | None],
) -> bool:
    """Whether the reference has a kink here, and the gradients lie between its derivatives to both sides.

    Along each of some directions, the last of which move one part of the elements up (PARTS), the product of gradients
    and direction must lie between the products of tangents and derivatives to both sides. The sides are added up
    element by element, the lesser ones and the greater ones: each output may have its own kink.
    `hostile._is_subgradient` asks the same of a captured Pair.

    Of `x.abs()` at 0, along the direction 1, the derivative is 1 ahead and -1 behind: a gradient of 0.3 lies between.
    """
    widened = {name: to_float64(value) for name, value in values.items()}
    source = own_source(subject.ours.seed)
    has_kink = False
    for number in range(DIRECTIONS + PARTS):
        direction = {name: drawn_like(widened[name], source) for name in gradients}
        if number >= DIRECTIONS:
            direction = {name: _part_up(value, part=number - DIRECTIONS) for name, value in direction.items()}
        sides = _products_to_both_sides(subject, widened, direction, tangents)
        product = squares = 0.0
        for name, gradient in gradients.items():
            if gradient is not None:
                terms = precise(gradient).conj() * direction[name]
                terms = terms.real if terms.is_complex() else terms
                product += float(terms.sum())
                squares += float(terms.square().sum())
        inexact = 1e-4 * sides.size  # differences of the reference in float64 are off by as much
        # Roundings of many elements make up for one another: so they grow with the root of the sum of squares.
        slack = inexact + ROUNDINGS * subject.tiny * math.sqrt(squares)
        if not sides.low - slack <= product <= sides.high + slack:
            return False
        has_kink = has_kink or sides.high - sides.low > 4 * inexact  # wider than both differences are inexact
    return has_kink


class _Sides(NamedTuple):
    """The products of tangents and derivatives to both sides, added up element by element: the lesser of the two, the
    greater, and the larger in size."""

    low: float
    high: float
    size: float


def _products_to_both_sides(
    subject: Subject, widened: dict[str, Tensor], direction: Mapping[str, Tensor], tangents: Mapping[str, Tensor]
) -> _Sides:
    """Return the products for the reference in float64, along a direction from the values `widened`."""

    def outputs_at(step: float) -> dict[str, Tensor]:
        """Return the reference's outputs where its inputs are moved by `step` times the direction."""
        moved = {name: widened[name] + step * direction[name] for name in direction}
        return run_forward(subject.reference, subject.call, widened | moved).outputs

    here, ahead, behind = outputs_at(0.0), outputs_at(STEP), outputs_at(-STEP)
    low = high = size = 0.0
    for name, tangent in tangents.items():
        # Two rows: the terms ahead and the terms behind.
        sides = products_to_both_sides(precise(tangent), here[name], ahead[name], behind[name], STEP).detach()
        low += float(sides.min(0).values.sum())
        high += float(sides.max(0).values.sum())
        size += float(sides.abs().max(0).values.sum())
    return _Sides(low, high, size)


def _part_up(direction: Tensor, part: int) -> Tensor:
    """Return a direction along which only the elements of one of PARTS parts move, neighbors of each other, all up. A
    complex direction is returned as it is: it has no up."""
    if direction.is_complex():
        return direction
    places = torch.arange(direction.numel(), device=direction.device).reshape(direction.shape)
    return direction.abs() * (places * PARTS // max(direction.numel(), 1) == part)

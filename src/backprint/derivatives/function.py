"""Is a function alone right? Its outputs, its gradients and the gradients of these, against a reference and against
its own forward.

The reference runs in float64, and in the function's own dtype: what it is off by there is what rounding explains, and
the function may be off by twice as much. So no tolerance has to be chosen. Each gradient is compared for tangents of
many kinds and memories, for inputs in other memory, for inputs with zeros and equal values, and with NaN where a mask
hides it. Whether the backward is the derivative of the function's own forward needs no reference: the function is
captured, or, where it cannot be, run at nearby inputs in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backprint.derivatives.called import (
    Call,
    Forward,
    Place,
    Program,
    draws_random_numbers,
    in_dtype,
    in_words,
    read_check,
    run_forward,
)
from backprint.derivatives.check import LIMIT, derivatives_of
from backprint.derivatives.checked import NOT_TRIED, OK, WRONG, CheckReport, CheckRow
from backprint.derivatives.differences import by_differences
from backprint.derivatives.hostile import LAYOUTS, tolerance, with_ties, with_zeros
from backprint.derivatives.reproduced import Fault
from backprint.derivatives.setting import drawn_like, is_inexact, wide
from backprint.errors import UsageError
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import CANNOT_TELL, DERIVATIVE, Derivative
from backprint.values.settings import outside_modes, preserving_random_states

Result = tuple[CheckRow, Fault | None]

OF_ROUNDING = 8.0
"""A gradient that is 0 but for rounding may be off by so many times more: it is chance how much rounding is left."""

TINY = {torch.float64: 5e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""What the reference is taken to be off by at least, relative to the largest value, however exact it is by chance."""

SMALL = 0.1
"""A result of the reference whose error is more than this part of it is nothing but rounding."""


def check_function(
    fn: Callable[..., Any],
    like: Callable[..., Any] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    dtypes: Sequence[torch.dtype],
    requires_grad: Any,
    order: int,
    meant: Sequence[str],
    times: float,
    seed: int,
    capture: Callable[..., Capture],
) -> CheckReport:
    """Compare a function with a reference, and its backward with its forward; `capture` is `bp.capture`."""
    with outside_modes(), preserving_random_states():
        call, ours, reference = read_check(fn, like, args, kwargs, requires_grad, seed)
        if not call.wanted:
            raise UsageError(
                "no input of the function requires grad, so it has no gradient to check: pass a floating-point tensor, "
                "or name one in requires_grad"
            )
        results: list[Result] = []
        for dtype in dict.fromkeys(dtypes) or (None,):
            subject = Subject(call, ours, reference, like is not None, dtype, in_dtype(call.values, dtype), times)
            results += checks_of(subject, order)
        if any(call.values[name].numel() for name in call.wanted):
            results += derivative_rows(call, ours, order, meant, capture)
    fault = next((fault for row, fault in results if row.verdict == WRONG), None)
    return CheckReport(name_of(fn), tuple(row for row, _ in results), fault)


LONGEST_NAME = 40
"""The most letters of the name of something that has none, such as `<CustomOpDef(mine::silu)>`."""


def name_of(fn: Callable[..., Any]) -> str:
    """Return a name for a function: that of the class for `Function.apply` and for a module."""
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return owner.__name__
    return getattr(fn, "__name__", None) or (str(fn) if len(str(fn)) <= LONGEST_NAME else type(fn).__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """What is checked, and with what, in one dtype; None is the dtype that the inputs have.

    The function may be off by `times` what the reference is off by in this dtype.
    """

    call: Call
    ours: Program
    reference: Program
    has_reference: bool
    dtype: torch.dtype | None
    values: dict[str, Tensor]
    times: float

    @property
    def output(self) -> str:
        """The first word of checks of outputs: without a reference they are compared with those for other memory."""
        return "forward" if self.has_reference else "same output"

    @property
    def gradient(self) -> str:
        """The first word of checks of gradients."""
        return "gradient" if self.has_reference else "same gradient"

    @property
    def text(self) -> str:
        """The dtype in words: that of the inputs, or the lowest of them."""
        return str(self.coarsest)[6:]

    @property
    def coarsest(self) -> torch.dtype:
        """The dtype of the inputs with the fewest digits."""
        kinds = [self.values[name].dtype for name in self.call.wanted]
        return max((REAL.get(kind, kind) for kind in kinds), key=lambda kind: torch.finfo(kind).eps)

    @property
    def tiny(self) -> float:
        """What the reference is off by at least, relative to the largest value of a result."""
        return TINY.get(self.coarsest, 2 * torch.finfo(self.coarsest).eps)


REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def checks_of(subject: Subject, order: int) -> Iterator[Result]:
    """Yield the rows of one dtype."""
    try:
        forward = run_forward(subject.ours, subject.call, subject.values)
    except Exception as error:
        if subject.dtype is None:
            raise
        yield row(subject, "forward", "output", WRONG, f"the function raised {in_words(error)}"), None
        return
    outputs = {name: value for name, value in forward.outputs.items() if is_inexact(value)}
    if not outputs:
        raise UsageError(
            f"the function returns no floating-point tensor but {', '.join(forward.outputs) or 'no tensor'}: it has no "
            "gradient to check"
        )
    try:
        expected = expected_of(subject, subject.values)
    except Exception as error:
        yield not_tried(subject, "forward", "output", f"the reference raised {in_words(error)}")
        return
    if subject.has_reference:
        results = list(forward_rows(subject, "forward", forward, expected, subject.values))
        yield from results
        if not comparable(results):
            return
    shapes = outputs_with_gradients(forward, expected)
    for check, make in kinds_of(subject, shapes).items():
        source = torch.Generator().manual_seed(subject.ours.seed)
        tangents = tangents_for(shapes, make, source)
        if tangents is not None:
            yield from gradient_rows(subject, f"{subject.gradient}, {check}", subject.values, tangents, expected)
    yield from other_memory(subject, expected)
    if subject.has_reference:
        yield from other_values(subject)
        yield from behind_masks(subject, expected)
    if order > 1 and subject.has_reference:
        yield from second_rows(subject, expected)


def comparable(results: Sequence[Result]) -> bool:
    """Whether gradients can be compared: not where outputs have other shapes, or are of other random numbers."""
    outputs = [output for output, _ in results if output.error is None and not output.check.endswith(", dtype")]
    return not any(output.verdict == WRONG or NUMBERS in output.verdict for output in outputs)


def not_tried(subject: Subject, check: str, name: str, reason: str) -> Result:
    """Return the row of a comparison that was not made."""
    return CheckRow(check, subject.text, name, None, None, f"{NOT_TRIED}: {reason}"), None


def row(subject: Subject, check: str, name: str, verdict: str, detail: str = "") -> CheckRow:
    """Return a row without numbers."""
    return CheckRow(check, subject.text, name, None, None, verdict, detail)


# ---- The reference


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """The reference's results: in float64, in the function's dtype, and in float64 on inputs that are rounded once
    more. None where the reference does not run so. `random` says that it draws random numbers."""

    exact: Forward
    own: Forward | None
    moved: Forward | None
    random: bool


def expected_of(subject: Subject, values: Mapping[str, Tensor]) -> Expected:
    """Run the reference on these values. Without one, the function itself on copies in new memory stands for it."""
    program, call = subject.reference, subject.call
    if not subject.has_reference:
        dense = {name: value.contiguous() for name, value in values.items()}
        forward = run_forward(program, call, dense)
        return Expected(forward, forward, None, draws_random_numbers(program, call, dense))
    widened = {name: wide(value) for name, value in values.items()}
    try:
        exact = run_forward(program, call, widened)
    except Exception as error:
        raise UsageError(f"in float64 {in_words(error)}") from error
    try:
        own = run_forward(program, call, values)
    except (RuntimeError, NotImplementedError, TypeError):
        own = None  # it has no such dtype: then rounding of the results themselves is what is allowed
    source = torch.Generator().manual_seed(subject.ours.seed)
    moved = {name: rounded_again(value, values[name].dtype, source) for name, value in widened.items()}
    return Expected(exact, own, run_forward(program, call, moved), draws_random_numbers(program, call, values))


def rounded_again(value: Tensor, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Return a value in float64, moved by as much as rounding to a dtype moves it; zeros stay zeros."""
    if not is_inexact(value):
        return value
    steps = torch.rand(value.shape, generator=source, dtype=torch.float64).to(value.device) * 2 - 1
    return value * (1 + torch.finfo(dtype).eps / 2 * steps)


# ---- Comparing


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a result is from the exact one, how far it may be, and why nothing was compared, if so."""

    error: float
    allowed: float
    not_tried: str = ""

    @property
    def verdict(self) -> str:
        """The verdict of a row."""
        if self.not_tried:
            return f"{NOT_TRIED}: {self.not_tried}"
        return OK if self.error <= self.allowed else WRONG


def differ(
    subject: Subject, ours: Tensor | None, exact: Tensor, own: Tensor | None, moved: Tensor | None, largest: float
) -> Difference:
    """Compare a result with that of the reference; `largest` is the largest value of all results of its kind."""
    places = ~exact.isnan()
    if not exact.numel():
        return Difference(math.nan, math.nan, "it has no elements")
    if not bool(places.any()):
        return Difference(math.nan, math.nan, "the reference is NaN")
    scale = size_of(exact)
    error = distance(torch.zeros_like(exact) if ours is None else ours, exact, places)
    if not subject.has_reference:
        return Difference(error, tolerance(exact) * max(scale, 1e-3 * largest))
    of_own = 0.0 if own is None else distance(own, exact, places)
    if not math.isfinite(of_own):
        return Difference(error, of_own, f"the reference itself has NaN or Inf in {subject.text}, and not in float64")
    spread = 0.0 if moved is None else distance(moved, exact, places)
    tiny = subject.tiny * scale
    rounding = max(of_own, min(spread, 8 * tiny) if math.isfinite(spread) else 0.0)
    if of_own > SMALL * scale:
        return Difference(error, subject.times * (OF_ROUNDING * of_own + 0.01 * subject.tiny * largest))
    return Difference(error, subject.times * (rounding + tiny))


def distance(ours: Tensor, exact: Tensor, places: Tensor | None = None) -> float:
    """Return the largest absolute difference at these places, infinite where only one is a number."""
    if not exact.numel():
        return 0.0
    ours, exact = precise(ours), precise(exact)
    apart = (ours - exact).abs()
    apart = torch.where((ours == exact) | (ours.isnan() & exact.isnan()), 0.0, apart).nan_to_num(math.inf, math.inf)
    return float((apart if places is None else torch.where(places, apart, 0.0)).max())


def precise(value: Tensor) -> Tensor:
    """Return any tensor in float64 or complex128."""
    value = value.detach()
    return value.to(torch.complex128) if value.is_complex() else value.to(torch.float64)


def size_of(value: Tensor | None) -> float:
    """Return the largest finite absolute value."""
    if value is None or not value.numel():
        return 0.0
    return float(precise(value).abs().nan_to_num(0.0, 0.0, 0.0).max())


def forward_rows(
    subject: Subject, check: str, forward: Forward, expected: Expected, values: Mapping[str, Tensor]
) -> Iterator[Result]:
    """Yield a row for each output."""
    exact, own = expected.exact.outputs, None if expected.own is None else expected.own.outputs
    if list(forward.outputs) != list(exact):
        ours, theirs = (", ".join(names) or "none" for names in (forward.outputs, exact))
        yield row(subject, check, "output", WRONG, f"it returns {ours}, and the reference {theirs}"), None
        return
    for name, output in forward.outputs.items():
        right = exact[name]
        if output.shape != right.shape:
            detail = f"its shape is {tuple(output.shape)}, and the reference's {tuple(right.shape)}"
            yield row(subject, check, name, WRONG, detail), None
            continue
        if own is not None and output.dtype != own[name].dtype:
            detail = (
                f"its dtype is {str(output.dtype)[6:]}, and the reference's {str(own[name].dtype)[6:]}: if that is "
                "meant, let the reference convert its result"
            )
            yield row(subject, f"{check}, dtype", name, WRONG, detail), None
        moved = None if expected.moved is None else expected.moved.outputs[name]
        difference = differ(subject, output, right, None if own is None else own[name], moved, size_of(right))
        fault = Fault(subject.ours, subject.call, values, {}, name, right.detach(), check, tuple(forward.outputs), {})
        yield numbered(subject, check, name, difference, expected.random), fault


NUMBERS = "the function or the reference draws other random numbers here: pass them as an input"


def numbered(
    subject: Subject, check: str, name: str, difference: Difference, random: bool, detail: str = ""
) -> CheckRow:
    """Return a row with numbers. Of functions that draw random numbers, what differs may be these."""
    verdict = difference.verdict
    if verdict == WRONG and random:
        verdict = f"{NOT_TRIED}: {NUMBERS}"
    tried = not verdict.startswith(NOT_TRIED)
    error, allowed = (difference.error, difference.allowed) if tried else (None, None)
    return CheckRow(check, subject.text, name, error, allowed, verdict, detail)


def gradient_rows(
    subject: Subject,
    check: str,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    expected: Expected,
    hostile: bool = True,
) -> Iterator[Result]:
    """Yield a row for each gradient, for these tangents of the outputs. The reference's are in new memory.

    With `hostile`, an error that the function raises is a refusal of what is unusual about this call.
    """
    call = subject.call
    try:
        forward = run_forward(subject.ours, call, values)
        gradients = forward.gradients(tangents)
    except Exception as error:
        text = f"the function raised {in_words(error)}"
        if hostile and check != FIRST:
            yield not_tried(subject, check, "all", f"{text}")
        else:
            yield row(subject, check, "all", WRONG, text), None
        return
    dense = {name: tangent.clone(memory_format=torch.contiguous_format) for name, tangent in tangents.items()}
    exact = of_reference(expected.exact, dense)
    own = of_reference(expected.own, dense)
    moved = of_reference(expected.moved, dense)
    assert exact is not None
    largest = max(map(size_of, exact.values()), default=0.0)
    for name in call.wanted:
        ours, right = gradients[name], exact[name]
        if (
            name not in call.inputs
            and right is None
            and subject.has_reference
            and not known_to_reference(subject, name)
        ):
            yield not_tried(subject, check, name, f"the reference has no parameter {name}")
            continue
        if right is None:
            right = torch.zeros_like(wide(values[name]))
        difference = differ(subject, ours, right, item(own, name), item(moved, name), largest)
        detail = "" if ours is not None or difference.verdict != WRONG else "the function returns no gradient for it"
        if difference.verdict == WRONG and subject.has_reference and is_kink(subject, values, dense, gradients):
            difference = Difference(difference.error, math.inf)
            detail = "a kink: another subgradient than the reference's"
        fault = Fault(subject.ours, call, values, tangents, name, right, check, tuple(forward.outputs), {})
        yield numbered(subject, check, name, difference, False, detail), fault


FIRST = "gradient, random tangents"


def known_to_reference(subject: Subject, name: str) -> bool:
    return name in subject.reference.state.values()


def item(gradients: Mapping[str, Tensor | None] | None, name: str) -> Tensor | None:
    return None if gradients is None else gradients[name]


def of_reference(forward: Forward | None, tangents: Mapping[str, Tensor]) -> dict[str, Tensor | None] | None:
    """Return the gradients of the reference; its outputs may have another dtype than the function's."""
    if forward is None:
        return None
    names = [name for name in tangents if forward.outputs[name].requires_grad]
    return forward.gradients({name: tangents[name].to(forward.outputs[name].dtype) for name in names}, keep=True)


# ---- Kinks


STEP = 1e-6
DIRECTIONS = 4


def is_kink(
    subject: Subject,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor | None],
) -> bool:
    """Whether the reference has a kink here, and the gradients lie between its derivatives to both sides.

    Output by output, so that kinks of several outputs do not make up for one another.
    """
    call = subject.call
    widened = {name: wide(value) for name, value in values.items()}
    source = torch.Generator().manual_seed(subject.ours.seed)
    kink = False
    for _ in range(DIRECTIONS):
        direction = {name: drawn_like(widened[name], source) for name in call.wanted}
        here, ahead, behind = (
            run_forward(
                subject.reference,
                call,
                widened | {name: widened[name] + step * direction[name] for name in call.wanted},
            ).outputs
            for step in (0.0, STEP, -STEP)
        )
        low = high = size = 0.0
        for name, tangent in tangents.items():
            g = precise(tangent)
            right, left = ((ahead[name] - here[name]) / STEP, (here[name] - behind[name]) / STEP)
            sides = torch.stack(
                [(g.conj() * side.detach()).real if g.is_complex() else g * side.detach() for side in (right, left)]
            )
            low, high = low + float(sides.min(0).values.sum()), high + float(sides.max(0).values.sum())
            size += float(sides.abs().max(0).values.sum())
        product = 0.0
        for name, gradient in gradients.items():
            if gradient is not None:
                terms = precise(gradient).conj() * direction[name]
                product += float((terms.real if terms.is_complex() else terms).sum())
        slack = (1e-4 + 2 * subject.tiny) * size
        if not low - slack <= product <= high + slack:
            return False
        kink = kink or high - low > 4 * slack
    return kink


# ---- Tangents


Make = Callable[[Tensor, torch.Generator], Tensor | None]


def one_hot(value: Tensor, source: torch.Generator) -> Tensor | None:
    """Return a tangent that is 1 at one place: the gradient of one number."""
    if value.numel() < 2:
        return None
    flat = value.new_zeros(value.numel())
    flat[value.numel() // 2] = 1
    return flat.reshape(value.shape)


def with_zero_row(value: Tensor, source: torch.Generator) -> Tensor | None:
    """Return a tangent whose first row is 0, as that of a padded sequence is."""
    if not value.dim() or value.shape[0] < 2 or not value.numel():
        return None
    tangent = drawn_like(value, source)
    tangent[0] = 0
    return tangent


VALUES: Mapping[str, Make] = {
    "random tangents": drawn_like,
    "tangents of ones": lambda value, source: torch.ones_like(value),
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


MOST_ALONE = 4
"""The most outputs that are tried alone."""


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
        yield from with_inputs(subject, check, values, expected)


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
        except Exception as error:
            yield not_tried(subject, f"{subject.gradient}, {check}", "all", f"the reference raised {in_words(error)}")
            continue
        yield from with_inputs(subject, check, values, expected)


# ---- NaN where a mask hides it


def behind_masks(subject: Subject, expected: Expected) -> Iterator[Result]:
    """Yield rows for values that the reference does not read, because a mask hides them: with NaN there, nothing else
    may change."""
    masks = [name for name in subject.call.inputs if subject.values[name].dtype is torch.bool]
    for mask in masks:
        for name in subject.call.inputs:
            value = subject.values[name]
            if not value.is_floating_point() or not value.numel():
                continue
            for hidden in hidden_places(subject, name, subject.values[mask], expected):
                seen = what_is_seen(subject, name, hidden)
                if seen is not None:
                    yield from with_nan(subject, f"NaN in {name} behind {mask}", name, hidden, seen)
                    break


def hidden_places(subject: Subject, name: str, mask: Tensor, expected: Expected) -> Iterator[Tensor]:
    """Yield places of an input that a mask may hide: where it is False, where it is True, and rows without gradient."""
    value = subject.values[name]
    for shown in (mask, mask.reshape(*mask.shape, *[1] * max(0, value.dim() - mask.dim()))):
        try:
            places = shown.expand(value.shape)
        except RuntimeError:
            continue  # it has another shape
        yield from (some for some in (~places, places) if bool(some.any()) and not bool(some.all()))
    if name in subject.call.wanted and value.dim():
        source = torch.Generator().manual_seed(subject.ours.seed)
        tangents = {n: drawn_like(expected.exact.outputs[n].detach(), source) for n in expected.exact.differentiable}
        gradient = expected.exact.gradients(tangents, keep=True)[name]
        if gradient is not None:
            rows = (gradient == 0).all(-1, keepdim=True).expand(value.shape)
            if bool(rows.any()) and not bool(rows.all()):
                yield rows


def what_is_seen(subject: Subject, name: str, hidden: Tensor) -> dict[str, Tensor] | None:
    """Return for each output of the reference where it does not depend on the hidden places; None if it depends on
    them elsewhere than at these places themselves."""
    source = torch.Generator().manual_seed(subject.ours.seed)
    value = subject.values[name]
    draws = [torch.where(hidden, drawn_like(value, source), value) for _ in range(2)]
    before, *after = (
        run_forward(subject.reference, subject.call, subject.values | {name: some}).outputs for some in (value, *draws)
    )
    seen = {}
    for output, base in before.items():
        same = torch.ones(base.shape, dtype=torch.bool, device=base.device)
        for other in after:
            same &= (other[output] == base) | (other[output].isnan() & base.isnan())
        if not bool(same.all()) and (base.shape != value.shape or bool((~same & ~hidden).any())):
            return None
        seen[output] = same
    return seen


def with_nan(subject: Subject, check: str, name: str, hidden: Tensor, seen: Mapping[str, Tensor]) -> Iterator[Result]:
    """Yield rows for the outputs and gradients with NaN at hidden places: what the reference keeps must be kept."""
    call = subject.call
    values = subject.values | {name: subject.values[name].detach().masked_fill(hidden, math.nan)}
    source = torch.Generator().manual_seed(subject.ours.seed)
    runs: dict[str, tuple[Forward, dict[str, Tensor | None]]] = {}
    tangents: dict[str, Tensor] = {}
    for which, program, some in (
        ("ours", subject.ours, subject.values),
        ("ours with NaN", subject.ours, values),
        ("reference with NaN", subject.reference, values),
    ):
        try:
            forward = run_forward(program, call, some)
            if not tangents:
                tangents = {
                    n: torch.where(seen[n], drawn_like(forward.outputs[n].detach(), source), 0.0)
                    for n in forward.differentiable
                }
            runs[which] = forward, forward.gradients({n: t.to(forward.outputs[n].dtype) for n, t in tangents.items()})
        except Exception as error:
            yield not_tried(subject, check, "all", f"{which} raised {in_words(error)}")
            return
    (base, base_gradients), (ours, gradients), (kept, kept_gradients) = runs.values()
    for output, value in ours.outputs.items():
        places = seen[output]
        if bool((kept.outputs[output].isnan() & places).any()):
            yield not_tried(subject, f"{subject.output}, {check}", output, "the reference passes NaN on too")
            return
        difference = Difference(
            distance(value, base.outputs[output], places), subject.tiny * size_of(base.outputs[output])
        )
        right = base.outputs[output].detach()
        fault = Fault(subject.ours, call, values, {}, output, right, check, tuple(base.outputs), {})
        yield numbered(subject, f"{subject.output}, {check}", output, difference, False), fault
    for wanted in call.wanted:
        gradient, right, of_kept = gradients[wanted], base_gradients[wanted], kept_gradients[wanted]
        if right is None or gradient is None:
            continue
        places = torch.ones_like(right, dtype=torch.bool) if of_kept is None else ~of_kept.isnan()
        if not bool(places.any()):
            yield not_tried(subject, f"{subject.gradient}, {check}", wanted, "the reference passes NaN on too")
            continue
        apart = distance(gradient, right, places & ~hidden if wanted == name else places)
        difference = Difference(apart, 8 * subject.tiny * size_of(right))
        fault = Fault(subject.ours, call, values, tangents, wanted, right, check, tuple(base.outputs), {})
        yield numbered(subject, f"{subject.gradient}, {check}", wanted, difference, False), fault


# ---- The gradient of the gradient


def second_rows(subject: Subject, expected: Expected) -> Iterator[Result]:
    """Yield rows for the gradients of the gradients: of the inputs, and of the tangents."""
    call, check = subject.call, "gradient of the gradient"
    source = torch.Generator().manual_seed(subject.ours.seed)
    shapes = {name: expected.exact.outputs[name].detach() for name in expected.exact.differentiable}
    tangents = {name: drawn_like(shape, source) for name, shape in shapes.items()}
    directions = {name: drawn_like(wide(subject.values[name]), source) for name in call.wanted}
    try:
        ours = second(subject.ours, call, subject.values, tangents, directions)
    except RuntimeError as error:
        yield not_tried(subject, check, "all", f"the function raised {in_words(error)}")
        return
    widened = {name: wide(value) for name, value in subject.values.items()}
    moved = {name: rounded_again(value, subject.values[name].dtype, source) for name, value in widened.items()}
    try:
        exact, again = (second(subject.reference, call, some, tangents, directions) for some in (widened, moved))
        own = second(subject.reference, call, subject.values, tangents, directions)
    except RuntimeError as error:
        yield not_tried(subject, check, "all", f"the reference raised {in_words(error)}")
        return
    largest = max(map(size_of, exact.values()), default=0.0)
    for name, gradient in ours.items():
        right = exact[name]
        if right is None and gradient is None:
            continue
        if right is None:
            assert gradient is not None
            right = torch.zeros_like(wide(gradient))
        difference = differ(subject, gradient, right, own[name], again[name], largest)
        detail = "" if gradient is not None or difference.verdict != WRONG else "its gradient is a constant to autograd"
        outputs = tuple(expected.exact.outputs)
        fault = Fault(subject.ours, call, subject.values, tangents, name, right, check, outputs, directions)
        yield numbered(subject, check, name, difference, expected.random, detail), fault


def second(
    program: Program,
    call: Call,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    directions: Mapping[str, Tensor],
) -> dict[str, Tensor | None]:
    """Return the gradients of ⟨gradients, directions⟩ for the inputs and for the tangents of the outputs."""
    forward = run_forward(program, call, values)
    seeds = {
        name: tangent.to(forward.outputs[name].dtype).requires_grad_()
        for name, tangent in tangents.items()
        if forward.outputs[name].requires_grad
    }
    gradients = forward.gradients(seeds, create_graph=True)
    ends = {name: gradient for name, gradient in gradients.items() if gradient is not None and gradient.requires_grad}
    leaves = forward.leaves | {f"tangent of {name}": seed for name, seed in seeds.items()}
    if not ends:
        return dict.fromkeys(leaves)
    results = torch.autograd.grad(
        list(ends.values()),
        list(leaves.values()),
        [directions[name].to(gradient.dtype) for name, gradient in ends.items()],
        allow_unused=True,
    )
    return dict(zip(leaves, results, strict=True))


# ---- The derivative


def derivative_rows(
    call: Call, ours: Program, order: int, meant: Sequence[str], capture: Callable[..., Capture]
) -> Iterator[Result]:
    """Yield rows that say whether the backward is the derivative of the function's own forward."""
    values = {name: value.detach() for name, value in call.values.items()}
    args, kwargs = call.arguments(values)
    places = [leaf.name for leaf in call.leaves if isinstance(leaf, Place)]
    for degree in range(1, order + 1):
        check = "derivative" if degree == 1 else f"derivative, order {degree}"
        reason = ""
        verdicts: list[Derivative] = []
        if len(places) > len(set(places)):
            reason = "one tensor is passed for several inputs"
        else:
            try:
                captured = capture(ours.function, args=args, kwargs=kwargs, requires_grad=call.wanted, order=degree)
                verdicts = derivatives_of(captured, meant, True)
            except Exception as error:
                reason = f"it cannot be captured: {in_words(error)}"
            else:
                if captured.requires:
                    reason = f"{', '.join(captured.requires)} is opaque"
                else:
                    reason = "; ".join(verdict.detail for verdict in verdicts if verdict.word == CANNOT_TELL)
        if reason:
            yield from without_capture(call, ours, check, degree, reason)
        else:
            yield from ((derivative_row(check, verdict, call), None) for verdict in verdicts)


def derivative_row(check: str, verdict: Derivative, call: Call) -> CheckRow:
    """Return the verdict on a captured Pair as a row; a fault that other memory shows has no gap of its own."""
    names = ", ".join(verdict.ports or call.wanted)
    detail = "" if verdict.word == DERIVATIVE else str(verdict)
    if verdict.good:
        return CheckRow(check, "float64", names, verdict.gap, max(LIMIT, verdict.gap or 0.0), OK, detail)
    gap = verdict.gap if verdict.gap is not None and verdict.gap > LIMIT else None
    return CheckRow(check, "float64", names, gap, None if gap is None else LIMIT, WRONG, detail)


def without_capture(call: Call, ours: Program, check: str, degree: int, reason: str) -> Iterator[Result]:
    """Yield rows by differences, of a function that cannot be captured."""
    if degree > 1:
        yield CheckRow(check, "float64", "all", None, None, f"{NOT_TRIED}: {reason}"), None
        return
    for product in by_differences(call, ours):
        if product.not_tried:
            verdict = f"{NOT_TRIED}: {reason}; by differences: {product.not_tried}"
            yield CheckRow(check, "float64", product.name, None, None, verdict), None
        else:
            word = OK if product.gap <= product.allowed else WRONG
            detail = f"by central differences: {reason}"
            yield (
                CheckRow(
                    f"{check}, by differences", "float64", product.name, product.gap, product.allowed, word, detail
                ),
                None,
            )

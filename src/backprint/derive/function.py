"""Is a function alone right? Its outputs, its gradients and the gradients of these, against a reference and against
its own forward.

The reference runs in float64, and in the function's own dtype: rounding explains as much as its error there, and
the function may be off by twice as much. So no tolerance has to be chosen. Each gradient is compared for tangents of
many kinds and memories, for inputs in other memory, for inputs with zeros and equal values, and with NaN where a mask
hides it. Whether the backward is the derivative of the function's own forward needs no reference: the function is
captured, or, where it cannot be, run at nearby inputs in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from backprint.derive.called import Call, Place, Program, in_dtype, in_words, read_check, run_forward
from backprint.derive.check import LIMIT, derivatives_of
from backprint.derive.checked import FORWARD, NOT_TRIED, OK, WRONG, CheckReport, CheckRow
from backprint.derive.compared import (
    Expected,
    NoReference,
    Result,
    Subject,
    comparable,
    differ,
    expected_of,
    forward_rows,
    gradient_rows,
    not_tried,
    numbered,
    row,
)
from backprint.derive.differences import by_differences
from backprint.derive.hostile import indices_of
from backprint.derive.masks import behind_masks
from backprint.derive.reproduced import Fault
from backprint.derive.setting import drawn_like, is_inexact, own_source, wide
from backprint.derive.unusual import (
    always,
    at_borders,
    kinds_of,
    large_means,
    other_memory,
    other_sizes,
    other_values,
    outputs_with_gradients,
    tangents_for,
)
from backprint.derive.usage import buffer_rows, process_rows, usage_rows, written_rows
from backprint.errors import BackprintError, UsageError
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import CANNOT_TELL, DERIVATIVE, Derivative
from backprint.judge.closeness import rounded_again, size_of
from backprint.values.settings import keeping_settings, outside_modes, preserving_random_states


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
    """Compare a function with a reference (`like`), and its backward with its forward: what `bp.check` does.

    `capture` is `bp.capture`, which this package may not import because it is above it. Without a reference, outputs
    and gradients are compared with those for other memory. UsageError says that nothing requires grad.
    """
    with outside_modes(), preserving_random_states(), keeping_settings():
        call, ours, reference = read_check(fn, like, args, kwargs, requires_grad, seed)
        if not call.wanted:
            raise UsageError(
                "no input of the function requires grad, so it has no gradient to check: pass a floating-point tensor, "
                "or name one in requires_grad"
            )
        results: list[Result] = []
        for dtype in dict.fromkeys(dtypes) or (None,):
            subject = Subject(call, ours, reference, like is not None, dtype, in_dtype(call.values, dtype), times)
            if not results:  # before other calls, which would leave the process as this one does
                results += process_rows(subject)
            results += checks_of(
                subject, order, partial(_indices_of_reference, call, reference, capture), linear=not meant, in_use=True
            )
        if any(call.values[name].numel() for name in call.wanted):
            once = any(row.verdict.endswith(f"the function raised RuntimeError: {ONCE}") for row, _ in results)
            results += _derivative_rows(call, ours, order, once, meant, capture)
    fault = next((fault for row, fault in results if row.verdict == WRONG and fault is not None), None)
    return CheckReport(name_of(fn), tuple(row for row, _ in results), fault)


LONGEST_NAME = 40
"""The most letters of the name of something that has none, such as `<CustomOpDef(mine::silu)>`."""


def name_of(fn: Callable[..., Any]) -> str:
    """Return a name for a function; for `Function.apply` and for a module, the name of the class."""
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return owner.__name__
    return getattr(fn, "__name__", None) or (str(fn) if len(str(fn)) <= LONGEST_NAME else type(fn).__name__)


def _indices_of_reference(call: Call, reference: Program, capture: Callable[..., Capture]) -> tuple[str, ...]:
    """Return the inputs with which the reference reads or adds at indices; none if it cannot be captured."""

    def by_position(*tensors: Tensor) -> Any:
        """Call the reference on its tensors alone, so that the inputs of the capture are in the order of the call's."""
        args, kwargs = call.arguments(dict(zip(call.inputs, tensors, strict=True)))
        return reference.function(*args, **kwargs)

    inputs = [call.values[name].detach().requires_grad_(name in call.wanted) for name in call.inputs]
    try:
        captured = capture(by_position, args=inputs)
    except BackprintError:
        return ()
    # Arguments of `*tensors` are named `tensors.0`, `tensors.1`, ….
    places = {f"tensors.{place}": name for place, name in enumerate(call.inputs)}
    return tuple(places[name] for pair in captured.pairs for name in indices_of(pair.forward) if name in places)


def checks_of(
    subject: Subject,
    order: int,
    indices: Callable[[], Collection[str]],
    *,
    linear: bool = True,
    in_use: bool = False,
) -> Iterator[Result]:
    """Yield the rows of one dtype; `indices` returns the inputs that index something.

    `linear` says that the gradient must be linear in tangents, as it need not be where it is meant to differ. With
    `in_use`, the function is also called as training calls it (`usage`), and rows say what it writes into. With
    `order` 2, gradients of gradients are compared too.
    """
    try:
        forward = run_forward(subject.ours, subject.call, subject.values)
    except Exception as error:
        # In the dtype that the caller passed it is the caller's error; in a dtype of `dtypes` it is a wrong row.
        if subject.dtype is None:
            raise
        yield row(subject, FORWARD, "output", WRONG, f"the function raised {in_words(error)}"), None
        return
    outputs = {name: value for name, value in forward.outputs.items() if is_inexact(value)}
    if not outputs:
        raise UsageError(
            f"the function returns no floating-point tensor but {', '.join(forward.outputs) or 'no tensor'}: it has no "
            "gradient to check"
        )
    for name, value in forward.outputs.items():
        if value.layout is not torch.strided:
            raise UsageError(
                f"{name} is {str(value.layout)[6:]}: bp.check compares dense tensors; let the function and the "
                "reference return its parts, or .to_dense()"
            )
    try:
        expected = expected_of(subject, subject.values)
    except NoReference as error:
        yield not_tried(subject, FORWARD, "output", str(error))
        return
    if in_use:
        yield from written_rows(subject)
    if subject.has_reference:
        results = list(forward_rows(subject, FORWARD, forward, expected, subject.values))
        yield from results
        if not comparable(results):
            return
        yield from buffer_rows(subject, forward, expected)
    shapes = outputs_with_gradients(forward, expected)
    for check, make in kinds_of(subject, shapes).items():
        source = own_source(subject.ours.seed)
        tangents = tangents_for(shapes, make, source)
        if tangents is not None:
            yield from gradient_rows(subject, f"{subject.gradient}, {check}", subject.values, tangents, expected)
    usual = tangents_for(shapes, always(drawn_like), own_source(subject.ours.seed))
    if usual:
        yield from other_sizes(subject, usual, expected, linear)
    yield from other_memory(subject, expected)
    if subject.has_reference:
        yield from other_values(subject, expected.random)
        yield from large_means(subject, expected.random)
        yield from behind_masks(subject, expected)
        yield from at_borders(subject, expected.random, indices)
    if usual and in_use:  # one call, as a file makes it, does not show what is wrong here
        yield from ((row, None) for row, _ in usage_rows(subject, usual, expected))
    if order > 1 and subject.has_reference:
        yield from second_rows(subject, expected)


# ---- The gradient of the gradient


def second_rows(subject: Subject, expected: Expected) -> Iterator[Result]:
    """Yield rows for the gradients of the gradients, of the inputs and of the tangents; of the reference as in
    `compared.gradient_rows`: exact, in the function's dtype (`own`), and on rounded inputs (`again`)."""
    call, check = subject.call, "gradient of the gradient"
    source = own_source(subject.ours.seed)
    shapes = {name: expected.exact.outputs[name].detach() for name in expected.exact.differentiable}
    tangents = {name: drawn_like(shape, source) for name, shape in shapes.items()}
    directions = {name: drawn_like(wide(subject.values[name]), source) for name in call.wanted}
    try:
        ours = second(subject.ours, call, subject.values, tangents, directions)
    except RuntimeError as error:
        yield not_tried(subject, check, "all", f"the function raised {in_words(error)}")
        return
    widened = {name: wide(value) for name, value in subject.values.items()}
    moved = {
        name: rounded_again(value, subject.values[name].dtype, subject.ours.seed) for name, value in widened.items()
    }
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
    """Return the gradients of ⟨gradients, directions⟩ for the inputs and for the tangents of the outputs. Raise
    RuntimeError if the backward is marked with `once_differentiable`."""
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
    # Autograd gives a gradient of a `once_differentiable` backward a node that raises if it is differentiated.
    nodes = [gradient.grad_fn for gradient in ends.values()]
    if any(node is not None and node.name() == "torch::autograd::Error" for node in nodes):
        raise RuntimeError(ONCE)
    results = torch.autograd.grad(
        list(ends.values()),
        list(leaves.values()),
        [directions[name].to(gradient.dtype) for name, gradient in ends.items()],
        allow_unused=True,
    )
    return dict(zip(leaves, results, strict=True))


ONCE = "a backward is marked with once_differentiable"
"""The message of the error that `second` raises, by which rows with it are found."""


# ---- The derivative


def _derivative_rows(
    call: Call, ours: Program, order: int, once: bool, meant: Sequence[str], capture: Callable[..., Capture]
) -> Iterator[Result]:
    """Yield rows that say whether the backward is the derivative of the function's own forward, one for each `order`.

    `once` says that autograd refuses to differentiate the backward. `meant` names what is meant to differ: if that is
    the function itself, and it cannot be captured, nothing is compared.
    """
    values = {name: value.detach() for name, value in call.values.items()}
    args, kwargs = call.arguments(values)
    places = [leaf.name for leaf in call.leaves if isinstance(leaf, Place)]
    for degree in range(1, order + 1):
        check = "derivative" if degree == 1 else f"derivative, order {degree}"
        reason = ""
        verdicts: list[Derivative] = []
        if degree > 1 and once:
            reason = ONCE
        elif len(places) > len(set(places)):
            reason = "one tensor is passed for several inputs"
        else:
            try:
                captured = capture(ours.function, args=args, kwargs=kwargs, requires_grad=call.wanted, order=degree)
                verdicts = derivatives_of(captured, meant, hostile=True)
            except Exception as error:
                reason = f"it cannot be captured: {in_words(error)}"
            else:
                if captured.requires:
                    reason = f"{', '.join(captured.requires)} is opaque"
                else:
                    reason = "; ".join(verdict.detail for verdict in verdicts if verdict.word == CANNOT_TELL)
        if reason and name_of(ours.function) in meant:
            text = f"{NOT_TRIED}: {reason}, and its gradient is meant to differ"
            yield CheckRow(check, "float64", "all", None, None, text), None
        elif reason:
            yield from _without_capture(call, ours, check, degree, reason)
        else:
            yield from ((_derivative_row(check, verdict, call), None) for verdict in verdicts)


def _derivative_row(check: str, verdict: Derivative, call: Call) -> CheckRow:
    """Return the verdict on a captured Pair as a row. A wrong row has the gap only if it exceeds LIMIT: else something
    else has shown the fault, as tangents in other memory, and a gap within the limit would contradict it."""
    names = ", ".join(verdict.ports or call.wanted)
    detail = "" if verdict.word == DERIVATIVE else str(verdict)
    if verdict.good:
        return CheckRow(check, "float64", names, verdict.gap, max(LIMIT, verdict.gap or 0.0), OK, detail)
    gap = verdict.gap if verdict.gap is not None and verdict.gap > LIMIT else None
    return CheckRow(check, "float64", names, gap, None if gap is None else LIMIT, WRONG, detail)


def _without_capture(call: Call, ours: Program, check: str, degree: int, reason: str) -> Iterator[Result]:
    """Yield rows by differences, of a function that cannot be captured."""
    # Central differences of the function say nothing about gradients of gradients.
    if degree > 1:
        yield CheckRow(check, "float64", "all", None, None, f"{NOT_TRIED}: {reason}"), None
        return
    for product in by_differences(call, ours):
        if product.not_tried:
            verdict = f"{NOT_TRIED}: {reason}; by differences: {product.not_tried}"
            yield CheckRow(check, "float64", product.name, None, None, verdict), None
        else:
            word = OK if product.gap <= product.allowed else WRONG
            title, detail = f"{check}, by differences", f"by central differences: {reason}"
            yield CheckRow(title, "float64", product.name, product.gap, product.allowed, word, detail), None

"""Is a function alone right? Its outputs, its gradients and the gradients of these, against a reference and against
its own forward.

The reference runs in float64, and in the function's own dtype: rounding explains as much as its error there, and
the function may be off by twice as much. So no tolerance has to be chosen. Each gradient is compared for tangents of
many kinds and memories, for inputs in other memory, for inputs with zeros and equal values, and with NaN where a mask
hides it. Whether the backward is the derivative of the function's own forward needs no reference: the function is
captured, or, where it cannot be, run at nearby inputs in float64.

A Subject is what is checked, in one dtype: the function (`ours`), the reference, and a Call, the arguments with the
tensors by name, of which `wanted` have gradients. `expected` has the reference's results. A Result is a CheckRow of
`bp.check`'s table, with the Fault from which a file is written that shows it, None if no one call does. `check` is the
name of a row, and `capture` is `bp.capture`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from backprint.derive.called import Call, Place, Program, error_text, in_dtype, read_check, run_forward
from backprint.derive.check import LIMIT, derivatives_of
from backprint.derive.checked import FORWARD, NOT_TRIED, OK, WRONG, CheckReport, CheckRow
from backprint.derive.compared import (
    Expected,
    NoReference,
    Result,
    Subject,
    are_gradients_comparable,
    expected_of,
    forward_rows,
    gradient_rows,
    measure_difference,
    result_not_tried,
    row_of_difference,
    row_without_error,
)
from backprint.derive.differences import products_by_differences
from backprint.derive.hostile import indices_of
from backprint.derive.masks import mask_rows
from backprint.derive.reproduced import Fault
from backprint.derive.setting import drawn_like, is_inexact, own_source, to_float64
from backprint.derive.unusual import (
    make_for_every_output,
    outputs_with_gradients,
    rows_for_borders,
    rows_for_large_means,
    rows_for_other_memory,
    rows_for_other_sizes,
    rows_for_other_values,
    tangent_kinds,
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
        for dtype in dict.fromkeys(dtypes) or (None,):  # each once; None is the dtype that the inputs have
            subject = Subject(call, ours, reference, like is not None, dtype, in_dtype(call.values, dtype), times)
            # Rows for settings of the process that the function changes: before other calls, which change them too.
            if not results:
                results += process_rows(subject)
            results += rows_of_dtype(
                subject, order, partial(_indices_of_reference, call, reference, capture), linear=not meant, in_use=True
            )
        if any(call.values[name].numel() for name in call.wanted):
            is_once_differentiable = any(
                row.verdict.endswith(f"the function raised RuntimeError: {ONCE}") for row, _ in results
            )
            results += _derivative_rows(call, ours, order, is_once_differentiable, meant, capture)
    fault = next((fault for row, fault in results if row.verdict == WRONG and fault is not None), None)
    return CheckReport(function_name(fn), tuple(row for row, _ in results), fault)


LONGEST_NAME = 40
"""The most letters of the name of something that has none, such as `<CustomOpDef(mine::silu)>`."""


def function_name(fn: Callable[..., Any]) -> str:
    """Return a name for a function; for `Function.apply` and for a module, the name of the class. What has no name is
    shown by its `str`, if that is short."""
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
    name_of_position = {f"tensors.{place}": name for place, name in enumerate(call.inputs)}
    return tuple(
        name_of_position[name]
        for pair in captured.pairs
        for name in indices_of(pair.forward)
        if name in name_of_position
    )


def _refuse_outputs(outputs: Mapping[str, Tensor]) -> None:
    """Raise UsageError for outputs of which no gradient can be checked: none of floating point, or one that is not
    dense."""
    if not any(map(is_inexact, outputs.values())):
        raise UsageError(
            f"the function returns no floating-point tensor but {', '.join(outputs) or 'no tensor'}: it has no "
            "gradient to check"
        )
    for name, value in outputs.items():
        if value.layout is not torch.strided:
            raise UsageError(
                f"{name} is {str(value.layout).removeprefix('torch.')}: bp.check compares dense tensors; let the "
                "function and the reference return its parts, or .to_dense()"
            )


def rows_of_dtype(
    subject: Subject,
    order: int,
    indices: Callable[[], Collection[str]],
    *,
    linear: bool = True,
    in_use: bool = False,
) -> Iterator[Result]:
    """Yield the rows of one dtype; `indices` returns the inputs that index something. If the function raises in a dtype
    that it was not passed in, or the reference does not run, yield one row that says so.

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
        yield Result(row_without_error(subject, FORWARD, "output", WRONG, f"the function raised {error_text(error)}"))
        return
    _refuse_outputs(forward.outputs)
    try:
        expected = expected_of(subject, subject.values)
    except NoReference as error:
        yield result_not_tried(subject, FORWARD, "output", str(error))
        return
    if in_use:
        yield from written_rows(subject)
    if subject.has_reference:
        results = list(forward_rows(subject, FORWARD, forward, expected, subject.values))
        yield from results
        if not are_gradients_comparable(results):
            return
        yield from buffer_rows(subject, forward, expected)
    # Each kind of tangents has a generator of its own, so that one kind more changes no other's numbers.
    shapes = outputs_with_gradients(forward, expected)
    for check, make in tangent_kinds(subject, shapes).items():
        tangents = tangents_for(shapes, make, own_source(subject.ours.seed))
        if tangents is not None:
            yield from gradient_rows(subject, f"{subject.gradient_check}, {check}", subject.values, tangents, expected)
    random_tangents = tangents_for(shapes, make_for_every_output(drawn_like), own_source(subject.ours.seed))
    if random_tangents:
        yield from rows_for_other_sizes(subject, random_tangents, expected, linear)
    yield from rows_for_other_memory(subject, expected)
    if subject.has_reference:
        yield from rows_for_other_values(subject, expected.random)
        yield from rows_for_large_means(subject, expected.random)
        yield from mask_rows(subject, expected)
        yield from rows_for_borders(subject, expected.random, indices)
    if random_tangents and in_use:  # one call, as a file makes it, does not show what is wrong here
        yield from (Result(row) for row, _ in usage_rows(subject, random_tangents, expected))
    if order > 1 and subject.has_reference:
        yield from second_rows(subject, expected)


# ---- The gradient of the gradient


def second_rows(subject: Subject, expected: Expected) -> Iterator[Result]:
    """Yield rows for the gradients of the gradients, by the inputs and by the tangents; one row that was not tried, if
    the function or the reference raises. The reference has them in float64 (`exact`), in the function's dtype (`own`),
    and in float64 on rounded inputs (`rounded`)."""
    call, check = subject.call, "gradient of the gradient"
    source = own_source(subject.ours.seed)
    shapes = {name: expected.exact.outputs[name].detach() for name in expected.exact.differentiable}
    tangents = {name: drawn_like(shape, source) for name, shape in shapes.items()}
    directions = {name: drawn_like(to_float64(subject.values[name]), source) for name in call.wanted}
    try:
        ours = second_gradients(subject.ours, call, subject.values, tangents, directions)
    except RuntimeError as error:
        yield result_not_tried(subject, check, "all", f"the function raised {error_text(error)}")
        return
    widened = {name: to_float64(value) for name, value in subject.values.items()}
    moved = {
        name: rounded_again(value, subject.values[name].dtype, subject.ours.seed) for name, value in widened.items()
    }
    try:
        exact, rounded = (
            second_gradients(subject.reference, call, values, tangents, directions) for values in (widened, moved)
        )
        own = second_gradients(subject.reference, call, subject.values, tangents, directions)
    except RuntimeError as error:
        yield result_not_tried(subject, check, "all", f"the reference raised {error_text(error)}")
        return
    largest = max(map(size_of, exact.values()), default=0.0)
    for name, gradient in ours.items():
        right = exact[name]
        if right is None and gradient is None:
            continue
        if right is None:
            assert gradient is not None
            right = torch.zeros_like(to_float64(gradient))
        difference = measure_difference(subject, gradient, right, own[name], rounded[name], largest)
        is_missing = gradient is None and difference.verdict == WRONG
        detail = "its gradient is a constant to autograd" if is_missing else ""
        fault = Fault(
            program=subject.ours,
            call=call,
            values=subject.values,
            tangents=tangents,
            name=name,
            expected=right,
            check=check,
            outputs=tuple(expected.exact.outputs),
            directions=directions,
        )
        yield Result(row_of_difference(subject, check, name, difference, expected.random, detail), fault)


def second_gradients(
    program: Program,
    call: Call,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    directions: Mapping[str, Tensor],
) -> dict[str, Tensor | None]:
    """Return the gradients of ⟨gradients, directions⟩ for the inputs and for the tangents of the outputs. Raise
    RuntimeError if the backward is marked with `once_differentiable`."""
    forward = run_forward(program, call, values)
    tangent_leaves = {
        name: tangent.to(forward.outputs[name].dtype).requires_grad_()
        for name, tangent in tangents.items()
        if forward.outputs[name].requires_grad
    }
    gradients = forward.gradients(tangent_leaves, create_graph=True)
    gradients_with_graph = {
        name: gradient for name, gradient in gradients.items() if gradient is not None and gradient.requires_grad
    }
    leaves = forward.leaves | {f"tangent of {name}": tangent_leaf for name, tangent_leaf in tangent_leaves.items()}
    if not gradients_with_graph:
        return dict.fromkeys(leaves)
    # Autograd gives a gradient of a `once_differentiable` backward a node that raises if it is differentiated.
    nodes = [gradient.grad_fn for gradient in gradients_with_graph.values()]
    if any(node is not None and node.name() == "torch::autograd::Error" for node in nodes):
        raise RuntimeError(ONCE)
    results = torch.autograd.grad(
        list(gradients_with_graph.values()),
        list(leaves.values()),
        [directions[name].to(gradient.dtype) for name, gradient in gradients_with_graph.items()],
        allow_unused=True,
    )
    return dict(zip(leaves, results, strict=True))


ONCE = "a backward is marked with once_differentiable"
"""The message of the error that `second_gradients` raises, by which rows with it are found."""


# ---- The derivative


def _why_undecided(captured: Capture, verdicts: Iterable[Derivative]) -> str:
    """Return why the verdicts on a captured function do not settle it; '' if they do."""
    if captured.requires:
        return f"{', '.join(captured.requires)} is opaque"
    return "; ".join(verdict.detail for verdict in verdicts if verdict.word == CANNOT_TELL)


def _derivative_rows(
    call: Call,
    ours: Program,
    order: int,
    is_once_differentiable: bool,
    meant: Sequence[str],
    capture: Callable[..., Capture],
) -> Iterator[Result]:
    """Yield rows that say whether the backward is the derivative of the function's own forward, for each degree up to
    `order`: of degree 2, the forward is the gradient, and the backward its gradient.

    `is_once_differentiable` says that autograd refuses to differentiate the backward. `meant` names what is meant to
    differ: if that is the function itself, and it cannot be captured, nothing is compared.
    """
    values = {name: value.detach() for name, value in call.values.items()}
    args, kwargs = call.arguments(values)
    tensor_names = [leaf.name for leaf in call.leaves if isinstance(leaf, Place)]
    for degree in range(1, order + 1):
        check = "derivative" if degree == 1 else f"derivative, order {degree}"
        verdicts: Sequence[Derivative] = ()
        if degree > 1 and is_once_differentiable:
            reason = ONCE
        elif len(tensor_names) > len(set(tensor_names)):
            reason = "one tensor is passed for several inputs"
        else:
            try:
                captured = capture(ours.function, args=args, kwargs=kwargs, requires_grad=call.wanted, order=degree)
                verdicts = derivatives_of(captured, meant, hostile=True)
            except Exception as error:
                reason = f"it cannot be captured: {error_text(error)}"
            else:
                reason = _why_undecided(captured, verdicts)
        if reason and function_name(ours.function) in meant:
            text = f"{NOT_TRIED}: {reason}, and its gradient is meant to differ"
            yield Result(CheckRow(check, "float64", "all", error=None, allowed=None, verdict=text))
        elif reason:
            yield from _rows_by_differences(call, ours, check, degree, reason)
        else:
            yield from (Result(_derivative_row(check, verdict, call)) for verdict in verdicts)


def _derivative_row(check: str, verdict: Derivative, call: Call) -> CheckRow:
    """Return the verdict on a captured Pair as a row, whose error is the gap: how far the two products are apart that a
    derivative makes equal. A wrong row has the gap only if it exceeds LIMIT: else something else has shown the fault,
    as tangents in other memory, and a gap within the limit would contradict it."""
    names = ", ".join(verdict.ports or call.wanted)
    detail = "" if verdict.word == DERIVATIVE else str(verdict)
    if verdict.good:
        return CheckRow(check, "float64", names, verdict.gap, max(LIMIT, verdict.gap or 0.0), OK, detail)
    gap = verdict.gap if verdict.gap is not None and verdict.gap > LIMIT else None
    return CheckRow(check, "float64", names, gap, None if gap is None else LIMIT, WRONG, detail)


def _rows_by_differences(call: Call, ours: Program, check: str, degree: int, reason: str) -> Iterator[Result]:
    """Yield rows by differences, of a function whose captured graphs do not tell, for the `reason`. They have no Fault:
    a file repeats one call, and differences are of many."""
    # Central differences of the function say nothing about gradients of gradients.
    if degree > 1:
        yield Result(CheckRow(check, "float64", "all", error=None, allowed=None, verdict=f"{NOT_TRIED}: {reason}"))
        return
    for product in products_by_differences(call, ours):
        if product.not_tried:
            verdict = f"{NOT_TRIED}: {reason}; by differences: {product.not_tried}"
            yield Result(CheckRow(check, "float64", product.name, error=None, allowed=None, verdict=verdict))
        else:
            word = OK if product.gap <= product.allowed else WRONG
            title, detail = f"{check}, by differences", f"by central differences: {reason}"
            yield Result(CheckRow(title, "float64", product.name, product.gap, product.allowed, word, detail))

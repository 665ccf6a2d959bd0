"""Calls of a solution as a model makes them: two at a time, differentiated twice, with some inputs frozen, without
gradients; and in memory that nobody has written to.

A Subject is a solution (`ours`) beside its reference, with the call and its values by name. An Expected has the results
of the reference: in float64 (`exact`), and in the inputs' dtype (`own`). A Remote is the solution as a function of
tensors, whose attributes say how its process calls it. A check is the name of a kind of comparison in the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backprint.derive.called import Program, run_forward
from backprint.derive.checked import FORWARD
from backprint.derive.compared import Expected, Result, Subject, expected_of, forward_rows, gradient_rows
from backprint.derive.setting import drawn_like
from backprint.tools.tasks.solving import Remote, SolutionFailed

MOST_FROZEN = 3
"""For how many inputs the gradient is asked for alone."""


def usage_rows(subject: Subject, remote: Remote, others: Mapping[str, Tensor]) -> Iterator[Result]:
    """Yield rows for each way of calling a solution that a model has; `others` are other inputs, by name."""
    expected = expected_of(subject, subject.values)
    tangents = tangents_of(expected)

    def with_call_between(*inputs: Tensor) -> Any:
        """Call the solution, and, before the caller differentiates that, call it on other inputs."""
        results = remote(*inputs)
        remote(*(value.detach() for value in others.values()))
        return results

    yield from rows_of_calls(
        subject, with_call_between, "gradient, another call before the backward", tangents, expected
    )

    def with_first_backward(*inputs: Tensor) -> Any:
        """Call the solution, and differentiate the call once before the caller does."""
        results = remote(*inputs)
        roots = [
            (value, tangents[name]) for name, value in _prefixed(results) if name in tangents and value.requires_grad
        ]
        if roots:
            torch.autograd.grad(
                [value for value, _ in roots],
                [value for value in inputs if value.requires_grad],
                [tangent for _, tangent in roots],
                retain_graph=True,
                allow_unused=True,
            )
        return results

    yield from rows_of_calls(subject, with_first_backward, "gradient, a second backward", tangents, expected)
    with filling_new_memory(remote):
        yield from rows_of_calls(subject, remote, "gradient, new memory has NaN", tangents, expected)
    yield from _written_to(subject, remote, tangents, expected)
    for name in subject.call.wanted[:MOST_FROZEN]:
        yield from _rows_of_one_input(subject, name)
    yield from without_gradients(subject, remote, expected)


def tangents_of(expected: Expected) -> dict[str, Tensor]:
    """Draw tangents for the reference's results that can be differentiated, by name; always the same. They have the
    dtype of the inputs where the reference runs in it."""
    source = torch.Generator().manual_seed(3)
    own = expected.exact if expected.own is None else expected.own
    return {name: drawn_like(own.outputs[name].detach(), source) for name in own.differentiable}


def _prefixed(results: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield results under the names that `bp.check` gives them."""
    return ((f"output.{name}", value) for name, value in results.items())


@contextmanager
def filling_new_memory(remote: Remote) -> Iterator[None]:
    """Have the solution called where memory that was just allocated has NaN in it (`solver.filling_new_memory`)."""
    remote.fill = True
    try:
        yield
    finally:
        remote.fill = False


def rows_of_calls(
    subject: Subject, function: Callable[..., Any], check: str, tangents: Mapping[str, Tensor], expected: Expected
) -> Iterator[Result]:
    """Yield rows for the results and gradients of a way of calling the solution: `function`. `check` is `gradient,
    WAY`; that of the results is `forward, WAY`. The solution may not refuse: an error is a wrong row."""
    other = replace(subject, ours=Program(function, state={}, seed=0))
    forward = run_forward(other.ours, other.call, other.values)
    yield from forward_rows(other, f"{FORWARD}, {check.partition(', ')[2]}", forward, expected, other.values)
    yield from gradient_rows(other, check, other.values, tangents, expected, hostile=False)


def _written_to(
    subject: Subject, remote: Remote, tangents: Mapping[str, Tensor], expected: Expected
) -> Iterator[Result]:
    """Yield rows for gradients after a result was written to, which a solution may refuse: autograd does, if the result
    was saved by `save_for_backward`. With `spoil`, its process writes to results before each backward."""
    remote.spoil = True
    try:
        forward = run_forward(subject.ours, subject.call, subject.values)
        forward.gradients(tangents)
    except SolutionFailed:
        return  # it refuses, as autograd does
    else:
        yield from gradient_rows(subject, "gradient, its result was written to", subject.values, tangents, expected)
    finally:
        remote.spoil = False


def _rows_of_one_input(subject: Subject, name: str) -> Iterator[Result]:
    """Yield rows for the gradient of one input alone, the others being frozen. As in `rows_of_calls`, an error of the
    solution is a wrong row (`hostile=False`)."""
    alone = replace(subject, call=replace(subject.call, wanted=(name,)))
    expected = expected_of(alone, alone.values)
    if tangents := tangents_of(expected):
        yield from gradient_rows(alone, f"gradient of {name} alone", alone.values, tangents, expected, hostile=False)


def without_gradients(subject: Subject, remote: Remote, expected: Expected) -> Iterator[Result]:
    """Yield rows for the results of calls in which nothing requires grad: in grad mode, and in the two modes in which a
    model is evaluated."""
    plain = replace(subject, call=replace(subject.call, wanted=()))
    for mode, words in (
        ("enable_grad", "nothing requires grad"),
        ("no_grad", "no_grad"),
        ("inference_mode", "inference mode"),
    ):
        remote.mode = mode
        try:
            forward = run_forward(plain.ours, plain.call, plain.values)
        finally:
            remote.mode = "enable_grad"
        yield from forward_rows(subject, f"{FORWARD}, {words}", forward, expected, subject.values)

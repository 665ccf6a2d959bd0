"""How much results in 16 bits are off on the whole, and not at the worst element alone.

With 16 bits, an element may be off by more than a hundredth of the largest: a result that is one per cent too large, or
that leaves small terms out, would pass. So the norm of the difference is compared too, with that of eager.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from backprint.derive.called import run_forward
from backprint.derive.checked import OK, WRONG, CheckRow
from backprint.derive.compared import OTHER_SUBGRADIENT, Expected, Result, Subject, is_kink, item, of_reference, precise
from backprint.derive.reproduced import Fault
from backprint.derive.setting import is_inexact, wide
from backprint.tools.tasks.solving import SolutionFailed
from backprint.tools.tasks.usage import tangents_of

COARSE = (torch.float16, torch.bfloat16)

LEAST = 0.5
"""What eager is taken to be off by at least, in units of the dtype: the rounding of the result alone is a third."""

SMALL = 1e-2
"""A gradient whose norm is smaller than this part of the largest is not compared: it may be rounding alone."""


def rounding_rows(subject: Subject, expected: Expected) -> Iterator[Result]:
    """Yield rows for the norms of what results and gradients are off by; none for other dtypes."""
    if subject.coarsest not in COARSE or expected.own is None:
        return
    tangents = tangents_of(expected)
    try:
        ours = run_forward(subject.ours, subject.call, subject.values)
        gradients = ours.gradients(tangents)
    except SolutionFailed:
        return  # other rows have said so
    exact, own = of_reference(expected.exact, tangents), of_reference(expected.own, tangents)
    largest = max((norm(value) for value in (exact or {}).values() if value is not None), default=0.0)
    for name, output in ours.outputs.items():
        results = output, expected.exact.outputs[name], expected.own.outputs[name]
        yield from row_of(subject, "forward, on the whole", name, results, {})
    for name in subject.call.wanted:
        right, mine, eager = item(exact, name), gradients[name], item(own, name)
        if right is not None and mine is not None and eager is not None and norm(right) > SMALL * largest:
            for row, fault in row_of(subject, "gradient, on the whole", name, (mine, right, eager), tangents):
                if row.verdict == WRONG and is_kink(subject, subject.values, tangents, gradients):
                    row = replace(row, allowed=math.inf, verdict=OK, detail=OTHER_SUBGRADIENT)
                yield row, fault


def row_of(
    subject: Subject, check: str, name: str, results: tuple[Tensor, Tensor, Tensor], tangents: dict[str, Tensor]
) -> Iterator[Result]:
    """Yield the row of one result: ours, the exact one, and eager's."""
    ours, exact, own = results
    if not is_inexact(exact) or ours.shape != exact.shape or not bool(wide(exact).isfinite().all()):
        return
    size = norm(exact)
    if not size or not bool(own.isfinite().all()):
        return
    error, of_own = (norm(precise(value) - precise(exact)) / size for value in (ours, own))
    allowed = subject.times * max(of_own, LEAST * torch.finfo(subject.coarsest).eps)
    word = OK if error <= allowed else WRONG
    fault = Fault(subject.ours, subject.call, subject.values, tangents, name, exact.detach(), check, (), {})
    yield CheckRow(check, subject.text, name, error, allowed, word), fault


def norm(value: Tensor) -> float:
    """Return the norm of a tensor in float64."""
    return float(precise(value).norm())

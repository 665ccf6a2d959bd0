"""The derivative of a function that cannot be captured, by central differences in float64.

A Call has the arguments of a call and the values of its tensors by name, `wanted` of which have gradients; a Program is
the function with its seed (`called`). Near a call's values, a random direction v of one input and random tangents of
the outputs are drawn from `source`; then ⟨gradient, v⟩ must be ⟨tangent, change of the outputs along v⟩. A Product says
for one input how far these two are apart (`gap`) and how far they may be (`allowed`), or why they were `not_tried`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from backprint.derive.called import Call, Program, error_text, run_forward
from backprint.derive.setting import (
    drawn_like,
    inner_product,
    is_inexact,
    nudge_values,
    own_source,
    symmetric_like,
    to_float64,
)

STEPS = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""How far inputs are moved, relative to their size. The function may compute with fewer digits than float64: then short
steps have too much rounding, and long ones do not."""

SQUARED = tuple((long / short) ** 2 for long, short in itertools.pairwise(STEPS))
"""How many times smaller the error of a central difference is with the next step: it grows with the step's square."""

LEAST, LEAST_OF_FEW_DIGITS = 1e-6, 2e-2
"""The least gap that is no rounding: in float64, and in the dtype of the function."""

EXACT = (torch.float64, torch.complex128)

NOISE = 10.0
"""A gap up to so many times the difference of two estimates is their error."""

MOST_NOISE = 1e-2
"""If estimates differ by more than this part, nothing can be said."""


@dataclass(frozen=True, slots=True)
class Product:
    """The two products for one input: `gap` is how far ⟨gradient, v⟩ is from ⟨tangent, change along v⟩, relative to the
    sizes of their terms, and `allowed` the gap that may be the error of the differences. `not_tried` is the reason why
    nothing was compared."""

    name: str
    gap: float
    allowed: float
    not_tried: str = ""


def products_by_differences(call: Call, program: Program, own_dtype: bool = False) -> Iterator[Product]:
    """Yield the Product of each input, near the inputs of a call: in float64, or in the function's own dtype. If the
    function does not run there, or returns no finite results, yield a single one named `all`, with the reason."""
    values = {name: value.detach() if own_dtype else to_float64(value) for name, value in call.values.items()}
    dtype = "in its own dtype" if own_dtype else "in float64"
    reason = ""
    # Near the inputs first, so that nothing is 0 or equal by chance; at the inputs themselves if it does not run there.
    for amount in (0.1, 0.0):
        source = own_source(program.seed)
        near = values | {name: nudge_values(values[name], amount, source) for name in call.wanted}
        try:
            forward = run_forward(program, call, near)
            names = forward.differentiable
            if not names:
                reason = f"{dtype} no output requires grad"
                continue
            outputs = {name: forward.outputs[name].detach() for name in names}
            # A function that computes in float32 whatever it is given has too few digits for short steps.
            if not own_dtype and any(output.dtype not in EXACT for output in outputs.values()):
                reason = "it returns another dtype for inputs in float64"
                continue
            tangents = {name: drawn_like(output, source) for name, output in outputs.items()}
            gradients = forward.gradients(tangents)
        except Exception as error:  # whatever the function raises on these values
            reason = f"{dtype} it raised {error_text(error)}"
            continue
        if all(bool(output.isfinite().all()) for output in outputs.values()):
            for name in call.wanted:
                least = LEAST_OF_FEW_DIGITS if own_dtype else LEAST
                yield _product_of(call, program, near, tangents, name, gradients[name], source, least)
            return
        reason = "its outputs have NaN or Inf"
    yield Product("all", gap=0.0, allowed=0.0, not_tried=reason)


def _product_of(
    call: Call,
    program: Program,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    name: str,
    gradient: Tensor | None,
    source: torch.Generator,
    least: float,
) -> Product:
    """Return the Product of one input, whose value moves along a random direction while the others stay. `gradient` is
    its gradient for these tangents, and `least` the least gap that is no rounding."""
    value = values[name]
    if not is_inexact(value) or not value.numel():
        return Product(name, gap=0.0, allowed=0.0, not_tried="it has no elements")
    scale = float(value.abs().mean()) or 1.0  # 1 for values that are all 0
    direction = symmetric_like(value, drawn_like(value, source))
    estimates = []
    size = 0.0
    for step in STEPS:
        distance = step * scale
        ahead, behind = (
            run_forward(program, call, {**values, name: value + sign * distance * direction}).outputs
            for sign in (1, -1)
        )
        total = 0.0
        size = 0.0
        for output, tangent in tangents.items():
            part = inner_product(tangent, (ahead[output] - behind[output]).detach() / (2 * distance))
            total, size = total + part.value, size + part.size
        estimates.append(total)
    refined = [  # Richardson: the error grows with the square of the step, so two differences cancel it
        (squared * fine - coarse) / (squared - 1)
        for (coarse, fine), squared in zip(itertools.pairwise(estimates), SQUARED, strict=True)
    ]
    product, terms = (0.0, 0.0) if gradient is None else inner_product(gradient, direction)
    size = max(size, terms, 1e-300)
    # The two neighbours that agree best: longer steps leave the neighbourhood, shorter ones round.
    noise, best = min((abs(a - b) / size, b) for a, b in itertools.pairwise(refined))
    if not noise < MOST_NOISE:
        return Product(name, gap=0.0, allowed=0.0, not_tried=f"two estimates differ by {noise:.0e} of their terms")
    return Product(name, gap=abs(best - product) / size, allowed=max(least, NOISE * noise))

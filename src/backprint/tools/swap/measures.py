"""How far a result of the step with solutions is from the exact one, beside how far the untouched program is.

Three measures, because each sees what others do not: the largest difference sees one wrong element, the norm sees many
that are a little off, and the factor between the two results sees a gradient that is 1% too large below rounding that
is larger than that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from backprint.derive.checked import NOT_TRIED, OK, WRONG
from backprint.derive.compared import OF_ROUNDING, SMALL, TINY, distance, precise, size_of

SEEN = 5e-3
"""A comparison that would let pass a result which is 1% off proves nothing: half of that is the most it may allow."""

FINE = {torch.float64: 5e-12, torch.float32: 2e-6}
"""What the norm and the factor of a result may be off by at least; in other dtypes an eighth of the distance between
two numbers, because what is rounded up and what is rounded down make up for one another."""

NOISE = 1e-4
"""A gradient below this part of the largest one may be nothing but rounding."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How far apart two results are, how far they may be, and the verdict of a row."""

    error: float | None
    allowed: float | None
    verdict: str


def apart(
    ours: Tensor | None,
    exact: Tensor | None,
    own: Tensor | None,
    moved: Tensor | None,
    largest: float,
    dtype: torch.dtype,
    times: float,
) -> Apart:
    """Compare a result with the exact one. `own` is the untouched program's in this dtype, `moved` that in float64 on
    inputs that are rounded once more, `largest` the largest value of all results of the kind. None is 0 everywhere."""
    shape = next((tensor for tensor in (exact, own, ours) if tensor is not None), None)
    if shape is None:
        return Apart(0.0, 0.0, OK)
    if not shape.numel():
        return Apart(None, None, f"{NOT_TRIED}: it has no elements")
    if ours is not None and ours.shape != shape.shape:
        return Apart(math.inf, 0.0, WRONG)
    zero = torch.zeros_like(precise(shape))
    right, result, eager, again = (
        zero if tensor is None else precise(tensor) for tensor in (exact, ours, own, exact if moved is None else moved)
    )
    if not bool(right.isfinite().all()):
        places = right.isfinite()
        if not bool(places.any()):
            return Apart(None, None, f"{NOT_TRIED}: it is not finite before the swap either")
        if not torch.equal(result.isfinite(), places) and torch.equal(eager.isfinite(), places):
            return Apart(math.inf, 0.0, WRONG)
        right, result, eager, again = (tensor[places] for tensor in (right, result, eager, again))
    if not bool(eager.isfinite().all()):
        return Apart(None, None, f"{NOT_TRIED}: before the swap it is not finite in this dtype, and is in float64")
    scale, tiny = size_of(right), TINY.get(dtype, 2 * torch.finfo(dtype).eps)
    error, of_own = distance(result, right), distance(eager, right)
    spread = distance(again, right)
    if largest == 0.0:
        within = error <= times * OF_ROUNDING * of_own
        return Apart(None, None, f"{NOT_TRIED}: {ALL_ZERO}") if within else Apart(error, 0.0, WRONG)
    rounding = max(of_own, min(spread, 8 * tiny * scale) if math.isfinite(spread) else 0.0)
    if of_own > SMALL * scale or scale <= tiny * largest:
        allowed = times * (OF_ROUNDING * of_own + 0.01 * tiny * largest)
        if allowed > NOISE * largest:
            return Apart(None, None, f"{NOT_TRIED}: {TOO_COARSE}")
        return Apart(error, allowed, OK if error <= allowed else WRONG)
    allowed = times * (rounding + tiny * scale)
    norm = float(torch.linalg.vector_norm(right))
    off, own_off = (float(torch.linalg.vector_norm(tensor - right)) / norm for tensor in (result, eager))
    fine = FINE.get(dtype, torch.finfo(dtype).eps / 8)
    spread_off = float(torch.linalg.vector_norm(again - right)) / norm
    allowed_off = times * (max(own_off, min(spread_off, 8 * fine)) + fine)
    factor, own_factor = (abs(_factor_of(tensor, right)) for tensor in (result, eager))
    allowed_factor = times * (own_factor + 4 * own_off / math.sqrt(right.numel()) + fine)
    if min(allowed_off, allowed_factor) > SEEN:
        return Apart(None, None, f"{NOT_TRIED}: {TOO_COARSE}")
    within = error <= allowed and off <= allowed_off and factor <= allowed_factor
    if not within and error <= times * max(of_own, spread) and off <= times * max(own_off, spread_off):
        return Apart(None, None, f"{NOT_TRIED}: {UNSTEADY}")
    return Apart(error, allowed, OK if within else WRONG)


ALL_ZERO = "it is 0 everywhere, as all others of its kind, and proves nothing"
UNSTEADY = "rounding its inputs once more moves it as far before the swap, as where a spike flips"
TOO_COARSE = "before the swap it is itself so far from float64 that 1% would not be seen"


def _factor_of(result: Tensor, right: Tensor) -> float:
    """Return by which part of itself the exact result would have to grow to be nearest to another."""
    product = torch.vdot(right.flatten(), (result - right).flatten()).real
    return float(product) / float(torch.linalg.vector_norm(right)) ** 2

"""Within which of GraphNet's tolerances a compiler's output is. A tolerance is the `atol` and `rtol` of
`torch.allclose`; TOLERANCES has one for each level and dtype, in the order of GraphNet's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from backprint.tools.graphnet.scores import TOLERANCES
from backprint.values.tree import strided_parts


def within(value: Any, wanted: Any) -> tuple[int, ...]:
    """Return the indices of GraphNet's TOLERANCES that a compiler's output (`value`) is within, beside eager's
    (`wanted`); () for what is no floating-point tensor, and for another shape, dtype, layout or device."""
    if not isinstance(value, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return ()
    value_kind, wanted_kind = ((t.shape, t.dtype, t.layout, t.device) for t in (value, wanted))
    if value_kind != wanted_kind:
        return ()
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return ()
    if value.layout is torch.strided and torch.equal(value, wanted) and bool(torch.isfinite(wanted).all()):
        return tuple(range(len(TOLERANCES)))  # the usual case, without the arithmetic below
    # Of a sparse tensor the last part are its values, those before it indices.
    (*indices, values), (*wanted_indices, wanted_values) = strided_parts(value), strided_parts(wanted)
    if not all(map(torch.equal, indices, wanted_indices)):
        return ()
    is_within = _tolerance_check(values, wanted_values)
    return tuple(index for index, tolerance in enumerate(TOLERANCES) if is_within(tolerance.atol, tolerance.rtol))


def _tolerance_check(value: torch.Tensor, wanted: torch.Tensor) -> Callable[[float, float], bool]:
    """Return a function of (atol, rtol) that says what `torch.allclose(value, wanted, rtol, atol)` says: NaN equals
    nothing, and an infinity only itself. The differences are computed once for all tolerances."""
    if value.shape != wanted.shape:
        return lambda atol, rtol: False
    finite = torch.isfinite(wanted) & torch.isfinite(value)
    if not bool((finite | (value == wanted)).all()):
        return lambda atol, rtol: False
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    left, right = value[finite].to(wide), wanted[finite].to(wide)
    difference, size = (left - right).abs(), right.abs()
    return lambda atol, rtol: bool((difference <= atol + rtol * size).all())

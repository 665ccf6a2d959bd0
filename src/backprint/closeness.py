"""Measure how far apart two strided tensors are: bit for bit, or relative to the largest value of the second.

This file's text also ends every exported file (`sample/export`), so it imports only torch and the standard library.
"""

import torch
from torch import Tensor

TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
"""How far a port may be from its oracle, relative to its largest value, and still be `close`."""

NOTHING = 1e-30
"""Errors are relative to this if the largest value is 0."""

WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer dtypes as which floating-point numbers of a size are compared."""


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal bit for bit; a NaN equals a NaN in the same place."""
    if left.is_complex():
        return same_bits(torch.view_as_real(left), torch.view_as_real(right))
    if not left.is_floating_point():
        return bool(torch.equal(left, right))
    whole = WHOLE.get(left.element_size())
    if whole is not None and torch.equal(left.contiguous().view(whole), right.contiguous().view(whole)):
        return True
    nan = torch.isnan(left) & torch.isnan(right)
    return bool((((left == right) & (torch.signbit(left) == torch.signbit(right))) | nan).all())


def distance(left: Tensor, right: Tensor) -> float:
    """Return the largest difference over the largest value; infinity if NaN or inf are in different places."""
    if left.numel() == 0:
        return 0.0
    if not (left.is_floating_point() or left.is_complex()):
        return 0.0 if torch.equal(left, right) else float("inf")
    if left.is_complex():
        left, right = (torch.view_as_real(each.resolve_conj().resolve_neg()) for each in (left, right))
    left, right = left.double(), right.double()
    odd = ~(torch.isfinite(left) & torch.isfinite(right))
    if odd.any():
        matched = (left == right) | (torch.isnan(left) & torch.isnan(right))
        if not matched[odd].all():
            return float("inf")
        left, right = left[~odd], right[~odd]
        if left.numel() == 0:
            return 0.0
    scale = max(float(right.abs().max()), NOTHING)
    return float((left - right).abs().max()) / scale

"""Measure how far apart two strided tensors are: bit for bit, or relative to the largest value of the second.

A difference may be rounding alone, as that of a result that would be 0 in exact arithmetic. It is then SMALL beside the
largest value of its role, and at most TIMES as large as the result's own movement in NUDGES runs on inputs that are
moved by one unit in the last place.

Exported files (`tools/export/export`) have the functions of it that they need, so it imports only torch and the
standard library.
"""

import torch
from torch import Tensor

TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
"""How far a port may be from its reference, relative to its largest value, and still be `close`."""

NOTHING = 1e-30
"""Errors are relative to this if the largest value is 0."""

NUDGES = 3
"""How many times a program runs on inputs moved by one unit in the last place."""

SMALL = 1e-4
"""The largest difference that may be rounding, relative to the largest value of its role."""

TIMES = 4.0
"""How many times as far as these runs move a result, it may be from another."""

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


def nudge(value: Tensor, source: torch.Generator) -> None:
    """Move each number of a strided floating-point tensor, in place, by at most one unit in the last place."""
    if value.is_floating_point() and value.layout is torch.strided and 0 not in value.stride():
        by = torch.randint(-1, 2, value.shape, generator=source, device="cpu").to(value)
        value.add_(value * by * torch.finfo(value.dtype).eps)

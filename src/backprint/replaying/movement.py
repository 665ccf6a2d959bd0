"""How far a result moved, in tolerances, and whether it did not move at all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from backprint.closeness import TOLERANCE
from backprint.tree import strided_parts

NULL = 1e-9
"""A port in float64 does not move if its relative change is below this."""


def moves(value: Any) -> bool:
    """Whether a result has elements, so that it could move."""
    return isinstance(value, Tensor) and strided_parts(value)[-1].numel() > 0


def strength(first: Any, second: Any) -> float:
    """Return how far a port moved, in tolerances; for integers and bools any change is infinite."""
    if is_inexact(first) and is_inexact(second):
        return moved(first, second) or 0.0
    if not isinstance(second, Tensor) or first.shape != second.shape:
        return float("inf")
    return 0.0 if all(map(torch.equal, strided_parts(first), strided_parts(second))) else float("inf")


def is_inexact(value: Any) -> bool:
    """Whether a value is a tensor of floating-point or complex numbers."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def moved(first: Any, second: Any) -> float | None:
    """Return how far a port moved, in tolerances; None if it has no floating-point numbers."""
    if not is_inexact(first) or not is_inexact(second) or strided_parts(first)[-1].numel() == 0:
        return None
    return share(first, second) / TOLERANCE.get(str(first.dtype)[6:], 1.0)


def stands(first: Any, second: Any) -> bool:
    """Whether a port does not move in float64, up to rounding. False for one without finite numbers."""
    if not is_inexact(first) or not is_inexact(second):
        return False
    if not bool(torch.isfinite(strided_parts(first)[-1]).any()):
        return False
    return share(first, second) < NULL


def share(first: Tensor, second: Tensor) -> float:
    """Return the largest difference over the largest number, where both are finite; 0 if nowhere."""
    if first.shape != second.shape:
        return float("inf")
    first, second = strided_parts(first.detach())[-1], strided_parts(second.detach())[-1]
    if first.shape != second.shape:
        return float("inf")
    if first.is_complex():
        first, second = torch.view_as_real(first.resolve_conj()), torch.view_as_real(second.resolve_conj())
    most, largest = biggest(first - second), biggest(first)
    if not most < float("inf"):  # NaN too
        good = torch.isfinite(first) & torch.isfinite(second)
        if not bool(good.any()):
            return 0.0
        first, second = first[good], second[good]
        most, largest = biggest(first - second), biggest(first)
    return most / max(largest, 1e-30) if largest < float("inf") else 0.0


def biggest(tensor: Tensor) -> float:
    """Return the largest absolute value."""
    return float(torch.linalg.vector_norm(tensor, float("inf")))

"""Gradients compared: equal up to rounding, in any layout."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

NEAR = 1e-9
"""The relative difference up to which two gradients are the same: both are rounded in float64."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Three numbers of a tensor that do not depend on the order of its elements: equal marks mean equal values."""

    sums: tuple[float, float, float]

    @property
    def is_zero(self) -> bool:
        return self.sums[1] < 1e-300

    def is_near(self, other: Mark) -> bool:
        """Whether two marks may belong to one tensor, up to rounding."""
        size = max(self.sums[1], other.sums[1])
        if abs(self.sums[1] - other.sums[1]) > NEAR * size:
            return False
        return all(
            # Relative to powers of the squares: a sum is about as large as their root, a sum of cubes as their power of
            # 3/2.
            abs(mine - its) <= 1e-7 * scale
            for mine, its, scale in (
                (self.sums[0], other.sums[0], size**0.5 + abs(self.sums[0])),
                (self.sums[2], other.sums[2], size**1.5),
            )
        )


def is_permuted(value: Tensor, gradient: Tensor) -> bool:
    """Whether two values of equal marks are one, with dimensions in another order or in another shape."""
    if value.dim() != gradient.dim() or sorted(value.shape) != sorted(gradient.shape):
        return True  # a view, of which the marks are all there is
    orders = itertools.islice(itertools.permutations(range(value.dim())), MOST_ORDERS)
    alike = (value.permute(order) for order in orders)
    return any(other.shape == gradient.shape and distance(other, gradient, 0.0) <= NEAR for other in alike)


MOST_ORDERS = 24
"""How many orders of dimensions are compared."""


def mark_of(value: Tensor) -> Mark:
    """Return the Mark of a tensor."""
    parts = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    flat = parts.double()
    return Mark((float(flat.sum()), float(flat.square().sum()), float(flat.pow(3).sum())))


def is_nonzero(value: Tensor) -> bool:
    return not mark_of(value).is_zero


class Marked:
    """Tensors with names, to look others up in."""

    def __init__(self, values: Iterable[Tensor], names: Iterable[str] | None = None) -> None:
        tensors = list(values)
        self.rows: dict[int, list[tuple[float, int, Mark, str, Tensor]]] = {}
        for index, (value, name) in enumerate(zip(tensors, names or ("" for _ in tensors), strict=True)):
            mark = mark_of(value)
            self.rows.setdefault(value.numel(), []).append((mark.sums[1], index, mark, name, value))
        for rows in self.rows.values():
            rows.sort(key=_squares_first)
        self.squares = {numel: [row[0] for row in rows] for numel, rows in self.rows.items()}

    def like(self, value: Tensor) -> list[tuple[float, int, Mark, str, Tensor]]:
        """Return the rows of the tensors that are this one, in any layout, in the order of the tensors."""
        mark = mark_of(value)
        rows, squares = self.rows.get(value.numel(), ()), self.squares.get(value.numel(), ())
        first = bisect.bisect_left(squares, mark.sums[1] * (1 - 2 * NEAR))
        after = bisect.bisect_right(squares, mark.sums[1] * (1 + 2 * NEAR))
        alike = (row for row in rows[first:after] if mark.is_near(row[2]) and is_permuted(row[4], value))
        return sorted(alike, key=lambda row: row[1])

    def names_like(self, value: Tensor) -> list[str]:
        """Return the names of the tensors that are this one, in any layout."""
        return [row[3] for row in self.like(value)]

    def has(self, value: Tensor) -> bool:
        """Whether a tensor is one of these, in any layout."""
        return mark_of(value).is_zero or bool(self.like(value))


def _squares_first(row: tuple[float, int, Mark, str, Tensor]) -> float:
    return row[0]


def error_of(gradient: Tensor | None, right: Tensor | None, largest: float = 0.0) -> float:
    """Return the relative difference of a gradient from the right one; None is a gradient of zeros. With the size of
    the largest gradient, two that are smaller than its rounding are the same: the gradient of a key's bias is 0 but for
    rounding."""
    if gradient is None or right is None:
        other = right if gradient is None else gradient
        return 0.0 if other is None or not bool((other.abs() > LEFT * largest).any()) else 1.0
    # `distance` divides by 1e-6 of its last argument at least: so a difference of LEFT times the largest counts as
    # NEAR.
    return distance(gradient, right, LEFT / (1e-6 * NEAR) * largest)


LEFT = 1e-13
"""The share of the largest gradient that may be left where a gradient is 0 but for rounding."""


def distance(gradient: Tensor, expected: Tensor, largest: float) -> float:
    """Return the difference of two gradients relative to their size, or to a small part of the largest of all; 1 if
    they have NaN or Inf in different places."""
    if not gradient.numel():
        return 0.0
    if not bool(gradient.isfinite().all()) or not bool(expected.isfinite().all()):
        finite = gradient.isfinite() & expected.isfinite()
        if not bool((finite | (gradient == expected) | (gradient.isnan() & expected.isnan())).all()):
            return 1.0
        gradient, expected = gradient[finite], expected[finite]
        if not gradient.numel():
            return 0.0
    size = max(float(expected.abs().max()), float(gradient.abs().max()), 1e-6 * largest, 1e-300)
    return float((gradient - expected).abs().max()) / size

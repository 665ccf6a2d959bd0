"""Gradients compared: equal up to rounding, in any layout: reshaped, or with dimensions in another order.

Captured graphs transpose and reshape gradients freely, so a gradient is looked for among the values of a backward by
its Mark, three sums that do not depend on the order of elements.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

NEAR = 1e-9
"""The relative difference up to which two gradients are the same: both are rounded in float64."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Three sums over the elements of a tensor, of any order: equal marks are taken for equal values."""

    sum: float
    squares: float
    cubes: float

    @property
    def is_zero(self) -> bool:
        """Whether all elements are 0."""
        return self.squares < 1e-300  # the square of the least normal float64 is 0

    def is_near(self, other: Mark) -> bool:
        """Whether two marks may belong to one tensor, up to rounding."""
        size = max(self.squares, other.squares)
        if abs(self.squares - other.squares) > NEAR * size:
            return False
        # A sum is about as large as the root of the squares, and a sum of cubes as their power of 3/2. Both may cancel,
        # so they are compared less exactly.
        is_near_in_sum = abs(self.sum - other.sum) <= 1e-7 * (size**0.5 + abs(self.sum))
        return is_near_in_sum and abs(self.cubes - other.cubes) <= 1e-7 * size**1.5


def is_permuted(value: Tensor, gradient: Tensor) -> bool:
    """Whether two values of equal marks are one and the same up to the order of their dimensions, or to their shape."""
    if value.dim() != gradient.dim() or sorted(value.shape) != sorted(gradient.shape):
        return True  # a view, of which the marks are all there is
    orders = itertools.islice(itertools.permutations(range(value.dim())), MOST_ORDERS)
    alike = (value.permute(order) for order in orders)
    return any(other.shape == gradient.shape and distance(other, gradient, 0.0) <= NEAR for other in alike)


MOST_ORDERS = 24
"""How many orders of dimensions are compared: all of a tensor with 4 dimensions."""


def mark_of(value: Tensor) -> Mark:
    """Return the Mark of a tensor, whose real and imaginary parts count as elements."""
    parts = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    flat = parts.double()
    return Mark(float(flat.sum()), float(flat.square().sum()), float(flat.pow(3).sum()))


class _Row(NamedTuple):
    """A tensor of a Marked: its place in the order of the tensors, its Mark, its name, and itself."""

    place: int
    mark: Mark
    name: str
    value: Tensor


class Marked:
    """Tensors with names, to look a tensor up among them."""

    def __init__(self, values: Iterable[Tensor], names: Iterable[str] | None = None) -> None:
        tensors = list(values)
        # By the number of elements, and then by their squares: `names_like` looks at a few neighbours alone.
        self.rows: dict[int, list[_Row]] = {}
        for place, (value, name) in enumerate(zip(tensors, names or ("" for _ in tensors), strict=True)):
            self.rows.setdefault(value.numel(), []).append(_Row(place, mark_of(value), name, value))
        for rows in self.rows.values():
            rows.sort(key=lambda row: row.mark.squares)
        self.squares = {numel: [row.mark.squares for row in rows] for numel, rows in self.rows.items()}

    def names_like(self, value: Tensor) -> list[str]:
        """Return the names of the tensors that are this one, in any layout, in the order of the tensors."""
        mark = mark_of(value)
        rows, squares = self.rows.get(value.numel(), ()), self.squares.get(value.numel(), ())
        first = bisect.bisect_left(squares, mark.squares * (1 - 2 * NEAR))
        after = bisect.bisect_right(squares, mark.squares * (1 + 2 * NEAR))
        alike = (row for row in rows[first:after] if mark.is_near(row.mark) and is_permuted(row.value, value))
        return [row.name for row in sorted(alike, key=lambda row: row.place)]

    def has(self, value: Tensor) -> bool:
        """Whether a tensor is one of these, in any layout, or has zeros alone."""
        return mark_of(value).is_zero or bool(self.names_like(value))


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

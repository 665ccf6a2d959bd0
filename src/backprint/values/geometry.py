"""Shapes and strides: where the elements of a tensor lie, without looking at the tensor.

A dimension of one element may have any stride, as no step is ever taken along it, and a tensor without elements has no
two that meet. All functions here treat sizes of 0 and 1 so. A stride counts elements, and is not negative; a `stride`
of None is that of a contiguous tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(int(size), 1)
    return tuple(reversed(strides))


def are_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a tensor with these strides is contiguous. The stride of a dimension of one element does not matter."""
    wanted = contiguous_strides(shape)
    return 0 in shape or all(size == 1 or now == then for size, now, then in zip(shape, stride, wanted, strict=True))


def is_dense(shape: Sequence[int], stride: Sequence[int] | None) -> bool:
    """Whether a tensor's elements fill their part of the storage, each once, in whatever order of dimensions."""
    if math.prod(shape) == 0 or stride is None:
        return True
    expected = 1  # the next larger stride of a tensor without gaps
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def overlaps_itself(shape: Sequence[int], stride: Sequence[int] | None) -> bool:
    """Whether two elements of a tensor use the same memory.

    They do not if each dimension, in the order of strides, steps over all elements of the dimensions before it.
    """
    if stride is None or 0 in shape:
        return False
    reached = 0  # the last element that the dimensions so far reach
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True) if size > 1):
        if step <= reached:
            return True
        reached += (size - 1) * step
    return False


def span(shape: Sequence[int], stride: Sequence[int] | None) -> int:
    """Return the number of elements of a storage from the first to the last that a tensor uses."""
    if 0 in shape:
        return 0
    return sum((size - 1) * step for size, step in zip(shape, stride or (), strict=True)) + 1

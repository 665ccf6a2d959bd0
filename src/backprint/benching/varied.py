"""The inputs of timed calls: the same tensors throughout, whose contents change before every call.

A call that is timed must not have seen its inputs before, or a compiler that remembers results would be fast. So some
elements of the floating-point inputs are multiplied by 1 + k * eps, with k drawn anew for each call. Torch sees these
writes, so a cache that asks for a tensor's version is no cheat.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.closeness import same_bits
from backprint.sample.rerun import copies
from backprint.tree import strided_parts

ELEMENTS = 24
"""How many elements are varied."""

MOST = 64
"""The largest k. For dtypes of few digits it is less, so that no element changes by more than LARGEST."""

LARGEST = 2**-5

BITS = 16
"""So many bits of difference keep any two of a pair's calls apart."""

TRIES = 8
"""Draws of an element; zeros, infinities and NaN are no use, as a factor does not change them."""


Element = tuple[Tensor, float, float]
"""An element as a tensor without dimensions, its value, and the eps of its dtype."""


class VariedInputs:
    """The inputs of one graph, and the elements of them that are varied."""

    def __init__(self, inputs: Sequence[Any], draw: random.Random) -> None:
        self.values = copies(inputs)
        self.original = copies(inputs)
        self.elements = drawn_elements(self.values, draw)

    def leave_out_refused(self, eager: Callable[..., Any]) -> None:
        """Vary no element whose change makes eager raise, as that of a mask of zeros and ones may."""
        if not self.runs(eager, self.elements):
            self.elements = [element for element in self.elements if self.runs(eager, [element])]

    def runs(self, eager: Callable[..., Any], elements: Sequence[Element]) -> bool:
        """Whether eager runs when these elements change by as much as they may."""
        for element, value, unit in elements:
            element.fill_(value * (1 + most_units(unit) * unit))
        try:
            eager(*self.values)
        except Exception:  # an operator may raise anything on other values
            return False
        finally:
            self.put(self.original)
        return True

    @property
    def varied(self) -> bool:
        """Whether there are enough elements that no call has the inputs of another."""
        return sum(math.log2(most_units(unit)) for _, _, unit in self.elements) >= BITS

    def vary_all(self, draw: random.Random) -> None:
        """Multiply every chosen element's original value by 1 + k * eps."""
        for element, value, unit in self.elements:
            element.fill_(value * (1 + drawn_factor(draw, unit) * unit))

    def vary_one(self, draw: random.Random) -> None:
        """Do so with one of them."""
        if self.elements:
            element, value, unit = self.elements[int(draw.random() * len(self.elements))]
            element.fill_(value * (1 + drawn_factor(draw, unit) * unit))

    def put(self, contents: Sequence[Any]) -> None:
        """Give every tensor the contents of another of the same shape and strides."""
        for value, other in zip(self.values, contents, strict=True):
            if isinstance(value, Tensor):
                put_contents(value, other)

    def nudge(self, draw: random.Random) -> None:
        """Multiply one chosen element by 1 + k * eps as it is now."""
        if self.elements:
            element, _, unit = self.elements[int(draw.random() * len(self.elements))]
            element.mul_(1 + drawn_factor(draw, unit) * unit)


def drawn_factor(draw: random.Random, unit: float) -> int:
    """Return k, from 1 on."""
    return 1 + int(draw.random() * most_units(unit))


def most_units(unit: float) -> int:
    """Return the largest k of a dtype by its eps."""
    return max(1, min(MOST, int(LARGEST / unit)))


def drawn_elements(values: Sequence[Any], draw: random.Random) -> list[Element]:
    """Return elements of floating-point inputs as tensors without dimensions, with their values and their dtype's eps.

    No element is there twice, not by another view of its memory either.
    """
    inputs = [value for value in values if isinstance(value, Tensor) and writable(value)]
    found: dict[int, Element] = {}
    for _ in range(ELEMENTS * TRIES if inputs else 0):
        tensor = inputs[draw.randrange(len(inputs))]
        element = tensor[tuple(draw.randrange(size) for size in tensor.shape)]
        value = float(element)
        if value and abs(value) < torch.finfo(tensor.dtype).max / 2 and value == value:
            found.setdefault(element.data_ptr(), (element, value, torch.finfo(tensor.dtype).eps))
        if len(found) == ELEMENTS:
            break
    return list(found.values())


def writable(tensor: Tensor) -> bool:
    """Whether single elements of a tensor can be written: it is of plain real numbers, with memory for each."""
    plain = tensor.layout is torch.strided and tensor.is_floating_point() and not tensor.is_neg()
    return plain and tensor.numel() > 0 and own_memory(tensor)


def own_memory(tensor: Tensor) -> bool:
    """Whether every element has memory of its own, by the strides."""
    room = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < room:
                return False
            room = stride * size
    return True


def put_contents(tensor: Tensor, other: Tensor) -> None:
    """Copy a tensor's contents into another; where elements share memory, copy the memory as it is."""
    if tensor.layout is torch.strided and not own_memory(tensor):
        tensor.untyped_storage().copy_(other.untyped_storage())
    else:
        tensor.copy_(other)


def fits_inputs(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the contents of other inputs can be put into these: equal numbers, tensors of the same kind and place."""
    return len(values) == len(others) and all(map(fits_tensor, values, others))


def fits_tensor(value: Any, other: Any) -> bool:
    if not isinstance(value, Tensor) or not isinstance(other, Tensor):
        return type(value) is type(other) and (value == other or value != value)
    if (value.dtype, value.shape, value.layout, value.device) != (other.dtype, other.shape, other.layout, other.device):
        return False
    if value.layout is not torch.strided:
        return value.layout is torch.sparse_coo
    if own_memory(value):
        return True
    sizes = [each.untyped_storage().nbytes() for each in (value, other)]
    return (
        value.stride() == other.stride() and sizes[0] == sizes[1] and value.storage_offset() == other.storage_offset()
    )


def changed_places(values: Sequence[Any], before: Sequence[Any]) -> list[int]:
    """Return the places of inputs that differ in any bit."""
    return [place for place, pair in enumerate(zip(values, before, strict=True)) if not unchanged(*pair)]


def unchanged(value: Any, before: Any) -> bool:
    """Whether two values are the same tensor to the bit, or the same number."""
    if not isinstance(value, Tensor):
        return type(value) is type(before) and (value == before or value != value)
    if value.dtype != before.dtype or value.shape != before.shape:
        return False
    pairs = zip(strided_parts(value.detach()), strided_parts(before.detach()), strict=True)
    return all(
        same_bits(left.resolve_conj().resolve_neg(), right.resolve_conj().resolve_neg()) for left, right in pairs
    )

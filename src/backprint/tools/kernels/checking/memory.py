"""The memory that a kernel may touch: the addresses of a launch, and bands around buffers that no kernel may write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from backprint.errors import ReplayError

BAND = 4096
"""The bytes before and after a buffer that no kernel may write."""

UNWRITTEN = 0xFF
"""A byte that no kernel has written; floating-point numbers of such bytes are NaN."""

_launch_ranges: list[tuple[int, int]] = []
"""Where the arguments of the launch at work begin and end."""


class OutsideMemoryError(ReplayError):
    """A kernel touched memory that it was not given."""


def address_range(tensor: Tensor) -> tuple[int, int]:
    """Return the addresses where a tensor's memory begins and ends, gaps between its elements included."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


@contextlib.contextmanager
def allow_arguments(arguments: Sequence[Any]) -> Iterator[None]:
    """Let `check_addresses` accept the memory of these arguments, until the `with` ends."""
    # tensors that touch or share memory are one range: an access may go from one to the other
    ranges: list[tuple[int, int]] = []
    for start, stop in sorted(address_range(argument) for argument in arguments if isinstance(argument, Tensor)):
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(stop, ranges[-1][1])
        else:
            ranges.append((start, stop))
    _launch_ranges[:] = ranges
    try:
        yield
    finally:
        _launch_ranges.clear()


def check_addresses(addresses: Any, mask: Any, size: int, verb: str) -> None:
    """Raise OutsideMemoryError if an element of `size` bytes, whose address the mask leaves, lies outside of the
    launch's arguments. `verb` says in the message what the kernel does there. Addresses and mask are arrays of
    numpy."""
    touched = addresses[mask]
    if not touched.size:
        return
    low, high = int(touched.min()), int(touched.max()) + size
    if any(start <= low and high <= stop for start, stop in _launch_ranges):
        return  # all in one range: no need to look at each
    inside = touched != touched  # False for each
    for start, stop in _launch_ranges:
        inside |= (touched >= start) & (touched + size <= stop)
    count = int((~inside).sum())
    if count:
        raise OutsideMemoryError(f"it {verb} {count} of {touched.size} elements outside of its arguments")


@dataclass(frozen=True, slots=True)
class BandedMemory:
    """Makes the buffers of one run of a wrapper, and keeps them, so that no other tensor gets their addresses."""

    buffers: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    """The address of a buffer -> its memory with the bands, and the place of the first byte behind the buffer."""

    def empty(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return an unwritten tensor, with a band before it and one after it."""
        # the offset of the last element, in elements; -1 if there is none, so that `size` is 0
        last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if 0 not in shape else -1
        size = (last + 1) * dtype.itemsize
        # `-size % 64`: up to a multiple of 64 bytes, as an allocator gives it; the band begins right behind the last
        # element
        memory = torch.full((2 * BAND + size + -size % 64,), UNWRITTEN, dtype=torch.uint8)
        self.buffers[memory.data_ptr()] = memory, BAND + size
        tensor = torch.empty(0, dtype=dtype)
        return tensor.set_(memory.untyped_storage(), BAND // dtype.itemsize, torch.Size(shape), tuple(stride))

    def copy(self, value: Tensor, stride: Sequence[int]) -> Tensor:
        """Return a copy of a tensor with these strides."""
        buffer = self.empty(value.shape, stride, value.dtype)
        if 0 in stride:  # elements share memory: write each once
            first_of_expanded = tuple(slice(0, 1) if step == 0 else slice(None) for step in stride)
            buffer[first_of_expanded].copy_(value[first_of_expanded])
            return buffer
        return buffer.copy_(value)

    def check(self, arguments: Sequence[Any]) -> None:
        """Raise OutsideMemoryError if the bands of a buffer were written that one of these arguments is in; other
        arguments have no bands."""
        for index, value in enumerate(arguments):
            if not isinstance(value, Tensor) or value.untyped_storage().data_ptr() not in self.buffers:
                continue
            memory, end = self.buffers[value.untyped_storage().data_ptr()]
            if not bool((torch.cat([memory[:BAND], memory[end:]]) == UNWRITTEN).all()):
                raise OutsideMemoryError(f"it writes outside of its argument {index}, or of one in the same buffer")

"""Which results of a compiled graph are held to be looked at again, and what a block's results are like.

Both processes of a bench use this, so that the judging one knows what the other holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

MOST_HELD = 2**29
"""The bytes of results that are held. Those of timed calls are not: that would change how memory is used."""

ALIGNED = 64


@dataclass(frozen=True)
class Kind:
    """What a result is like: a tensor's dtype, shape and device, or another value."""

    dtype: str
    shape: tuple[int, ...]
    device: str
    value: Any = None
    """A result that is no tensor."""

    @cached_property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return bool(self.dtype)

    @cached_property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of a tensor."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def bytes(self) -> int:
        """The bytes of its elements."""
        count = self.torch_dtype.itemsize if self.is_tensor else 0
        for size in self.shape:
            count *= size
        return count

    def fits(self, value: Any) -> bool:
        """Whether a result is of this kind, and the same if it is no tensor."""
        if not self.is_tensor:
            return type(value) is type(self.value) and (value == self.value or value != value)
        return (
            type(value) in (Tensor, torch.nn.Parameter)
            and value.dtype is self.torch_dtype
            and value.shape == self.shape
            and value.layout is torch.strided
            and value.device.type == self.device
        )

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}" if self.is_tensor else repr(self.value)


def kind_of(value: Any) -> str:
    """Return what a result is like, as text."""
    if type(value) not in (Tensor, torch.nn.Parameter):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"


def kind_like(value: Any) -> Kind | None:
    """Return the kind of one of eager's results; None if blocks cannot carry it."""
    if not isinstance(value, Tensor):
        return Kind("", (), "", value) if type(value) in (bool, int, float, str, type(None)) else None
    if value.layout is not torch.strided or value.is_quantized:
        return None
    return Kind(str(value.dtype).removeprefix("torch."), tuple(value.shape), value.device.type)


def slot_offsets(kinds: Sequence[Kind]) -> tuple[list[int], int]:
    """Return where the results of one call go, and how many bytes a call's take."""
    offsets, offset = [], 0
    for kind in kinds:
        offsets.append(offset)
        offset += -(-kind.bytes // ALIGNED) * ALIGNED
    return offsets, offset


@dataclass(slots=True)
class HeldBudget:
    """What was taken of the room for held results."""

    bytes: int = 0

    def takes(self, size: int) -> bool:
        """Whether results of so many bytes are held; the first are in any case."""
        if self.bytes and self.bytes + size > MOST_HELD:
            return False
        self.bytes += max(size, 1)
        return True

"""Where a tensor is in memory, and what follows from that alone.

A tensor is a Placement: its storage and its geometry in it. Python's identity would not work, because autograd returns
a saved tensor as a new object; its memory is the same. A sparse tensor's Placement has those of its indices and values,
which are strided tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint._torch.tensors import neg_view
from backprint.errors import CaptureError
from backprint.graph.nouns import ScalarSpec, Spec, TensorSpec


class Placement(NamedTuple):
    """The storage and the geometry of a tensor. Two tensors with one Placement have the same elements.

    A sparse tensor's `memory` is that of its values as a negative number, which no strided tensor has. `parts` are the
    Placements of its indices and values. `detached` marks an argument that does not require grad and uses memory of
    arguments that do.
    """

    memory: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    offset: int
    device: torch.device
    layout: torch.layout
    lazy: tuple[bool, bool]
    parts: tuple[Any, ...] = ()
    coalesced: bool = False
    detached: bool = False


class NoPlainForm(CaptureError):
    """An update has no operator that returns the new value, so it runs in place on a copy."""


# ------------------------------------------------------------------ among other values


def flat(*values: Any) -> Iterator[Any]:
    """Yield the leaves of nested arguments; a Placement is a leaf."""
    for value in values:
        if type(value) is not Placement and isinstance(value, (tuple, list)):
            yield from flat(*value)
        elif isinstance(value, dict):
            yield from flat(*value.values())
        else:
            yield value


def placements(*values: Any) -> list[Placement]:
    """Return the tensors among nested arguments."""
    return [leaf for leaf in flat(*values) if type(leaf) is Placement]


# ------------------------------------------------------------------ from and to tensors


def meta_tensor(place: Placement) -> Tensor:
    """Return a meta tensor with a Placement's geometry."""
    if place.layout is not torch.strided:
        raise NoPlainForm(f"a {str(place.layout)[6:]} tensor has no place to foresee")
    made = torch.empty_strided(place.shape, place.stride or (), dtype=place.dtype, device="meta")
    made = made.conj() if place.lazy[0] else made
    return neg_view(made) if place.lazy[1] else made


CPU = torch.device("cpu")


def indexed(device: torch.device) -> torch.device:
    """Return the device with its number: `cuda` is the current one."""
    if device.type in ("cpu", "meta") or device.index is not None:
        return device
    return torch.device(device.type, torch.get_device_module(device).current_device())


def placement_of(tensor: Tensor, device: torch.device = CPU) -> Placement:
    """Where a tensor of no recorded storage lies; one on the meta device stands for one on this device."""
    if tensor.layout is not torch.strided:
        raise NoPlainForm(f"a {str(tensor.layout)[6:]} tensor has no place to foresee")
    return Placement(
        -1,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        device if tensor.device.type == "meta" else tensor.device,
        tensor.layout,
        (tensor.is_conj(), tensor.is_neg()),
    )


def geometry(place: Placement) -> tuple[Any, ...]:
    """Return a tensor's dtype, shape and strides, without its storage."""
    return place.dtype, place.shape, place.stride, place.lazy


def placement_tree(found: Any, device: torch.device) -> Any:
    """Apply `placement_of` to tensors inside tuples."""
    if isinstance(found, Tensor):
        return placement_of(found, device)
    if isinstance(found, (tuple, list)):
        return tuple([placement_tree(item, device) for item in found])
    return found


def gapless(found: Any) -> Any:
    """Return the Placements of new tensors without gaps, even if an operator's meta kernel returns an argument's
    strides."""
    if type(found) is Placement:
        return found if dense(found) else placement_of(meta_tensor(found).clone(), found.device)
    return tuple([gapless(item) for item in found]) if isinstance(found, tuple) else found


# ------------------------------------------------------------------ which part of its storage


def spanned(place: Placement) -> int:
    """Return the bytes of a storage up to the last that a tensor uses."""
    return reach(place) * place.dtype.itemsize


def reach(place: Placement) -> int:
    """Return one past the last element of a storage that a tensor uses."""
    if 0 in place.shape:
        return place.offset
    stride = place.stride or ()
    return place.offset + sum((size - 1) * step for size, step in zip(place.shape, stride, strict=True)) + 1


def dense(place: Placement) -> bool:
    """Whether a tensor's elements fill their part of the storage, each once."""
    count = math.prod(place.shape)
    if count == 0 or place.stride is None:
        return True
    sizes = sorted((step, size) for size, step in zip(place.shape, place.stride, strict=True) if size != 1)
    expected = 1
    for step, size in sizes:
        if step != expected:
            return False
        expected *= size
    return True


def overlaps(place: Placement) -> bool:
    """Whether two elements of a tensor use the same memory."""
    if place.stride is None or 0 in place.shape:
        return False
    span = 0
    for step, size in sorted((step, size) for step, size in zip(place.stride, place.shape, strict=True) if size > 1):
        if step <= span:
            return True
        span += (size - 1) * step
    return False


# ------------------------------------------------------------------ as annotations


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@functools.lru_cache(maxsize=65536)
def tensor_spec_at(place: Placement) -> TensorSpec:
    """Return the spec of a Placement."""
    dtype, device, layout = str(place.dtype)[6:], str(place.device), str(place.layout)[6:]
    if place.stride is None:
        return TensorSpec(dtype, place.shape, None, 0, device, layout)
    stride = None if place.stride == contiguous_strides(place.shape) else place.stride
    return TensorSpec(dtype, place.shape, stride, place.offset, device)


def placement_spec(result: Any) -> Spec:
    """Return the spec of a call's result."""
    match result:
        case Placement():
            return tensor_spec_at(result._replace(memory=-1))
        case bool() | int() | float() | complex() | str():
            return ScalarSpec(type(result).__name__)
        case list() | tuple():
            return tuple(map(placement_spec, result))
    return None

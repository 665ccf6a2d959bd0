"""Where tensors are laid out in memory, and which of them overlap: a property of a call's arguments.

The *span* of a tensor is from its first to its last element in memory (MemorySpan). Spans of two tensors may cross
where no element is shared, as those of the even and of the odd columns of a matrix. `strided_parts` (`tree`) returns a
strided tensor itself, or the strided tensors that a sparse one consists of, its values last.

A MemorySpan has the bytes from `start` to before `stop` in one `memory`, a device or a storage without an address, with
the shape and the strides of the tensor there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from backprint._torch.fake import FakeTensor
from backprint._torch.tensors import mkldnn_layout, storage_id
from backprint.values.geometry import is_dense, span
from backprint.values.tree import strided_parts

MAX_COMPARED = 2**16
"""The most elements of two tensors that are compared element by element if their spans cross."""

PLAIN_CLASSES = (Tensor, nn.Parameter, nn.Buffer)
"""Classes of tensors that have a storage of their own."""

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer dtype of each width in bytes, as which the bits of other dtypes are read."""

Overlap = tuple[str, str, int]
"""Two names, and how many bytes the second tensor begins after the first."""


@dataclass(frozen=True, slots=True)
class MemorySpan:
    """The memory that a tensor occupies: the bytes from `start` to before `stop`, and its shape and stride in them."""

    memory: tuple[str, int]
    """The device, and the number of the storage where tensors have no addresses: only spans of one memory can cross."""
    start: int
    stop: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int
    """Bytes of an element; `stride` counts elements."""


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor's storage holds all of its elements; True for tensors without a storage that can be asked.

    A storage that was resized to 0, as FSDP does, holds none: a read of the tensor then ends the process.
    """
    if type(tensor) not in PLAIN_CLASSES or tensor.is_nested or tensor.layout is mkldnn_layout:
        return True
    for part in strided_parts(tensor):
        if part.is_meta or not part.numel():
            continue  # nothing of it is read
        try:
            available = part.untyped_storage().nbytes()
        except NotImplementedError:  # a wrapper of torch.func, which has no storage that can be asked
            continue
        if available < (part.storage_offset() + span(part.shape, part.stride())) * part.element_size():
            return False
    return True


SMALL = 2**16
"""The most bytes of a tensor of which each rank has values of its own, where ranks share a process."""


def is_small(tensor: Tensor) -> bool:
    """Whether a tensor is plain, and has so few values that they are kept for each rank."""
    if type(tensor) not in PLAIN_CLASSES or tensor.layout is not torch.strided or tensor.is_meta:
        return False
    is_odd = tensor.is_inference() or tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg()
    return not is_odd and 0 < tensor.numel() * tensor.element_size() <= SMALL


def memory_spans(values: Mapping[str, Tensor]) -> dict[str, MemorySpan]:
    """Return the span of each tensor that has elements and a storage of its own. A sparse tensor has the span of its
    values."""
    spans: dict[str, MemorySpan] = {}
    for name, value in values.items():
        if value.is_nested or value.layout in (torch.jagged, mkldnn_layout):
            continue
        tensor = strided_parts(value)[-1]
        shape, stride, itemsize = tensor.shape, tensor.stride(), tensor.element_size()
        # A tensor with symbolic sizes has no span that could be compared.
        if not all(isinstance(size, int) for size in (*shape, *stride)) or 0 in shape:
            continue
        if tensor.is_meta or isinstance(tensor, FakeTensor):
            # Fake tensors have no addresses, so their storages are told apart by identity.
            memory = ("meta", storage_id(tensor.untyped_storage()))
            start = int(tensor.storage_offset()) * itemsize
        else:
            memory, start = (str(tensor.device), 0), tensor.data_ptr()
        stop = start + span(shape, stride) * itemsize
        spans[name] = MemorySpan(memory, start, stop, tuple(shape), tuple(stride), itemsize)
    return spans


def overlapping_pairs(spans: Mapping[str, MemorySpan], of: Collection[str] | None = None) -> Iterator[Overlap]:
    """Yield the pairs of tensors that share memory, each in the order of `spans`; with `of`, only pairs in which one of
    these names is."""
    # A sweep over the addresses: `open_` has the spans before this one that reach beyond its start.
    rows = sorted(spans.items(), key=lambda row: (row[1].memory, row[1].start))
    open_: list[tuple[str, MemorySpan]] = []
    order = {name: index for index, name in enumerate(spans)}
    for name, here in rows:
        open_ = [(other, there) for other, there in open_ if there.memory == here.memory and there.stop > here.start]
        for other, there in open_:
            if (of is None or name in of or other in of) and _spans_overlap(there, here):
                left, right = sorted((other, name), key=order.__getitem__)
                yield left, right, spans[right].start - spans[left].start
        open_.append((name, here))


def _spans_overlap(left: MemorySpan, right: MemorySpan) -> bool:
    """Whether two tensors whose spans cross have an element's bytes in common."""
    if is_dense(left.shape, left.stride) and is_dense(right.shape, right.stride):
        return True
    # Elements of different widths, or too many of them, are not compared: the tensors are taken to overlap.
    apart = right.start - left.start
    if (
        left.itemsize != right.itemsize
        or apart % left.itemsize
        or max(math.prod(left.shape), math.prod(right.shape)) > MAX_COMPARED
    ):
        return True
    return bool(torch.isin(_element_offsets(left), _element_offsets(right) + apart // left.itemsize).any())


def _element_offsets(place: MemorySpan) -> Tensor:
    """Return the offset of each element from the first, in elements."""
    total = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(place.shape, place.stride, strict=True):
        total = total.unsqueeze(-1) + torch.arange(size) * stride
    return total.flatten()


def bits_of(tensor: Tensor) -> Tensor:
    """Return the elements as integers of their width, in which a NaN equals itself and -0.0 is not 0.0."""
    return tensor.view(INTEGERS[tensor.element_size()])


def as_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor's elements, in their order, as a flat tensor.

    It is a copy in any case: a tensor of one element counts as contiguous whatever its stride is, and bytes can be
    viewed only of a stride of 1.
    """
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)

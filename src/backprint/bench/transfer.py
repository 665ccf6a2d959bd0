"""Carry tensors between two processes: their bytes in memory that both have, and what they are in a line of JSON.

Nothing is unpickled, because what a compiler's process sends is a stranger's. Inputs keep their strides and the memory
that they share; results go without.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint._torch.tensors import neg_view
from backprint.errors import RefusedError
from backprint.values.tree import strided_parts

ALIGNED = 64

KEPT = (bool, int, float, str, type(None))
"""Types of values that JSON keeps."""

SPARSE = {
    torch.sparse_csr: torch.sparse_csr_tensor,
    torch.sparse_csc: torch.sparse_csc_tensor,
    torch.sparse_bsr: torch.sparse_bsr_tensor,
    torch.sparse_bsc: torch.sparse_bsc_tensor,
}

Header = Mapping[str, Any]


class CarriedMemory:
    """Memory that a process and those forked from it later have; it grows where a writer needs more."""

    def __init__(self) -> None:
        self.file = new_file()
        self.map: mmap.mmap | None = None
        self.size = 0

    def make_room(self, size: int) -> None:
        """Let it have so many bytes at least."""
        if os.fstat(self.file).st_size < size:
            os.ftruncate(self.file, -(-2 * size // mmap.PAGESIZE) * mmap.PAGESIZE)

    def tensor(self, dtype: torch.dtype, shape: Sequence[int], offset: int) -> Tensor:
        """Return a contiguous tensor of the bytes from an offset on."""
        count = 1
        for size in shape:
            if size < 0:
                raise ValueError(f"a tensor of shape {list(shape)} was told")
            count *= size
        if not count:
            return torch.empty(tuple(shape), dtype=dtype)
        if self.map is None or offset + count * dtype.itemsize > len(self.map):
            self.map = mmap.mmap(self.file, os.fstat(self.file).st_size)
        return torch.frombuffer(self.map, dtype=dtype, count=count, offset=offset).view(tuple(shape))

    def put(self, tensor: Tensor, offset: int) -> tuple[list[Any], int]:
        """Copy a strided tensor's elements, of which one on device meta has none; return what it is, and where the next
        may begin."""
        kind = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), offset]
        end = offset + tensor.numel() * tensor.dtype.itemsize
        self.make_room(end)
        if tensor.numel() and not tensor.is_meta:
            self.tensor(tensor.dtype, tensor.shape, offset).copy_(tensor.detach())
        return kind, -(-end // ALIGNED) * ALIGNED

    def taken(self, kind: Sequence[Any]) -> Tensor:
        """Return a copy of a tensor that was put."""
        dtype, shape, offset = kind
        return self.tensor(dtype_named(dtype), shape, offset).clone()


def new_file() -> int:
    """Return the descriptor of a file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("backprint-bench", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def dtype_named(name: str) -> torch.dtype:
    """Return a dtype by its name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"a dtype {name!r} was told")
    return dtype


# ------------------------------------------------------------------ results: elements alone


def put_results(memory: CarriedMemory, values: Sequence[Any], offset: int = 0) -> tuple[list[Header], int]:
    """Copy results; return what they are, and the offset behind them."""
    headers = []
    for value in values:
        header, offset = put_result(memory, value, offset)
        headers.append(header)
    return headers, offset


def put_result(memory: CarriedMemory, value: Any, offset: int) -> tuple[Header, int]:
    if type(value) not in (Tensor, torch.nn.Parameter):  # a subclass may compute its values when they are read
        return plain_header(value), offset
    parts = []
    for part in strided_parts(value):
        kind, offset = memory.put(part, offset)
        parts.append(kind)
    layout = str(value.layout).removeprefix("torch.")
    return {"tensor": parts, "layout": layout, "shape": list(value.shape), "device": str(value.device)}, offset


def plain_header(value: Any) -> Header:
    """Return a value that is no tensor; of one that JSON does not keep, its type alone."""
    name = type(value).__name__
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    return {"plain": value, "type": name} if type(value) in KEPT else {"type": name}


class OtherValue:
    """What stands for a result of a type that is not carried; it equals nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"a {self.name}"


def taken_results(memory: CarriedMemory, headers: Sequence[Header]) -> list[Any]:
    """Return copies of results."""
    return [taken_result(memory, header) for header in headers]


def taken_result(memory: CarriedMemory, header: Header) -> Any:
    if "tensor" not in header:
        if "complex" in header:
            return complex(*header["complex"])
        return header["plain"] if "plain" in header else OtherValue(str(header["type"]))
    parts = [memory.taken(kind).to(header["device"]) for kind in header["tensor"]]
    layout = getattr(torch, header["layout"])
    if layout is torch.strided:
        return parts[0]
    if layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(*parts, size=header["shape"])
    return SPARSE[layout](*parts, size=header["shape"])


# ------------------------------------------------------------------ inputs: with strides and shared memory


def put_inputs(memory: CarriedMemory, values: Sequence[Any]) -> list[Header]:
    """Copy inputs, each memory once; return what they are."""
    headers: list[Header] = []
    storages: dict[int, list[Any]] = {}
    offset = 0
    for value in values:
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            header, offset = put_result(memory, value, offset)
            headers.append(header)
            continue
        if value.is_quantized or type(value) not in (Tensor, torch.nn.Parameter):
            raise RefusedError(
                f"an input is a {type(value).__name__} of dtype {value.dtype}, which bench does not pass on"
            )
        storage = value.untyped_storage()
        if storage.data_ptr() not in storages or not storage.nbytes():
            whole = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage)
            storages[storage.data_ptr()], offset = memory.put(whole, offset)
        place = [list(value.shape), list(value.stride()), value.storage_offset()]
        flags = [value.is_conj(), value.is_neg(), value.requires_grad]
        headers.append(
            {
                "memory": storages[storage.data_ptr()],
                "dtype": str(value.dtype).removeprefix("torch."),
                "place": place,
                "device": str(value.device),
                "flags": flags,
            }
        )
    return headers


def taken_inputs(memory: CarriedMemory, headers: Sequence[Header]) -> list[Any]:
    """Return inputs that were put; those share memory that shared it."""
    found: list[Any] = []
    storages: dict[int, Tensor] = {}
    for header in headers:
        if "memory" not in header:
            found.append(taken_result(memory, header))
            continue
        offset = header["memory"][2]
        if offset not in storages or not storages[offset].numel():
            storages[offset] = memory.taken(header["memory"]).to(header["device"])
        value = torch.empty(0, dtype=dtype_named(header["dtype"]), device=header["device"])
        shape, stride, start = header["place"]
        value.set_(storages[offset].untyped_storage(), start, shape, stride)
        conj, neg, grad = header["flags"]
        value = neg_view(value.conj() if conj else value) if neg else value.conj() if conj else value
        found.append(value.requires_grad_() if grad else value)
    return found

"""Tensors between a process and its child: bytes in shared memory, dtype and shape as JSON.

Nothing is unpickled, because a child may run code that is not trusted. Inputs keep their strides and the memory that
they share; of results, the elements alone are sent.

The *kind* of a tensor in the memory is the list `["float32", [2, 3], offset]`: its dtype, its shape, and the byte at
which its elements begin. A *header* is JSON that describes one input or result: it has the kinds of the tensors that it
consists of, and what else is needed to make it again, or a value that is no tensor. `strided_parts` returns a strided
tensor itself, or the strided tensors of a sparse one.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backprint._torch.tensors import neg_view
from backprint.child.child import Child, Start
from backprint.child.limits import Limits
from backprint.errors import RefusedError
from backprint.values.tree import strided_parts

ALIGNED = 64
"""Each tensor begins at a multiple of so many bytes, as torch's own do."""

JSON_TYPES = (bool, int, float, str, type(None))
"""Types of values that JSON keeps."""

SPARSE = {
    torch.sparse_csr: torch.sparse_csr_tensor,
    torch.sparse_csc: torch.sparse_csc_tensor,
    torch.sparse_bsr: torch.sparse_bsr_tensor,
    torch.sparse_bsc: torch.sparse_bsc_tensor,
}

Header = Mapping[str, Any]


class SharedMemory:
    """Memory that a process shares with its children; it grows where a writer needs more. A child that was not forked
    opens it by its `file`, a descriptor. `map` is the memory as this process has mapped it, None before it is used."""

    def __init__(self, file: int = -1) -> None:
        self.file = _new_file() if file < 0 else file
        self.map: mmap.mmap | None = None
        self.size = 0

    def reserve(self, size: int) -> None:
        """Grow the memory to at least `size` bytes."""
        if os.fstat(self.file).st_size < size:
            # Twice as much, in whole pages, so that it seldom grows.
            os.ftruncate(self.file, -(-2 * size // mmap.PAGESIZE) * mmap.PAGESIZE)

    def tensor(self, dtype: torch.dtype, shape: Sequence[int], offset: int) -> Tensor:
        """Return a contiguous tensor of the bytes from an offset on. ValueError for a size below 0, which a process
        that is not trusted may have sent."""
        count = 1
        for size in shape:
            if size < 0:
                raise ValueError(f"a tensor of shape {list(shape)} was sent")
            count *= size
        if not count:
            return torch.empty(tuple(shape), dtype=dtype)
        # The other process may have made the file longer than what is mapped here.
        if self.map is None or offset + count * dtype.itemsize > len(self.map):
            self.map = mmap.mmap(self.file, os.fstat(self.file).st_size)
        return torch.frombuffer(self.map, dtype=dtype, count=count, offset=offset).view(tuple(shape))

    def put(self, tensor: Tensor, offset: int) -> tuple[list[Any], int]:
        """Copy a strided tensor's elements to this offset; return its *kind*, the list `["float32", [2, 3], offset]`
        that `read` takes, and the offset at which the next may begin. A tensor on device meta has no elements."""
        kind = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), offset]
        end = offset + tensor.numel() * tensor.dtype.itemsize
        self.reserve(end)
        if tensor.numel() and not tensor.is_meta:
            self.tensor(tensor.dtype, tensor.shape, offset).copy_(tensor.detach())
        return kind, -(-end // ALIGNED) * ALIGNED

    def read(self, kind: Sequence[Any]) -> Tensor:
        """Return a copy of a tensor that `put` has written, by its kind."""
        dtype, shape, offset = kind
        return self.tensor(_dtype_named(dtype), shape, offset).clone()

    def close(self) -> None:
        """Close the descriptor; tensors that share the memory keep it."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def _new_file() -> int:
    """Return the descriptor of a file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("backprint", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _dtype_named(name: str) -> torch.dtype:
    """Return a dtype by its name; ValueError if a process that is not trusted has sent another name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"a dtype {name!r} was sent")
    return dtype


class TensorChild(Child):
    """A child with two shared memories, for inputs and for results: `start` makes of them the function that starts it
    (`Start`)."""

    def __init__(
        self,
        start: Callable[[SharedMemory, SharedMemory], Start],
        limits: Limits | None = None,
        *,
        captured: bool = False,
    ) -> None:
        self.inputs_memory, self.results_memory = SharedMemory(), SharedMemory()
        super().__init__(start(self.inputs_memory, self.results_memory), limits, captured=captured)

    def send_inputs(self, values: Sequence[Any]) -> list[Any]:
        """Copy inputs to the shared memory; return the headers to send."""
        return list(put_inputs(self.inputs_memory, values))

    def results_in(self, answer: Mapping[str, Any], key: str = "results") -> list[Any]:
        """Return the results of a call whose headers are in an answer."""
        return read_results(self.results_memory, answer[key])

    def _close_files(self) -> None:
        super()._close_files()
        for memory in (self.inputs_memory, self.results_memory):
            memory.close()


# ------------------------------------------------------------------ results: elements alone


def put_results(memory: SharedMemory, values: Sequence[Any], offset: int = 0) -> tuple[list[Header], int]:
    """Copy results; return a header for each, and the offset behind them."""
    headers = []
    for value in values:
        header, offset = _put_result(memory, value, offset)
        headers.append(header)
    return headers, offset


def _put_result(memory: SharedMemory, value: Any, offset: int) -> tuple[Header, int]:
    """Copy one result to an offset, of a sparse tensor its parts; return its header and the offset behind it. Of a
    value that is no plain tensor the header has all that is sent."""
    if type(value) not in (Tensor, torch.nn.Parameter):  # a subclass may compute its values when they are read
        return _plain_header(value), offset
    parts = []
    for part in strided_parts(value):
        kind, offset = memory.put(part, offset)
        parts.append(kind)
    layout = str(value.layout).removeprefix("torch.")
    return {"tensor": parts, "layout": layout, "shape": list(value.shape), "device": str(value.device)}, offset


def _plain_header(value: Any) -> Header:
    """Return the header of a value that is no tensor: the value, or its type alone where JSON cannot keep it."""
    name = type(value).__name__
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    return {"plain": value, "type": name} if type(value) in JSON_TYPES else {"type": name}


class UnsentValue:
    """Stands for a result of a type that is not sent; it equals nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"a {self.name}"


def read_results(memory: SharedMemory, headers: Sequence[Header]) -> list[Any]:
    """Return copies of results."""
    return [_read_result(memory, header) for header in headers]


def _read_result(memory: SharedMemory, header: Header) -> Any:
    """Return a copy of the result that `_put_result` has written: a tensor, a plain value, or an UnsentValue."""
    if "tensor" not in header:
        if "complex" in header:
            return complex(*header["complex"])
        return header["plain"] if "plain" in header else UnsentValue(str(header["type"]))
    parts = [memory.read(kind).to(header["device"]) for kind in header["tensor"]]
    layout = getattr(torch, header["layout"])
    if layout is torch.strided:
        return parts[0]
    if layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(*parts, size=header["shape"])
    return SPARSE[layout](*parts, size=header["shape"])


# ------------------------------------------------------------------ inputs: with strides and shared memory


def put_inputs(memory: SharedMemory, values: Sequence[Any]) -> list[Header]:
    """Copy inputs, each storage once; return a header for each. RefusedError for a quantized tensor, and for one of a
    subclass."""
    headers: list[Header] = []
    storages: dict[int, list[Any]] = {}  # the kind of each storage so far, by its address
    offset = 0
    for value in values:
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            header, offset = _put_result(memory, value, offset)
            headers.append(header)
            continue
        if value.is_quantized or type(value) not in (Tensor, torch.nn.Parameter):
            raise RefusedError(
                f"an input is a {type(value).__name__} of dtype {value.dtype}, which is not passed to another process"
            )
        storage = value.untyped_storage()
        # Empty storages may all have the address 0.
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


def read_inputs(memory: SharedMemory, headers: Sequence[Header]) -> list[Any]:
    """Return the inputs that `put_inputs` has written; those that shared memory share it again."""
    inputs: list[Any] = []
    storages: dict[int, Tensor] = {}
    for header in headers:
        if "memory" not in header:
            inputs.append(_read_result(memory, header))
            continue
        _, _, offset = header["memory"]  # the kind of its storage: tensors that share it have the same offset
        # An empty storage has no bytes, so the next one begins at the same offset.
        if offset not in storages or not storages[offset].numel():
            storages[offset] = memory.read(header["memory"]).to(header["device"])
        value = torch.empty(0, dtype=_dtype_named(header["dtype"]), device=header["device"])
        shape, stride, start = header["place"]
        value.set_(storages[offset].untyped_storage(), start, shape, stride)
        is_conj, is_neg, requires_grad = header["flags"]
        # As lazy bits, which the input had: its elements in memory are those before conjugation and negation.
        value = value.conj() if is_conj else value
        value = neg_view(value) if is_neg else value
        inputs.append(value.requires_grad_() if requires_grad else value)
    return inputs


# ------------------------------------------------------------------ results that are held


MOST_HELD = 2**29
"""The most bytes of results that are held to be compared again. Results of timed calls are not held: that would change
how memory is reused while calls are timed."""


@dataclass(slots=True)
class HeldBudget:
    """The bytes of results that are held so far; MOST_HELD is the limit."""

    bytes: int = 0

    def hold_if_room(self, size: int) -> bool:
        """Count results of so many bytes as held and return True; or return False, if they exceed the limit. The first
        ones are held, however large."""
        if self.bytes and self.bytes + size > MOST_HELD:
            return False
        self.bytes += max(size, 1)  # never 0 once results are held: the next ones are not the first
        return True

"""Writes safetensors files: 8 bytes of header size, a JSON header, then the bytes of the tensors.

The package `safetensors` reads them. It writes through NumPy, which neither it nor torch installs. The files written
here are the same, byte for byte.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

CODES = {
    "complex64": "C64",
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "uint64": "U64",
    "int32": "I32",
    "uint32": "U32",
    "int16": "I16",
    "uint16": "U16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}
"""The format's name of each dtype that it has."""

ORDER = (
    "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 "
    "F64 I64 U64"
).split()
"""The format's dtypes in the reverse order of a file. Tensors lie there by dtype, wide ones first, and then by name, so
that each is aligned."""


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name to a file. A ValueError names a tensor whose dtype or layout the format does not have."""
    plain = {name: _plain_tensor(name, tensor) for name, tensor in tensors.items()}
    # In the order of the format: the last dtypes of ORDER first, and tensors of one dtype by name.
    names = sorted(plain, key=lambda name: (-ORDER.index(_code_of(plain[name])), name))
    header: dict[str, object] = {}
    end = 0  # of the tensors so far, in bytes after the header
    for name in names:
        tensor = plain[name]
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _code_of(tensor), "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # The format pads the header with spaces, so that the tensors begin at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(bytes_in_memory(plain[name]))


def _plain_tensor(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor as its bytes lie in a file: contiguous, on the CPU, without lazy conjugate or negative bits."""
    if tensor.layout is not torch.strided or str(tensor.dtype)[6:] not in CODES:
        raise ValueError(
            f"{name} is a {str(tensor.layout)[6:]} tensor of {tensor.dtype}, which safetensors do not have"
        )
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def _code_of(tensor: Tensor) -> str:
    """Return the format's name of a tensor's dtype."""
    return CODES[str(tensor.dtype)[6:]]


def bytes_in_memory(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU, without copying it. It is valid while the tensor lives."""
    kind = ctypes.c_char * tensor.nbytes
    return memoryview(kind.from_address(tensor.data_ptr()) if tensor.nbytes else b"")

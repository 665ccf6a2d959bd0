"""Specs: the type of a value, without the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from backprint.errors import GraphError, RefusedError
from backprint.graph.legal import MAX_SIZE, Size, check_device, check_expression, check_size

DTYPES: Mapping[str, str] = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex128": "c128",
    "complex64": "c64",
    "complex32": "c32",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "b8",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
}
"""torch's dtype names and the short names that graphs print."""

LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")

FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")

ATOMS = frozenset({*DTYPES, *LAYOUTS, *FORMATS, "qint8", "quint8", "qint32", "float4_e2m1fn_x2", "bits8", "bits16"})


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The dtype, shape, strides, device and layout of a tensor. `stride` is None for a contiguous tensor."""

    dtype: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...] | None = None
    offset: Size = 0
    device: str = "cpu"
    layout: str = "strided"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise RefusedError(f"{self.dtype!r} is not a tensor dtype; known are {', '.join(DTYPES)}")
        if self.layout not in LAYOUTS:
            raise RefusedError(f"{self.layout!r} is not a tensor layout; known are {', '.join(LAYOUTS)}")
        if self.stride is not None and len(self.stride) != len(self.shape):
            raise GraphError(f"a tensor of {len(self.shape)} sizes cannot have {len(self.stride)} strides")
        for size in (*self.shape, *(self.stride or ()), self.offset):
            if type(size) is not int or not -MAX_SIZE <= size < MAX_SIZE:
                check_size(size)
        if self.numel >= MAX_SIZE:
            raise GraphError(f"a tensor of {self.numel:.3g} elements: at most 2**63 - 1 can be counted")
        if self.device != "cpu":
            check_device(self.device)

    @property
    def numel(self) -> int:
        """The number of elements; symbolic sizes count as one."""
        count = 1
        for size in self.shape:
            count *= size if isinstance(size, int) else 1
        return count

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self.numel * ITEMSIZE[self.dtype]


ITEMSIZE: Mapping[str, int] = {
    name: max(1, int(re.findall(r"(\d+)", name)[0]) // 8) if name != "bool" else 1 for name in DTYPES
}


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number that a graph computes: `SymInt(s0 + 1)`, `int`, `float`, `bool`."""

    kind: str
    expression: str = ""

    def __post_init__(self) -> None:
        if self.kind not in SCALARS:
            raise GraphError(f"{self.kind!r:.80} is not a scalar kind; known are {', '.join(SCALARS)}")
        if self.expression:
            check_expression(self.expression)


SCALARS = ("SymInt", "SymFloat", "SymBool", "int", "float", "bool", "complex", "None", "str", "object")

Spec: TypeAlias = "TensorSpec | ScalarSpec | tuple[Spec, ...] | None"
"""The type of a step's result: None if it is not known."""

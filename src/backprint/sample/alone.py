"""Make a sample's inputs without Backprint: ports from annotations, exact data from safetensors, tensors from recipes.

This file's text also ends every `model.py`, after that of `generator`, and exported files have parts of it, so
it imports only torch and the standard library, and an input that cannot be made ends the program with one line.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from backprint.sample.generator import digest, make, parse

SAFE_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "C64": "complex64", "U16": "uint16", "U32": "uint32",
    "U64": "uint64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
PORT = re.compile(r"(.*?) (parameter|buffer|input|constant|saved|tangent|rng|output|mutation|gradient) (.*)", re.DOTALL)
RANKS = {"view": 1, "sparse": 2}  # what is made of others is made after them


def ports(annotations: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return (spec, role, name) of each annotation."""
    found = map(PORT.fullmatch, annotations)
    return [(port[1], port[2], port[3]) for port in found]  # type: ignore[index]  # each annotation is a port's


def printed_line(role: str, name: str, value: Any) -> str:
    """Return the line to print for an output: with the digest of a tensor, or with any other value itself."""
    if isinstance(value, torch.Tensor):
        return f"{role} {name} {str(value.dtype).removeprefix('torch.')}{list(value.shape)} {digest(value)}"
    return f"{role} {name} {type(value).__name__} {value}"


def read_safetensors(path: Path) -> dict[str, Any]:
    """Return name -> tensor: 8 bytes of header size, a JSON header, then the bytes that its offsets count from."""
    if not path.exists():
        return {}
    raw = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, row in header.items():
        (begin, end), dtype = row["data_offsets"], getattr(torch, SAFE_DTYPES[row["dtype"]])
        count = math.prod(row["shape"])
        if not 0 <= begin <= end <= len(raw) - start or end - begin != count * dtype.itemsize:
            raise ValueError(f"{path.name} is damaged: {name!r} lies outside of it or has the wrong length")
        place: dict[str, Any] = dict(dtype=dtype, count=count, offset=start + begin)
        flat = torch.frombuffer(raw, **place) if count else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(row["shape"])
    return tensors


def make_inputs(recipes: Mapping[str, Any], names: Collection[str], exact: Mapping[str, Any]) -> dict[str, Any]:
    """Return name -> tensor for these names; a view's base and a sparse tensor's parts are made with it."""
    wanted = list(names)
    made: dict[str, Any] = {}
    for name in wanted:
        of = recipes[name]["facts"].get("of", ())
        wanted += [base for base in ((of,) if isinstance(of, str) else of) if base not in wanted]
    for name in sorted(dict.fromkeys(wanted), key=lambda name: RANKS.get(recipes[name]["kind"], 0)):
        try:
            made[name] = make(parse(recipes[name]), exact.get(name), made)
        except ValueError as cause:
            raise SystemExit(f"input {name!r} cannot be made: {cause}") from None
    return made

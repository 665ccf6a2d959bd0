"""Compare two tensors: bit for bit, else by their largest difference relative to their largest value.

Sparse tensors are equal if their indices are equal, in the same order, and their values are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from backprint.graph.verdicts import PortVerdict
from backprint.tree import strided_parts

TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
"""How far a port may be from its oracle, relative to its largest value, and still be `close`."""


NOTHING = 1e-30
"""Errors are relative to this if the largest value is 0."""


def compare(name: str, role: str, found: Tensor | None, wanted: Tensor | None) -> PortVerdict:
    """Compare a port with its oracle."""
    if found is None or wanted is None:
        same = found is None and wanted is None
        said = "None where the program returns a tensor" if found is None else "a tensor where the program returns None"
        return PortVerdict(name, role, "bitwise" if same else "wrong", "" if same else said)
    if _kind(found) != _kind(wanted):
        return PortVerdict(name, role, "wrong", f"{_kind(found)} where the program returns {_kind(wanted)}")
    (*places, found), (*others, wanted) = strided_parts(found), strided_parts(wanted)
    if not all(map(torch.equal, places, others)):
        return PortVerdict(name, role, "wrong", "its indices are not the program's")
    found, wanted = found.detach().resolve_conj().resolve_neg(), wanted.detach().resolve_conj().resolve_neg()
    if same_bits(found, wanted):
        return PortVerdict(name, role, "bitwise")
    error = distance(found, wanted)
    tolerance = TOLERANCE.get(str(wanted.dtype)[6:], 0.0)
    verdict = "close" if error <= tolerance else "wrong"
    return PortVerdict(name, role, verdict, f"relative error {error:.3g}, tolerance {tolerance:.3g}", error)


def _kind(tensor: Tensor) -> str:
    text = f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"
    if tensor.layout is torch.strided:
        return text
    coalesced = " coalesced" if tensor.layout is torch.sparse_coo and tensor.is_coalesced() else ""
    return f"{text} {str(tensor.layout)[6:]} of {list(strided_parts(tensor)[-1].shape)} values{coalesced}"


WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer dtypes as which floating-point numbers of a size are compared."""


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal bit for bit; a NaN equals a NaN in the same place."""
    if left.is_complex():
        return same_bits(torch.view_as_real(left), torch.view_as_real(right))
    if not left.is_floating_point():
        return bool(torch.equal(left, right))
    whole = WHOLE.get(left.element_size())
    if whole is not None and torch.equal(left.contiguous().view(whole), right.contiguous().view(whole)):
        return True
    nan = torch.isnan(left) & torch.isnan(right)
    return bool((((left == right) & (torch.signbit(left) == torch.signbit(right))) | nan).all())


def distance(left: Tensor, right: Tensor) -> float:
    """Return the largest difference over the largest value; infinity if NaN or inf are in different places."""
    if left.numel() == 0:
        return 0.0
    if not (left.is_floating_point() or left.is_complex()):
        return 0.0 if torch.equal(left, right) else float("inf")
    if left.is_complex():
        left, right = (torch.view_as_real(each.resolve_conj().resolve_neg()) for each in (left, right))
    left, right = left.double(), right.double()
    odd = ~(torch.isfinite(left) & torch.isfinite(right))
    if odd.any():
        matched = (left == right) | (torch.isnan(left) & torch.isnan(right))
        if not matched[odd].all():
            return float("inf")
        left, right = left[~odd], right[~odd]
        if left.numel() == 0:
            return 0.0
    scale = max(float(right.abs().max()), NOTHING)
    return float((left - right).abs().max()) / scale

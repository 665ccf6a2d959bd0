"""Compare two tensors: bit for bit, else by their largest difference relative to their largest value.

Sparse tensors are equal if their indices are equal, in the same order, and their values are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from backprint.closeness import TOLERANCE, distance, same_bits
from backprint.graph.verdicts import PortVerdict
from backprint.tree import strided_parts


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

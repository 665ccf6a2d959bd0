"""Two tensors, compared: bit for bit, else by how far apart they are against how large they are.

Sparse tensors are alike where their parts are: the same places, in the same order, and values that are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backprint.graph.verdicts import GOOD as GOOD
from backprint.graph.verdicts import has_proof, rank
from backprint.tree import strided_parts

PROGRAM, REDRAWN = "the program", "the program on redrawn inputs"
DIGESTS, AUTOGRAD = "digests of an earlier run", "autograd of the forward"
"""The witnesses that a port can have; '' is none, and such a port is `unproven`."""

TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
"""How far a port may be from its oracle, relative to its largest value, and still be `close`."""


@dataclass(frozen=True, slots=True)
class PortVerdict:
    """One output, mutation or gradient against its witness, which it names: what it was compared with.

    `power` is how far the port moves, in tolerances, when inputs are drawn again.
    """

    name: str
    role: str
    verdict: str
    detail: str = ""
    error: float = 0.0
    power: float | None = None
    witness: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of checking one Pair: the worst of its ports.

    `power` is that of the port that moved least when inputs were drawn again; None where nothing was measured, or
    nothing can move. `vacuous` are the ports without power: those that nothing drawn again moved by a tolerance.
    """

    verdict: str
    name: str
    detail: str = ""
    ports: tuple[PortVerdict, ...] = ()
    power: float | None = None
    vacuous: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the Pair is proven, or has nothing to prove."""
        return self.verdict in GOOD

    @property
    def proof(self) -> bool:
        """Whether the Verdict is good and every port has power: a check of a port that nothing moves proves nothing."""
        return has_proof(self.verdict, self.power, self.vacuous)


def worst(verdicts: list[str]) -> str:
    """The worst of several verdicts; no comparison made is never a pass."""
    return max(verdicts, key=rank, default="unproven")


def compare(name: str, role: str, found: Tensor | None, wanted: Tensor | None) -> PortVerdict:
    """A port against its oracle."""
    if found is None or wanted is None:
        same = found is None and wanted is None
        said = "None where the program gives a tensor" if found is None else "a tensor where the program gives None"
        return PortVerdict(name, role, "bitwise" if same else "wrong", "" if same else said)
    if _kind(found) != _kind(wanted):
        return PortVerdict(name, role, "wrong", f"{_kind(found)} where the program gives {_kind(wanted)}")
    (*places, found), (*others, wanted) = strided_parts(found), strided_parts(wanted)
    if not all(map(torch.equal, places, others)):
        return PortVerdict(name, role, "wrong", "its values are in other places than the program's")
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
"""The integers in which floating-point numbers of a size are compared."""


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Equal to the bit; a NaN equals a NaN in the same place."""
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
    """The largest difference over the largest value; infinite where NaN or inf stand in different places."""
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
    scale = max(float(right.abs().max()), 1e-30)
    return float((left - right).abs().max()) / scale

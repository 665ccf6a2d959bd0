"""Digests of ports' values as a sample keeps them, and comparisons with them.

Of each port a digest, a norm, the largest value and the leading values are kept. Equal digests are a bitwise verdict;
if digests differ, the numbers say how far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backprint.closeness import TOLERANCE
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import PortVerdict
from backprint.replaying.results import Results
from backprint.sample.generator import digest
from backprint.tree import join_sparse, strided_parts

Row = Mapping[str, Any]
"""What a witness keeps of one port."""


def part_rows(capture: Capture, index: int) -> dict[PortKey, Row]:
    """Return what the witness keeps of one Pair."""
    head = f"{capture.pairs[index].name} "
    kept = (capture.witness or {}).items()
    return {PortKey.from_text(text.removeprefix(head)): row for text, row in kept if text.startswith(head)}


def numbers_of(value: Tensor | None) -> Row:
    """Return one port's digest, norm, largest value and leading values; for a sparse tensor, those of its values."""
    if value is None:
        return {"none": True}
    *places, kept = strided_parts(value.detach())
    kept = kept.resolve_conj().resolve_neg()
    flat = torch.view_as_real(kept).flatten() if kept.is_complex() else kept.flatten()
    real = flat if flat.dtype in (torch.float32, torch.float64) else flat.double()
    norm = float(torch.linalg.vector_norm(real))
    kept = canonical_nan(kept) if math.isnan(norm) else kept
    sparse: Row = {}
    if places:
        sparse = {"layout": str(value.layout)[6:], "values": list(kept.shape), "places": list(map(digest, places))}
    return {
        "digest": digest(join_sparse(value, [*places, kept]) if places else kept),
        "dtype": str(value.dtype)[6:],
        "shape": list(value.shape),
        **sparse,
        "norm": safe(norm),
        "max": safe(float(torch.linalg.vector_norm(real, math.inf))) if real.numel() else 0.0,
        "leading": [safe(float(x)) for x in real[:8].double()],
    }


def canonical_nan(value: Tensor) -> Tensor:
    """Replace every NaN by the same NaN."""
    if not value.is_floating_point() or not torch.isnan(value).any():
        return value
    return torch.where(torch.isnan(value), torch.full_like(value, math.nan), value)


def safe(number: float) -> float | str:
    """Return a number as JSON can represent it."""
    return number if math.isfinite(number) else str(number)


def against_rows(rows: Mapping[PortKey, Row], results: Results) -> list[PortVerdict]:
    """Compare every port with kept digests."""
    keys = dict.fromkeys([*results, *rows])
    return [judge(key, results.get(key), rows.get(key)) for key in keys]


def judge(key: PortKey, value: Tensor | None, kept: Row | None) -> PortVerdict:
    """Compare one port with its witness row."""
    role, name = key
    if kept is None or value is None or kept.get("none"):
        same = value is None and kept is not None and bool(kept.get("none"))
        return PortVerdict(name, role, "bitwise" if same else "wrong", "" if same else "only one side has it")
    now = numbers_of(value)
    if now["digest"] == kept["digest"]:
        return PortVerdict(name, role, "bitwise")
    if kind_of(now) != kind_of(kept):
        return PortVerdict(name, role, "wrong", f"{kind_of(now)} where the program returns {kind_of(kept)}")
    if now.get("places") != kept.get("places"):
        return PortVerdict(name, role, "wrong", "its indices are not the program's")
    error = max(
        scaled_distance(now["norm"], kept["norm"], kept["norm"]), scaled_distance(now["max"], kept["max"], kept["max"])
    )
    for left, right in zip(now["leading"], kept["leading"], strict=True):
        error = max(error, scaled_distance(left, right, kept["max"]))
    verdict = port_from_error(name, role, error, now["dtype"])
    return replace(verdict, detail=f"digest {now['digest']} is not {kept['digest']}; {verdict.detail}")


def kind_of(row: Row) -> str:
    """Return a row's dtype and shape; for a sparse tensor, its layout and the shape of its values."""
    sparse = f" {row['layout']} of {row['values']} values" if "layout" in row else ""
    return f"{row['dtype']}{row['shape']}{sparse}"


def scaled_distance(left: float | str, right: float | str, scale: float | str) -> float:
    """Return the difference of two kept numbers relative to a scale; infinity if only one is NaN or infinite."""
    a, b, size = float(left), float(right), abs(float(scale))
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(size if math.isfinite(size) else abs(b), 1e-30)


def port_from_error(name: str, role: str, error: float, dtype: str) -> PortVerdict:
    """Return the verdict of a port with this error."""
    tolerance = TOLERANCE.get(dtype, 0.0)
    verdict = "close" if error <= tolerance else "wrong"
    return PortVerdict(name, role, verdict, f"relative error {error:.3g}, tolerance {tolerance:.3g}", error)

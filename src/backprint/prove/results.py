"""Results of a step by the keys of its ports, and their comparison: value with value, or value with digest.

`value` and `results` are those of the Capture's graphs, `expected` and `wanted` those of the program. A *witness* is
what a sample keeps of the program's results: a *row* of numbers for each port. `strided_parts` of a sparse tensor are
the dense tensors that it consists of, its indices and, last, its values; a dense tensor is its only part. `[6:]` drops
`torch.` from the name of a dtype or a layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backprint.graph.keys import PortKey, keyed
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import REFUTED, UNSTEADY, PortVerdict, safe_number
from backprint.judge.closeness import TOLERANCE, distance, same_bits
from backprint.judge.closeness import compare as closeness_of
from backprint.run_sample import digest
from backprint.values.tree import join_sparse, strided_parts

# ---- Two tensors: bit for bit, else by their largest difference relative to their largest value
# Sparse tensors are equal if their indices are equal, in the same order, and their values are.


def compare(name: str, role: str, value: Tensor | None, expected: Tensor | None) -> PortVerdict:
    """Return the verdict of a port: its value compared with the one that is expected. None is a gradient that is not
    there."""
    if value is None and expected is None:
        return PortVerdict(name, role, "bitwise")
    if value is None or expected is None:
        detail = (
            "None where the program returns a tensor" if value is None else "a tensor where the program returns None"
        )
        return PortVerdict(name, role, "wrong", detail)
    if _kind(value) != _kind(expected):
        return PortVerdict(name, role, "wrong", f"{_kind(value)} where the program returns {_kind(expected)}")
    (*indices, value), (*wanted_indices, expected) = strided_parts(value), strided_parts(expected)
    if not all(map(torch.equal, indices, wanted_indices)):
        return PortVerdict(name, role, "wrong", "its indices are not the program's")
    # The bits of a lazily conjugated or negated tensor are not those of its values.
    value, expected = value.detach().resolve_conj().resolve_neg(), expected.detach().resolve_conj().resolve_neg()
    if same_bits(value, expected):
        return PortVerdict(name, role, "bitwise")
    if not (expected.is_floating_point() or expected.is_complex()):
        return PortVerdict(name, role, "wrong", "it has other values", error=math.inf)
    # In words whether they are close, and with which error and how much is allowed, as the one rule of closeness says.
    closeness = closeness_of(value, expected)
    if closeness.word == "unknown":  # alike wherever it is not finite
        return PortVerdict(name, role, "close", closeness.detail)
    error = distance(value, expected)
    text = f"relative error {error:.3g}, {closeness.allowed:.3g} is allowed"
    detail = f"{text} {closeness.detail}" if closeness.detail else text
    return PortVerdict(name, role, closeness.word, detail, error)


def verdict_of_error(name: str, role: str, error: float, *dtypes: str) -> PortVerdict:
    """Return the verdict of a port that cannot be run again, by its error relative to its largest value. The tolerance
    is the largest of these dtypes' tolerances."""
    tolerance = max(TOLERANCE.get(dtype, 0.0) for dtype in dtypes)
    verdict = "close" if error <= tolerance else "wrong"
    return PortVerdict(name, role, verdict, f"relative error {error:.3g}, tolerance {tolerance:.3g}", error)


def _kind(tensor: Tensor) -> str:
    """Return what must be equal before values are compared, as text: dtype, shape, and what a sparse tensor has
    more."""
    text = f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"
    if tensor.layout is torch.strided:
        return text
    coalesced = " coalesced" if tensor.layout is torch.sparse_coo and tensor.is_coalesced() else ""
    return f"{text} {str(tensor.layout)[6:]} of {list(strided_parts(tensor)[-1].shape)} values{coalesced}"


# ---- How far a result moved, in tolerances, and whether it did not move at all

NULL = 1e-9
"""A port in float64 does not move if its relative change is below this."""


def has_movement(value: Any) -> bool:
    """Whether a result has elements, so that it could move."""
    return isinstance(value, Tensor) and strided_parts(value)[-1].numel() > 0


def movement_or_change(first: Any, second: Any) -> float:
    """Return how far a port moved from its first value to its second, in tolerances of its dtype; for integers and
    bools any change is infinite."""
    if is_inexact(first) and is_inexact(second):
        return movement_in_tolerances(first, second) or 0.0
    if not isinstance(second, Tensor) or first.shape != second.shape:
        return float("inf")
    return 0.0 if all(map(torch.equal, strided_parts(first), strided_parts(second))) else float("inf")


def is_inexact(value: Any) -> bool:
    """Whether a value is a tensor of floating-point or complex numbers."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def movement_in_tolerances(first: Any, second: Any) -> float | None:
    """Return how far a port moved from its first value to its second, in tolerances of its dtype; None if it has no
    floating-point numbers."""
    if not is_inexact(first) or not is_inexact(second) or strided_parts(first)[-1].numel() == 0:
        return None
    return share(first, second) / TOLERANCE.get(str(first.dtype)[6:], 1.0)


def stays_equal(first: Any, second: Any) -> bool:
    """Whether two values of a port in float64 are equal up to rounding. False for a port without finite numbers."""
    if not is_inexact(first) or not is_inexact(second):
        return False
    if not bool(torch.isfinite(strided_parts(first)[-1]).any()):
        return False
    return share(first, second) < NULL


def share(first: Tensor, second: Tensor) -> float:
    """Return the largest difference of two tensors over the largest number of the first. Elements that are not finite
    in one of them do not count; 0 if no element is finite in both. Infinity if the shapes differ."""
    if first.shape != second.shape:
        return float("inf")
    first, second = strided_parts(first.detach())[-1], strided_parts(second.detach())[-1]
    if first.shape != second.shape:
        return float("inf")
    if first.is_complex():
        first, second = torch.view_as_real(first.resolve_conj()), torch.view_as_real(second.resolve_conj())
    most, largest = _biggest(first - second), _biggest(first)
    # Only where the difference is NaN or Inf the elements are looked at one by one, which takes longer.
    if not most < float("inf"):
        good = torch.isfinite(first) & torch.isfinite(second)
        if not bool(good.any()):
            return 0.0
        first, second = first[good], second[good]
        most, largest = _biggest(first - second), _biggest(first)
    return most / max(largest, 1e-30) if largest < float("inf") else 0.0  # 1e-30: no division by 0


def _biggest(tensor: Tensor) -> float:
    """Return the largest absolute value; NaN if there is one."""
    low, high = (float(bound) for bound in torch.aminmax(tensor))  # several times as fast as a norm
    return low if math.isnan(low) else max(-low, high)


# ---- Digests of ports' values as a sample keeps them, and comparisons with them
# A digest, a norm, the largest value and the leading values of each port are kept. Equal digests are a bitwise verdict;
# if digests differ, the numbers say how far the values are apart.

Row = Mapping[str, Any]
"""What a witness keeps of one port (`numbers_of`). The witness of a sample has the program's results in this form."""


def part_rows(capture: Capture, index: int) -> dict[PortKey, Row]:
    """Return the rows that the witness keeps of the results of Pair `index`, by port."""
    head = f"{capture.pairs[index].name} "
    kept = (capture.witness or {}).items()
    return {PortKey.from_text(text.removeprefix(head)): row for text, row in kept if text.startswith(head)}


def numbers_of(value: Tensor | None) -> Row:
    """Return the row of one port: its digest, dtype, shape, norm, largest value and leading values. For a sparse tensor
    the numbers are of its values, and the row also has digests of its indices (`places`)."""
    if value is None:
        return {"none": True}
    *places, kept = strided_parts(value.detach())
    kept = kept.resolve_conj().resolve_neg()
    flat = torch.view_as_real(kept).flatten() if kept.is_complex() else kept.flatten()
    # The norm of half-precision values may overflow, and integers have no norm.
    real = flat if flat.dtype in (torch.float32, torch.float64) else flat.double()
    norm = float(torch.linalg.vector_norm(real))
    # NaN has many bit patterns, and which one a kernel returns depends on the machine: the digest must not.
    kept = _canonical_nan(kept) if math.isnan(norm) else kept
    sparse: Row = {}
    if places:
        sparse = {"layout": str(value.layout)[6:], "values": list(kept.shape), "places": list(map(digest, places))}
    return {
        "digest": digest(join_sparse(value, [*places, kept]) if places else kept),
        "dtype": str(value.dtype)[6:],
        "shape": list(value.shape),
        **sparse,
        "norm": safe_number(norm),
        "max": safe_number(float(torch.linalg.vector_norm(real, math.inf))) if real.numel() else 0.0,
        "leading": [safe_number(float(x)) for x in real[:8].double()],
    }


def _canonical_nan(value: Tensor) -> Tensor:
    """Replace every NaN by the same NaN."""
    if not value.is_floating_point() or not torch.isnan(value).any():
        return value
    return torch.where(torch.isnan(value), torch.full_like(value, math.nan), value)


def compare_with_rows(rows: Mapping[PortKey, Row], results: Results) -> list[PortVerdict]:
    """Compare every port of `results` or `rows` with the row that a witness keeps of it."""
    keys = dict.fromkeys([*results, *rows])
    return [judge(key, results.get(key), rows.get(key)) for key in keys]


def judge(key: PortKey, value: Tensor | None, kept: Row | None) -> PortVerdict:
    """Return the verdict of one port: its value compared with the row that a witness keeps of it. Without equal
    digests, the error is the largest difference of a norm or number that was kept."""
    role, name = key
    # A row with `none` is of a gradient that was None.
    if value is None and kept is not None and kept.get("none"):
        return PortVerdict(name, role, "bitwise")
    if kept is None or value is None or kept.get("none"):
        return PortVerdict(name, role, "wrong", "only one side has it")
    now = numbers_of(value)
    if now["digest"] == kept["digest"]:
        return PortVerdict(name, role, "bitwise")
    if kind_of(now) != kind_of(kept):
        return PortVerdict(name, role, "wrong", f"{kind_of(now)} where the program returns {kind_of(kept)}")
    if now.get("places") != kept.get("places"):
        return PortVerdict(name, role, "wrong", "its indices are not the program's")
    error = max(
        _scaled_distance(now["norm"], kept["norm"], kept["norm"]),
        _scaled_distance(now["max"], kept["max"], kept["max"]),
    )
    for left, right in zip(now["leading"], kept["leading"], strict=True):
        error = max(error, _scaled_distance(left, right, kept["max"]))
    verdict = verdict_of_error(name, role, error, now["dtype"])
    return replace(verdict, detail=f"digest {now['digest']} is not {kept['digest']}; {verdict.detail}")


def kind_of(row: Row) -> str:
    """Return a row's dtype and shape as text; for a sparse tensor, also its layout and the shape of its values."""
    sparse = f" {row['layout']} of {row['values']} values" if "layout" in row else ""
    return f"{row['dtype']}{row['shape']}{sparse}"


def _scaled_distance(left: float | str, right: float | str, scale: float | str) -> float:
    """Return the difference of two kept numbers relative to a scale; 0 if they are equal or both NaN, infinity if else
    one of them is NaN or infinite. A row keeps NaN and Inf as text."""
    a, b, size = float(left), float(right), abs(float(scale))
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(size if math.isfinite(size) else abs(b), 1e-30)


# ---- Results of one step, and comparisons of two steps

Results = dict[PortKey, "Tensor | None"]
"""The outputs, mutations and gradients of a step, by port; None is a gradient that was not computed."""


def results_by_port(outputs: Mapping[str, Any], mutations: Mapping[str, Any], gradients: Mapping[str, Any]) -> Results:
    """Return results by the keys of their ports."""
    return keyed("output", outputs) | keyed("mutation", mutations) | keyed("gradient", gradients)


def with_witness(verdicts: Sequence[PortVerdict], witness: str) -> list[PortVerdict]:
    """Return the verdicts with this witness, which says what the ports were compared with."""
    return [replace(port, witness=witness) for port in verdicts]


def unproven_if_unsteady(port: PortVerdict, wanted: Results, again: Results) -> PortVerdict:
    """Return the verdict of a port, `unproven` instead of `wrong` if the program itself does not repeat the port's
    value: `wanted` and `again` are the program's results of two runs on the same inputs."""
    left, right = wanted.get(port.key), again.get(port.key)
    if port.verdict == "bitwise" or left is None or right is None or compare("", "", left, right).verdict == "bitwise":
        return port
    # Equal within the tolerance already, whether or not the program repeats its bits.
    if port.verdict == "close":
        return port
    return replace(port, verdict="unproven", detail=UNSTEADY)


def compare_results(results: Results, wanted: Results) -> list[PortVerdict]:
    """Compare each port that `results` or `wanted`, the program's results, has."""
    keys = dict.fromkeys([*results, *wanted])
    return [compare(key.name, key.role, results.get(key), wanted.get(key)) for key in keys]


def kept_results(reference: Any, results: Results, wanted: Results) -> Results:
    """Return those of `results` that can be compared: all, or, of a recorded step (`reference.partial`), which kept
    only some of its results, the ones in `wanted`. `reference` is the Capture's Origin, or the Origin of one Pair."""
    return {key: value for key, value in results.items() if key in wanted} if reference.partial else results


def difference_text(verdicts: Sequence[PortVerdict]) -> str:
    """Describe the first ports that differ from the program's; '' if none."""
    bad = [str(port) for port in verdicts if port.verdict in REFUTED]
    return "; ".join(bad[:2])

"""Two dumps of one region, compared edge by edge; and the passes of a dump as they are shown."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint.prove.results import compare
from backprint.tools.regions.dumps import (
    LATEST,
    check_dump,
    check_number,
    folders_of,
    number_as_json,
    parse_pass,
    parse_unreached,
    read_graph_json,
    read_passes,
)
from backprint.tools.regions.nouns import Flowed, NonfiniteOrigin, Pass, StackLine
from backprint.values.closeness import TOLERANCE
from backprint.values.statistics import Stats
from backprint.values.tree import strided_parts

# ---- The comparison: the first difference, how large it is, and edges that only one dump has


GOOD = ("bitwise", "close", "same")

MOST_NOTES = 5


@dataclass(frozen=True, slots=True)
class _ComparisonRow:
    """The comparison of an edge, input or root of two passes.

    `verdict` is `bitwise`, `close` or `differs`; from statistics alone `same`, `close` or `differs`; `missing` where
    one pass does not have it; `unproven` where no gradients were kept. `most` is the largest difference, and `error` is
    that relative to the largest absolute value.
    """

    index: int
    what: str
    name: str
    tensor: str
    verdict: str
    error: float | None = None
    most: float | None = None
    detail: str = ""
    line: str = ""

    @property
    def good(self) -> bool:
        """Whether the two agree."""
        return self.verdict in GOOD


@dataclass(frozen=True, slots=True)
class DumpComparison:
    """All rows in the order of the first dump's backward, the passes of each side, and the pairs compared.

    `notes` name the passes that have no counterpart, or are compared with a pass of another number.
    """

    rows: tuple[_ComparisonRow, ...]
    passes: tuple[int, int]
    pairs: int
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether everything agrees, and there was something to compare."""
        whole = self.passes == (self.pairs, self.pairs)
        return bool(self.rows) and whole and all(row.good for row in self.rows)

    @property
    def first(self) -> _ComparisonRow | None:
        """The first row in which the two differ."""
        return next((row for row in self.rows if row.verdict not in (*GOOD, "unproven")), None)

    @property
    def worst(self) -> _ComparisonRow | None:
        """The row with the largest relative error."""
        return max((row for row in self.rows if row.error is not None), key=lambda row: row.error or 0.0, default=None)


def compare_dumps(
    left: str | os.PathLike[str], right: str | os.PathLike[str], run_left: str = LATEST, run_right: str = LATEST
) -> DumpComparison:
    """Two dumps, of one run each."""
    check_dump(left)
    check_dump(right)
    return compare_passes(read_passes(left, run_left), read_passes(right, run_right))


def compare_passes(left: Sequence[Pass], right: Sequence[Pass]) -> DumpComparison:
    """Compare passes of the same number, so that bounded dumps are compared step by step; else in order."""
    ours, theirs = (
        {(region_pass.region, region_pass.index): region_pass for region_pass in side} for side in (left, right)
    )
    numbered = len(ours) == len(left) and len(theirs) == len(right)
    common = [key for key in ours if key in theirs] if numbered else []
    if common:
        pairs = [(ours[key], theirs[key]) for key in common]
        alone = [f"only the first has pass {key[1]} of {key[0]}" for key in ours if key not in theirs]
        notes = [*alone, *(f"only the second has pass {key[1]} of {key[0]}" for key in theirs if key not in ours)]
    else:
        pairs = list(zip(left, right, strict=False))
        notes = [
            f"pass {ours_pass.index} of the first is held against pass {theirs_pass.index} of the second"
            for ours_pass, theirs_pass in pairs
            if ours_pass.index != theirs_pass.index
        ]
    places = [key[1] for key in common] or list(range(len(pairs)))
    rows = [row for place, pair in zip(places, pairs, strict=True) for row in _compare_pass(place, *pair)]
    return DumpComparison(tuple(rows), (len(left), len(right)), len(pairs), _first_notes(notes))


def _first_notes(notes: list[str]) -> tuple[str, ...]:
    """Return the first few notes, and the number of the rest."""
    more = len(notes) - MOST_NOTES
    return (*notes[:MOST_NOTES], *((f"and {more} more like that",) if more > 0 else ()))


def _compare_pass(index: int, left: Pass, right: Pass) -> list[_ComparisonRow]:
    """Compare two passes: roots, edges, then inputs, in the order of the first; those of the second alone come last."""
    lines = {edge.name: str(line) for side in (right, left) for edge in side.edges if (line := side.where(edge))}
    rows = []
    kinds: tuple[tuple[str, Callable[[Pass], Sequence[Any]]], ...] = (
        ("root", lambda of: of.roots),
        ("edge", lambda of: of.edges),
        ("input", lambda of: of.inputs),
    )
    for what, parts_of in kinds:
        ours, theirs = ({side.name: side for side in parts_of(of)} for of in (left, right))
        for name in dict.fromkeys((*ours, *theirs)):
            row = _compare_flowed(index, what, name, ours.get(name), theirs.get(name), lines.get(name, ""))
            rows.append(row)
    return rows


def _compare_flowed(
    index: int, what: str, name: str, left: Flowed | None, right: Flowed | None, line: str
) -> _ComparisonRow:
    """Compare two gradients of the same name, of which one may be missing."""
    tensor = getattr(left or right, "tensor", "")
    if left is None or right is None:
        side = "second" if left is None else "first"
        return _ComparisonRow(index, what, name, tensor, "missing", detail=f"only the {side} has it", line=line)
    if left.shape != right.shape:
        detail = f"shape {list(left.shape)} in the first, {list(right.shape)} in the second"
        return _ComparisonRow(index, what, name, tensor, "differs", detail=detail, line=line)
    detail = f"{left.dtype} in the first, {right.dtype} in the second" if left.dtype != right.dtype else ""
    if left.gradient is not None and right.gradient is not None:
        return _ComparisonRow(
            index, what, name, tensor, *_compare_gradients(left.gradient, right.gradient, detail), line=line
        )
    if left.stats is not None and right.stats is not None:
        return _ComparisonRow(
            index,
            what,
            name,
            tensor,
            *_compare_stats(left.stats, right.stats, left.dtype, right.dtype, detail),
            line=line,
        )
    if getattr(left, "flows", True) != getattr(right, "flows", True):
        side = "first" if getattr(left, "flows", True) else "second"
        return _ComparisonRow(
            index, what, name, tensor, "differs", detail=f"a gradient flows in the {side} alone", line=line
        )
    if not getattr(left, "flows", True):
        return _ComparisonRow(index, what, name, tensor, "same", detail="nothing flows", line=line)
    return _ComparisonRow(
        index, what, name, tensor, "unproven", detail='no gradients kept: gradients="stats" or "values"', line=line
    )


def _compare_gradients(left: Tensor, right: Tensor, detail: str) -> tuple[str, float | None, float | None, str]:
    """Compare values: verdict, relative error, largest difference, and detail."""
    if left.dtype == right.dtype:
        port = compare("", "", right, left)
        if port.verdict == "bitwise":
            return "bitwise", 0.0, 0.0, ""
    if left.layout != right.layout:
        return "differs", None, None, f"{left.layout} in the first, {right.layout} in the second"
    a, b = (
        strided_parts(gradient.detach())[-1].resolve_conj().to(_comparison_dtype(gradient))
        for gradient in (left, right)
    )
    if a.shape != b.shape:
        return "differs", None, None, "its values are in other places"
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)):
        counts = [int((~torch.isfinite(gradient)).sum()) for gradient in (a, b)]
        return "differs", math.inf, math.inf, f"{counts[0]} NaN or Inf in the first, {counts[1]} in the second"
    apart = (a - b)[finite].abs()
    most = float(apart.max()) if apart.numel() else 0.0
    largest = float(a[finite].abs().max()) if apart.numel() else 0.0
    error = most / max(largest, 1e-30) if most else 0.0
    tolerance = max(TOLERANCE.get(str(gradient.dtype)[6:], 0.0) for gradient in (left, right))
    return ("close" if error <= tolerance else "differs"), error, most, detail


def _comparison_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which a tensor's values are compared."""
    return torch.complex128 if tensor.is_complex() else torch.float64


def _compare_stats(
    left: Stats, right: Stats, left_name: str, right_name: str, detail: str
) -> tuple[str, float | None, float | None, str]:
    """Compare statistics: norms, means, deviations and bounds; returns as `_compare_gradients` does."""
    if (left.nan, left.inf) != (right.nan, right.inf):
        counts = f"{left.nan} NaN, {left.inf} Inf in the first, {right.nan} and {right.inf} in the second"
        return "differs", math.inf, None, counts
    if left == right:
        return "same", 0.0, None, "by statistics"
    scale = max(abs(bound) for bound in (left.min or 0.0, left.max or 0.0, 1e-30))
    pairs = ((left.min, right.min), (left.max, right.max), (left.mean, right.mean), (left.std, right.std))
    error = max(abs((a or 0.0) - (b or 0.0)) / scale for a, b in pairs)
    if math.isfinite(left.norm) and math.isfinite(right.norm):
        error = max(error, abs(left.norm - right.norm) / max(abs(left.norm), 1e-30))
    tolerance = max(TOLERANCE.get(bound, 0.0) for bound in (left_name, right_name))
    verdict = "close" if error <= tolerance else "differs"
    return verdict, error, None, "; ".join(filter(None, (detail, "by statistics")))


# ---- A dump as it is shown: its passes, the first bad one, and a pass as plain values for JSON


def shown_passes(dump: Path, run: str, index: int | None = None) -> Iterator[Pass]:
    """Yield the passes of a dump without their gradients, one in memory at a time; or those with one number."""
    folders = folders_of(dump, run)
    known = []
    for folder in folders:
        content = read_graph_json(folder)
        if not content.get("reached", True):
            continue
        known.append(content.get("index"))
        if index is None or known[-1] == index:
            yield parse_pass(content, folder)
    if index is not None:
        check_number(dump, index, known)


def shown_unreached(dump: Path, run: str) -> Iterator[str]:
    """Yield a text for each region of a dump that no pass has reached: its operators, and the lines that ran them."""
    for folder in folders_of(dump, run, unreached=True):
        content = read_graph_json(folder)
        if not content.get("reached", True):
            yield "\n".join(_unreached_lines(content, folder))


def _unreached_lines(content: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield the lines on a region that no pass has reached."""
    operators, origin = parse_unreached(content, folder)
    yield f"{content['region']}: no backward pass has reached it"
    if isinstance(origin, NonfiniteOrigin):
        yield str(origin)
    yield from (f"  {operator}" for operator in operators) if operators else ("  no operator ran",)
    yield "a gradient reaches an operator whose result the loss depends on, and that ran with gradients enabled"


def bad_part(region_pass: Pass) -> Pass:
    """Return a pass with the gradients that have NaN or Inf alone, the nodes at their ends, and the one that they come
    from."""
    edges = tuple(edge for edge in region_pass.edges if is_bad(edge))
    inputs = tuple(part for part in region_pass.inputs if is_bad(part))
    roots = tuple(part for part in region_pass.roots if is_bad(part))
    ends = {name for edge in edges for name in (edge.source, edge.target)}
    ends |= {part.node for part in inputs} | {root.node for root in roots}
    ends |= {region_pass.origin.node} if isinstance(region_pass.origin, NonfiniteOrigin) else set()
    nodes = tuple(node for node in region_pass.nodes if node.name in ends)
    return replace(region_pass, nodes=nodes, edges=edges, inputs=inputs, roots=roots)


def is_bad(part: Flowed) -> bool:
    """Whether a gradient has NaN or Inf."""
    return part.stats is not None and part.stats.bad


def pass_as_dict(region_pass: Pass) -> dict[str, Any]:
    """Return a pass as plain values, for JSON: NaN and Inf are texts, gradients are left out."""
    origin = region_pass.origin
    return {
        "region": region_pass.region,
        "run": region_pass.run,
        "pass": region_pass.index,
        "time": region_pass.time,
        "seconds": region_pass.seconds,
        "gradients": region_pass.level,
        "bad": region_pass.bad,
        "error": region_pass.error,
        "notes": list(region_pass.notes),
        "environment": dict(region_pass.environment),
        "origin": with_line(asdict(origin), origin.line) if isinstance(origin, NonfiniteOrigin) else None,
        "roots": [{"name": part.name, "node": part.node, **_flowed_dict(part)} for part in region_pass.roots],
        "nodes": [
            with_line(
                {
                    "name": node.name,
                    "kind": node.kind,
                    "module": node.module,
                    "operators": list(node.ops),
                    "inside": node.inside,
                    "leaf": node.leaf,
                    "tensors": list(node.tensors),
                    "opaque": node.opaque,
                    "stack": [line._asdict() for line in node.stack],
                },
                node.line,
            )
            for node in region_pass.nodes
        ],
        "edges": [
            {
                "name": edge.name,
                "source": edge.source,
                "target": edge.target,
                "tensor": edge.tensor,
                "flows": edge.flows,
                **_flowed_dict(edge),
            }
            for edge in region_pass.edges
        ],
        "inputs": [
            {"name": part.name, "node": part.node, "tensor": part.tensor, **_flowed_dict(part)}
            for part in region_pass.inputs
        ],
    }


def with_line(content: dict[str, Any], line: StackLine | None) -> dict[str, Any]:
    """Return an object with the line of the user's program."""
    return content | {"line": line._asdict() if line is not None else None}


def _flowed_dict(part: Flowed) -> dict[str, Any]:
    """Return the shape, the dtype, the device and the statistics of a gradient."""
    stats = {name: number_as_json(value) for name, value in asdict(part.stats).items()} if part.stats else None
    return {"shape": list(part.shape), "dtype": part.dtype, "device": part.device, "stats": stats}

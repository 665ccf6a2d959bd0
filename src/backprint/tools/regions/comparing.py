"""Two dumps of one region, compared edge by edge by the rule for results of Captures (`prove/results`)."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from backprint.graph.verdicts import GOOD, REFUTED, PortVerdict
from backprint.judge.closeness import NOTHING, distance
from backprint.prove.results import compare, verdict_of_error
from backprint.tools.regions.dumps import read_passes
from backprint.tools.regions.nouns import Flowed, Pass
from backprint.values.statistics import Stats
from backprint.values.tree import strided_parts

MOST_NOTES = 5


@dataclass(frozen=True, slots=True, repr=False)
class GradientVerdict(PortVerdict):
    """A gradient of two passes with the number `index`, compared; `role` is `root`, `edge` or `input`.

    It is `bitwise` only by its values. By statistics alone it is `close` or `wrong`, and `unproven` where neither was
    kept. `tensor` is the forward tensor of the gradient, and `line` the line of the edge.
    """

    index: int = 0
    tensor: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class DumpComparison:
    """All rows in the order of the first dump's backward, the passes of each side, and the pairs compared.

    `notes` name the passes that have no counterpart, or are compared with a pass of another number.
    """

    rows: tuple[GradientVerdict, ...]
    passes: tuple[int, int]
    pairs: int
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether everything agrees, and there was something to compare."""
        whole = self.passes == (self.pairs, self.pairs)
        return bool(self.rows) and whole and all(row.verdict in GOOD for row in self.rows)

    def _repr_html_(self) -> str:
        from backprint.table.notebook import html_of
        from backprint.table.nouns import Report, Table

        columns = {"gradient": "name", "verdict": "word", "error": "number", "line": "text", "detail": "text"}
        rows = [(str(row.key), row.verdict, row.error, row.line, row.detail) for row in self.rows]
        answer = f"{len(rows)} gradients of {self.pairs} passes compared"
        return html_of(Report("", answer, (), Table("", columns, rows)), self.notes)

    @property
    def first(self) -> GradientVerdict | None:
        """The first row in which the two differ."""
        return next((row for row in self.rows if row.verdict in REFUTED), None)

    @property
    def worst(self) -> GradientVerdict | None:
        """The row with the largest relative error; None if there is no error."""
        return max((row for row in self.rows if row.error), key=lambda row: row.error, default=None)


def compare_dumps(
    left: str | os.PathLike[str], right: str | os.PathLike[str], run_left: str = "latest", run_right: str = "latest"
) -> DumpComparison:
    """Compare two dumps, of one run each."""
    return compare_passes(read_passes(left, run_left), read_passes(right, run_right))


def compare_passes(left: Sequence[Pass], right: Sequence[Pass]) -> DumpComparison:
    """Compare passes of one region and number, so that dumps that keep some passes are compared step by step. Where no
    number is in both, or one is there twice (of several runs), compare them in order."""
    ours, theirs = (
        {(region_pass.region, region_pass.index): region_pass for region_pass in side} for side in (left, right)
    )
    are_unique = len(ours) == len(left) and len(theirs) == len(right)
    common = [key for key in ours if key in theirs] if are_unique else []
    if common:
        pairs = [(key[1], ours[key], theirs[key]) for key in common]
        notes = [
            f"only the {side} has pass {key[1]} of {key[0]}"
            for side, keys, others in (("first", ours, theirs), ("second", theirs, ours))
            for key in keys
            if key not in others
        ]
    else:
        pairs = [(place, *pair) for place, pair in enumerate(zip(left, right, strict=False))]
        notes = [
            f"pass {one.index} of the first is held against pass {other.index} of the second"
            for _, one, other in pairs
            if one.index != other.index
        ]
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"and {len(notes) - MOST_NOTES} more like that"]
    rows = tuple(row for pair in pairs for row in _compare_pass(*pair))
    return DumpComparison(rows, (len(left), len(right)), len(pairs), tuple(notes))


def _compare_pass(index: int, left: Pass, right: Pass) -> list[GradientVerdict]:
    """Return a row for each gradient of two passes: roots, edges, then inputs, each in the order of the first; those of
    the second alone come last of their kind."""
    lines = {edge.name: str(line) for side in (right, left) for edge in side.edges if (line := side.where(edge))}
    kinds: tuple[tuple[str, Sequence[Any], Sequence[Any]], ...] = (
        ("root", left.roots, right.roots),
        ("edge", left.edges, right.edges),
        ("input", left.inputs, right.inputs),
    )
    rows = []
    for role, of_left, of_right in kinds:
        ours, theirs = ({flowed.name: flowed for flowed in side} for side in (of_left, of_right))
        for name in dict.fromkeys((*ours, *theirs)):
            one, other = ours.get(name), theirs.get(name)
            port, tensor = _compare_flowed(name, role, one, other), getattr(one or other, "tensor", "")
            rows.append(
                GradientVerdict(
                    name, role, port.verdict, port.detail, port.error, None, "", index, tensor, lines.get(name, "")
                )
            )
    return rows


def _compare_flowed(name: str, role: str, left: Flowed | None, right: Flowed | None) -> PortVerdict:
    """Compare two gradients of the same name, of which one may be missing."""
    if left is None or right is None:
        return PortVerdict(name, role, "wrong", f"only the {'second' if left is None else 'first'} has it")
    ours, theirs = (getattr(side, "flows", True) for side in (left, right))
    if ours != theirs:
        return PortVerdict(name, role, "wrong", f"a gradient flows in the {'first' if ours else 'second'} alone")
    if left.shape != right.shape:
        detail = f"shape {list(left.shape)} in the first, {list(right.shape)} in the second"
        return PortVerdict(name, role, "wrong", detail)
    if not ours:
        return PortVerdict(name, role, "bitwise", "nothing flows")
    by_values = left.gradient is not None and right.gradient is not None
    if by_values and left.gradient.layout != right.gradient.layout:
        detail = f"{left.gradient.layout} in the first, {right.gradient.layout} in the second"
        return PortVerdict(name, role, "wrong", detail)
    if by_values and left.dtype == right.dtype:
        port = compare(name, role, right.gradient, left.gradient)
        if not port.error or not math.isfinite(port.error):
            return port
        # Neither side can be run again, so what rounding explains is not known.
        return verdict_of_error(name, role, _distance(right.gradient, left.gradient), left.dtype)
    if by_values:
        port = verdict_of_error(name, role, _distance(right.gradient, left.gradient), left.dtype, right.dtype)
    elif left.stats is not None and right.stats is not None:
        error = _distance_of_stats(left.stats, right.stats)
        port = verdict_of_error(name, role, error, left.dtype, right.dtype)
        port = replace(port, detail=f"by statistics: {port.detail}")
    else:
        return PortVerdict(name, role, "unproven", 'no gradients kept: gradients="stats" or "values"')
    if left.dtype == right.dtype:
        return port
    return replace(port, detail=f"{left.dtype} in the first, {right.dtype} in the second; {port.detail}")


def _distance(left: Any, right: Any) -> float:
    """Return how far two gradients of different dtypes are apart; infinity where they cannot be compared."""
    (*places, left), (*others, right) = strided_parts(left), strided_parts(right)
    comparable = len(places) == len(others) and left.shape == right.shape and left.is_complex() == right.is_complex()
    return distance(left, right) if comparable and all(map(_same, places, others)) else math.inf


def _same(left: Any, right: Any) -> bool:
    return bool(left.equal(right))


def _distance_of_stats(left: Stats, right: Stats) -> float:
    """Return the largest difference of two gradients' statistics, relative to the first's largest value."""
    if (left.nan, left.inf) != (right.nan, right.inf):
        return math.inf
    scale = max(abs(left.min or 0.0), abs(left.max or 0.0), NOTHING)
    pairs = ((left.min, right.min), (left.max, right.max), (left.mean, right.mean), (left.std, right.std))
    errors = [abs((ours or 0.0) - (theirs or 0.0)) / scale for ours, theirs in pairs]
    if math.isfinite(left.norm) and math.isfinite(right.norm):
        errors.append(abs(left.norm - right.norm) / max(abs(left.norm), NOTHING))
    return max(errors)

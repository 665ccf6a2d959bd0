"""Two dumps of one region, compared edge by edge by the rule for results of Captures (`prove/results`).

A Pass is the record of one backward call; its roots, edges and inputs are gradients (Flowed), each with the shape, the
dtype and, as far as they were kept, its statistics and its values (`gradient`). A PortVerdict is the result of one
comparison: a name, a role, a word such as `bitwise` or `wrong`, a detail, and the relative error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
    """All rows in the order of the first dump's backward, how many passes each dump has, and how many pairs of passes
    were compared.

    `notes` name the passes that have no counterpart, or are compared with a pass of another number.
    """

    rows: tuple[GradientVerdict, ...]
    passes: tuple[int, int]
    pairs: int
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether all gradients agree, every pass of both dumps was compared, and there was something to compare."""
        all_are_compared = self.passes == (self.pairs, self.pairs)
        return bool(self.rows) and all_are_compared and all(row.verdict in GOOD for row in self.rows)

    def _repr_html_(self) -> str:
        from backprint.table.notebook import html_of
        from backprint.table.nouns import Report, Table

        columns = {"gradient": "name", "verdict": "word", "error": "number", "line": "text", "detail": "text"}
        rows = [(str(row.key), row.verdict, row.error, row.line, row.detail) for row in self.rows]
        answer = f"{len(rows)} gradients of {self.pairs} passes compared"
        table = Table(title="", columns=columns, rows=rows)
        return html_of(Report(title="", answer=answer, tables=(), rows=table), self.notes)

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


class _PairOfPasses(NamedTuple):
    """A pass of each dump that are compared, and the number of the pair in the rows: that of the passes, or their place
    if they are compared in order."""

    number: int
    left: Pass
    right: Pass


def compare_passes(left: Sequence[Pass], right: Sequence[Pass]) -> DumpComparison:
    """Compare passes of one region and number, so that dumps that keep some passes are compared step by step. Where no
    number is in both, or one is there twice (of several runs), compare them in order."""
    left_by_number, right_by_number = (
        {(region_pass.region, region_pass.index): region_pass for region_pass in side} for side in (left, right)
    )
    are_unique = len(left_by_number) == len(left) and len(right_by_number) == len(right)
    common = [key for key in left_by_number if key in right_by_number] if are_unique else []
    if common:
        pairs = [_PairOfPasses(key[1], left_by_number[key], right_by_number[key]) for key in common]
        notes = [
            f"only the {side} has pass {index} of {region}"
            for side, keys, others in (
                ("first", left_by_number, right_by_number),
                ("second", right_by_number, left_by_number),
            )
            for region, index in keys
            if (region, index) not in others
        ]
    else:
        # Not strict: the passes that one side has more are not compared, and `DumpComparison.good` is then False.
        pairs = [_PairOfPasses(place, *pair) for place, pair in enumerate(zip(left, right, strict=False))]
        notes = [
            f"pass {pair.left.index} of the first is held against pass {pair.right.index} of the second"
            for pair in pairs
            if pair.left.index != pair.right.index
        ]
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"and {len(notes) - MOST_NOTES} more like that"]
    rows = tuple(row for pair in pairs for row in _compare_pass(pair))
    return DumpComparison(rows, (len(left), len(right)), len(pairs), tuple(notes))


def _compare_pass(pair: _PairOfPasses) -> list[GradientVerdict]:
    """Return a row for each gradient of two passes: roots, edges, then inputs, each in the order of the first; those of
    the second alone come last of their kind."""
    number, left, right = pair
    # By the name of an edge, the first pass last, because its lines replace those of the second.
    lines = {edge.name: str(line) for side in (right, left) for edge in side.edges if (line := side.where(edge))}
    kinds: tuple[tuple[str, Sequence[Any], Sequence[Any]], ...] = (
        ("root", left.roots, right.roots),
        ("edge", left.edges, right.edges),
        ("input", left.inputs, right.inputs),
    )
    rows = []
    for role, of_left, of_right in kinds:
        left_by_name, right_by_name = ({flowed.name: flowed for flowed in side} for side in (of_left, of_right))
        for name in dict.fromkeys((*left_by_name, *right_by_name)):
            one, other = left_by_name.get(name), right_by_name.get(name)
            port = _compare_flowed(name, role, one, other)
            rows.append(
                GradientVerdict(
                    name,
                    role,
                    port.verdict,
                    port.detail,
                    port.error,
                    index=number,
                    tensor=getattr(one or other, "tensor", ""),  # a root has none: its name is the tensor's
                    line=lines.get(name, ""),
                )
            )
    return rows


def _compare_flowed(name: str, role: str, left: Flowed | None, right: Flowed | None) -> PortVerdict:
    """Compare two gradients of the same name, of which one may be missing: first what can be said without their
    numbers, then by values, or by statistics if a side has no values."""
    if left is None or right is None:
        return PortVerdict(name, role, "wrong", f"only the {'second' if left is None else 'first'} has it")
    # Only an Edge has `flows`: False where autograd passed None.
    flows_left, flows_right = (getattr(side, "flows", True) for side in (left, right))
    if flows_left != flows_right:
        return PortVerdict(name, role, "wrong", f"a gradient flows in the {'first' if flows_left else 'second'} alone")
    if left.shape != right.shape:
        detail = f"shape {list(left.shape)} in the first, {list(right.shape)} in the second"
        return PortVerdict(name, role, "wrong", detail)
    if not flows_left:
        return PortVerdict(name, role, "bitwise", "nothing flows")
    if left.gradient is not None and right.gradient is not None:
        return _compare_values(name, role, left, right)
    if left.stats is None or right.stats is None:
        return PortVerdict(name, role, "unproven", 'no gradients kept: gradients="stats" or "values"')
    error = _distance_of_stats(left.stats, right.stats)
    port = verdict_of_error(name, role, error, left.dtype, right.dtype)
    return _with_dtypes(replace(port, detail=f"by statistics: {port.detail}"), left, right)


def _compare_values(name: str, role: str, left: Flowed, right: Flowed) -> PortVerdict:
    """Compare two gradients of one shape by their values, which both sides have kept. The first dump is the one that
    is expected, and errors are relative to it."""
    if left.gradient.layout != right.gradient.layout:
        detail = f"{left.gradient.layout} in the first, {right.gradient.layout} in the second"
        return PortVerdict(name, role, "wrong", detail)
    if left.dtype == right.dtype:
        port = compare(name, role, right.gradient, left.gradient)
        if not port.error or not math.isfinite(port.error):
            return port
        # A Capture would be run again to see how much rounding explains. Neither backward can be, so the error is held
        # against the tolerance of the dtype.
    port = verdict_of_error(name, role, _distance(right.gradient, left.gradient), left.dtype, right.dtype)
    return _with_dtypes(port, left, right)


def _with_dtypes(port: PortVerdict, left: Flowed, right: Flowed) -> PortVerdict:
    """Return a verdict whose detail names the two dtypes, if they differ."""
    if left.dtype == right.dtype:
        return port
    return replace(port, detail=f"{left.dtype} in the first, {right.dtype} in the second; {port.detail}")


def _distance(left: Any, right: Any) -> float:
    """Return how far two gradients, perhaps of different dtypes, are apart, relative to the largest value of `right`.
    Infinity where they cannot be compared: sparse tensors with other indices, or one that is complex and one not."""
    # The last part of a sparse tensor is its values, those before are its indices. A dense tensor is its only part.
    (*indices, left), (*other_indices, right) = strided_parts(left), strided_parts(right)
    comparable = (
        len(indices) == len(other_indices)
        and left.shape == right.shape
        and left.is_complex() == right.is_complex()
        and all(ours.equal(theirs) for ours, theirs in zip(indices, other_indices, strict=True))
    )
    return distance(left, right) if comparable else math.inf


def _distance_of_stats(left: Stats, right: Stats) -> float:
    """Return the largest difference of two gradients' statistics, relative to the first's largest value, or to its norm
    of the norms. Infinity if they have other numbers of NaN or Inf."""
    if (left.nan, left.inf) != (right.nan, right.inf):
        return math.inf
    scale = max(abs(left.min or 0.0), abs(left.max or 0.0), NOTHING)  # NOTHING: a tiny number, not to divide by 0
    pairs = ((left.min, right.min), (left.max, right.max), (left.mean, right.mean), (left.std, right.std))
    # A statistic is None where no element is finite: on both sides, as both have equally many NaN and Inf.
    errors = [abs((ours or 0.0) - (theirs or 0.0)) / scale for ours, theirs in pairs]
    if math.isfinite(left.norm) and math.isfinite(right.norm):
        errors.append(abs(left.norm - right.norm) / max(abs(left.norm), NOTHING))
    return max(errors)

"""Curves: a line of a picture as straight pieces and smooth ones, and as the path of an SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from backprint.drawing.shapes import DrawnLine, Point

ROUND = 5.0
"""The radius of a corner."""

Curve = tuple[Point, Point, Point, Point]
"""A cubic curve: its begin, its two control points and its end."""


def curves_of(line: DrawnLine) -> Iterator[Curve]:
    """Yield the pieces of a line: straight ones up, down and across, and between them smooth ones, which go on in the
    direction of their neighbors. A bridge begins and ends across, a flow up or down."""
    pieces = list(pairwise(line.points))
    for count, (start, end) in enumerate(pieces):
        if is_straight(start, end):
            yield start, start, end, end
        else:
            middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
            upright = [is_upright(*pieces[each]) if 0 <= each < len(pieces) else line.kind != "saved"
                       for each in (count - 1, count + 1)]  # fmt: skip
            first = (start[0], middle[1]) if upright[0] else (middle[0], start[1])
            yield start, first, (end[0], middle[1]) if upright[1] else (middle[0], end[1]), end


def is_straight(start: Point, end: Point) -> bool:
    """Whether a piece runs up, down or across."""
    return start[0] == end[0] or start[1] == end[1]


def is_upright(start: Point, end: Point) -> bool:
    """Whether a piece runs up or down."""
    return start[0] == end[0]


def turns(start: Point, corner: Point, end: Point) -> bool:
    """Whether two straight pieces meet in a corner."""
    return is_straight(corner, end) and is_upright(start, corner) != is_upright(corner, end)


def point_on(curve: Curve, share: float) -> Point:
    """Return the point of a curve at a share of its way."""
    rest = 1 - share
    weights = rest**3, 3 * rest * rest * share, 3 * rest * share * share, share**3
    x, y = (sum(weight * point[axis] for weight, point in zip(weights, curve, strict=True)) for axis in (0, 1))
    return x, y


def path_of(line: DrawnLine) -> str:
    """Return a line as a path of SVG, with round corners between straight pieces."""
    curves = list(curves_of(line))
    path = f"M{point_text(curves[0][0])}"
    for count, (start, first, second, end) in enumerate(curves):
        after = curves[count + 1] if count + 1 < len(curves) else None
        if not is_straight(start, end):
            path += f"C{point_text(first)} {point_text(second)} {point_text(end)}"
        elif after is not None and turns(start, end, after[3]):
            path += f"L{towards(end, start)}Q{point_text(end)} {towards(end, after[3])}"
        else:
            path += f"L{point_text(end)}"
    return path


def point_text(point: Point) -> str:
    """Return a point as SVG has it."""
    return f"{point[0]:.1f} {point[1]:.1f}"


def towards(start: Point, end: Point) -> str:
    """Return the point at which a corner begins: on the way from it to another, and no farther than half of it."""
    length = math.dist(start, end)
    share = min(ROUND, length / 2) / length if length else 0.0
    return point_text((start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share))

"""The lines of a picture: flows between units, and bridges across the gutter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backprint.amounts import amount
from backprint.drawing.drawn import DrawnPair
from backprint.drawing.flows import OUTSIDE
from backprint.drawing.frames import frame_unit
from backprint.drawing.rows import BridgeLine, FlowLine
from backprint.drawing.shapes import BOTTOM, GAP, GUTTER, HEAD, LANE, SLOT, DrawnBox, DrawnLine, Point

NEAR, STEP, BUS = 5.0, 2.0, 12.0
"""How far from a row a flow turns into the channel, how much more for each slot, and how far from it a bridge runs that
passes other units of the row."""

CORNER = 10.0
"""How far from the corner of a step such a bridge begins and ends."""


def port_x(box: DrawnBox, side: str) -> float:
    """Return where the flows of a side enter and leave a box: in the middle of the lane."""
    aside = (GUTTER + LANE) / 2
    return box.gutter - aside if side == "forward" else box.gutter + aside


@dataclass(frozen=True, slots=True)
class LineEnd:
    """Where a flow begins or ends, the edge of the row there, and whether it is the lower one."""

    at: Point
    edge: float
    is_below: bool

    def turn(self, slot: int) -> float:
        """Return how high a flow runs to its slot."""
        away = NEAR + STEP * (slot % 4)
        return self.edge + away if self.is_below else self.edge - away


@dataclass(frozen=True, slots=True)
class Lines:
    """Makes the lines in an open frame, whose units are `placed`, in rows from and to the `bands` of each unit."""

    drawn: DrawnPair
    box: DrawnBox
    placed: Mapping[int, DrawnBox]
    bands: Mapping[int, tuple[float, float]]

    def flow(self, side: str, line: FlowLine) -> DrawnLine:
        """Return a flow: down on the forward's side, up on the backward's."""
        down = side == "forward"
        start = self.end_of(line.source, side, leaves_below=down, leaves=True)
        end = self.end_of(line.target, side, leaves_below=down, leaves=False)
        inner, ends = OUTSIDE not in (line.source, line.target), self.ends(line.target)
        mark = self.drawn.marks.get((frame_unit(self.box.unit), int(not down), line.source, line.target))
        if line.slot < 0:
            straight = without_repeats((start.at, *self.bend(side, start, end), end.at))
            text = (mark.short if mark else line.spec) if inner else ""
            return DrawnLine(side, straight, text, line.count, ends=ends, mark=mark)
        out, back = start.turn(line.slot), end.turn(line.slot)
        x = self.channel(side, min(out, back), max(out, back), line.slot)
        points = (start.at, (start.at[0], out), (x, out), (x, back), (end.at[0], back), end.at)
        return DrawnLine(side, points, "", line.count, ends=ends, mark=mark)

    def bend(self, side: str, start: LineEnd, end: LineEnd) -> tuple[Point, Point]:
        """Return the ends of the part of a flow that may run aslant: next to the row that is not in the main lane. Rows
        that it passes may have steps of the other side."""
        (x, first), (to, last) = (start.at[0], start.edge), (end.at[0], end.edge)
        down = GAP if last > first else -GAP
        if abs(last - first) <= GAP or x == to:
            return (x, first), (to, last)
        if to == port_x(self.box, side):
            return (x, first), (to, first + down)
        return (x, last - down), (to, last)

    def ends(self, place: int) -> bool:
        """Whether a flow ends at a unit."""
        return place != OUTSIDE and not self.placed[place].is_open

    def channel(self, side: str, top: float, bottom: float, slot: int) -> float:
        """Return where a slot of the channel runs: beside the outermost of the units that it passes."""
        beside = (place for place, (first, last) in self.bands.items() if first < bottom and last > top)
        passed = [self.placed[place] for place in beside]
        if side == "forward":
            outer = min((min([box.x, *(pill.x for pill in box.pills)]) for box in passed), default=self.box.gutter)
            return min(outer, port_x(self.box, side)) - (slot + 1) * SLOT
        ends = (max([box.x + box.width, *(pill.x + pill.width for pill in box.pills)]) for box in passed)
        return max(max(ends, default=self.box.gutter), port_x(self.box, side)) + (slot + 1) * SLOT

    def end_of(self, place: int, side: str, leaves_below: bool, leaves: bool) -> LineEnd:
        """Return where a flow begins or ends."""
        below = leaves_below == leaves
        if place == OUTSIDE:
            x, box = port_x(self.box, side), self.box
            return LineEnd((x, box.y), box.y + HEAD, True) if below else LineEnd((x, box.bottom), box.bottom, False)
        box, (top, bottom) = self.placed[place], self.bands[place]
        x = port_x(box, side)
        return LineEnd((x, box.bottom), bottom, True) if below else LineEnd((x, box.y), top, False)

    def bridges(self, lines: Sequence[BridgeLine]) -> Iterator[DrawnLine]:
        """Yield what is saved. The bytes of a step's value stand once, where the first line of it begins."""
        told: set[int] = set()
        for line in lines:
            begins = line.source != OUTSIDE and line.source not in told and not self.placed[line.source].is_open
            if begins and self.placed[line.source].unit >= 0:
                told.add(line.source)
            yield self.bridge(line, amount(line.bytes) if line.bytes and begins else "")

    def bridge(self, line: BridgeLine, text: str) -> DrawnLine:
        """Return what is saved between two units, or from or to the outside."""
        before = self.leaving(line.source)
        after = self.arriving(line.target, before[-1][1])
        return DrawnLine("saved", without_repeats((*before, *after)), text, line.count, line.bytes)

    def leaving(self, place: int) -> tuple[Point, ...]:
        """Return how a bridge leaves a unit, up to the gutter: below its row, where other units are in the way."""
        gutter = self.box.gutter
        if place == OUTSIDE:
            return (gutter, self.box.y), (gutter, self.box.y + HEAD)
        box, bottom = self.placed[place], self.bands[place][1]
        if box.unit < 0:
            return self.around(box.gutter, box.bottom, bottom + BUS, gutter)
        if self.is_clear(place):
            return ((box.x + box.width, box.middle),)
        return self.around(box.x + box.width - CORNER, box.bottom, bottom + BUS, gutter - GUTTER / 2)

    def arriving(self, place: int, height: float) -> tuple[Point, ...]:
        """Return how a bridge that comes from a height reaches a unit, from the gutter on."""
        gutter = self.box.gutter
        if place == OUTSIDE:
            return (gutter, self.box.bottom - BOTTOM), (gutter, self.box.bottom)
        box, (top, bottom) = self.placed[place], self.bands[place]
        if box.unit < 0:
            return self.around(box.gutter, box.y, top - BUS, gutter)[::-1]
        if self.is_clear(place):
            return ((box.x, box.middle),)
        end, run = (box.y, top - BUS) if height <= top else (box.bottom, bottom + BUS)
        return self.around(box.x + CORNER, end, run, gutter + GUTTER / 2)[::-1]

    def around(self, x: float, y: float, run: float, to: float) -> tuple[Point, ...]:
        """Return the way from a unit to the space beside its row, and there to the gutter."""
        return ((x, y), (x, run)) if x == to else ((x, y), (x, run), (to, run))

    def is_clear(self, place: int) -> bool:
        """Whether nothing stands between a step and the gutter."""
        box, gutter = self.placed[place], self.box.gutter
        low, high = sorted((box.x + box.width / 2, gutter))
        row = (other for each, other in self.placed.items() if self.bands[each] == self.bands[place] and each != place)
        return not any(low < other.x + other.width / 2 < high for other in row)


def without_repeats(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return points without those that are equal to the one before them."""
    return tuple(point for count, point in enumerate(points) if not count or point != points[count - 1])


def folded_bridge(drawn: DrawnPair, number: int, box: DrawnBox) -> Iterator[DrawnLine]:
    """Yield the bridge of a frame that is not open, if it saves something."""
    saved = drawn.frame_costs[number].saved_bytes
    if saved:
        start, end = (box.gutter - GUTTER / 2, box.middle), (box.gutter + GUTTER / 2, box.middle)
        yield DrawnLine("saved", (start, end), amount(saved), 1, saved)


def through_loop(drawn: DrawnPair, number: int, box: DrawnBox, inner: DrawnBox) -> Iterator[DrawnLine]:
    """Yield the lines between the border of a loop and the turn of it that is shown: where flows go on in the turn."""
    if inner.unit >= 0 or drawn.layout_of_frame[frame_unit(inner.unit)] < 0:
        return
    layout = drawn.layouts[drawn.layout_of_frame[frame_unit(inner.unit)]]
    for kind, lines in (("forward", layout.left), ("backward", layout.right), ("saved", layout.bridges)):
        x = box.gutter if kind == "saved" else port_x(inner, kind)
        above, below = ((x, box.y), (x, inner.y)), ((x, inner.bottom), (x, box.bottom))
        enters, leaves = (below[::-1], above[::-1]) if kind == "backward" else (above, below)
        size = max((line.bytes for line in layout.bridges), default=0) if kind == "saved" else 0
        if any(line.source == OUTSIDE for line in lines):
            yield DrawnLine(kind, enters, bytes=size, ends=not inner.is_open)
        if any(line.target == OUTSIDE for line in lines):
            yield DrawnLine(kind, leaves, bytes=size, ends=False)

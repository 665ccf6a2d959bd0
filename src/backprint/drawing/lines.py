"""The lines of a picture: flows between units, and bridges across the gutter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from backprint.amounts import amount
from backprint.drawing.drawn import DrawnPair
from backprint.drawing.flows import OUTSIDE
from backprint.drawing.frames import frame_unit
from backprint.drawing.rows import BridgeLine, FlowLine
from backprint.drawing.shapes import GUTTER, HEAD, LANE, SLOT, DrawnBox, DrawnLine, Point

NEAR = 5.0
"""How far from a row a line turns into the channel."""


def port_x(box: DrawnBox, side: str) -> float:
    """Return where the flows of a side enter and leave a box."""
    if box.unit >= 0:
        return box.x + box.width / 2
    aside = (GUTTER + LANE) / 2
    return box.gutter - aside if side == "forward" else box.gutter + aside


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
        start, turn_out = self.end_of(line.source, side, leaves_below=down, leaves=True)
        end, turn_in = self.end_of(line.target, side, leaves_below=down, leaves=False)
        inner, ends = OUTSIDE not in (line.source, line.target), self.ends(line.target)
        mark = self.drawn.marks.get((frame_unit(self.box.unit), int(not down), line.source, line.target))
        if line.slot < 0:
            return DrawnLine(
                side,
                (start, end),
                (mark.short if mark else line.spec) if inner else "",
                line.count,
                ends=ends,
                mark=mark,
            )
        x = self.channel(side, min(turn_out, turn_in), max(turn_out, turn_in), line.slot)
        points = (start, (start[0], turn_out), (x, turn_out), (x, turn_in), (end[0], turn_in), end)
        return DrawnLine(side, points, "", line.count, ends=ends, mark=mark)

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

    def end_of(self, place: int, side: str, leaves_below: bool, leaves: bool) -> tuple[Point, float]:
        """Return where a flow begins or ends, and how high it runs before that."""
        below = leaves_below == leaves
        if place == OUTSIDE:
            x = port_x(self.box, side)
            below = not below
            y = self.box.bottom if below else self.box.y
            return (x, y), y - NEAR if below else y + HEAD + NEAR
        box, (top, bottom) = self.placed[place], self.bands[place]
        return (port_x(box, side), box.bottom if below else box.y), bottom + NEAR if below else top - NEAR

    def bridge(self, line: BridgeLine) -> DrawnLine:
        """Return what is saved between two units, or from or to the outside."""
        gutter = self.box.gutter
        start = (gutter, self.box.y) if line.source == OUTSIDE else self.bridge_end(line.source, True)
        end = (gutter, self.box.bottom) if line.target == OUTSIDE else self.bridge_end(line.target, False)
        return DrawnLine("saved", (start, end), amount(line.bytes) if line.bytes else "", line.count, line.bytes)

    def bridge_end(self, place: int, leaves: bool) -> Point:
        """Return where a bridge begins or ends at a unit."""
        box = self.placed[place]
        if box.unit >= 0:
            return (box.x + box.width if leaves else box.x), box.middle
        return box.gutter, box.bottom if leaves else box.y


def folded_bridge(drawn: DrawnPair, number: int, box: DrawnBox) -> Iterator[DrawnLine]:
    """Yield the bridge of a frame that is not open, if it saves something."""
    saved = drawn.frame_costs[number].saved_bytes
    if saved:
        start, end = (box.gutter - GUTTER / 2, box.middle), (box.gutter + GUTTER / 2, box.middle)
        yield DrawnLine("saved", (start, end), amount(saved), 1, saved)


def through_loop(drawn: DrawnPair, number: int, box: DrawnBox, inner: DrawnBox) -> Iterator[DrawnLine]:
    """Yield the lines between the border of a loop and the turn of it that is shown."""
    if inner.unit >= 0:
        return
    cost = drawn.frame_costs[frame_unit(inner.unit)]
    if cost.forward_steps:
        x = port_x(inner, "forward")
        yield DrawnLine("forward", ((port_x(box, "forward"), box.y), (x, inner.y)), ends=not inner.is_open)
        yield DrawnLine("forward", ((x, inner.bottom), (port_x(box, "forward"), box.bottom)), ends=False)
    if cost.backward_steps:
        x = port_x(inner, "backward")
        yield DrawnLine("backward", ((port_x(box, "backward"), box.bottom), (x, inner.bottom)), ends=not inner.is_open)
        yield DrawnLine("backward", ((x, inner.y), (port_x(box, "backward"), box.y)), ends=False)

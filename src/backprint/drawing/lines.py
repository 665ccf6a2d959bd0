"""The lines of a picture: flows between units, and bridges across the gutter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from backprint.drawing.drawn import DrawnPair
from backprint.drawing.flows import OUTSIDE
from backprint.drawing.frames import frame_unit
from backprint.drawing.rows import BridgeLine, FlowLine
from backprint.drawing.shapes import GUTTER, HEAD, PAD, SLOT, DrawnBox, DrawnLine, Point, amount

NEAR = 5.0
"""How far from a row a line turns into the channel."""


def port_x(box: DrawnBox, side: str) -> float:
    """Return where the flows of a side enter and leave a box."""
    if box.unit >= 0:
        return box.x + box.width / 2
    if side == "forward":
        return (max(box.x, box.gutter - GUTTER / 2 - 72) + box.gutter - GUTTER / 2) / 2
    return (min(box.x + box.width, box.gutter + GUTTER / 2 + 72) + box.gutter + GUTTER / 2) / 2


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
        if line.slot < 0:
            return DrawnLine(side, (start, end), line.spec, line.count)
        reach = PAD / 2 + line.slot * SLOT
        x = self.box.x + reach if down else self.box.x + self.box.width - reach
        points = (start, (start[0], turn_out), (x, turn_out), (x, turn_in), (end[0], turn_in), end)
        return DrawnLine(side, points, line.spec, line.count)

    def end_of(self, place: int, side: str, leaves_below: bool, leaves: bool) -> tuple[Point, float]:
        """Return where a flow begins or ends, and how high it runs before that."""
        below = leaves_below == leaves
        if place == OUTSIDE:
            x = port_x(self.box, side)
            below = not below
            y = self.box.bottom if below else self.box.y + HEAD
            return (x, y), y - NEAR if below else y + NEAR
        box, (top, bottom) = self.placed[place], self.bands[place]
        return (port_x(box, side), box.bottom if below else box.y), bottom + NEAR if below else top - NEAR

    def bridge(self, line: BridgeLine) -> DrawnLine:
        """Return what is saved between two units, or from or to the outside."""
        gutter = self.box.gutter
        start = (gutter, self.box.y + HEAD) if line.source == OUTSIDE else self.bridge_end(line.source, True)
        end = (gutter, self.box.bottom) if line.target == OUTSIDE else self.bridge_end(line.target, False)
        return DrawnLine("saved", (start, end), amount(line.bytes) if line.bytes else "", line.count, line.bytes)

    def bridge_end(self, place: int, leaves: bool) -> Point:
        """Return where a bridge begins or ends at a unit."""
        box = self.placed[place]
        if box.unit >= 0:
            return (box.x + box.width if leaves else box.x), box.middle
        if box.is_open:
            return box.gutter, box.bottom if leaves else box.y
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
        yield DrawnLine("forward", ((port_x(box, "forward"), box.y + HEAD), (x, inner.y)))
        yield DrawnLine("forward", ((x, inner.bottom), (port_x(box, "forward"), box.bottom)))
    if cost.backward_steps:
        x = port_x(inner, "backward")
        yield DrawnLine("backward", ((port_x(box, "backward"), box.bottom), (x, inner.bottom)))
        yield DrawnLine("backward", ((x, inner.y), (port_x(box, "backward"), box.y + HEAD)))


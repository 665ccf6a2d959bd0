"""A picture: where the boxes and lines of a Pair are, in points. `svg` and `dot` write it.

Frames are stacks of rows around a gutter: the forward stands left of it, the backward right of it, and what is saved
crosses it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from backprint.drawing.drawn import DrawnPair
from backprint.drawing.frames import frame_unit
from backprint.drawing.lines import Lines, folded_bridge, through_loop
from backprint.drawing.opened import units_shown
from backprint.drawing.rows import FrameRow
from backprint.drawing.scene import FORWARD, ScenePort
from backprint.drawing.shapes import (
    ACROSS,
    FOLDED,
    GAP,
    GUTTER,
    HEAD,
    LETTER,
    PAD,
    PILL,
    SLOT,
    DrawnBox,
    DrawnLine,
    PortPill,
    cell_width,
    folded_texts,
    frame_title,
    node_height,
    node_width,
    pill_text,
    pill_width,
    ports_beside,
)


@dataclass(frozen=True, slots=True)
class PairPicture:
    """A picture of a Pair."""

    drawn: DrawnPair
    width: float
    height: float
    boxes: tuple[DrawnBox, ...]
    lines: tuple[DrawnLine, ...]


def picture_of(drawn: DrawnPair, opened: Collection[int]) -> PairPicture:
    """Return the picture of a Pair in which some frames are open."""
    desk = Desk(drawn, frozenset(opened))
    extent = desk.extent_of(frame_unit(0))
    desk.place(frame_unit(0), PAD + extent.left, PAD)
    width, height = extent.left + extent.right + 2 * PAD, extent.height + 2 * PAD
    return PairPicture(drawn, width, height, tuple(desk.boxes), tuple(desk.lines))


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a unit reaches to the left and to the right of its gutter, and its height."""

    left: float
    right: float
    height: float


@dataclass(slots=True)
class Desk:
    """Where boxes are put down."""

    drawn: DrawnPair
    opened: frozenset[int]
    boxes: list[DrawnBox] = field(default_factory=list)
    lines: list[DrawnLine] = field(default_factory=list)
    extents: dict[int, Extent] = field(default_factory=dict)
    ports: dict[int, list[ScenePort]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = ports_beside(self.drawn)

    # -------------------------------------------------------------- sizes

    def extent_of(self, unit: int) -> Extent:
        """Return the extent of a unit."""
        if unit not in self.extents:
            self.extents[unit] = self.extent_of_frame(frame_unit(unit)) if unit < 0 else self.extent_of_node(unit)
        return self.extents[unit]

    def extent_of_node(self, node: int) -> Extent:
        """Return the extent of a step with its ports."""
        pills = [pill_width(port) for port in self.ports.get(node, ())]
        width = GUTTER / 2 + cell_width(self.drawn, node) + (max(pills) + 4 if pills else 0)
        height = max(node_height(self.drawn, node), len(pills) * (PILL + 2))
        left = self.drawn.scene.nodes[node].side == FORWARD
        return Extent(width if left else 0, 0 if left else width, height)

    def extent_of_frame(self, number: int) -> Extent:
        """Return the extent of a frame, open or not."""
        half = GUTTER / 2
        if number not in self.opened:
            names = folded_texts(self.drawn, number)
            left, right = (half + max(48.0, 16 + LETTER * max(map(len, side))) for side in names)
            return Extent(left, right, FOLDED)
        title = 16 + LETTER * len(frame_title(self.drawn, number))
        if self.drawn.layout_of_frame[number] < 0:
            inner = self.extent_of(units_shown(self.drawn, number)[0])
            left, right, height = inner.left + PAD, inner.right + PAD, inner.height
        else:
            left, right, height = self.extent_of_rows(number)
        wide = max(title - left - right, 0)
        return Extent(left + wide / 2, right + wide / 2, height + HEAD + PAD)

    def extent_of_rows(self, number: int) -> tuple[float, float, float]:
        """Return how far the rows of a frame reach, with their channels, and their height."""
        layout, units = self.drawn.layouts[self.drawn.layout_of_frame[number]], self.drawn.frames[number].units
        left = right = GUTTER / 2
        height = GAP
        for row in layout.rows:
            ours = self.extent_of_row(row, units)
            left, right, height = max(left, ours.left), max(right, ours.right), height + ours.height + GAP
        return left + PAD + layout.slots[0] * SLOT, right + PAD + layout.slots[1] * SLOT, height

    def extent_of_row(self, row: FrameRow, units: Sequence[int]) -> Extent:
        """Return the extent of a row."""
        frames = [self.extent_of(units[place]) for place in row.frames]
        if len(frames) == 1:
            left, right = frames[0].left, frames[0].right
        else:
            total = sum(each.left + each.right + ACROSS for each in frames) - ACROSS if frames else 0.0
            left = right = max(total / 2, GUTTER / 2)
        nodes = [[self.extent_of(units[place]) for place in side] for side in (row.left, row.right)]
        left += sum(each.left - GUTTER / 2 + ACROSS for each in nodes[0]) - (0 if frames or not nodes[0] else ACROSS)
        right += sum(each.right - GUTTER / 2 + ACROSS for each in nodes[1]) - (0 if frames or not nodes[1] else ACROSS)
        heights = [each.height for each in (*frames, *nodes[0], *nodes[1])]
        return Extent(left, right, max(heights, default=0.0))

    # -------------------------------------------------------------- places

    def place(self, unit: int, gutter: float, top: float, depth: int = 0) -> DrawnBox:
        """Put a unit down, and all that is in it; `depth` frames are around it."""
        extent = self.extent_of(unit)
        if unit >= 0:
            return self.place_node(unit, gutter, top)
        number = frame_unit(unit)
        is_open = number in self.opened
        left, width = gutter - extent.left, extent.left + extent.right
        box = DrawnBox(unit, left, top, width, extent.height, gutter, is_open, depth)
        self.boxes.append(box)
        if not is_open:
            self.lines += folded_bridge(self.drawn, number, box)
        elif self.drawn.layout_of_frame[number] < 0:
            inner = self.place(units_shown(self.drawn, number)[0], gutter, top + HEAD, depth + 1)
            self.lines += through_loop(self.drawn, number, box, inner)
        else:
            self.place_rows(number, box)
        return box

    def place_node(self, node: int, gutter: float, top: float) -> DrawnBox:
        """Put a step down, with the names of its ports at its outer side."""
        width, height = node_width(self.drawn, node), node_height(self.drawn, node)
        left = self.drawn.scene.nodes[node].side == FORWARD
        aside = GUTTER / 2 + (cell_width(self.drawn, node) - width) / 2
        x = gutter - aside - width if left else gutter + aside
        pills = []
        for count, port in enumerate(self.ports.get(node, ())):
            wide = pill_width(port)
            at = x - 4 - wide if left else x + width + 4
            pills.append(PortPill(port.port.role, pill_text(port), port.port.name, at, top + count * (PILL + 2), wide))
        box = DrawnBox(node, x, top, width, height, gutter, pills=tuple(pills))
        self.boxes.append(box)
        return box

    def place_rows(self, number: int, box: DrawnBox) -> None:
        """Put down the rows of an open frame, and its lines."""
        layout, units = self.drawn.layouts[self.drawn.layout_of_frame[number]], self.drawn.frames[number].units
        placed: dict[int, DrawnBox] = {}
        bands: dict[int, tuple[float, float]] = {}
        top = box.y + HEAD + GAP
        for row in layout.rows:
            height = self.extent_of_row(row, units).height
            placed |= self.place_row(row, units, box.gutter, top, box.depth + 1)
            bands |= dict.fromkeys((*row.left, *row.frames, *row.right), (top, top + height))
            top += height + GAP
        lines = Lines(self.drawn, box, placed, bands)
        self.lines += (lines.flow("forward", each) for each in layout.left)
        self.lines += (lines.flow("backward", each) for each in layout.right)
        self.lines += (lines.bridge(each) for each in layout.bridges)

    def place_row(
        self, row: FrameRow, units: Sequence[int], gutter: float, top: float, depth: int
    ) -> dict[int, DrawnBox]:
        """Put down the units of a row, from the gutter outwards."""
        placed: dict[int, DrawnBox] = {}
        frames = [self.extent_of(units[place]) for place in row.frames]
        left = right = gutter
        if len(frames) == 1:
            placed[row.frames[0]] = self.place(units[row.frames[0]], gutter, top, depth)
            left, right = gutter - frames[0].left - ACROSS, gutter + frames[0].right + ACROSS
        elif frames:
            total = sum(each.left + each.right + ACROSS for each in frames) - ACROSS
            left = at = gutter - total / 2
            for place, extent in zip(row.frames, frames, strict=True):
                placed[place] = self.place(units[place], at + extent.left, top, depth)
                at += extent.left + extent.right + ACROSS
            left, right = left - ACROSS, at
        else:
            left, right = gutter - GUTTER / 2, gutter + GUTTER / 2
        for place in row.left:
            placed[place] = self.place(units[place], left + GUTTER / 2, top)
            left -= self.extent_of(units[place]).left - GUTTER / 2 + ACROSS
        for place in row.right:
            placed[place] = self.place(units[place], right - GUTTER / 2, top)
            right += self.extent_of(units[place]).right - GUTTER / 2 + ACROSS
        return placed

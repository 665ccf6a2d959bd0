"""A picture: where the boxes, lines and texts of a Pair are, in points. `svg` and `dot` write it.

x grows to the right and y down, as in SVG. A frame is a stack of rows around a gutter. Flows of the forward run down,
those of the backward up, and saved values cross the gutter:

    ┌ frame ────────────────┬─ HEAD
    │ ║        gutter       │  TOP
    │ ║ step     │     step │  a row; its "band" is from its top to its bottom
    │ ║          │          │  GAP
    │ ║      ┌ frame ┐      │  a row
    │ ║      └───────┘      │  BOTTOM
    └───────────────────────┘
      ║ the channel of the forward: slots, SLOT wide, for flows that pass other units. The backward has one at the right

Words of this file:

- A *unit* of a frame is a step, by its number from 0 on, or a frame within it, by a negative number (`frame_unit` turns
  that into the frame's number, and back). The *place* of a unit is its index among the frame's units; OUTSIDE, -1,
  stands for what is not in the frame. Frame 0 is the whole program.
- A `DrawnPair` has the steps (`scene.nodes`), the `frames`, their costs, and of each frame that is no loop a `Layout`:
  its rows, and its lines by the places between which they run. `layout_of_frame` is -1 of a loop, which shows one of
  its *turns* (iterations).
- A *side* is `forward` or `backward`. A *bridge* is what is saved, from the one to the other.
- A *pill* is the name of a port beside a step.
- A *lane* is the column of steps of one side beside the gutter.
- Sizes are in capitals: GUTTER is the width of a gutter, ACROSS the space between units side by side, PAD that beside
  a frame's content, NODE, THIN, FOLDED and PILL are the heights of a step, a view, a folded frame and a pill, and
  LETTER, SMALL and BOLD the widths of letters. BUS is how far from a row a bridge runs that passes units of the row.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from backprint.common.text import amount
from backprint.graph.keys import number_of
from backprint.tools.cost.costs import view_operators
from backprint.tools.draw.layout import BridgeLine, DrawnPair, FlowLine, FlowMark, FrameRow, Layout
from backprint.tools.draw.scene import BACKWARD, FORWARD, OUTSIDE, ScenePort, frame_unit

# ---- Sizes of shapes, and the texts on them


GUTTER, GAP, ACROSS, PAD, HEAD, SLOT = 64.0, 24.0, 12.0, 12.0, 22.0, 9.0
"""The width of a gutter, the space between rows and between units of a row, that beside a frame's content, the height
of its title, and the width of a slot."""

TOP, BOTTOM = 18.0, 16.0
"""The space between the title of a frame and its first row, and below its last."""

NODE, THIN, FOLDED, PILL = 24.0, 17.0, 38.0, 14.0
"""The heights of a step, of a view, of a frame that is not open, and of the name of a port."""

LETTER, SMALL, BOLD = 7.3, 5.7, 8.2
"""The width of a letter of a step's name, of one of a port's, and of one of a title."""

LANE = 104.0
"""The least width of a step with what is beside it; flows run in the middle."""

LETTERS = 26
"""The most letters of a name; what is cut off is in the title of its shape."""

Point = tuple[float, float]
"""x and y."""


@dataclass(frozen=True, slots=True)
class _PortPill:
    """The name of a port beside a step: what is drawn (`text`), and the whole name. `x` and `y` are its left end and
    its top."""

    role: str
    text: str
    name: str
    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A step, or a frame with `depth` frames around it. `x` and `y` are its left end and its top."""

    unit: int
    x: float
    y: float
    width: float
    height: float
    gutter: float
    """Where the middle of its gutter is."""
    is_open: bool = False
    depth: int = 0
    pills: tuple[_PortPill, ...] = ()

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The y of the middle of its height."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line, as the points between which it runs; `kind` is `forward`, `backward` or `saved` (a bridge). `text` is
    what stands beside it, `count` how many values go along it, and `bytes` the size of what is saved."""

    kind: str
    points: tuple[Point, ...]
    text: str = ""
    count: int = 1
    bytes: int = 0
    ends: bool = True
    """Whether it ends here: a flow into an open frame goes on in it."""
    mark: FlowMark | None = None
    """What was measured on it."""

    @property
    def is_bad(self) -> bool:
        """Whether NaN or Inf flows along it."""
        return self.mark is not None and self.mark.is_bad


def op_name(target: str) -> str:
    """Return the short name of an operator: `mm` of `aten.mm.default`, `getitem` of `operator.getitem`."""
    parts = target.split(".")
    return parts[1] if len(parts) > 2 else parts[-1]


def shortened(text: str, letters: int = LETTERS) -> str:
    """Return a text of at most `letters` letters; `…` stands for what is cut off its end."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def step_text(target: str) -> str:
    """Return what stands on a step of this operator. A long name keeps its end, which often says `backward`."""
    name = op_name(target)
    # LETTERS in all: the beginning, `…`, and the last 11, which have room for `_backward`.
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 12]}…{name[-11:]}"


def short_name(name: str) -> str:
    """Return the last part of a port's name, cut to 18 letters: `weight` of `layers.0.weight`."""
    return shortened(name.rpartition(".")[2] or name, 18)


def is_thin(drawn: DrawnPair, node: int) -> bool:
    """Whether a step is drawn small: it computes nothing."""
    target = drawn.scene.nodes[node].target
    return target == "operator.getitem" or (target.startswith("aten.") and op_name(target) in view_operators())


def _cell_width(drawn: DrawnPair, node: int) -> float:
    """Return the width that a step takes in its row: a narrow step is centered in a LANE, so that the steps of a lane,
    and the flows between them, have one x."""
    return max(LANE, _node_width(drawn, node))


def _node_width(drawn: DrawnPair, node: int) -> float:
    """Return the width of a step's box: its text and a margin, and no less than a least width."""
    letters = len(step_text(drawn.scene.nodes[node].target))
    return max(40.0, 12 + SMALL * letters) if is_thin(drawn, node) else max(52.0, 16 + LETTER * letters)


def _node_height(drawn: DrawnPair, node: int) -> float:
    """Return the height of a step."""
    return THIN if is_thin(drawn, node) else NODE


def ports_beside(drawn: DrawnPair) -> dict[int, list[ScenePort]]:
    """Return for each step the ports whose names stand beside it: inputs that it takes, and outputs that it makes.

    Saved tensors are bridges and have no names. But where the backward takes an input of the forward that was saved, it
    has the name of that input.
    """
    scene = drawn.scene
    entering = {port.value: port for port in scene.ports if port.enters}
    made_by = scene.made_by()  # from a saved input of the backward to the value of the forward
    ports: dict[int, list[ScenePort]] = {}
    for number, node in enumerate(scene.nodes):
        for value in dict.fromkeys(node.inputs):  # each once
            port = entering.get(made_by.get(value, value))
            if port is not None:
                ports.setdefault(number, []).append(port)
    for port in scene.ports:
        # An output that is a constant (-1), or an input as it is, is made by no step.
        if not port.enters and port.port.role != "saved" and 0 <= port.value < len(scene.nodes):
            ports.setdefault(port.value, []).append(port)
    return ports


def pill_text(port: ScenePort) -> str:
    """Return what stands beside a step for a port: `∂w` for the gradient or the tangent of `w`."""
    name = short_name(port.port.name)
    return f"∂{name}" if port.port.role in ("gradient", "tangent") else name


def _pill_width(port: ScenePort) -> float:
    """Return the width of the name of a port."""
    return 10 + SMALL * len(pill_text(port))


def folded_texts(drawn: DrawnPair, number: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the texts of a frame that is not open: two lines of its forward half, two of its backward half."""
    cost = drawn.frame_costs[number]
    forward = (shortened(frame_title(drawn, number), 34), steps_text(cost.forward_steps))
    backward = ("backward" if cost.backward_steps else "", steps_text(cost.backward_steps))
    return forward, backward


def steps_text(count: int) -> str:
    """Return a number of steps as text."""
    return f"{count:,} step{'' if count == 1 else 's'}" if count else "no step"


def contents_of(drawn: DrawnPair) -> str:
    """Return what a picture shows, in numbers, such as `12 steps forward, 20 steps backward, …`; of a region, how many
    nodes are in it, and how many neighbors it has."""
    if (neighbors := drawn.scene.neighbors) is not None:
        return f"{number_of(drawn.scene.forward - neighbors, 'node')} inside, {number_of(neighbors, 'neighbor')}"
    cost = drawn.frame_costs[0]
    text = f"{steps_text(cost.forward_steps)} forward, "
    if not cost.backward_steps:
        return f"{text}no backward"
    saved = f", {amount(cost.saved_bytes)} saved for the backward" if drawn.scene.bridges else ""
    return f"{text}{steps_text(cost.backward_steps)} backward{saved}"


def frame_title(drawn: DrawnPair, number: int) -> str:
    """Return what stands above a frame: its name, of a loop how many turns it has, and of a module its class:
    `r · LSTM`, `0…11 × 12 · Block`."""
    frame = drawn.frames[number]
    count_text = f" × {len(frame.units)}" if frame.kind == "loop" else ""
    class_text = f" · {shortened(frame.label, 32)}" if frame.kind in ("module", "loop") and frame.label else ""
    return shortened(frame.name, 48) + count_text + class_text


TITLE_MARGIN = 18.0
"""From the border of a frame to its title, and from that to the text beside it."""


def title_text(drawn: DrawnPair, number: int, title: str = "") -> str:
    """Return the title above an open frame: of the whole picture `title`, as far as 60 letters."""
    return frame_title(drawn, number) if number or not title else shortened(title, 60)


# ---- Curves: a line as straight pieces and smooth ones, and as the path of an SVG

ROUND = 5.0
"""The radius of a corner."""

Curve = tuple[Point, Point, Point, Point]
"""A cubic curve: its begin, its two control points and its end."""


def curves_of(line: DrawnLine) -> Iterator[Curve]:
    """Yield the pieces of a line as cubic curves: a piece between points with one x or one y is straight, one that runs
    aslant is an S that leaves and arrives in the direction of the pieces before and after it. Where there is none, a
    bridge runs across there, a flow up or down."""
    pieces = list(pairwise(line.points))

    def is_upright(index: int) -> bool:
        """Whether the piece at this index runs up or down; for the piece that is not there, whether a flow does."""
        return _is_upright(*pieces[index]) if 0 <= index < len(pieces) else line.kind != "saved"

    for index, (start, end) in enumerate(pieces):
        if _is_straight(start, end):
            yield start, start, end, end
        else:
            (start_x, start_y), (end_x, end_y) = start, end
            middle_x, middle_y = (start_x + end_x) / 2, (start_y + end_y) / 2
            # A control point straight above or below an end makes the curve upright there; one beside it makes it run
            # across.
            first = (start_x, middle_y) if is_upright(index - 1) else (middle_x, start_y)
            second = (end_x, middle_y) if is_upright(index + 1) else (middle_x, end_y)
            yield start, first, second, end


def _is_straight(start: Point, end: Point) -> bool:
    """Whether a piece runs up, down or across."""
    return start[0] == end[0] or start[1] == end[1]


def _is_upright(start: Point, end: Point) -> bool:
    """Whether a piece runs up or down."""
    return start[0] == end[0]


def turns(start: Point, corner: Point, end: Point) -> bool:
    """Whether the pieces `start` to `corner` and `corner` to `end`, the first a straight one, meet in a corner."""
    return _is_straight(corner, end) and _is_upright(start, corner) != _is_upright(corner, end)


def point_on(curve: Curve, t: float) -> Point:
    """Return the point of a curve at a share of its way, from 0 at its begin to 1 at its end."""
    rest = 1 - t
    weights = rest**3, 3 * rest * rest * t, 3 * rest * t * t, t**3  # of a Bézier curve's four points
    x, y = (sum(weight * point[axis] for weight, point in zip(weights, curve, strict=True)) for axis in (0, 1))
    return x, y


def path_of(line: DrawnLine) -> str:
    """Return a line as a path of SVG, with round corners between straight pieces. In a path `M` moves to a point, `L`
    is a straight line, `C` a cubic curve and `Q` a quadratic one, which rounds a corner."""
    curves = list(curves_of(line))
    path = f"M{_point_text(line.points[0])}"
    for index, (start, first, second, end) in enumerate(curves):
        # The end of the next piece; that of this one where it is the last.
        *_, next_end = curves[min(index + 1, len(curves) - 1)]
        if not _is_straight(start, end):
            path += f"C{_point_text(first)} {_point_text(second)} {_point_text(end)}"
        elif index + 1 < len(curves) and turns(start, end, next_end):
            path += f"L{towards(end, start)}Q{_point_text(end)} {towards(end, next_end)}"
        else:
            path += f"L{_point_text(end)}"
    return path


def _point_text(point: Point) -> str:
    """Return a point as a path of SVG has it: `12.0 34.5`."""
    return f"{point[0]:.1f} {point[1]:.1f}"


def towards(start: Point, end: Point) -> str:
    """Return, as text of a path, the point at which the rounding of the corner `start` begins: ROUND away towards
    `end`, and at most half the way, because another corner may be at `end`."""
    length = math.dist(start, end)
    share = min(ROUND, length / 2) / length if length else 0.0
    return _point_text((start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share))


# ---- Lines: flows between units, and bridges across the gutter

NEAR, STEP, BUS = 5.0, 2.0, 12.0
"""How far from a row a flow turns into the channel, how much more for each slot, and how far from it a bridge runs that
passes other units of the row."""

CORNER = 10.0
"""How far from the corner of a step such a bridge begins and ends."""


def _port_x(box: DrawnBox, side: str) -> float:
    """Return the x at which the flows of a side enter and leave a box: the middle of the lane beside its gutter."""
    aside = (GUTTER + LANE) / 2
    return box.gutter - aside if side == "forward" else box.gutter + aside


@dataclass(frozen=True, slots=True)
class _LineEnd:
    """Where a flow begins or ends (`at`), the y of its row's edge there, and whether the flow is below that edge."""

    at: Point
    edge: float
    is_below: bool

    def turn(self, slot: int) -> float:
        """Return the y at which a flow runs across to its slot. Four slots in turn have four heights, so that flows
        that turn beside one row do not cover one another; more do not fit into GAP."""
        away = NEAR + STEP * (slot % 4)
        return self.edge + away if self.is_below else self.edge - away


@dataclass(frozen=True, slots=True)
class Lines:
    """Makes the lines in the open frame `box`, whose rows and lines are in `layout`. `placed` has the box of each unit,
    by its place in the frame, and `bands` the top and the bottom of the unit's row."""

    drawn: DrawnPair
    box: DrawnBox
    placed: Mapping[int, DrawnBox]
    bands: Mapping[int, tuple[float, float]]
    layout: Layout

    def flow(self, side: str, line: FlowLine) -> DrawnLine:
        """Return a flow: down on the forward's side, up on the backward's. With a slot it goes around other units:

        down from `start` to `out`, across to `x` of the channel, down to `back`, across, and down to `end`.
        """
        is_forward = side == "forward"
        start = self.end_of(line.source, side, leaves_below=is_forward, leaves=True)
        end = self.end_of(line.target, side, leaves_below=is_forward, leaves=False)
        is_inner, has_end = OUTSIDE not in (line.source, line.target), self.ends(line.target)
        number = frame_unit(self.box.unit)
        mark = self.drawn.marks.get((number, FORWARD if is_forward else BACKWARD, line.source, line.target))
        # The mark of a line to the border stands in the frame around this one, where the line goes on. Lines that meet
        # at the border of a region may be one line there, so each of them has its own mark inside, too.
        is_border_marked = self.drawn.frames[number].kind == "region" and self.is_shared(side, line)
        marked_text = mark.short if mark and (is_inner or is_border_marked) else ""
        if line.slot < 0:
            straight = _without_repeats((start.at, *self.bend(side, start, end), end.at))
            # Only a line that runs outside of the channel shows the shape of its value.
            text = line.spec if is_inner and mark is None else marked_text
            return DrawnLine(side, straight, text, line.count, ends=has_end, mark=mark)
        out, back = start.turn(line.slot), end.turn(line.slot)
        x = self.channel(side, min(out, back), max(out, back), line.slot)
        points = (start.at, (start.at[0], out), (x, out), (x, back), (end.at[0], back), end.at)
        return DrawnLine(side, points, marked_text, line.count, ends=has_end, mark=mark)

    def is_shared(self, side: str, line: FlowLine) -> bool:
        """Whether other lines also enter the frame, or leave it, where this one does: all of a side enter at one point
        of the border, and leave at another."""
        lines = self.layout.left if side == "forward" else self.layout.right
        ends = [(other.source == OUTSIDE, other.target == OUTSIDE) for other in lines]
        return ends.count((line.source == OUTSIDE, line.target == OUTSIDE)) > 1

    def bend(self, side: str, start: _LineEnd, end: _LineEnd) -> tuple[Point, Point]:
        """Return the ends of the part of a flow without a slot that may run aslant. The rows between have no units on
        this side, so it may go straight through them in the lane beside the gutter, and is aslant only in the GAP next
        to the end that is not in that lane."""
        (start_x, _), (end_x, _) = start.at, end.at
        gap = GAP if end.edge > start.edge else -GAP
        if abs(end.edge - start.edge) <= GAP or start_x == end_x:
            return (start_x, start.edge), (end_x, end.edge)
        if end_x == _port_x(self.box, side):  # it ends in the lane: aslant at its start
            return (start_x, start.edge), (end_x, start.edge + gap)
        return (start_x, end.edge - gap), (end_x, end.edge)

    def ends(self, place: int) -> bool:
        """Whether a flow to a unit ends with an arrow there. It goes on at the border and in an open frame."""
        return place != OUTSIDE and not self.placed[place].is_open

    def channel(self, side: str, top: float, bottom: float, slot: int) -> float:
        """Return the x of a slot of the channel between the heights `top` and `bottom`: outside of all units, with the
        names of their ports, in the rows that it passes."""
        places_in_rows = (
            place for place, (row_top, row_bottom) in self.bands.items() if row_top < bottom and row_bottom > top
        )
        boxes = [self.placed[place] for place in places_in_rows]
        if side == "forward":
            left_edge = min((min([box.x, *(pill.x for pill in box.pills)]) for box in boxes), default=self.box.gutter)
            return min(left_edge, _port_x(self.box, side)) - (slot + 1) * SLOT
        right_edges = (max([box.x + box.width, *(pill.x + pill.width for pill in box.pills)]) for box in boxes)
        return max(max(right_edges, default=self.box.gutter), _port_x(self.box, side)) + (slot + 1) * SLOT

    def end_of(self, place: int, side: str, leaves_below: bool, leaves: bool) -> _LineEnd:
        """Return where a flow begins (`leaves`) or ends at a unit, or at the border for OUTSIDE. It leaves a unit at
        the bottom if `leaves_below`, and reaches one at the top; on the backward's side the other way round."""
        # At the border `below` is right as well: what enters the frame at its top runs below that edge.
        below = leaves_below == leaves
        if place == OUTSIDE:
            x, box = _port_x(self.box, side), self.box
            at, edge = ((x, box.y), box.y + HEAD) if below else ((x, box.bottom), box.bottom)
            return _LineEnd(at, edge, is_below=below)
        box, (top, bottom) = self.placed[place], self.bands[place]
        x = _port_x(box, side)
        at, edge = ((x, box.bottom), bottom) if below else ((x, box.y), top)
        return _LineEnd(at, edge, is_below=below)

    def bridges(self, lines: Sequence[BridgeLine]) -> Iterator[DrawnLine]:
        """Yield the bridges. The bytes of a step's value stand once, at the first bridge from it. One from outside,
        or from an open frame, has no text: its bytes stand at the step that makes the value."""
        labeled: set[int] = set()  # the places of steps with a bridge that has a text
        for line in lines:
            has_text = line.source != OUTSIDE and line.source not in labeled and not self.placed[line.source].is_open
            # A folded frame saves several values, so each bridge from it has its own bytes.
            if has_text and self.placed[line.source].unit >= 0:
                labeled.add(line.source)
            yield self.bridge(line, amount(line.bytes) if line.bytes and has_text else "")

    def bridge(self, line: BridgeLine, text: str) -> DrawnLine:
        """Return a bridge between two units, or from or to the outside, with this text."""
        before = self.leaving(line.source)
        _, height = before[-1]  # the y at which it crosses the gutter
        after = self.arriving(line.target, height)
        return DrawnLine("saved", _without_repeats((*before, *after)), text, line.count, line.bytes)

    def leaving(self, place: int) -> tuple[Point, ...]:
        """Return the points of a bridge from a unit to the gutter. A step that has nothing between it and the gutter is
        left at its right side; else the bridge runs below the row. A frame is left at the bottom of its own gutter."""
        gutter = self.box.gutter
        if place == OUTSIDE:
            return (gutter, self.box.y), (gutter, self.box.y + HEAD)
        box, (_, row_bottom) = self.placed[place], self.bands[place]
        if box.unit < 0:
            return self.around(box.gutter, box.bottom, row_bottom + BUS, gutter)
        if self.is_clear(place):
            return ((box.x + box.width, box.middle),)
        return self.around(box.x + box.width - CORNER, box.bottom, row_bottom + BUS, gutter - GUTTER / 2)

    def arriving(self, place: int, height: float) -> tuple[Point, ...]:
        """Return the points of a bridge from the gutter to a unit, the mirror of `leaving`; one that comes from a
        `height` above the row reaches a step from above, else from below."""
        gutter = self.box.gutter
        if place == OUTSIDE:
            return (gutter, self.box.bottom - BOTTOM), (gutter, self.box.bottom)
        box, (row_top, row_bottom) = self.placed[place], self.bands[place]
        # `around` runs from the unit to the gutter: here it is turned round.
        if box.unit < 0:
            return self.around(box.gutter, box.y, row_top - BUS, gutter)[::-1]
        if self.is_clear(place):
            return ((box.x, box.middle),)
        end, run = (box.y, row_top - BUS) if height <= row_top else (box.bottom, row_bottom + BUS)
        return self.around(box.x + CORNER, end, run, gutter + GUTTER / 2)[::-1]

    def around(self, x: float, y: float, run: float, to: float) -> tuple[Point, ...]:
        """Return the way from a unit at `x` and `y` up or down to the height `run`, between two rows, and there across
        to the x `to`."""
        return ((x, y), (x, run)) if x == to else ((x, y), (x, run), (to, run))

    def is_clear(self, place: int) -> bool:
        """Whether nothing of its row stands between a step and the gutter."""
        box, gutter = self.placed[place], self.box.gutter
        left, right = sorted((box.x + box.width / 2, gutter))
        others_of_row = (
            other
            for other_place, other in self.placed.items()
            if self.bands[other_place] == self.bands[place] and other_place != place
        )
        return not any(left < other.x + other.width / 2 < right for other in others_of_row)


def _without_repeats(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return points without those that are equal to the one before them."""
    return tuple(point for count, point in enumerate(points) if not count or point != points[count - 1])


def _folded_bridge(drawn: DrawnPair, number: int, box: DrawnBox) -> Iterator[DrawnLine]:
    """Yield the bridge between the two halves of a frame that is not open, if it saves something."""
    saved = drawn.frame_costs[number].saved_bytes
    if saved:
        start, end = (box.gutter - GUTTER / 2, box.middle), (box.gutter + GUTTER / 2, box.middle)
        yield DrawnLine("saved", (start, end), amount(saved), count=1, bytes=saved)


def _through_loop(drawn: DrawnPair, number: int, box: DrawnBox, inner: DrawnBox) -> Iterator[DrawnLine]:
    """Yield the lines between the border of a loop (`box`, frame `number`) and the turn of it that is shown (`inner`):
    where flows go on in the turn. A loop has no Layout of its own that would have them; none for a turn that is a
    step."""
    if inner.unit >= 0 or drawn.layout_of_frame[frame_unit(inner.unit)] < 0:
        return  # a turn that is itself a loop has no Layout to read them from
    layout = drawn.layouts[drawn.layout_of_frame[frame_unit(inner.unit)]]
    for kind, lines in (("forward", layout.left), ("backward", layout.right), ("saved", layout.bridges)):
        x = box.gutter if kind == "saved" else _port_x(inner, kind)
        top_line, bottom_line = ((x, box.y), (x, inner.y)), ((x, inner.bottom), (x, box.bottom))
        entering, leaving = (bottom_line[::-1], top_line[::-1]) if kind == "backward" else (top_line, bottom_line)
        # As wide as the widest of the bridges that it stands for.
        size = max((line.bytes for line in layout.bridges), default=0) if kind == "saved" else 0
        if any(line.source == OUTSIDE for line in lines):
            yield DrawnLine(kind, entering, bytes=size, ends=not inner.is_open)
        if any(line.target == OUTSIDE for line in lines):
            yield DrawnLine(kind, leaving, bytes=size, ends=False)


# ---- Labels of lines, placed so that none covers a box, a title or another text
# A text for which there is no place is left out: the type of each value is also in the title of its step.

TINY, TALL, BESIDE = 5.3, 10.0, 4.0
"""The width of a letter of a label, its height, and how far it stands from its line."""

SHARES = (0.5, 0.35, 0.65, 0.22, 0.78, 0.1, 0.9)
"""Where along a line there may be a place for its text; the first that is free."""

BAND = 40.0
"""The height of the strips of the picture in which taken places are looked up (not the bands of rows in Lines)."""

Area = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True, slots=True)
class LineLabel:
    """The text of a line; `x` is its left end, `y` the half of its height."""

    line: DrawnLine
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class _TakenPlaces:
    """What labels must not cover: the taken areas by the number of the BAND (from the top) that they touch. Only areas
    in the same BAND are compared, as a picture has thousands."""

    bands: dict[int, list[Area]] = field(default_factory=dict)

    def add(self, area: Area) -> None:
        """Note an area that is taken."""
        for band in self.bands_of(area):
            self.bands.setdefault(band, []).append(area)

    def has(self, area: Area) -> bool:
        """Whether a part of an area is taken; touching is not."""
        left, top, right, bottom = area
        return any(
            taken_left < right and left < taken_right and taken_top < bottom and top < taken_bottom
            for band in self.bands_of(area)
            for taken_left, taken_top, taken_right, taken_bottom in self.bands.get(band, ())
        )

    def bands_of(self, area: Area) -> range:
        """Return the numbers of the BANDs that an area touches."""
        _, top, _, bottom = area
        return range(int(top // BAND), int(bottom // BAND) + 1)


def labels_of(picture: PairPicture) -> Iterator[LineLabel]:
    """Yield the texts of lines for which there is a free place. Lines with NaN or Inf choose first, then bridges."""
    taken_places = _TakenPlaces()
    for area in boxes_and_titles(picture):
        taken_places.add(area)
    for line in sorted(picture.lines, key=lambda line: (not line.is_bad, line.kind != "saved")):
        for label in _places_for(line) if line.text else ():
            left, _, right, _ = area = area_of(label)
            if left >= PAD and right <= picture.width - PAD and not taken_places.has(area):
                taken_places.add(area)
                yield label
                break


def boxes_and_titles(picture: PairPicture) -> Iterator[Area]:
    """Yield the areas that labels must not cover: steps, the names of ports, the titles of open frames, and the two
    halves of folded frames, between which their bridge may have its text."""
    for box in picture.boxes:
        if box.is_open:
            letters = len(frame_title(picture.drawn, frame_unit(box.unit)))
            yield box.x, box.y, box.x + 12 + LETTER * letters, box.y + HEAD
        elif box.unit >= 0:
            yield box.x, box.y, box.x + box.width, box.bottom
        else:
            yield box.x, box.y, box.gutter - GUTTER / 2, box.bottom
            yield box.gutter + GUTTER / 2, box.y, box.x + box.width, box.bottom
        for pill in box.pills:
            yield pill.x, pill.y, pill.x + pill.width, pill.y + TALL


def area_of(label: LineLabel) -> Area:
    """Return the area that a label covers."""
    half = TALL / 2
    return label.x, label.y - half, label.x + TINY * len(label.line.text), label.y + half


def _places_for(line: DrawnLine) -> Iterator[LineLabel]:
    """Yield the places for the text of a line, the best first: centered on a bridge, and at either side of a flow,
    along the longest piece."""

    def length_of(curve: Curve) -> float:
        (start_x, start_y), _, _, (end_x, end_y) = curve
        return abs(end_x - start_x) + abs(end_y - start_y)

    width = TINY * len(line.text)
    longest = max(curves_of(line), key=length_of)
    for share in SHARES:
        x, y = point_on(longest, share)
        if line.kind == "saved":
            yield LineLabel(line, x - width / 2, y)
        else:
            yield LineLabel(line, x + BESIDE, y)
            yield LineLabel(line, x - BESIDE - width, y)


# ---- Frames that a picture opens: all of a small graph, and of a large one as many as can be read

READABLE = 300
"""How many steps and folded frames a picture shows at most, if it has a choice."""

WIDEST = 1400.0
"""How wide a picture is at most, if it has a choice: a page that shows it at half its size still shows its letters."""


def frames_to_open(drawn: DrawnPair, most: int = READABLE, widest: float = math.inf) -> frozenset[int]:
    """Return the numbers of the frames to open: the whole program always, and inside it outer frames first, each unless
    more than `most` units would be seen or the picture would be wider than `widest`."""
    opened: set[int] = set()
    shown_count = 1  # units that are seen; a frame that opens is no longer one of them: `- 1` below
    queue = deque([0])
    builder = _PictureBuilder(drawn, frozenset())
    while queue:
        number = queue.popleft()
        inner_units = units_shown(drawn, number)
        if opened and (shown_count - 1 + len(inner_units) > most or builder.width_with({*opened, number}) > widest):
            continue
        opened.add(number)
        shown_count += len(inner_units) - 1
        queue.extend(frame_unit(unit) for unit in inner_units if unit < 0)
    return frozenset(opened)


def units_shown(drawn: DrawnPair, number: int) -> tuple[int, ...]:
    """Return the units that are seen in an open frame: of a loop its first turn."""
    frame = drawn.frames[number]
    return frame.units[:1] if frame.kind == "loop" else frame.units


# ---- The picture


@dataclass(frozen=True, slots=True)
class PairPicture:
    """A picture of a Pair: its size, its boxes and its lines."""

    drawn: DrawnPair
    width: float
    height: float
    boxes: tuple[DrawnBox, ...]
    lines: tuple[DrawnLine, ...]


def picture_of(drawn: DrawnPair, opened: Collection[int], title: str = "") -> PairPicture:
    """Return the picture of a Pair in which the frames `opened` are open, and all others folded. It is as wide as its
    title, which stands above it, needs."""
    builder = _PictureBuilder(drawn, frozenset(opened), title)
    extent = builder.extent_of(frame_unit(0))
    builder.place(frame_unit(0), PAD + extent.left, PAD)
    width, height = extent.left + extent.right + 2 * PAD, extent.height + 2 * PAD
    return PairPicture(drawn, width, height, tuple(builder.boxes), tuple(builder.lines))


@dataclass(frozen=True, slots=True)
class _Extent:
    """How far a unit reaches to the left and to the right of its gutter, and its height."""

    left: float
    right: float
    height: float

    @property
    def width(self) -> float:
        return self.left + self.right


def _extents_around_gutter(frames: Sequence[_Extent]) -> tuple[float, float]:
    """Return how far frames side by side reach to the left and to the right of the gutter of the frame around them.
    That gutter runs where bridges can pass: in line with the gutter of an inner frame, or between two frames, and of
    these places at the one nearest to the middle."""
    total = sum(frame.width + ACROSS for frame in frames) - ACROSS
    gutter_xs, x = [], 0.0
    for frame in frames:
        gutter_xs += [x + frame.left, x + frame.width + ACROSS / 2]
        x += frame.width + ACROSS
    gutter_xs.pop()  # the last one is behind the last frame, not between two
    left = min(gutter_xs, key=lambda gutter_x: abs(gutter_x - total / 2))
    return left, total - left


@dataclass(slots=True)
class _PictureBuilder:
    """Places the boxes and lines of a picture, which `place` appends to `boxes` and `lines`. `opened` are the numbers
    of the frames that are open, and `title` stands above the outermost. `extents` is a cache of `extent_of`, by unit,
    and `ports` has the ports whose names stand beside each step."""

    drawn: DrawnPair
    opened: frozenset[int]
    title: str = ""
    boxes: list[DrawnBox] = field(default_factory=list)
    lines: list[DrawnLine] = field(default_factory=list)
    extents: dict[int, _Extent] = field(default_factory=dict)
    ports: dict[int, list[ScenePort]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = ports_beside(self.drawn)

    # ---- Sizes

    def width_with(self, opened: Collection[int]) -> float:
        """Set which frames are open, and return how wide the picture is then."""
        self.opened = frozenset(opened)
        # The extents of steps (units from 0 on) hold for any choice; those of frames do not.
        self.extents = {unit: extent for unit, extent in self.extents.items() if unit >= 0}
        return self.extent_of(frame_unit(0)).width + 2 * PAD

    def extent_of(self, unit: int) -> _Extent:
        """Return the extent of a unit."""
        if unit not in self.extents:
            self.extents[unit] = self.extent_of_frame(frame_unit(unit)) if unit < 0 else self.extent_of_node(unit)
        return self.extents[unit]

    def extent_of_node(self, node: int) -> _Extent:
        """Return the extent of a step with the names of its ports, measured from the gutter: a step of the forward
        reaches only to the left of it, one of the backward only to the right."""
        pills = [_pill_width(port) for port in self.ports.get(node, ())]
        width = GUTTER / 2 + _cell_width(self.drawn, node) + (max(pills) + 4 if pills else 0)
        height = max(_node_height(self.drawn, node), len(pills) * (PILL + 2))
        left = self.drawn.scene.nodes[node].side == FORWARD
        return _Extent(width if left else 0, 0 if left else width, height)

    def extent_of_frame(self, number: int) -> _Extent:
        """Return the extent of a frame: folded, a loop that shows a turn, or its rows. A title that is wider than the
        content widens both sides."""
        half = GUTTER / 2
        if number not in self.opened:
            # Each half is as wide as the longer of its two lines of text, with a margin, and no less than 48.
            texts_of_halves = folded_texts(self.drawn, number)
            left, right = (half + max(48.0, 16 + LETTER * max(map(len, texts))) for texts in texts_of_halves)
            return _Extent(left, right, FOLDED)
        title = TITLE_MARGIN + BOLD * len(title_text(self.drawn, number, self.title))
        # Beside the title of the outermost frame stands what the picture shows.
        title += 0 if number else PAD + SMALL * (len(contents_of(self.drawn)) + 1)
        if self.drawn.layout_of_frame[number] < 0:  # a loop, which shows one turn
            inner = self.extent_of(units_shown(self.drawn, number)[0])
            left, right, height = inner.left + PAD, inner.right + PAD, inner.height + PAD
        else:
            left, right, height = self.extent_of_rows(number)
        wide = max(title - left - right, 0)
        return _Extent(left + wide / 2, right + wide / 2, height + HEAD)

    def extent_of_rows(self, number: int) -> tuple[float, float, float]:
        """Return how far the rows of a frame reach to the left and to the right of its gutter, with their channels, and
        how high they are together."""
        layout, units = self.drawn.layouts[self.drawn.layout_of_frame[number]], self.drawn.frames[number].units
        left = right = GUTTER / 2
        height = TOP + BOTTOM - GAP  # one GAP less than there are rows
        for row in layout.rows:
            extent = self.extent_of_row(row, units)
            left, right, height = max(left, extent.left), max(right, extent.right), height + extent.height + GAP
        left_slots, right_slots = layout.slots
        return left + PAD + left_slots * SLOT, right + PAD + right_slots * SLOT, max(height, TOP)

    def extent_of_row(self, row: FrameRow, units: Sequence[int]) -> _Extent:
        """Return the extent of a row, which has frames or steps, as `place_row` puts them; `units` are the frame's.
        Each step's extent begins at the middle of the gutter, so half of the gutter is taken off it."""
        frames = [self.extent_of(units[place]) for place in row.frames]
        left, right = _extents_around_gutter(frames) if frames else (GUTTER / 2, GUTTER / 2)
        left_steps = [self.extent_of(units[place]) for place in row.left]
        right_steps = [self.extent_of(units[place]) for place in row.right]
        # Between each step and what is nearer to the gutter is one ACROSS; the first step of a row without frames has
        # nothing nearer, and needs none.
        left += sum(step.left - GUTTER / 2 + ACROSS for step in left_steps) - (
            ACROSS if left_steps and not frames else 0
        )
        right += sum(step.right - GUTTER / 2 + ACROSS for step in right_steps) - (
            ACROSS if right_steps and not frames else 0
        )
        heights = [extent.height for extent in (*frames, *left_steps, *right_steps)]
        return _Extent(left, right, max(heights, default=0.0))

    # ---- Places

    def place(self, unit: int, gutter: float, top: float, depth: int = 0) -> DrawnBox:
        """Add the boxes and lines of a unit, and of all that is in it, and return its box. `gutter` is the x of its
        gutter's middle, `top` its y; `depth` frames are around it."""
        extent = self.extent_of(unit)
        if unit >= 0:
            return self.place_node(unit, gutter, top)
        number = frame_unit(unit)
        is_open = number in self.opened
        left, width = gutter - extent.left, extent.left + extent.right
        box = DrawnBox(unit, left, top, width, extent.height, gutter, is_open, depth)
        self.boxes.append(box)
        if not is_open:
            self.lines += _folded_bridge(self.drawn, number, box)
        elif self.drawn.layout_of_frame[number] < 0:  # a loop
            inner = self.place(units_shown(self.drawn, number)[0], gutter, top + HEAD, depth + 1)
            self.lines += _through_loop(self.drawn, number, box, inner)
        else:
            self.place_rows(number, box)
        return box

    def place_node(self, node: int, gutter: float, top: float) -> DrawnBox:
        """Add the box of a step, centered in its lane, with the names of its ports (pills) on the side away from the
        gutter, 4 from the box and 2 from one another."""
        width, height = _node_width(self.drawn, node), _node_height(self.drawn, node)
        is_forward = self.drawn.scene.nodes[node].side == FORWARD
        offset = GUTTER / 2 + (_cell_width(self.drawn, node) - width) / 2
        x = gutter - offset - width if is_forward else gutter + offset
        pills = []
        for count, port in enumerate(self.ports.get(node, ())):
            pill_width = _pill_width(port)
            pill_x = x - 4 - pill_width if is_forward else x + width + 4
            pills.append(
                _PortPill(port.port.role, pill_text(port), port.port.name, pill_x, top + count * (PILL + 2), pill_width)
            )
        box = DrawnBox(node, x, top, width, height, gutter, pills=tuple(pills))
        self.boxes.append(box)
        return box

    def place_rows(self, number: int, box: DrawnBox) -> None:
        """Add the boxes of an open frame's rows, from the top down, and then its lines, whose ends are known then.
        `box` is the frame's."""
        layout, units = self.drawn.layouts[self.drawn.layout_of_frame[number]], self.drawn.frames[number].units
        placed: dict[int, DrawnBox] = {}
        bands: dict[int, tuple[float, float]] = {}
        top = box.y + HEAD + TOP
        for row in layout.rows:
            height = self.extent_of_row(row, units).height
            placed |= self.place_row(row, units, box.gutter, top, box.depth + 1)
            bands |= dict.fromkeys((*row.left, *row.frames, *row.right), (top, top + height))
            top += height + GAP
        lines = Lines(self.drawn, box, placed, bands, layout)
        self.lines += (lines.flow("forward", line) for line in layout.left)
        self.lines += (lines.flow("backward", line) for line in layout.right)
        self.lines += lines.bridges(layout.bridges)

    def place_row(
        self, row: FrameRow, units: Sequence[int], gutter: float, top: float, depth: int
    ) -> dict[int, DrawnBox]:
        """Add the boxes of a row: frames side by side, and steps from the gutter outwards. Return them by their places
        in the frame. `units` are the frame's, `gutter` is the x of its gutter's middle, `top` the y of the row, and
        `depth` how many frames are around what is in it."""
        placed: dict[int, DrawnBox] = {}
        frames = [self.extent_of(units[place]) for place in row.frames]
        # A row has frames or steps, never both (`_RowOccupancy.has_room`), so steps begin at the gutter.
        if frames:
            frames_to_the_left, _ = _extents_around_gutter(frames)
            x = gutter - frames_to_the_left
            for place, extent in zip(row.frames, frames, strict=True):
                placed[place] = self.place(units[place], x + extent.left, top, depth)
                x += extent.width + ACROSS
        left_x, right_x = gutter - GUTTER / 2, gutter + GUTTER / 2
        for place in row.left:
            # A step stands half a gutter away from the gutter that it is given.
            placed[place] = self.place(units[place], left_x + GUTTER / 2, top)
            left_x -= self.extent_of(units[place]).left - GUTTER / 2 + ACROSS
        for place in row.right:
            placed[place] = self.place(units[place], right_x - GUTTER / 2, top)
            right_x += self.extent_of(units[place]).right - GUTTER / 2 + ACROSS
        return placed

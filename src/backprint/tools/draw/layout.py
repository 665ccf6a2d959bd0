"""Layout: where the units of a frame stand, so that each step of the backward is beside its forward.

A row has steps of the forward at the left, frames in the middle, and steps of the backward at the right. Values of the
forward flow down, those of the backward up. A flow that passes other units runs in a channel at the side of the frame,
which has *slots* side by side, numbered from the inside. `drawn_pair` lays out all frames of a Pair. A unit is named by
its *place*: its position in `Frame.units`; there a step is a number from 0 on, a frame a negative one (`frame_unit`).

Words of this file:

- A `Scene` has the steps of both directions as *nodes*, by number, those of the forward first (`scene.forward` of
  them). A *value* is the number of the node that makes it, or, behind all nodes, of an input. The *side* of a node is
  FORWARD or BACKWARD, 0 or 1.
- `Flows`: the flows of one kind (FORWARD, BACKWARD, SAVED) in a frame: by the places from which and to which they go,
  the values that go there. OUTSIDE, -1, stands for what is not in the frame.
- The *gutter* is the space between the two halves of a frame; a *bridge* is what is saved, which crosses it.
- Of a step of the backward, a *taker* is a step that takes its result, and stands above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from backprint.graph.nouns import Graph, Pair, TensorSpec
from backprint.graph.sizes import at_example_sizes
from backprint.graph.text import show_spec
from backprint.tools.cost.costs import StepCost, each_storage, held_storages, step_costs, storages_of
from backprint.tools.draw.scene import (
    BACKWARD,
    FORWARD,
    OUTSIDE,
    SAVED,
    Flows,
    Frame,
    Places,
    Scene,
    SceneBridge,
    bytes_of,
    flows_in,
    flows_kinds,
    frame_unit,
    frames_of,
    hops,
    partner_in,
    places_in,
    scene_of,
)

# ---- Rows


WIDE = 4
"""The most steps of one side that stand side by side. Frames have a row each: side by side, the backward of one would
stand among the forward of the next."""

LEFT, MIDDLE, RIGHT = 0, 1, 2
"""The columns of a row: steps of the forward, frames, steps of the backward."""


@dataclass(frozen=True, slots=True)
class FrameRow:
    """Units side by side, by their places in the frame."""

    left: tuple[int, ...]
    frames: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowLine:
    """A line from one unit to another, by their places, or from or to the OUTSIDE; `slot` is its place in the channel,
    -1 if it needs none."""

    source: int
    target: int
    slot: int
    spec: str
    """The shape of its one value; '' of several."""
    count: int
    """How many values go along it."""


@dataclass(frozen=True, slots=True)
class BridgeLine:
    """What is saved from one unit to another, by their places, or from or to the OUTSIDE: how many tensors, and their
    bytes."""

    source: int
    target: int
    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of a frame, and its lines: flows of the forward (`left`) and of the backward (`right`), how many slots
    the channel of each takes, and bridges. Frames of one structure have one Layout."""

    rows: tuple[FrameRow, ...]
    left: tuple[FlowLine, ...]
    right: tuple[FlowLine, ...]
    slots: tuple[int, int]
    bridges: tuple[BridgeLine, ...]


def _layout_of(
    frame: Frame,
    flows: tuple[Flows, Flows, Flows],
    scene: Scene,
    spec_text: Callable[[int], str],
    bytes_of_value: Callable[[int], int],
) -> Layout:
    """Return the layout of a frame that is no loop; `spec_text` and `bytes_of_value` say what stands at the lines of a
    value."""
    blocks = _blocks_of(frame, flows[BACKWARD], scene)
    starts = _starts_of(blocks, flows, frame)
    rows = order_rows(_frame_rows(blocks, starts, frame), flows)
    row_of = {place: number for number, row in enumerate(rows) for place in (*row.left, *row.frames, *row.right)}

    def lines_of(side: int) -> tuple[tuple[FlowLine, ...], int]:
        """Return the lines of one side's flows, and how many slots their channel takes."""
        # The rows that a flow of this side cannot pass in the middle of its lane.
        blocked = {
            number for number, row in enumerate(rows) if row.frames or (row.left if side == FORWARD else row.right)
        }
        slot_of_flow = slots_of(flows[side], row_of, blocked, len(rows), side)
        lines = []
        for (source, target), values in flows[side].items():
            spec = spec_text(next(iter(values))) if len(values) == 1 else ""
            lines.append(FlowLine(source, target, slot_of_flow[source, target], spec, len(values)))
        return tuple(lines), max(slot_of_flow.values(), default=-1) + 1

    left, left_slots = lines_of(FORWARD)
    right, right_slots = lines_of(BACKWARD)
    bridges = tuple(
        BridgeLine(source, target, sum(map(bytes_of_value, values)), len(values))
        for (source, target), values in flows[SAVED].items()
    )
    return Layout(rows, left, right, (left_slots, right_slots), bridges)


# ---- Blocks


@dataclass(frozen=True, slots=True)
class _LaneBlock:
    """What stays together: a frame, or a step of the forward and the steps of the backward beside it; or one step of
    the backward that has no step of the forward here."""

    key: float
    """Blocks stand in the order of their keys."""
    ahead: tuple[int, ...]
    """The place of the step of the forward, or of the frame; empty for a step of the backward alone."""
    levels: tuple[tuple[int, ...], ...]
    """The places of the steps of the backward, a tuple for each row; the last computed are on top, as values of the
    backward flow up."""

    @property
    def height(self) -> int:
        return max(1, len(self.levels))

    def needs(self, at: int, units: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield (row, column, number of units) for all that it takes if it begins in row `at`; `units` are the
        frame's."""
        for place in self.ahead:
            yield at, MIDDLE if units[place] < 0 else LEFT, 1
        for offset, level in enumerate(self.levels):
            yield at + offset, RIGHT, len(level)


@dataclass(frozen=True, slots=True)
class _RowOccupancy:
    """Counts the units in each row and column (`counts`); `units` are the frame's. Steps do not stand beside frames:
    they would be far from the gutter."""

    units: Sequence[int]
    counts: Counter[tuple[int, int]] = field(default_factory=Counter)

    def has_room(self, block: _LaneBlock, row: int) -> bool:
        """Whether a block can begin in row `row`. What is wider than WIDE itself may have a row that is empty."""
        for needed_row, column, count in block.needs(row, self.units):
            count_here = self.counts[needed_row, column]
            most = 1 if column == MIDDLE else WIDE
            if count_here and count_here + count > most:
                return False
            other_columns = (LEFT, RIGHT) if column == MIDDLE else (MIDDLE,)
            if any(self.counts[needed_row, other] for other in other_columns):
                return False
        return True

    def put(self, block: _LaneBlock, at: int, by: int = 1) -> None:
        """Count a block that begins in row `at`; with `by=-1` take it away again."""
        for row, column, count in block.needs(at, self.units):
            self.counts[row, column] += by * count


def _blocks_of(frame: Frame, backward: Flows, scene: Scene) -> list[_LaneBlock]:
    """Return the units of a frame as blocks, in the order of their keys. The key of a frame or a step of the forward is
    its order among these; that of a step of the backward that stands alone is half more than the largest key of what
    takes its result. `backward` are the flows of the backward in the frame."""
    place_of_unit = {unit: place for place, unit in enumerate(frame.units)}
    # Steps of the forward, and frames, are smaller numbers than steps of the backward.
    forward_places = [place for place, unit in enumerate(frame.units) if unit < scene.forward]
    forward_steps = {unit for unit in frame.units if 0 <= unit < scene.forward}
    # The places of the backward's steps, by the place of the step of the forward that they stand beside.
    backward_places: dict[int, list[int]] = {}
    without_partner: list[int] = []
    for place, unit in enumerate(frame.units):
        if unit >= scene.forward:
            partner = partner_in(unit, forward_steps, scene.nodes)
            if partner is None:
                without_partner.append(place)
            else:
                backward_places.setdefault(place_of_unit[partner], []).append(place)
    takers = _takers_of(backward)
    blocks = [
        _LaneBlock(order, (place,), _levels_of(backward_places.get(place, ()), takers))
        for order, place in enumerate(forward_places)
    ]
    keys = {place: block.key for block in blocks for place in (*block.ahead, *sum(block.levels, ()))}
    # From the last step on, so that those that take a step's result have their keys before it. What nothing here takes
    # goes to the top, where the backward leaves the frame.
    for place in sorted(without_partner, key=lambda place: -frame.units[place]):
        keys_of_takers = [keys[taker] for taker in takers.get(place, ()) if taker in keys]
        keys[place] = max(keys_of_takers) + 0.5 if keys_of_takers else -1.0
        blocks.append(_LaneBlock(keys[place], (), ((place,),)))
    return sorted(blocks, key=lambda block: block.key)


def _takers_of(flows: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return for each unit those that take its values; `flows` are pairs (source, target)."""
    takers: dict[int, list[int]] = {}
    for source, target in flows:
        takers.setdefault(source, []).append(target)
    return takers


def _levels_of(places: Sequence[int], takers: Mapping[int, Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the steps of the backward of one block in levels, one for a row: each step below those that take its
    result, and at most WIDE in a level. `places` are in the order of computation; the first level is the highest."""
    level_of: dict[int, int] = {}
    levels: list[list[int]] = []
    for place in reversed(places):  # takers come first
        level = max((level_of[taker] + 1 for taker in takers.get(place, ()) if taker in level_of), default=0)
        while level < len(levels) and len(levels[level]) >= WIDE:
            level += 1
        levels += [[] for _ in range(level + 1 - len(levels))]
        levels[level].insert(0, place)
        level_of[place] = level
    return tuple(map(tuple, levels))


def _starts_of(blocks: Sequence[_LaneBlock], flows: tuple[Flows, Flows, Flows], frame: Frame) -> list[int]:
    """Return the row in which each block begins: the first with room below the blocks from which its forward takes, and
    below those to which its backward gives. A block that takes no value begins as low as it can."""
    block_of_place = {
        place: number for number, block in enumerate(blocks) for place in (*block.ahead, *sum(block.levels, ()))
    }
    blocks_above: list[set[int]] = [set() for _ in blocks]
    for side in (FORWARD, BACKWARD):
        for source, target in flows[side]:
            # Values of the forward flow down, those of the backward up.
            upper_place, lower_place = (source, target) if side == FORWARD else (target, source)
            upper, lower = block_of_place.get(upper_place, OUTSIDE), block_of_place.get(lower_place, OUTSIDE)
            # A flow against the order of the blocks is left out: it would be a cycle. It runs in the channel.
            if OUTSIDE < upper < lower:
                blocks_above[lower].add(upper)
    starts: list[int] = []
    occupancy = _RowOccupancy(frame.units)
    for number, block in enumerate(blocks):
        row = max((starts[upper] + blocks[upper].height for upper in blocks_above[number]), default=0)
        while not occupancy.has_room(block, row):
            row += 1
        occupancy.put(block, row)
        starts.append(row)
    places_with_input = {target for side in (FORWARD, BACKWARD) for _, target in flows[side]}
    return move_down_constants(blocks, starts, blocks_above, places_with_input, occupancy)


def move_down_constants(
    blocks: Sequence[_LaneBlock],
    starts: list[int],
    blocks_above: Sequence[set[int]],
    places_with_input: set[int],
    occupancy: _RowOccupancy,
) -> list[int]:
    """Move blocks that take no value, such as a constant, down to just above the first that takes their result, so that
    the lines are short. Change `starts` (the first row of each block) and `occupancy`, and return `starts`.

    `blocks_above` has for each block the numbers of those that must stand above it; `places_with_input` are those of
    the units that take a value, from outside too.
    """
    blocks_below: list[list[int]] = [[] for _ in blocks]
    for lower, uppers in enumerate(blocks_above):
        for upper in uppers:
            blocks_below[upper].append(lower)
    for number in range(len(blocks) - 1, -1, -1):
        block = blocks[number]
        if not blocks_above[number] and blocks_below[number] and places_with_input.isdisjoint(block.ahead):
            occupancy.put(block, starts[number], by=-1)
            row = max(starts[number], min(starts[lower] for lower in blocks_below[number]) - block.height)
            while row > starts[number] and not occupancy.has_room(block, row):
                row -= 1
            starts[number] = row
            occupancy.put(block, row)
    return starts


def _frame_rows(blocks: Sequence[_LaneBlock], starts: Sequence[int], frame: Frame) -> tuple[FrameRow, ...]:
    """Return the rows of blocks that begin in the rows `starts`; rows in which nothing stands are left out."""
    count = max((start + block.height for start, block in zip(starts, blocks, strict=True)), default=0)
    parts: list[tuple[list[int], list[int], list[int]]] = [([], [], []) for _ in range(count)]
    for start, block in zip(starts, blocks, strict=True):
        for place in block.ahead:
            parts[start][MIDDLE if frame.units[place] < 0 else LEFT].append(place)
        for offset, level in enumerate(block.levels):
            parts[start + offset][RIGHT].extend(level)
    return tuple(FrameRow(*map(tuple, part)) for part in parts if any(part))


def order_rows(rows: Sequence[FrameRow], flows: tuple[Flows, Flows, Flows]) -> tuple[FrameRow, ...]:
    """Return rows in which each unit stands, as far as it can, straight below a unit of a row above: for steps of the
    forward and frames one whose result it takes, for steps of the backward one that takes its result. What takes from
    outside, or gives there, is at the gutter; what no flow reaches is the farthest from it."""
    makers = _takers_of((target, source) for source, target in flows[FORWARD])
    takers = _takers_of(flows[BACKWARD])
    units_with_flows = [{end for ends in flows[side] for end in ends} for side in (FORWARD, BACKWARD)]
    # How far from the gutter each unit stands, to the right: 0 is next to it, steps of the forward are 0, -1, -2, …
    seat = {OUTSIDE: 0.0}
    ordered = []
    for row in rows:  # from the top down, so that the seats above are known
        columns = []
        # `first_seat` is the seat of the first unit of a column, `direction` the direction in which the next ones
        # stand: steps from the gutter outwards, frames from the left to the right with their middle at the gutter.
        for column, uppers, with_flows, first_seat, direction in (
            (row.left, makers, units_with_flows[FORWARD], 0.0, -1),
            (row.frames, makers, units_with_flows[FORWARD], (1 - len(row.frames)) / 2, 1),
            (row.right, takers, units_with_flows[BACKWARD], 0.0, 1),
        ):
            initial_seats = {place: first_seat + count for count, place in enumerate(column)}
            sort_keys = {}
            for place in column:
                # The median of the seats above, the lower one of two; without one the unit keeps its own.
                seats = sorted(direction * seat[upper] for upper in uppers.get(place, ()) if upper in seat)
                wanted_seat = seats[(len(seats) - 1) // 2] if seats else initial_seats[place]
                # What no flow reaches last; then by the seat; of equals first what is below another unit.
                sort_keys[place] = place not in with_flows, wanted_seat, not seats
            columns.append(tuple(sorted(column, key=sort_keys.__getitem__)))
            # In their new order they take the seats of the column, from the gutter outwards.
            seat |= {
                place: direction * seat_in_column
                for place, seat_in_column in zip(columns[-1], initial_seats.values(), strict=True)
            }
        ordered.append(FrameRow(*columns))
    return tuple(ordered)


# ---- Channels


def slots_of(
    flows: Flows, row_of: Mapping[int, int], blocked: set[int], count: int, side: int
) -> dict[tuple[int, int], int]:
    """Return the slot of the channel in which each flow of a side runs; -1 if nothing stands between its ends. `row_of`
    has the row of each unit, by its place, `blocked` are the rows that no flow of this side can pass, `count` is the
    number of rows.

    Flows from one unit share a slot: its span is from the highest row to the lowest that one of them reaches. Spans are
    put into the first slot that is free, from the top down.
    """
    # The rows before and after all others stand for the border where flows enter, and where they leave.
    entry_row, exit_row = (-1, count) if side == FORWARD else (count, -1)
    direction = 1 if side == FORWARD else -1
    without_slot: set[tuple[int, int]] = set()
    spans: dict[int, tuple[int, int]] = {}  # by the place of the unit from which the flows go
    for source, target in flows:
        start = entry_row if source == OUTSIDE else row_of[source]
        end = exit_row if target == OUTSIDE else row_of[target]
        top, bottom = min(start, end), max(start, end)
        if (end - start) * direction > 0 and blocked.isdisjoint(range(top + 1, bottom)):
            without_slot.add((source, target))
        else:
            span_top, span_bottom = spans.get(source, (top, bottom))
            spans[source] = (min(top, span_top), max(bottom, span_bottom))
    slot_ends: list[int] = []  # the row in which the last span of each slot ends
    slot_of_source: dict[int, int] = {}
    for source, (top, bottom) in sorted(spans.items(), key=lambda source_and_span: source_and_span[1]):
        slot = next((slot for slot, end in enumerate(slot_ends) if end <= top), len(slot_ends))
        slot_ends[slot : slot + 1] = [bottom]  # a new slot is appended
        slot_of_source[source] = slot
    return {
        (source, target): -1 if (source, target) in without_slot else slot_of_source[source] for source, target in flows
    }


# ---- A Pair as it is drawn: its scene, its frames, their layouts and their costs

Ends = tuple[int, int, int, int]
"""A frame, the kind of a flow in it (FORWARD, BACKWARD, SAVED), and the places from which and to which it goes."""


@dataclass(frozen=True, slots=True)
class FlowMark:
    """What was measured on a flow of a region that ran: in a few letters, in full, and whether it has NaN or Inf."""

    short: str
    text: str
    is_bad: bool


@dataclass(frozen=True, slots=True)
class _FrameCost:
    """What is in a frame, with all that is in frames of it."""

    forward_steps: int
    backward_steps: int
    saved_bytes: int
    """Of tensors that steps in the frame make and the backward keeps."""
    forward_flops: int
    """Of matrix products, convolutions and attentions."""
    backward_flops: int


@dataclass(frozen=True, slots=True)
class _SavedBytes:
    """The bytes of a tensor that is saved, and those that it alone keeps alive: `own` is 0 where it shares its memory
    with one before it, or with an input."""

    bridge: SceneBridge
    bytes: int
    own: int


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """All that a picture or a page shows of a Pair, or of a pass of a region."""

    scene: Scene
    frames: tuple[Frame, ...]
    layouts: tuple[Layout, ...]
    layout_of_frame: tuple[int, ...]
    """The number of each frame's layout; -1 of a loop, which shows one of its turns."""
    costs: tuple[StepCost, ...]
    """The FLOPs of each node, and the bytes that it reads and writes."""
    frame_costs: tuple[_FrameCost, ...]
    saved: tuple[_SavedBytes, ...]
    marks: Mapping[Ends, FlowMark] = field(default_factory=dict)
    """What was measured on flows, by the lines that they are drawn as."""
    marks_of_flows: Mapping[tuple[int, int], FlowMark] = field(default_factory=dict)
    """The same by the step that makes a value and the step that takes it."""


def drawn_pair(pair: Pair, classes: Mapping[str, str] | None = None) -> DrawnPair:
    """Return a Pair as it is drawn; `classes` are those of its modules, by path (`Capture.modules`)."""
    scene = scene_of(pair, classes)
    costs = step_costs(pair.forward) + (step_costs(pair.backward) if pair.backward is not None else ())
    return drawn_scene(scene, costs, tuple(_saved_tensors_sized(pair.forward, scene)))


def drawn_scene(
    scene: Scene,
    costs: tuple[StepCost, ...],
    saved: tuple[_SavedBytes, ...] = (),
    marks: Mapping[tuple[int, int], FlowMark] | None = None,
) -> DrawnPair:
    """Return a scene as it is drawn, of a Pair or of a pass of a region. `costs` are by node; `saved` are the sizes of
    the saved tensors; `marks` are by the step that makes a value and the step that takes it."""
    frames = frames_of(scene)
    saved_bytes = {tensor.bridge.made: tensor.own for tensor in saved if tensor.own}
    places = places_in(scene, frames)
    flows = flows_in(scene, frames, places)
    marks_of_lines = _marks_in_frames(scene, places, marks) if marks else {}
    layouts, layout_of_frame = _layouts_of(
        scene, frames, flows, lambda value: saved_bytes.get(value, 0), marks_of_lines
    )
    costs_of_frames = frame_costs(scene, frames, costs, saved_bytes)
    return DrawnPair(
        scene, frames, layouts, layout_of_frame, costs, costs_of_frames, saved, marks_of_lines, marks or {}
    )


def _marks_in_frames(scene: Scene, places: Places, marks: Mapping[tuple[int, int], FlowMark]) -> dict[Ends, FlowMark]:
    """Return what was measured on flows by the lines that they are drawn as: a flow between two frames is a line in
    each frame on its way, and a line may have several flows."""
    marks_of_ends: dict[Ends, list[FlowMark]] = {}
    for kind, value, taker in flows_kinds(scene):
        mark = marks.get((value, taker))
        if mark is not None:
            for frame, source, target in hops(places, places.of_node[value], places.of_node[taker]):
                marks_of_ends.setdefault((frame, kind, source, target), []).append(mark)
    return {ends: _merge_marks(marks) for ends, marks in marks_of_ends.items()}


MOST_NAMED = 3
"""The most flows that are named at one line."""


def _merge_marks(marks: Sequence[FlowMark]) -> FlowMark:
    """Return the marks of several flows as one: of those with NaN or Inf where there are such, else of all."""
    shown = [mark for mark in marks if mark.is_bad] or marks
    shorts = list(dict.fromkeys(mark.short for mark in shown))
    omitted = [f"+{len(shorts) - MOST_NAMED}"] if len(shorts) > MOST_NAMED else []
    text = "\n\n".join(dict.fromkeys(mark.text for mark in shown))
    return FlowMark(", ".join([*shorts[:MOST_NAMED], *omitted]), text, shown[0].is_bad)


def _layouts_of(
    scene: Scene,
    frames: Sequence[Frame],
    flows: Sequence[tuple[Flows, Flows, Flows]],
    bytes_of_value: Callable[[int], int],
    marks: Mapping[Ends, FlowMark],
) -> tuple[tuple[Layout, ...], tuple[int, ...]]:
    """Return the layouts of frames, each different one once, and for each frame the number of its layout, -1 of a loop.
    `flows` are those of each frame by kind. Where something was measured on a flow (`marks`), it replaces the shape at
    its line."""

    @cache
    def spec_text(value: int) -> str:
        spec = scene.nodes[value].spec
        # Strides are left out: there is no room at a line.
        return show_spec(replace(spec, stride=None, offset=0)) if isinstance(spec, TensorSpec) else ""

    number_of_layout: dict[Layout, int] = {}
    numbers = []
    for number, (frame, flows_of_frame) in enumerate(zip(frames, flows, strict=True)):
        if frame.kind == "loop":
            numbers.append(-1)
        else:
            layout = _layout_of(frame, flows_of_frame, scene, spec_text, bytes_of_value)
            if marks:
                left_lines = _lines_with_marks(layout.left, number, FORWARD, marks)
                layout = replace(
                    layout, left=left_lines, right=_lines_with_marks(layout.right, number, BACKWARD, marks)
                )
            numbers.append(number_of_layout.setdefault(layout, len(number_of_layout)))
    return tuple(number_of_layout), tuple(numbers)


def _lines_with_marks(
    lines: Iterable[FlowLine], frame: int, side: int, marks: Mapping[Ends, FlowMark]
) -> tuple[FlowLine, ...]:
    """Return the lines of a side of a frame with what was measured on them."""
    lines_and_marks = ((line, marks.get((frame, side, line.source, line.target))) for line in lines)
    return tuple(replace(line, spec=mark.short) if mark else line for line, mark in lines_and_marks)


def _saved_tensors_sized(forward: Graph, scene: Scene) -> Iterator[_SavedBytes]:
    """Yield the bytes of each saved tensor; memory that several share counts for the first, and that of inputs and
    constants, which lives anyway, for none."""
    graph = at_example_sizes(forward)
    storages, uncounted = storages_of(graph)  # the storages of each value, and the bytes of each storage
    for storage in held_storages(graph, storages):
        uncounted.pop(storage, None)
    names = [step.name for step in forward.steps]
    for bridge in scene.bridges:
        if bridge.made >= len(scene.nodes):  # an input of the forward
            yield _SavedBytes(bridge, bytes_of(bridge.spec), own=0)
        else:
            own = sum(uncounted.pop(storage, 0) for storage in each_storage(storages[names[bridge.made]]))
            yield _SavedBytes(bridge, bytes_of(scene.nodes[bridge.made].spec), own)


def frame_costs(
    scene: Scene, frames: Sequence[Frame], costs: Sequence[StepCost], saved_of_node: Mapping[int, int]
) -> tuple[_FrameCost, ...]:
    """Return what is in each frame, with all that is in frames of it. `saved_of_node` has the bytes that are saved
    of each node's result."""
    steps = [[0, 0] for _ in frames]  # of the forward, and of the backward
    flops = [[0, 0] for _ in frames]
    saved_bytes = [0 for _ in frames]
    # Inner frames have higher numbers (`number_boxes`), so they are complete when the one around them adds them.
    for number in reversed(range(len(frames))):
        for unit in frames[number].units:
            if unit < 0:
                inner = frame_unit(unit)
                for side in (FORWARD, BACKWARD):
                    steps[number][side] += steps[inner][side]
                    flops[number][side] += flops[inner][side]
                saved_bytes[number] += saved_bytes[inner]
            else:
                side = scene.nodes[unit].side
                steps[number][side] += 1
                flops[number][side] += costs[unit].flops
                saved_bytes[number] += saved_of_node.get(unit, 0)
    return tuple(
        _FrameCost(
            forward_steps=steps[number][FORWARD],
            backward_steps=steps[number][BACKWARD],
            saved_bytes=saved_bytes[number],
            forward_flops=flops[number][FORWARD],
            backward_flops=flops[number][BACKWARD],
        )
        for number in range(len(frames))
    )

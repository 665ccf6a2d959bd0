"""Rows: where the units of a frame stand, one below the other, so that each step of the backward is beside its forward.

A row has steps of the forward at the left, frames in the middle, and steps of the backward at the right. Values of the
forward flow down, those of the backward up. A flow that passes other units runs in a channel beside the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from backprint.drawing.flows import OUTSIDE, SAVED, Flows
from backprint.drawing.frames import Frame, partner_in
from backprint.drawing.scene import BACKWARD, FORWARD, Scene

WIDE = 4
"""The most steps of one side, and the most frames, that stand side by side."""


@dataclass(frozen=True, slots=True)
class FrameRow:
    """Units side by side, by their places in the frame."""

    left: tuple[int, ...]
    frames: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowLine:
    """A line from one unit to another, or to the outside; `slot` is its place in the channel, -1 if it needs none."""

    source: int
    target: int
    slot: int
    spec: str
    count: int
    """How many values go along it."""


@dataclass(frozen=True, slots=True)
class BridgeLine:
    """What is saved from one unit to another, or to the outside."""

    source: int
    target: int
    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of a frame and the lines between them. Frames of one structure have one Layout."""

    rows: tuple[FrameRow, ...]
    left: tuple[FlowLine, ...]
    right: tuple[FlowLine, ...]
    slots: tuple[int, int]
    bridges: tuple[BridgeLine, ...]


def layout_of(
    frame: Frame,
    flows: tuple[Flows, Flows, Flows],
    scene: Scene,
    spec_text: Callable[[int], str],
    bytes_of_value: Callable[[int], int],
) -> Layout:
    """Return the layout of a frame that is no loop."""
    blocks = blocks_of(frame, flows[BACKWARD], scene)
    rows = frame_rows(blocks, starts_of(blocks, flows), frame, scene)
    row_of = {place: number for number, row in enumerate(rows) for place in (*row.left, *row.frames, *row.right)}
    lines, slots = [], []
    for side in (FORWARD, BACKWARD):
        taken = {number for number, row in enumerate(rows) if row.frames or (row.right if side else row.left)}
        placed = slots_of(flows[side], row_of, taken, len(rows), side)
        slots.append(max(placed.values(), default=-1) + 1)
        lines.append(tuple(
            FlowLine(*ends, placed[ends], spec_text(next(iter(values))) if len(values) == 1 else "", len(values))
            for ends, values in flows[side].items()
        ))  # fmt: skip
    bridges = tuple(
        BridgeLine(*ends, sum(map(bytes_of_value, values)), len(values)) for ends, values in flows[SAVED].items()
    )
    return Layout(rows, lines[0], lines[1], (slots[0], slots[1]), bridges)


# ------------------------------------------------------------------ blocks


@dataclass(frozen=True, slots=True)
class LaneBlock:
    """What stays together: a frame, or a step of the forward and the steps of the backward beside it."""

    key: float
    """Blocks stand in the order of their keys."""
    ahead: tuple[int, ...]
    """The step of the forward, or the frame."""
    levels: tuple[tuple[int, ...], ...]
    """The steps of the backward, from the one that is computed last down."""

    @property
    def height(self) -> int:
        return max(1, len(self.levels))


def blocks_of(frame: Frame, backward: Flows, scene: Scene) -> list[LaneBlock]:
    """Return the units of a frame in blocks, in order."""
    own = {unit: place for place, unit in enumerate(frame.units)}
    ahead = [place for place, unit in enumerate(frame.units) if unit < scene.forward]
    order = {place: count for count, place in enumerate(ahead)}
    forwards = {unit for unit in frame.units if 0 <= unit < scene.forward}
    behind: dict[int, list[int]] = {}
    loose: list[int] = []
    for place, unit in enumerate(frame.units):
        if unit >= scene.forward:
            partner = partner_in(unit, forwards, scene.nodes)
            if partner is None:
                loose.append(place)
            else:
                behind.setdefault(own[partner], []).append(place)
    takers = takers_of(backward)
    blocks = [LaneBlock(order[place], (place,), levels_of(behind.get(place, ()), takers)) for place in ahead]
    keys = {place: block.key for block in blocks for place in (*block.ahead, *sum(block.levels, ()))}
    for place in sorted(loose, key=lambda place: -frame.units[place]):
        near = [keys[taker] for taker in takers.get(place, ()) if taker in keys]
        keys[place] = max(near) + 0.5 if near else -1.0
        blocks.append(LaneBlock(keys[place], (), ((place,),)))
    return sorted(blocks, key=lambda block: block.key)


def takers_of(flows: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return for each unit those that take its values."""
    found: dict[int, list[int]] = {}
    for source, target in flows:
        found.setdefault(source, []).append(target)
    return found


def levels_of(places: Sequence[int], takers: Mapping[int, Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return steps of the backward in levels: each below those that take its result."""
    level: dict[int, int] = {}
    found: list[list[int]] = []
    for place in reversed(places):
        at = max((level[taker] + 1 for taker in takers.get(place, ()) if taker in level), default=0)
        while at < len(found) and len(found[at]) >= WIDE:
            at += 1
        found += [[] for _ in range(at + 1 - len(found))]
        found[at].insert(0, place)
        level[place] = at
    return tuple(map(tuple, found))


def starts_of(blocks: Sequence[LaneBlock], flows: tuple[Flows, Flows, Flows]) -> list[int]:
    """Return the row in which each block begins: below those from which its forward takes, and those to which its
    backward gives."""
    number = {place: count for count, block in enumerate(blocks) for place in (*block.ahead, *sum(block.levels, ()))}
    above: list[set[int]] = [set() for _ in blocks]
    for side in (FORWARD, BACKWARD):
        for ends in flows[side]:
            upper, lower = (number.get(place, OUTSIDE) for place in (ends if side == FORWARD else ends[::-1]))
            if OUTSIDE < upper < lower:
                above[lower].add(upper)
    starts: list[int] = []
    crowd: dict[tuple[int, bool], int] = {}
    for count, block in enumerate(blocks):
        at = max((starts[upper] + blocks[upper].height for upper in above[count]), default=0)
        while crowd.get((at, bool(block.ahead)), 0) >= WIDE:
            at += 1
        crowd[at, bool(block.ahead)] = crowd.get((at, bool(block.ahead)), 0) + 1
        starts.append(at)
    return lowered(blocks, starts, above, {ends[1] for side in (FORWARD, BACKWARD) for ends in flows[side]})


def lowered(blocks: Sequence[LaneBlock], starts: list[int], above: Sequence[set[int]], taking: set[int]) -> list[int]:
    """Return the rows with what begins without a value, such as a constant, moved down to where it is taken."""
    below: list[list[int]] = [[] for _ in blocks]
    for lower, uppers in enumerate(above):
        for upper in uppers:
            below[upper].append(lower)
    for count in range(len(blocks) - 1, -1, -1):
        block = blocks[count]
        if not above[count] and below[count] and taking.isdisjoint(block.ahead):
            starts[count] = max(starts[count], min(starts[lower] for lower in below[count]) - block.height)
    return starts


def frame_rows(blocks: Sequence[LaneBlock], starts: Sequence[int], frame: Frame, scene: Scene) -> tuple[FrameRow, ...]:
    """Return the rows of blocks."""
    count = max((start + block.height for start, block in zip(starts, blocks, strict=True)), default=0)
    parts: list[tuple[list[int], list[int], list[int]]] = [([], [], []) for _ in range(count)]
    for start, block in zip(starts, blocks, strict=True):
        for place in block.ahead:
            parts[start][1 if frame.units[place] < 0 else 0].append(place)
        for offset, level in enumerate(block.levels):
            parts[start + offset][2].extend(level)
    return tuple(FrameRow(*map(tuple, part)) for part in parts if any(part))


# ------------------------------------------------------------------ channels


def slots_of(
    flows: Flows, row_of: Mapping[int, int], taken: set[int], count: int, side: int
) -> dict[tuple[int, int], int]:
    """Return the slot of the channel in which each flow runs; -1 if nothing stands between its ends.

    Flows from one unit share a slot.
    """
    first, last = (-1, count) if side == FORWARD else (count, -1)
    down = 1 if side == FORWARD else -1
    found: dict[tuple[int, int], int] = {}
    spans: dict[int, tuple[int, int]] = {}
    for source, target in flows:
        start = first if source == OUTSIDE else row_of[source]
        end = last if target == OUTSIDE else row_of[target]
        low, high = min(start, end), max(start, end)
        if (end - start) * down > 0 and taken.isdisjoint(range(low + 1, high)):
            found[source, target] = -1
        else:
            was = spans.get(source, (low, high))
            spans[source] = (min(low, was[0]), max(high, was[1]))
    ends: list[int] = []
    slot: dict[int, int] = {}
    for source, (low, high) in sorted(spans.items(), key=lambda item: item[1]):
        free = next((each for each, end in enumerate(ends) if end <= low), len(ends))
        ends[free : free + 1] = [high]
        slot[source] = free
    return {ends_: found.get(ends_, slot.get(ends_[0], -1)) for ends_ in flows}

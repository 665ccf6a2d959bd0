"""Flows: which values go from which unit of a frame to which, with those that enter and leave it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backprint.drawing.frames import Frame, frame_unit
from backprint.drawing.scene import NO_VALUE, Scene

SAVED = 2
"""The third kind of flow, beside those of the two sides: from the forward to the backward."""

OUTSIDE = -1
"""In place of a unit: where values enter and leave a frame."""

Flows = dict[tuple[int, int], dict[int, None]]
"""From which unit to which, by their places in the frame, and the values that go there."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where each node and each frame stands."""

    of_node: Sequence[tuple[int, int]]
    """Its frame, and its place among the units of it."""
    of_frame: Sequence[tuple[int, int]]
    """The same of a frame; -1 and -1 of the first."""
    depth: Sequence[int]


def places_in(scene: Scene, frames: Sequence[Frame]) -> Places:
    """Return where the nodes of a scene and its frames stand."""
    of_node = [(OUTSIDE, OUTSIDE)] * len(scene.nodes)
    of_frame = [(OUTSIDE, OUTSIDE)] * len(frames)
    depth = [0] * len(frames)
    for number, frame in enumerate(frames):
        for place, unit in enumerate(frame.units):
            if unit >= 0:
                of_node[unit] = (number, place)
            else:
                of_frame[frame_unit(unit)] = (number, place)
                depth[frame_unit(unit)] = depth[number] + 1
    return Places(of_node, of_frame, depth)


def flows_in(scene: Scene, frames: Sequence[Frame], places: Places) -> list[tuple[Flows, Flows, Flows]]:
    """Return the flows in each frame: of the forward, of the backward, and of what is saved."""
    found: list[tuple[Flows, Flows, Flows]] = [({}, {}, {}) for _ in frames]
    for kind, value, taker in flows_kinds(scene):
        for frame, source, target in hops(places, places.of_node[value], places.of_node[taker]):
            found[frame][kind].setdefault((source, target), {})[value] = None
    return found


def flows_kinds(scene: Scene) -> Iterator[tuple[int, int, int]]:
    """Yield the kind of each flow between two steps, the step that makes the value, and the step that takes it."""
    count, saved = len(scene.nodes), scene.made_by()
    for taker, node in enumerate(scene.nodes):
        for value in node.inputs:
            if value < count:
                yield node.side, value, taker
            elif NO_VALUE < saved.get(value, NO_VALUE) < count:
                yield SAVED, saved[value], taker


def hops(places: Places, source: tuple[int, int], target: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield the frames on the way from one step to another, each with the units between which it is passed there."""
    depth = places.depth
    while depth[source[0]] > depth[target[0]]:
        yield source[0], source[1], OUTSIDE
        source = places.of_frame[source[0]]
    while depth[target[0]] > depth[source[0]]:
        yield target[0], OUTSIDE, target[1]
        target = places.of_frame[target[0]]
    while source[0] != target[0]:
        yield source[0], source[1], OUTSIDE
        yield target[0], OUTSIDE, target[1]
        source, target = places.of_frame[source[0]], places.of_frame[target[0]]
    if source[1] != target[1]:
        yield source[0], source[1], target[1]

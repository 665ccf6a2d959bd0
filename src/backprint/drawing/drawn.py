"""A Pair as it is drawn: its scene, its frames, their layouts, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from backprint.drawing.flows import Flows, Places, flows_in, flows_kinds, hops, places_in
from backprint.drawing.frames import Frame, frame_unit, frames_of
from backprint.drawing.rows import Layout, layout_of
from backprint.drawing.scene import Scene, SceneBridge, bytes_of, scene_of
from backprint.graph.costing.steps import StepCost, step_costs
from backprint.graph.costing.storages import each_storage, held_storages, storages_of
from backprint.graph.nouns import Graph, Pair, TensorSpec
from backprint.graph.sizes import at_hints
from backprint.graph.text import show_spec

Ends = tuple[int, int, int, int]
"""A frame, the kind of a flow in it, and the units from and to which it goes."""


@dataclass(frozen=True, slots=True)
class FlowMark:
    """What was measured on a flow: in a few letters, in full, and whether it has NaN or Inf."""

    short: str
    text: str
    is_bad: bool


@dataclass(frozen=True, slots=True)
class FrameCost:
    """What is in a frame, with all that is in frames of it."""

    forward_steps: int
    backward_steps: int
    saved_bytes: int
    """Of tensors that steps in the frame make and the backward keeps."""
    forward_flops: int
    """Of matrix products, convolutions and attentions."""
    backward_flops: int


@dataclass(frozen=True, slots=True)
class SavedBytes:
    """What a tensor that is saved takes: `own` is 0 where it shares its memory with one before it, or with an input."""

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
    frame_costs: tuple[FrameCost, ...]
    saved: tuple[SavedBytes, ...]
    marks: Mapping[Ends, FlowMark] = field(default_factory=dict)
    """What was measured on flows."""


def drawn_pair(pair: Pair) -> DrawnPair:
    """Return a Pair as it is drawn."""
    scene = scene_of(pair)
    costs = step_costs(pair.forward) + (step_costs(pair.backward) if pair.backward is not None else ())
    return drawn_scene(scene, costs, tuple(saved_bytes(pair.forward, scene)))


def drawn_scene(
    scene: Scene,
    costs: tuple[StepCost, ...],
    saved: tuple[SavedBytes, ...] = (),
    marks: Mapping[tuple[int, int], FlowMark] | None = None,
) -> DrawnPair:
    """Return a scene as it is drawn; `marks` are by the step that makes a value and the step that takes it."""
    frames = frames_of(scene)
    own = {each.bridge.made: each.own for each in saved if each.own}
    places = places_in(scene, frames)
    flows = flows_in(scene, frames, places)
    layouts, numbers = layouts_of(scene, frames, flows, lambda value: own.get(value, 0))
    in_frames = frame_costs(scene, frames, costs, own)
    seen = marks_in_frames(scene, places, marks) if marks else {}
    return DrawnPair(scene, frames, layouts, numbers, costs, in_frames, saved, seen)


def marks_in_frames(scene: Scene, places: Places, marks: Mapping[tuple[int, int], FlowMark]) -> dict[Ends, FlowMark]:
    """Return what was measured on flows for each line of each frame: of several flows the first with NaN or Inf."""
    found: dict[Ends, FlowMark] = {}
    for kind, value, taker in flows_kinds(scene):
        mark = marks.get((value, taker))
        if mark is not None:
            for frame, source, target in hops(places, places.of_node[value], places.of_node[taker]):
                before = found.get((frame, kind, source, target))
                if before is None or (mark.is_bad and not before.is_bad):
                    found[frame, kind, source, target] = mark
    return found


def layouts_of(
    scene: Scene,
    frames: Sequence[Frame],
    flows: Sequence[tuple[Flows, Flows, Flows]],
    bytes_of_value: Callable[[int], int],
) -> tuple[tuple[Layout, ...], tuple[int, ...]]:
    """Return the layouts of frames, each different one once, and the number of that of each frame."""

    @cache
    def spec_text(value: int) -> str:
        spec = scene.nodes[value].spec
        return show_spec(replace(spec, stride=None, offset=0)) if isinstance(spec, TensorSpec) else ""

    known: dict[Layout, int] = {}
    numbers = []
    for frame, inside in zip(frames, flows, strict=True):
        if frame.kind == "loop":
            numbers.append(-1)
        else:
            layout = layout_of(frame, inside, scene, spec_text, bytes_of_value)
            numbers.append(known.setdefault(layout, len(known)))
    return tuple(known), tuple(numbers)


def saved_bytes(forward: Graph, scene: Scene) -> Iterator[SavedBytes]:
    """Yield what each saved tensor takes; memory that several share counts for the first."""
    graph = at_hints(forward)
    storages, sizes = storages_of(graph)
    for key in held_storages(graph, storages):
        sizes.pop(key, None)
    names = [step.name for step in forward.steps]
    for bridge in scene.bridges:
        if bridge.made >= len(scene.nodes):
            yield SavedBytes(bridge, bytes_of(bridge.spec), 0)
        else:
            keys = list(each_storage(storages[names[bridge.made]]))
            own = sum(sizes.pop(key, 0) for key in keys)
            yield SavedBytes(bridge, bytes_of(scene.nodes[bridge.made].spec), own)


def frame_costs(
    scene: Scene, frames: Sequence[Frame], costs: Sequence[StepCost], own: dict[int, int]
) -> tuple[FrameCost, ...]:
    """Return what is in each frame."""
    totals = [[0, 0, 0, 0, 0] for _ in frames]
    for number in range(len(frames) - 1, -1, -1):
        total = totals[number]
        for unit in frames[number].units:
            if unit < 0:
                for place, count in enumerate(totals[frame_unit(unit)]):
                    total[place] += count
            else:
                side = scene.nodes[unit].side
                total[side] += 1
                total[2] += own.get(unit, 0)
                total[3 + side] += costs[unit].product_flops
    return tuple(FrameCost(*total) for total in totals)

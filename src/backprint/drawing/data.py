"""A scene as the data of a page: one JSON object, with columns for what there is much of.

`page/README.md` says what each field means; the page checks them when it opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backprint.drawing.drawn import DrawnPair
from backprint.drawing.rows import FlowLine, Layout
from backprint.drawing.scene import Scene, bytes_of
from backprint.graph.nouns import Source
from backprint.graph.text import show_spec
from backprint.plain import printable

FORMAT = 1

VIEW, GUARD, SAVES = 1, 2, 4
"""Flags of a step: its result is a view, it is a guard, the backward keeps its result."""


class Strings:
    """Texts, each once, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))

    def texts(self) -> list[str]:
        """Return all texts by number, without characters that a terminal or a page obeys."""
        return list(map(printable, self.numbers))


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of the steps of a scene beside the scene: which make a view, the memory that each takes, the memory
    time line, and the text around them."""

    views: Sequence[bool]
    memory: Sequence[int]
    line: Mapping[str, Any]
    code: Mapping[str, Any]


def scene_data(drawn: DrawnPair, strings: Strings, measured: Measured) -> dict[str, Any]:
    """Return the data of a scene."""
    sources: dict[Source, int] = {}
    nodes = node_columns(drawn, measured, strings, sources)
    frames = [frame_data(drawn, number, strings) for number in range(len(drawn.frames))]
    layouts = [layout_data(layout, strings) for layout in drawn.layouts]
    return {
        "name": drawn.scene.name,
        "forward": drawn.scene.forward,
        "nodes": nodes,
        "ports": list(ports_data(drawn.scene, strings)),
        "sources": [source_row(source, strings) for source in sources],
        "saved": [[each.bridge.made, each.bridge.taken, each.bytes, each.own] for each in drawn.saved],
        "frames": frames,
        "layouts": layouts,
        "memory": measured.line,
        "code": measured.code,
        "strings": strings.texts(),
    }


def node_columns(
    drawn: DrawnPair, measured: Measured, strings: Strings, sources: dict[Source, int]
) -> dict[str, list[Any]]:
    """Return the steps, a column for each of their fields."""
    scene, costs, number = drawn.scene, drawn.costs, strings.number
    home = {unit: place for place, frame in enumerate(drawn.frames) for unit in frame.units if unit >= 0}
    made = {each.bridge.made for each in drawn.saved}
    views = measured.views
    flags = [
        VIEW * views[place] | GUARD * node.is_guard | SAVES * (place in made) for place, node in enumerate(scene.nodes)
    ]
    return {
        "name": [number(node.name) for node in scene.nodes],
        "op": [number(node.target) for node in scene.nodes],
        "args": [number(node.arguments) for node in scene.nodes],
        "spec": [number(show_spec(node.spec) if node.spec is not None else "") for node in scene.nodes],
        "source": [
            -1 if node.source is None else sources.setdefault(node.source, len(sources)) for node in scene.nodes
        ],
        "frame": [home[place] for place in range(len(scene.nodes))],
        "product": [cost.product_flops for cost in costs],
        "other": [cost.other_flops for cost in costs],
        "read": [cost.read for cost in costs],
        "written": [cost.written for cost in costs],
        "memory": list(measured.memory),
        "flags": flags,
        "inputs": [node.inputs for node in scene.nodes],
        "echo": [number(node.echo) for node in scene.nodes],
        "partners": [[each for each in node.partners if each < scene.forward] for node in scene.nodes],
    }


def ports_data(scene: Scene, strings: Strings) -> Iterator[dict[str, Any]]:
    """Yield the ports; those on the way in come first."""
    for each in scene.ports:
        port = each.port
        yield {
            "side": each.side,
            "into": each.enters,
            "role": port.role,
            "name": strings.number(port.name),
            "spec": strings.number(show_spec(port.spec) if port.spec is not None else ""),
            "bytes": bytes_of(port.spec),
            "value": each.value,
        }


def source_row(source: Source, strings: Strings) -> list[int]:
    """Return a line of the program."""
    number = strings.number
    file, function, code, module = map(number, (source.file, source.function, source.code, source.module))
    return [file, source.line, function, code, module]


def frame_data(drawn: DrawnPair, number: int, strings: Strings) -> dict[str, Any]:
    """Return a frame."""
    frame, cost = drawn.frames[number], drawn.frame_costs[number]
    counts = [cost.forward_steps, cost.backward_steps, cost.saved_bytes, cost.forward_flops, cost.backward_flops]
    return {
        "name": strings.number(frame.name),
        "kind": frame.kind,
        "label": strings.number(frame.label),
        "parent": frame.parent,
        "units": frame.units,
        "layout": drawn.layout_of_frame[number],
        "counts": counts,
    }


def layout_data(layout: Layout, strings: Strings) -> dict[str, Any]:
    """Return a layout."""

    def line(each: FlowLine) -> list[int]:
        return [each.source, each.target, each.slot, strings.number(each.spec), each.count]

    return {
        "rows": [[row.left, row.frames, row.right] for row in layout.rows],
        "left": list(map(line, layout.left)),
        "right": list(map(line, layout.right)),
        "slots": layout.slots,
        "bridges": [[each.source, each.target, each.bytes, each.count] for each in layout.bridges],
    }

"""A picture in Graphviz's language: frames as clusters, what is saved as dashed edges."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from backprint.amounts import amount
from backprint.drawing.drawn import DrawnPair
from backprint.drawing.flows import SAVED, Places, flows_kinds, places_in
from backprint.drawing.frames import frame_unit
from backprint.drawing.opened import units_shown
from backprint.drawing.scene import FORWARD
from backprint.drawing.shapes import frame_title, op_name, steps_text
from backprint.graph.text import show_spec
from backprint.plain import printable

OPTIONS = """\
  rankdir=TB; compound=true; fontname="sans-serif"; fontsize=11; nslimit=2; nslimit1=2;
  node [shape=box, style="filled,rounded", fontname="sans-serif", fontsize=10, height=0.3];
  edge [fontname="sans-serif", fontsize=8, arrowsize=0.6];
"""

LOOK = {
    "forward": 'color="#0072b2", fillcolor="#e3f0f9"',
    "backward": 'color="#b35000", fillcolor="#fcebdd"',
    "folded": 'color="#5b6470", fillcolor="#ffffff", shape=box3d',
}


def dot_of(drawn: DrawnPair, opened: Collection[int], title: str = "") -> str:
    """Return the picture of a Pair, in which some frames are open, as the text of a DOT file."""
    lines = [f"digraph {quoted(title or drawn.scene.name)} {{", OPTIONS.rstrip("\n")]
    lines += cluster(drawn, opened, 0, 1)
    lines += edges(drawn, opened)
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    """Return a stranger's text as a string of DOT, in which a backslash means nothing."""
    inside = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inside}"'


def cluster(drawn: DrawnPair, opened: Collection[int], number: int, depth: int) -> Iterator[str]:
    """Yield the lines of an open frame, with what is in it."""
    indent = "  " * depth
    yield f"{indent}subgraph cluster_{number} {{"
    yield f'{indent}  label={quoted(frame_title(drawn, number))}; color="#c9d1da"; labeljust=l;'
    for unit in units_shown(drawn, number):
        if unit >= 0:
            yield f"{indent}  {node_line(drawn, unit)}"
        elif frame_unit(unit) in opened:
            yield from cluster(drawn, opened, frame_unit(unit), depth + 1)
        else:
            yield f"{indent}  {folded_line(drawn, frame_unit(unit))}"
    yield f"{indent}}}"


def node_line(drawn: DrawnPair, place: int) -> str:
    """Return the line of a step."""
    node = drawn.scene.nodes[place]
    spec = show_spec(node.spec) if node.spec is not None else ""
    side = "forward" if node.side == FORWARD else "backward"
    tip = quoted(f"{node.name}: {node.target} {spec}")
    return f"n{place} [label={quoted(op_name(node.target))}, tooltip={tip}, {LOOK[side]}];"


def folded_line(drawn: DrawnPair, number: int) -> str:
    """Return the line of a frame that is not open."""
    cost = drawn.frame_costs[number]
    said = f"{frame_title(drawn, number)}: {steps_text(cost.forward_steps)} forward"
    said += f", {steps_text(cost.backward_steps)} backward, {amount(cost.saved_bytes)} saved"
    return f"f{number} [label={quoted(said)}, {LOOK['folded']}];"


def edges(drawn: DrawnPair, opened: Collection[int]) -> Iterator[str]:
    """Yield the lines of the flows between what is seen, each once, with its shape if it is one value."""
    places = places_in(drawn.scene, drawn.frames)
    found: dict[tuple[int, str, str], dict[int, None]] = {}
    for kind, value, taker in flows_kinds(drawn.scene):
        source, target = seen_as(drawn, opened, places, value), seen_as(drawn, opened, places, taker)
        if source and target and source != target:
            found.setdefault((kind, source, target), {})[value] = None
    for (kind, source, target), values in found.items():
        spec = drawn.scene.nodes[next(iter(values))].spec
        text = show_spec(spec) if len(values) == 1 and spec is not None else f"{len(values)} values"
        look = 'color="#00795a", style=dashed, constraint=false' if kind == SAVED else 'color="#0072b2"'
        look = 'color="#b35000"' if kind not in (SAVED, FORWARD) else look
        yield f"  {source} -> {target} [label={quoted(text)}, {look}];"


def seen_as(drawn: DrawnPair, opened: Collection[int], places: Places, node: int) -> str:
    """Return the name of a step, or of the frame that hides it; '' if it is in a turn that is not shown."""
    path = [places.of_node[node]]
    while path[-1][0] > 0:
        path.append(places.of_frame[path[-1][0]])
    for number, place in reversed(path):
        unit = drawn.frames[number].units[place]
        if unit not in units_shown(drawn, number):
            return ""
        if unit >= 0:
            return f"n{unit}"
        if frame_unit(unit) not in opened:
            return f"f{frame_unit(unit)}"
    return ""

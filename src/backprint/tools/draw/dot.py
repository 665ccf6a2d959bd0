"""A picture in Graphviz's language: frames as clusters, what is saved as dashed edges.

The *units* of a frame are steps, by their numbers from 0 on, and frames within it, by negative numbers (`frame_unit`
turns such a number into the frame's, and back). The *place* of a unit is its index among the frame's units. Frame 0 is
the whole program. A frame is *open*, or folded to one node; `units_shown` of an open loop is one turn of it. `opened`
are the numbers of the open frames, and the DOT name of a step is `n3`, of a folded frame `f3`. A *mark* is what was
measured on a flow, and `short` its text at an edge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from backprint.common.text import amount, printable
from backprint.graph.text import show_spec
from backprint.tools.draw.layout import DrawnPair
from backprint.tools.draw.picture import (
    contents_of,
    frame_title,
    op_name,
    pill_text,
    ports_beside,
    steps_text,
    units_shown,
)
from backprint.tools.draw.scene import BACKWARD, FORWARD, SAVED, Places, flows_kinds, frame_unit, places_in

OPTIONS = """\
  rankdir=TB; compound=true; fontname="sans-serif"; fontsize=11; nslimit=2; nslimit1=2;
  node [shape=box, style="filled,rounded", fontname="sans-serif", fontsize=10, height=0.3];
  edge [fontname="sans-serif", fontsize=8, arrowsize=0.6];
"""

PORT = 'shape=plaintext, style="", fontsize=8, fontcolor="#6b5b95", height=0.15'
"""How the name of a port looks."""

FRAME, REGION = 'color="#c9d1da"', 'color="#1b1f24"; style=dashed'
"""How the borders of frames look, and that of a region."""

NEIGHBOR = 'fillcolor="#fff1b8", penwidth=2'
"""How a neighbor of a region differs from what is inside."""

# How steps of each side, and folded frames, look.
LOOK = {
    "forward": 'color="#0072b2", fillcolor="#e3f0f9"',
    "backward": 'color="#b35000", fillcolor="#fcebdd"',
    "folded": 'color="#5b6470", fillcolor="#ffffff", shape=box3d',
}


def dot_of(drawn: DrawnPair, opened: Collection[int], title: str = "") -> str:
    """Return the picture of a Pair, in which some frames are open, as the text of a DOT file."""
    lines = [f"digraph {quoted(title or drawn.scene.name)} {{", OPTIONS.rstrip("\n")]
    lines += cluster(drawn, opened, number=0, depth=1)
    lines += _dot_ports(drawn, set(_shown_nodes(drawn, opened, number=0)))
    lines += edge_statements(drawn, opened)
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    """Return a stranger's text as a string of DOT, in which a backslash means nothing."""
    inside = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inside}"'


def cluster(drawn: DrawnPair, opened: Collection[int], number: int, depth: int) -> Iterator[str]:
    """Yield the lines of DOT for the open frame `number`, with what is in it; `depth` is their indent, 1 of the whole
    program."""
    indent = "  " * depth
    yield f"{indent}subgraph cluster_{number} {{"
    legend = "" if drawn.scene.neighbors is None else ": the region is dashed, its neighbors are yellow"
    # The whole program's title says what the picture shows, too.
    title = frame_title(drawn, number) + ("" if number else f" ({contents_of(drawn)}{legend})")
    look = REGION if drawn.frames[number].kind == "region" else FRAME
    yield f"{indent}  label={quoted(title)}; {look}; labeljust=l;"
    for unit in units_shown(drawn, number):
        if unit >= 0:
            yield f"{indent}  {_node_line(drawn, unit)}"
        elif frame_unit(unit) in opened:
            yield from cluster(drawn, opened, frame_unit(unit), depth + 1)
        else:
            yield f"{indent}  {_folded_line(drawn, frame_unit(unit))}"
    yield f"{indent}}}"


def _node_line(drawn: DrawnPair, number: int) -> str:
    """Return the statement that declares a step."""
    node = drawn.scene.nodes[number]
    spec = show_spec(node.spec) if node.spec is not None else ""
    side = "forward" if node.side == FORWARD else "backward"
    look = LOOK[side] + (f", {NEIGHBOR}" if node.is_neighbor else "")
    tip = quoted(f"{node.name}: {node.target} {spec}")
    return f"n{number} [label={quoted(op_name(node.target))}, tooltip={tip}, {look}];"


def _folded_line(drawn: DrawnPair, number: int) -> str:
    """Return the statement that declares a frame that is not open."""
    cost = drawn.frame_costs[number]
    text = f"{frame_title(drawn, number)}: {steps_text(cost.forward_steps)} forward"
    text += f", {steps_text(cost.backward_steps)} backward, {amount(cost.saved_bytes)} saved"
    return f"f{number} [label={quoted(text)}, {LOOK['folded']}];"


def edge_statements(drawn: DrawnPair, opened: Collection[int]) -> Iterator[str]:
    """Yield the edges of the flows between what is seen, each once: with what was measured, or else with the shape of
    the one value, or how many values there are.

    What goes to or from a turn of a loop that is not shown is drawn at the same step of the turn that is.
    """
    places = places_in(drawn.scene, drawn.frames)
    # By kind of flow, and the DOT names of its two ends; dicts, as they keep their order.
    values_of_edge: dict[tuple[int, str, str], dict[int, None]] = {}
    marks_of_edge: dict[tuple[int, str, str], dict[str, None]] = {}
    for kind, value, taker in flows_kinds(drawn.scene):
        source, target = _shown_name(drawn, opened, places, value), _shown_name(drawn, opened, places, taker)
        if source != target:  # equal where both are in one folded frame
            values_of_edge.setdefault((kind, source, target), {})[value] = None
            marks = marks_of_edge.setdefault((kind, source, target), {})
            if (mark := drawn.marks_of_flows.get((value, taker))) is not None:
                marks[mark.short] = None
    for (kind, source, target), values in values_of_edge.items():
        spec = drawn.scene.nodes[next(iter(values))].spec
        text = show_spec(spec) if len(values) == 1 and spec is not None else f"{len(values)} values"
        text = ", ".join(marks_of_edge[kind, source, target]) or text
        ends = f"{target} -> {source}" if kind == BACKWARD else f"{source} -> {target}"  # turned round: see EDGES
        yield f"  {ends} [label={quoted(text)}, {EDGES[kind]}];"


EDGES = {
    FORWARD: 'color="#0072b2"',
    BACKWARD: 'color="#b35000", dir=back',
    SAVED: 'color="#00795a", style=dashed, constraint=false',
}
"""How each kind of flow looks. Those of the backward are turned round, so that it runs up beside the forward."""


def _shown_name(drawn: DrawnPair, opened: Collection[int], places: Places, node: int) -> str:
    """Return the DOT name of a step as it is seen: its own, that of the folded frame that hides it, or that of the same
    step in the turn of a loop that is shown. `places` has the frame of each step and of each frame, and its place
    there."""
    frame, place = places.of_node[node]
    path = [place]  # the places from the step outwards
    while frame > 0:
        frame, place = places.of_frame[frame]
        path.append(place)
    number = 0
    for place in reversed(path):  # from the whole program inwards
        shown = units_shown(drawn, number)
        # The one turn that is shown stands for all; a turn with fewer units ends with the nearest that it has.
        unit = shown[place] if place < len(shown) else shown[-1]
        if unit >= 0:
            return f"n{unit}"
        number = frame_unit(unit)
        if number not in opened:
            return f"f{number}"
    return _first_shown_name(drawn, opened, number)


def _first_shown_name(drawn: DrawnPair, opened: Collection[int], number: int) -> str:
    """Return the DOT name of the first unit that is seen in an open frame: for a step that is deeper in another turn
    than what the shown turn has at its place."""
    while True:
        unit = units_shown(drawn, number)[0]
        if unit >= 0:
            return f"n{unit}"
        number = frame_unit(unit)
        if number not in opened:
            return f"f{number}"


def _shown_nodes(drawn: DrawnPair, opened: Collection[int], number: int) -> Iterator[int]:
    """Yield the numbers of the steps that are seen in the open frame `number`."""
    for unit in units_shown(drawn, number):
        if unit >= 0:
            yield unit
        elif frame_unit(unit) in opened:
            yield from _shown_nodes(drawn, opened, frame_unit(unit))


def _dot_ports(drawn: DrawnPair, seen: Collection[int]) -> Iterator[str]:
    """Yield a node and an edge for each port at the steps that are seen: `p3_0` is the first port at the step `n3`."""
    for number, ports in ports_beside(drawn).items():
        for index, port in enumerate(ports if number in seen else ()):
            name, role = f"p{number}_{index}", port.port.role
            # Above the step, which is where an edge begins: an input of the forward, an output of the backward.
            is_above = port.enters != (port.side == BACKWARD)
            ends = f"{name} -> n{number}" if is_above else f"n{number} -> {name}"
            yield f"  {name} [label={quoted(pill_text(port))}, tooltip={quoted(f'{role} {port.port.name}')}, {PORT}];"
            yield f'  {ends} [color="#8a939e", arrowhead=none];'

"""A pass as a picture and a page. A command makes them from a dump's graph.json, never the program's own step."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from backprint.common.files import write_file
from backprint.graph.nouns import Source
from backprint.tools.cost.costs import FREE
from backprint.tools.draw.dot import dot_of
from backprint.tools.draw.layout import DrawnPair, FlowMark, drawn_scene
from backprint.tools.draw.page import FORMAT, Measured, Strings, page_html, scene_data, stats_row
from backprint.tools.draw.picture import READABLE, contents_of, opened_frames, picture_of
from backprint.tools.draw.scene import BACKWARD, FORWARD, Scene, SceneNode
from backprint.tools.draw.svg import as_image, svg_of
from backprint.tools.regions.dumps import check_number, folders_of, parse_forward, parse_pass, read_graph_json
from backprint.tools.regions.nouns import Edge, Node, NonfiniteOrigin, Pass, RegionForward, Unwatched
from backprint.values.statistics import Stats

# ---- A pass, or a forward that no pass has reached, as a scene of autograd's nodes, once for each direction


def drawn_pass(region_pass: Pass) -> DrawnPair:
    """Return a pass as it is drawn, with what was measured on its edges: the neighbors that the region takes values
    from, what is inside, and the neighbors that take values from it."""
    near, count = _nodes_beside_leaves(region_pass), len(region_pass.nodes)
    forward = _in_forward_order(region_pass)
    backward = forward[::-1]
    ours = {node.name: place for place, node in enumerate(forward)}
    theirs = {node.name: count + place for place, node in enumerate(backward)}
    flowing = [edge for edge in region_pass.edges if edge.source in ours and edge.target in ours]
    ahead = taken((ours[edge.target], ours[edge.source]) for edge in flowing)
    back = taken((theirs[edge.source], theirs[edge.target]) for edge in flowing)
    draw = partial(_scene_node, region=region_pass.region)
    nodes = [draw(node, FORWARD, ahead.get(ours[node.name], ()), near=near.get(node.name)) for node in forward]
    nodes += [
        draw(node, BACKWARD, back.get(theirs[node.name], ()), (ours[node.name],), near.get(node.name))
        for node in backward
    ]
    marks: dict[tuple[int, int], FlowMark] = {}
    for edge in flowing:
        marks.setdefault((ours[edge.target], ours[edge.source]), _forward_mark(edge.tensor))
        ends, mark = (theirs[edge.source], theirs[edge.target]), mark_of(edge)
        if ends not in marks or (mark.is_bad and not marks[ends].is_bad):
            marks[ends] = mark
    title = f"{region_pass.region}, pass {region_pass.index}"
    return drawn_scene(Scene(title, tuple(nodes), count, (), ()), (FREE,) * len(nodes), marks=marks)


def _in_forward_order(region_pass: Pass) -> list[Node]:
    """Return the nodes of a pass as the forward made them. Neighbors that only receive gradients come first, and those
    that only give some last: what is inside stands together."""
    inside = {node.name for node in region_pass.nodes if node.inside}
    gives = {edge.source for edge in region_pass.edges if edge.target in inside}
    receives = {edge.target for edge in region_pass.edges if edge.source in inside}
    near = _nodes_beside_leaves(region_pass)

    def part(node: Node) -> int:
        beside = near.get(node.name)
        is_parameter = beside is not None and bool(beside[0].module)
        if node.inside or is_parameter or (node.name in gives) == (node.name in receives):
            return 1
        return 2 if node.name in gives else 0

    forward = list(reversed(region_pass.nodes))
    return sorted(forward, key=part)


def _drawn_forward(title: str, forward: RegionForward) -> DrawnPair:
    """Return the forward of a region as it is drawn."""
    places = {node.name: place for place, node in enumerate(forward.nodes)}
    known = [(maker, taker, tensor) for maker, taker, tensor in forward.edges if maker in places and taker in places]
    ahead = taken((places[maker], places[taker]) for maker, taker, _ in known)
    nodes = tuple(_scene_node(node, FORWARD, ahead.get(places[node.name], ())) for node in forward.nodes)
    marks = {(places[maker], places[taker]): _forward_mark(tensor) for maker, taker, tensor in known}
    return drawn_scene(Scene(title, nodes, len(nodes), (), ()), (FREE,) * len(nodes), marks=marks)


def taken(flows: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return for each node the nodes whose results it takes, each once."""
    sources: dict[int, list[int]] = {}
    for maker, taker in flows:
        if maker not in (values := sources.setdefault(taker, [])):
            values.append(maker)
    return sources


def _nodes_beside_leaves(region_pass: Pass) -> dict[str, tuple[Node, str]]:
    """Return for each leaf a node that gives it a gradient, and the name of its tensor: it is drawn beside that."""
    nodes = {node.name: node for node in region_pass.nodes}
    return {
        edge.target: (nodes[edge.source], edge.tensor)
        for edge in reversed(region_pass.edges)
        if edge.source in nodes and edge.target in nodes and nodes[edge.target].leaf
    }


def _scene_node(
    node: Node,
    side: int,
    inputs: Sequence[int],
    partners: tuple[int, ...] = (),
    near: tuple[Node, str] | None = None,
    region: str = "",
) -> SceneNode:
    """Return a node of autograd as a node of a scene: with its operators in the forward, its kind in the backward; a
    leaf with the name of its tensor."""
    label = (", ".join(node.ops) or operator_of(node.kind)) if side == FORWARD else node.kind
    place = node
    if near is not None:
        place, name = near[0], near[1].rpartition(".")[2]
        label = name if side == FORWARD else f"grad {name}"
    line = node.line or place.line
    # A neighbor stands around the region, and a parameter of a module in it beside the operator that takes it.
    home = region if node.inside or (near is not None and place.module) else ""
    module = place.module if home or not region else ""
    source = Source("?", 0, "", "", module) if module else None
    if line is not None:
        source = Source(line.file or "?", line.line, line.function, line.code, module)
    token = (label if near is None else "leaf" if home else node.name, len(inputs))
    return SceneNode(
        side,
        node.name,
        label,
        None,
        tuple(inputs),
        source=source,
        partners=partners,
        echo="gradient of" if partners else "",
        token=token,
        region=home,
        is_neighbor=bool(region) and not node.inside,
    )


def operator_of(kind: str) -> str:
    """Return the operator whose gradient a kind of node computes: `native_layer_norm` of `NativeLayerNormBackward0`.
    The node of a custom Function has no number; its name stays."""
    operator = re.fullmatch(r"(\w+?)Backward\d+(_\d+)?", kind)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator[1]).lower() if operator else kind


def _forward_mark(tensor: str) -> FlowMark:
    """Return what stands at a flow of the forward: the tensor."""
    return FlowMark(operator_of(tensor.rpartition(".")[2]), tensor, False)


def mark_of(edge: Edge) -> FlowMark:
    """Return what was measured on an edge: its NaN and Inf where it has some, else the tensor and its shape."""
    shape = f"{edge.dtype}{list(edge.shape)}"
    text = f"gradient of {edge.tensor}\n{shape}" + (f"\n{edge.stats}" if edge.stats is not None else "")
    if edge.stats is not None and edge.stats.bad:
        counts = ((edge.stats.nan, "NaN"), (edge.stats.inf, "Inf"))
        return FlowMark(", ".join(f"{count:,} {word}" for count, word in counts if count), text, True)
    name = operator_of(edge.tensor.rpartition(".")[2])
    return FlowMark(f"{name} {list(edge.shape)}" if edge.flows else f"{name}: None", text, False)


def _page_data_of_pass(region_pass: Pass, drawn: DrawnPair) -> dict[str, Any]:
    """Return the data of the page of a pass."""
    theirs = {node.name: drawn.scene.forward + place for place, node in enumerate(_in_forward_order(region_pass)[::-1])}
    rows: dict[int, Stats] = {}
    for edge in region_pass.edges:
        if edge.stats is not None and edge.source in theirs:
            value = theirs[edge.source]
            rows[value] = max(rows.get(value, edge.stats), edge.stats, key=lambda stats: (stats.bad, stats.norm))
    facts = {"nodes": contents_of(drawn), **_facts_of_pass(region_pass)}
    return _page_of_scene(drawn, facts, rows)


def _facts_of_pass(region_pass: Pass) -> Mapping[str, str]:
    """Return what the page says about a pass."""
    origin = region_pass.origin
    known = {"gradients": region_pass.level, "error": region_pass.error, "run": region_pass.run}
    if isinstance(origin, NonfiniteOrigin | Unwatched):
        known["NaN and Inf"] = str(origin)
    return {name: text for name, text in known.items() if text}


def _page_of_scene(drawn: DrawnPair, facts: Mapping[str, str], rows: Mapping[int, Stats]) -> dict[str, Any]:
    """Return the data of the page of a scene whose memory and text are not known."""
    strings, count = Strings(), len(drawn.scene.nodes)
    line = {"before": 0, "live": [0] * count, "spans": [], "held": [], "peak": [0, 0]}
    code: dict[str, Any] = {"forward": [], "backward": [], "ends": [[], []]}
    data = scene_data(drawn, strings, Measured([False] * count, [0] * count, line, code))
    stats = {"value": list(rows), "rows": [stats_row(row) for row in rows.values()]}
    return {
        "format": FORMAT,
        "title": drawn.scene.name,
        "facts": [[name, text] for name, text in facts.items()],
        "notes": [],
        "pairs": [data | {"stats": stats}],
    }


def html_of_pass(region_pass: Pass) -> str:
    """Return what a notebook shows of a pass: its picture."""
    drawn = drawn_pass(region_pass)
    return as_image(svg_of(picture_of(drawn, opened_frames(drawn)), drawn.scene.name), drawn.scene.name)


# ---- Pictures and pages

PICTURE, DOT, PAGE = "graph.svg", "graph.dot", "page.html"


def draw_dump(
    path: str | os.PathLike[str], run: str, nodes: int = READABLE, number: int | None = None
) -> Iterator[Path]:
    """Write the picture (as SVG and as DOT) and the page of each pass of a dump into its folder; yield their places.

    With a `number`, only the pass with this number is drawn.
    """
    known = []
    for folder in folders_of(path, run, unreached=number is None):
        content = read_graph_json(folder)
        known.append(content.get("index"))
        if number not in (None, known[-1]):
            continue
        if content.get("reached"):
            region_pass = parse_pass(content, folder)
            drawn = drawn_pass(region_pass)
            data = _page_data_of_pass(region_pass, drawn)
        else:
            drawn = _drawn_forward(f"{content['region']}, which no pass has reached", parse_forward(content, folder))
            data = _page_of_scene(drawn, {}, {})
        opened = opened_frames(drawn, nodes)
        yield write_file(folder / PICTURE, [svg_of(picture_of(drawn, opened), drawn.scene.name).encode()])
        yield write_file(folder / DOT, [dot_of(drawn, opened).encode()])
        yield write_file(folder / PAGE, (piece.encode() for piece in page_html(data)))
    if number is not None:
        check_number(path, number, known)

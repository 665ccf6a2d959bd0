"""A pass as a picture and a page. A command makes them from a dump's graph.json, never the program's own step.

A Pass is the record of one backward call that reached a region: its nodes (autograd's) and its edges, which are the
gradients between them. A node is `inside` the region or a neighbor of it; a `leaf` is a neighbor that accumulates into
a tensor (AccumulateGrad). `ops` are the forward operators of a node, and `kind` is autograd's name for it.

A Scene is what is drawn, node by node: those of the forward first, then those of the backward. A place is the index of
a node in it. A FlowMark is what is written at a flow, which is a line from the node that makes a value to the node that
takes it: a short text, a long one, and whether the value has NaN or Inf.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from backprint.common.web_page import WebPage
from backprint.graph.nouns import Source
from backprint.tools.cost.costs import FREE
from backprint.tools.draw.layout import DrawnPair, FlowMark, drawn_scene
from backprint.tools.draw.page import (
    FORMAT,
    NOT_COMPARED,
    Measured,
    Strings,
    page_html,
    scene_data,
    stats_row,
    verdict_row,
)
from backprint.tools.draw.picture import READABLE, contents_of
from backprint.tools.draw.scene import BACKWARD, FORWARD, Scene, SceneNode
from backprint.tools.draw.svg import as_image
from backprint.tools.draw.write import as_svg
from backprint.tools.regions.nouns import Edge, Node, Pass
from backprint.values.statistics import Stats

# ---- A pass as a scene of autograd's nodes, once for each direction


def drawn_pass(region_pass: Pass) -> DrawnPair:
    """Return a pass as it is drawn: each node of autograd once in the forward, as the operators that it stands for, and
    once in the backward, with what was measured on its edges.

    An edge leads from `source` to `target` in the backward; in the forward a value goes the other way.
    """
    neighbors_of_leaves, count = _neighbors_of_leaves(region_pass), len(region_pass.nodes)
    forward = _in_forward_order(region_pass)
    backward = forward[::-1]
    forward_places = {node.name: place for place, node in enumerate(forward)}
    backward_places = {node.name: count + place for place, node in enumerate(backward)}
    forward_inputs = _inputs_by_node(
        (forward_places[edge.target], forward_places[edge.source]) for edge in region_pass.edges
    )
    backward_inputs = _inputs_by_node(
        (backward_places[edge.source], backward_places[edge.target]) for edge in region_pass.edges
    )
    nodes = []
    for side, order, places, inputs in (
        (FORWARD, forward, forward_places, forward_inputs),
        (BACKWARD, backward, backward_places, backward_inputs),
    ):
        for node in order:
            # A node of the backward is drawn as the gradient of the same node in the forward.
            partners = (forward_places[node.name],) if side == BACKWARD else ()
            inputs_of_node, leaf_neighbor = inputs.get(places[node.name], ()), neighbors_of_leaves.get(node.name)
            nodes.append(_scene_node(node, side, inputs_of_node, partners, leaf_neighbor, region_pass.region))
    marks: dict[tuple[int, int], FlowMark] = {}  # by the places of the nodes that make and take a value
    for edge in region_pass.edges:
        marks.setdefault((forward_places[edge.target], forward_places[edge.source]), _forward_mark(edge.tensor))
        # Several edges between two nodes are one line: with the first mark, or the first that has NaN or Inf.
        ends, mark = (backward_places[edge.source], backward_places[edge.target]), _mark_of(edge)
        if ends not in marks or (mark.is_bad and not marks[ends].is_bad):
            marks[ends] = mark
    title = f"{region_pass.region}, pass {region_pass.index}"
    scene = Scene(title, tuple(nodes), forward=count, ports=(), bridges=())  # a pass has no ports, and saves nothing
    # A pass has not what costs are computed from: each step has the cost FREE, of no FLOPs and no bytes.
    return drawn_scene(scene, costs=(FREE,) * len(nodes), marks=marks)


def _in_forward_order(region_pass: Pass) -> list[Node]:
    """Return the nodes of a pass in the order of the forward, the reverse of that in which they ran. Neighbors that
    only receive gradients come first, and those that only give some last, so that what is inside stands together."""
    inside = {node.name for node in region_pass.nodes if node.inside}
    gives = {edge.source for edge in region_pass.edges if edge.target in inside}
    receives = {edge.target for edge in region_pass.edges if edge.source in inside}
    neighbors_of_leaves = _neighbors_of_leaves(region_pass)

    def part(node: Node) -> int:
        """Return 0 before the region, 1 in it, 2 behind it, 1 too for one that gives and receives, or neither."""
        neighbor = neighbors_of_leaves.get(node.name)
        is_parameter_of_module = neighbor is not None and bool(neighbor.node.module)  # drawn beside its operator
        if node.inside or is_parameter_of_module or (node.name in gives) == (node.name in receives):
            return 1
        return 2 if node.name in gives else 0

    forward = list(reversed(region_pass.nodes))
    return sorted(forward, key=part)  # which keeps the order in each part


def _inputs_by_node(flows: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return for each node the nodes whose results it takes, each once, all by their places. `flows` are pairs of the
    node that makes a value and the node that takes it."""
    sources: dict[int, list[int]] = {}
    for maker, taker in flows:
        makers = sources.setdefault(taker, [])
        if maker not in makers:
            makers.append(maker)
    return sources


class _LeafNeighbor(NamedTuple):
    """The node beside which a leaf is drawn, and the name of the leaf's tensor."""

    node: Node
    tensor: str


def _neighbors_of_leaves(region_pass: Pass) -> dict[str, _LeafNeighbor]:
    """Return for each leaf, by name, the first node in the pass that gives it a gradient. The edges are reversed,
    because the last one of a leaf stays in the dict."""
    nodes = {node.name: node for node in region_pass.nodes}
    return {
        edge.target: _LeafNeighbor(nodes[edge.source], edge.tensor)
        for edge in reversed(region_pass.edges)
        if nodes[edge.target].leaf
    }


def _scene_node(
    node: Node,
    side: int,
    inputs: Sequence[int],
    partners: tuple[int, ...],
    leaf_neighbor: _LeafNeighbor | None,
    region: str,
) -> SceneNode:
    """Return a node of autograd as a node of a scene: with its operators in the forward, its kind in the backward; a
    leaf with the name of its tensor, at the line and in the module of the node beside it.

    `inputs` are the places of the nodes whose results it takes, `partners` the place of the same node in the forward,
    `leaf_neighbor` the node beside a leaf, and `region` the name of the region.
    """
    label = (", ".join(node.ops) or _operator_of(node.kind)) if side == FORWARD else node.kind
    shown_at = node
    if leaf_neighbor is not None:
        shown_at = leaf_neighbor.node
        name = leaf_neighbor.tensor.rpartition(".")[2]  # `weight` of `layers.0.weight`
        label = name if side == FORWARD else f"∂{name}"
    line = node.line or shown_at.line
    # A neighbor stands around the region, and a parameter of a module in it beside the operator that takes it.
    region_of_node = region if node.inside or (leaf_neighbor is not None and shown_at.module) else ""
    module = shown_at.module if region_of_node else ""
    # Without a line, the Source is there for its module alone.
    source = Source("?", 0, "", "", module) if module else None
    if line is not None:
        source = Source(line.file or "?", line.line, line.function, line.code, module)
    # Nodes with equal tokens may be folded into a loop. The leaves of a repeated module differ in their names, and are
    # one leaf of its loop; other leaves are in no loop.
    token = (label if leaf_neighbor is None else "leaf" if region_of_node else node.name, len(inputs))
    return SceneNode(
        side,
        node.name,
        target=label,
        spec=None,  # a node of autograd may have several results
        inputs=tuple(inputs),
        source=source,
        partners=partners,
        echo="gradient of" if partners else "",  # what the node is to its partners
        token=token,
        region=region_of_node,
        is_neighbor=not node.inside,
    )


def _operator_of(kind: str) -> str:
    """Return the operator whose gradient a kind of node computes: `native_layer_norm` of `NativeLayerNormBackward0`.
    The node of a custom Function has no number; its name stays."""
    operator = re.fullmatch(r"(\w+?)Backward\d+(_\d+)?", kind)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator[1]).lower() if operator else kind


def _forward_mark(tensor: str) -> FlowMark:
    """Return what stands at a flow of the forward: the name of the tensor, short and in full. A tensor without a name
    of the user's has that of its node, which `_operator_of` makes shorter."""
    return FlowMark(_operator_of(tensor.rpartition(".")[2]), tensor, is_bad=False)


def _mark_of(edge: Edge) -> FlowMark:
    """Return what was measured on an edge: its NaN and Inf where it has some, else the tensor and its shape."""
    shape = f"{edge.dtype}{list(edge.shape)}"
    text = f"gradient of {edge.tensor}\n{shape}" + (f"\n{edge.stats}" if edge.stats is not None else "")
    if edge.stats is not None and edge.stats.bad:
        counts = ((edge.stats.nan, "NaN"), (edge.stats.inf, "Inf"))
        return FlowMark(", ".join(f"{count:,} {word}" for count, word in counts if count), text, is_bad=True)
    name = _operator_of(edge.tensor.rpartition(".")[2])
    return FlowMark(f"{name} {list(edge.shape)}" if edge.flows else f"{name}: None", text, is_bad=False)


def page_of_pass(region_pass: Pass) -> WebPage:
    """Return the page of a pass: its picture, and the statistics on its edges. The page has statistics by step, so a
    step has those of the worst edge that leaves it: one with NaN or Inf, else the one with the largest norm."""
    drawn, count = drawn_pass(region_pass), 2 * len(region_pass.nodes)
    # In `drawn_pass` the backward follows the forward in the reverse order: the last step is the forward's first node.
    backward_places = {node.name: count - 1 - place for place, node in enumerate(_in_forward_order(region_pass))}
    worst_stats: dict[int, Stats] = {}
    for edge in region_pass.edges:
        if edge.stats is not None:
            place = backward_places[edge.source]
            worst_stats[place] = max(
                worst_stats.get(place, edge.stats), edge.stats, key=lambda stats: (stats.bad, stats.norm)
            )
    # The page of a Capture has the code and the memory over time too. A pass has neither.
    memory_line = {"before": 0, "live": [0] * count, "spans": [], "held": [], "peak": [0, 0]}
    code: dict[str, Any] = {"forward": [], "backward": [], "ends": [[], []]}
    measured = Measured(views=[False] * count, memory=[0] * count, line=memory_line, code=code)
    data = scene_data(drawn, Strings(), measured)
    known = {
        "nodes": contents_of(drawn),
        "gradients": region_pass.level,
        "error": region_pass.error,
        "run": region_pass.run,
        "NaN and Inf": "" if region_pass.origin is None else str(region_pass.origin),
    }
    content = {
        "format": FORMAT,
        "title": drawn.scene.name,
        "facts": [[name, text] for name, text in known.items() if text],
        "notes": [],
        "verdict": verdict_row(NOT_COMPARED, "these are the gradients of one run, without a reference"),
        "pairs": [
            data | {"stats": {"value": list(worst_stats), "rows": [stats_row(stats) for stats in worst_stats.values()]}}
        ],
    }
    return WebPage(drawn.scene.name, "".join(page_html(content)))


def html_of_pass(region_pass: Pass) -> str:
    """Return what a notebook shows of a pass: its picture."""
    drawn = drawn_pass(region_pass)
    return as_image(as_svg(drawn, drawn.scene.name, READABLE).decode(), drawn.scene.name)

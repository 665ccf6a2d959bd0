"""What a drawing of a pass needs, as plain values for JSON: nodes in order, edges, and modules as frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from backprint.regions.nouns import Pass
from backprint.regions.shown import flowed_dict, is_bad, with_line


def scene_of_pass(found: Pass) -> dict[str, Any]:
    """Return the nodes of a pass as they ran, its edges with statistics, and a frame for each module and its parents.

    A node's `frame` is the path of its module, or '' outside of all; a frame's `parent` is another frame, or ''. Frames
    come in the order in which the backward reaches them, each after its parent. `bad` marks NaN and Inf.
    """
    bad = {each.node for each in found.inputs if is_bad(each)}
    bad |= {name for edge in found.edges if is_bad(edge) for name in (edge.source, edge.target)}
    nodes = [
        with_line(
            {"name": node.name, "kind": node.kind, "operators": list(node.ops), "frame": node.module,
             "inside": node.inside, "leaf": node.leaf, "opaque": node.opaque, "bad": node.name in bad},
            node.line,
        )
        for node in found.nodes
    ]  # fmt: skip
    edges = [
        {"name": edge.name, "source": edge.source, "target": edge.target, "tensor": edge.tensor, "flows": edge.flows,
         "bad": is_bad(edge), **flowed_dict(edge)}
        for edge in found.edges
    ]  # fmt: skip
    frames = [
        {"path": path, "parent": path.rpartition(".")[0], "name": path.rpartition(".")[2]}
        for path in frame_paths(node.module for node in found.nodes)
    ]
    title = {"region": found.region, "pass": found.index, "error": found.error}
    roots = [{"name": root.name, "node": root.node, **flowed_dict(root)} for root in found.roots]
    return {**title, "roots": roots, "nodes": nodes, "edges": edges, "frames": frames}


def frame_paths(modules: Iterable[str]) -> list[str]:
    """Return the paths of modules and of all that they are in, each once and after its parent."""
    found: dict[str, None] = {}
    for module in modules:
        parts = module.split(".") if module else []
        for count in range(1, len(parts) + 1):
            found.setdefault(".".join(parts[:count]))
    return list(found)

"""A pass in Graphviz's language: the backward as it ran, and the forward, which is the backward reversed."""

from __future__ import annotations

from collections.abc import Iterable

from backprint.regions.nouns import Node, Pass, RegionForward


def dot_quoted(text: str) -> str:
    """Quote a text for DOT."""
    cleaned = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{cleaned}"'


def dot_node(node: Node, forward: bool) -> str:
    """The DOT line of a node."""
    operators = ", ".join(node.ops) if forward and node.ops else node.kind
    line = f"{node.line.file.rsplit('/', 1)[-1]}:{node.line.line}" if node.line else ""
    label = "\\n".join(dot_quoted(part)[1:-1] for part in dict.fromkeys((node.name, operators, line)) if part)
    style = "filled" if node.inside else "filled,dashed"
    colour = "#dbe9f6" if node.inside else "#e7f4e4" if node.leaf else "#f4f4f4"
    return f'  {dot_quoted(node.name)} [label="{label}", style="{style}", fillcolor="{colour}"];'


def dot_file(title: str, lines: Iterable[str]) -> str:
    """The text of a `.dot` file."""
    head = f'digraph {dot_quoted(title)} {{\n  node [shape=box, fontname="monospace", fontsize=10];\n'
    return head + '  edge [fontname="monospace", fontsize=9];\n' + "\n".join(lines) + "\n}\n"


def backward_dot(found: Pass) -> str:
    """The backward: nodes, and on each edge the tensor whose gradient it carries."""
    lines = [dot_node(node, False) for node in found.nodes]
    for edge in found.edges:
        label = f"{edge.tensor} {edge.dtype}{list(edge.shape)}"
        style = "" if edge.flows else ", style=dotted"
        lines.append(f"  {dot_quoted(edge.source)} -> {dot_quoted(edge.target)} [label={dot_quoted(label)}{style}];")
    return dot_file(f"{found.region} backward", lines)


def forward_dot(found: Pass) -> str:
    """The forward: the same nodes with their forward operators, and the edges reversed."""
    lines = [dot_node(node, True) for node in found.nodes]
    for edge in dict.fromkeys((edge.target, edge.source, edge.tensor) for edge in found.edges):
        lines.append(f"  {dot_quoted(edge[0])} -> {dot_quoted(edge[1])} [label={dot_quoted(edge[2])}];")
    return dot_file(f"{found.region} forward", lines)


def unreached_dot(title: str, found: RegionForward) -> str:
    """The forward of a region that no pass has reached."""
    lines = [dot_node(node, True) for node in found.nodes]
    lines += [
        f"  {dot_quoted(a)} -> {dot_quoted(b)} [label={dot_quoted(tensor)}];"
        for a, b, tensor in dict.fromkeys(found.edges)
    ]
    return dot_file(f"{title} forward", lines)

"""A pass as pictures in Graphviz's language: the backward as it ran, and the forward, which is that turned round."""

from __future__ import annotations

from collections.abc import Iterable

from backprint.regions.nouns import Forward, Node, Pass


def quoted(text: str) -> str:
    """A text as DOT has it."""
    cleaned = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{cleaned}"'


def box(node: Node, forward: bool) -> str:
    """A node's line."""
    said = ", ".join(node.ops) if forward and node.ops else node.kind
    line = f"{node.line.file.rsplit('/', 1)[-1]}:{node.line.line}" if node.line else ""
    label = "\\n".join(quoted(part)[1:-1] for part in dict.fromkeys((node.name, said, line)) if part)
    style = "filled" if node.inside else "filled,dashed"
    colour = "#dbe9f6" if node.inside else "#e7f4e4" if node.leaf else "#f4f4f4"
    return f'  {quoted(node.name)} [label="{label}", style="{style}", fillcolor="{colour}"];'


def graph(title: str, lines: Iterable[str]) -> str:
    """A whole file."""
    head = f'digraph {quoted(title)} {{\n  node [shape=box, fontname="monospace", fontsize=10];\n'
    return head + '  edge [fontname="monospace", fontsize=9];\n' + "\n".join(lines) + "\n}\n"


def backward_dot(found: Pass) -> str:
    """Nodes, and on each edge the tensor whose gradient it carries."""
    lines = [box(node, False) for node in found.nodes]
    for edge in found.edges:
        label = f"{edge.tensor} {edge.dtype}{list(edge.shape)}"
        style = "" if edge.flows else ", style=dotted"
        lines.append(f"  {quoted(edge.source)} -> {quoted(edge.target)} [label={quoted(label)}{style}];")
    return graph(f"{found.region} backward", lines)


def forward_dot(found: Pass) -> str:
    """The same nodes by what ran in the forward, each taking what the next one's gradient is of."""
    lines = [box(node, True) for node in found.nodes]
    for edge in dict.fromkeys((edge.target, edge.source, edge.tensor) for edge in found.edges):
        lines.append(f"  {quoted(edge[0])} -> {quoted(edge[1])} [label={quoted(edge[2])}];")
    return graph(f"{found.region} forward", lines)


def unreached_dot(title: str, found: Forward) -> str:
    """A forward that no pass has told of."""
    lines = [box(node, True) for node in found.nodes]
    lines += [f"  {quoted(a)} -> {quoted(b)} [label={quoted(tensor)}];" for a, b, tensor in dict.fromkeys(found.edges)]
    return graph(f"{title} forward", lines)

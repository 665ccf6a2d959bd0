"""What of a dump is shown: its passes one by one, the bad part of one, and a pass as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from backprint.errors import UsageError
from backprint.regions.nouns import Flowed, NonfiniteOrigin, Pass, StackLine
from backprint.regions.read import folders_of, parse_pass, parse_unreached, read_graph_json
from backprint.regions.write import number_as_json

LISTED = 20
"""How many numbers of passes an error lists."""


def shown_passes(dump: Path, run: str, index: int | None = None) -> Iterator[Pass]:
    """Yield the passes of a dump without their gradients, one in memory at a time; or those with one number."""
    folders = folders_of(dump, run)
    known = []
    for folder in folders:
        content = read_graph_json(folder)
        if not content.get("reached", True):
            continue
        known.append(content.get("index"))
        if index is None or known[-1] == index:
            yield parse_pass(content, folder)
    if index is not None and index not in known:
        more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
        raise UsageError(f"{dump}: has no pass {index}; it has {', '.join(map(str, known[:LISTED]))}{more}")


def shown_unreached(dump: Path, run: str) -> Iterator[str]:
    """Yield a text for each region of a dump that no pass has reached: its operators, and the lines that ran them."""
    for folder in folders_of(dump, run, unreached=True):
        content = read_graph_json(folder)
        if not content.get("reached", True):
            yield "\n".join(unreached_lines(content, folder))


def unreached_lines(content: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield the lines on a region that no pass has reached."""
    operators, origin = parse_unreached(content, folder)
    yield f"{content['region']}: no backward pass has reached it"
    if isinstance(origin, NonfiniteOrigin):
        yield str(origin)
    yield from (f"  {operator}" for operator in operators) if operators else ("  no operator ran",)
    yield "a gradient reaches an operator whose result the loss depends on, and that ran with gradients enabled"


def bad_part(found: Pass) -> Pass:
    """Return a pass with the gradients that have NaN or Inf alone, the nodes at their ends, and the one that they come
    from."""
    edges = tuple(edge for edge in found.edges if is_bad(edge))
    inputs = tuple(each for each in found.inputs if is_bad(each))
    roots = tuple(each for each in found.roots if is_bad(each))
    ends = {name for edge in edges for name in (edge.source, edge.target)}
    ends |= {each.node for each in inputs} | {root.node for root in roots}
    ends |= {found.origin.node} if isinstance(found.origin, NonfiniteOrigin) else set()
    nodes = tuple(node for node in found.nodes if node.name in ends)
    return replace(found, nodes=nodes, edges=edges, inputs=inputs, roots=roots)


def is_bad(each: Flowed) -> bool:
    """Whether a gradient has NaN or Inf."""
    return each.stats is not None and each.stats.bad


def pass_as_dict(found: Pass) -> dict[str, Any]:
    """Return a pass as plain values, for JSON: NaN and Inf are texts, gradients are left out."""
    origin = found.origin
    return {
        "region": found.region, "run": found.run, "pass": found.index, "time": found.time, "seconds": found.seconds,
        "gradients": found.level, "bad": found.bad, "error": found.error, "notes": list(found.notes),
        "environment": dict(found.environment),
        "origin": with_line(asdict(origin), origin.line) if isinstance(origin, NonfiniteOrigin) else None,
        "roots": [{"name": each.name, "node": each.node, **flowed_dict(each)} for each in found.roots],
        "nodes": [
            with_line(
                {"name": node.name, "kind": node.kind, "module": node.module, "operators": list(node.ops),
                 "inside": node.inside, "leaf": node.leaf, "tensors": list(node.tensors), "opaque": node.opaque,
                 "stack": [line._asdict() for line in node.stack]},
                node.line,
            )
            for node in found.nodes
        ],
        "edges": [
            {"name": edge.name, "source": edge.source, "target": edge.target, "tensor": edge.tensor,
             "flows": edge.flows, **flowed_dict(edge)}
            for edge in found.edges
        ],
        "inputs": [
            {"name": each.name, "node": each.node, "tensor": each.tensor, **flowed_dict(each)} for each in found.inputs
        ],
    }  # fmt: skip


def with_line(content: dict[str, Any], line: StackLine | None) -> dict[str, Any]:
    """Return an object with the line of the user's program."""
    return content | {"line": line._asdict() if line is not None else None}


def flowed_dict(each: Flowed) -> dict[str, Any]:
    """Return the shape, the dtype, the device and the statistics of a gradient."""
    stats = {name: number_as_json(value) for name, value in asdict(each.stats).items()} if each.stats else None
    return {"shape": list(each.shape), "dtype": each.dtype, "device": each.device, "stats": stats}

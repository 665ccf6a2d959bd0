"""Writing a pass to disk: a folder of its own, written beside its place and renamed, so that it is complete or absent.

graph.json             everything but tensors: nodes, edges, inputs, roots, stacks, stats
gradients.safetensors  with gradients="values": the exact bits, by edge, input and root

`backprint region show` prints it and `backprint region draw` draws it: never the program's own step.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from backprint._torch.tensors import sparse_indices, sparse_values
from backprint.regions.nouns import (
    RUN,
    Flowed,
    Node,
    NonfiniteOrigin,
    Pass,
    RegionForward,
    StackLine,
    UnreachedOperator,
    Unwatched,
)
from backprint.tensor_files import write_safetensors
from backprint.tensor_stats import Stats

FORMAT = 2


@dataclass(frozen=True, slots=True)
class DumpedPass:
    """The folder of a Pass that was written."""

    place: Path

    def read_pass(self) -> Pass:
        """Read the Pass again."""
        from backprint.regions.read import read_pass

        return read_pass(self.place)


# ------------------------------------------------------------------ folders


def write_pass(found: Pass, folder: Path, head: str) -> DumpedPass:
    """Write a pass into the next free folder below `folder`."""
    tensors: dict[str, Tensor] = {}
    content = pass_json(found, tensors)
    return DumpedPass(write_dump_folder(folder, head, content, tensors))


def write_unreached(
    title: str,
    head: str,
    forward: RegionForward,
    ops: Sequence[UnreachedOperator],
    origin: NonfiniteOrigin | Unwatched | None,
    folder: Path,
) -> Path:
    """Write the forward of a region that no pass has reached."""
    content = {
        "format": FORMAT, "region": title, "run": RUN, "time": time.time(), "reached": False,
        "unreached": [op_json(op) for op in ops], "origin": origin_json(origin),
        "nodes": [node_json(node) for node in forward.nodes], "edges": [list(edge) for edge in forward.edges],
    }  # fmt: skip
    return write_dump_folder(folder, f"{head}_unreached", content, {})


def write_dump_folder(folder: Path, head: str, content: Mapping[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write graph.json and gradients to a new folder below `folder`, all or none."""
    folder.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{head}.", suffix=".part", dir=folder))
    try:
        (staging / "graph.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        if tensors:
            write_safetensors(staging / "gradients.safetensors", tensors)
        staging.chmod(0o755)
        return rename_to_free_name(staging, folder, head)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


_next: dict[tuple[str, str], int] = {}


def forget_numbers(folder: str) -> None:
    """Restart the numbers of a folder that was deleted."""
    for key in [key for key in list(_next) if key[0] == folder]:
        _next.pop(key, None)


def rename_to_free_name(staging: Path, folder: Path, head: str) -> Path:
    """Rename the staging folder to the next free name; another process or region may take a name at the same time."""
    key = (os.fspath(folder), head)
    index = _next.get(key, 0)
    while True:
        place = folder / f"{head}_{index:04d}"
        index += 1
        if place.exists():
            continue
        try:
            os.rename(staging, place)
        except OSError:
            if not place.exists():
                raise
            continue
        _next[key] = index
        return place


# ------------------------------------------------------------------ as JSON


def number_as_json(value: float | None) -> Any:
    """A float as JSON; NaN and Inf as texts."""
    return value if value is None or math.isfinite(value) else str(value)


def stats_json(stats: Stats | None) -> Any:
    """Stats as a list, in the order of their fields."""
    if stats is None:
        return None
    parts = (stats.min, stats.max, stats.mean, stats.std, stats.norm)
    return [stats.count, *map(number_as_json, parts), stats.nan, stats.inf, stats.zeros]


def line_json(line: StackLine | None) -> Any:
    """A line as a JSON list."""
    return list(line) if line is not None else None


def node_json(node: Node) -> dict[str, Any]:
    """A node as a JSON object."""
    return {
        "name": node.name, "kind": node.kind, "inside": node.inside, "leaf": node.leaf, "ops": list(node.ops),
        "tensors": list(node.tensors), "line": line_json(node.line), "stack": [list(line) for line in node.stack],
        "opaque": node.opaque, "module": node.module,
    }  # fmt: skip


def op_json(op: UnreachedOperator) -> dict[str, Any]:
    """An unreached operator as a JSON object."""
    return {"name": op.name, "line": line_json(op.line), "count": op.count}


def origin_json(origin: NonfiniteOrigin | Unwatched | None) -> dict[str, Any] | None:
    """A NonfiniteOrigin as a JSON object; None where there is none, or gradients were not watched."""
    if not isinstance(origin, NonfiniteOrigin):
        return None
    return {
        "what": origin.what, "where": origin.where, "op": origin.op, "line": line_json(origin.line),
        "tensor": origin.tensor, "node": origin.node, "detail": origin.detail,
    }  # fmt: skip


def pass_json(found: Pass, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A pass as a JSON object; its gradients go into `tensors`."""
    seen: dict[int, dict[str, Any]] = {}

    def kept(name: str, each: Flowed) -> dict[str, Any]:
        row = {"shape": list(each.shape), "dtype": each.dtype, "device": each.device, "stats": stats_json(each.stats)}
        if each.gradient is not None:
            row |= keep_gradient(name, each.gradient, tensors, seen)
        return row

    return {
        "format": FORMAT, "region": found.region, "run": found.run, "reached": True, "index": found.index,
        "time": found.time, "origin": origin_json(found.origin),
        "seconds": found.seconds, "gradients": found.level, "error": found.error, "notes": list(found.notes),
        "environment": dict(found.environment),
        "nodes": [node_json(node) for node in found.nodes],
        "edges": [
            {"name": e.name, "source": e.source, "target": e.target, "slot": e.slot, "place": e.place,
             "tensor": e.tensor, "flows": e.flows, **kept(f"edge {e.name}", e)} for e in found.edges
        ],
        "inputs": [
            {"name": i.name, "node": i.node, "place": i.place, "tensor": i.tensor, **kept(f"input {i.name}", i)}
            for i in found.inputs
        ],
        "roots": [{"name": r.name, "node": r.node, **kept(f"root {n}", r)} for n, r in enumerate(found.roots)],
    }  # fmt: skip


def keep_gradient(
    name: str, value: Tensor, tensors: dict[str, Tensor], seen: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """Put a gradient into `tensors`, once where an edge and an input share it; returns the fields that find it."""
    import torch

    if id(value) in seen:
        return seen[id(value)]
    row: dict[str, Any] = {"kept": name}
    seen[id(value)] = row
    if type(value) is not Tensor:
        return {"unkept": f"a {type(value).__name__}"}
    if value.layout is not torch.strided:
        if value.layout is not torch.sparse_coo:
            return {"unkept": f"layout {value.layout}"}
        tensors[f"{name} indices"] = sparse_indices(value)
        row |= {"sparse": list(value.shape), "coalesced": value.is_coalesced()}
        value = sparse_values(value)
    value = value.resolve_conj().resolve_neg()
    if value.is_complex():
        row["complex"] = True
        value = torch.view_as_real(value)
    tensors[name] = value.cpu().contiguous()
    return row

"""Dumps: passes of a region on disk.

    graph.json             everything but tensors: nodes, edges, inputs, roots, stacks, stats
    gradients.safetensors  with gradients="values": the exact bits, by edge, input and root

`backprint region show` prints a dump and `backprint region draw` draws it, never the program's own step.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint._torch.tensors import sparse_indices, sparse_values
from backprint.common.files import open_regular, read_bytes
from backprint.common.folders import unfinished_folder
from backprint.common.text import parse_json
from backprint.errors import RegionError, UsageError
from backprint.tools.regions.nouns import (
    LEVELS,
    RUN,
    BackwardRoot,
    Edge,
    Flowed,
    Input,
    Node,
    NonfiniteOrigin,
    Pass,
    RegionForward,
    StackLine,
    UnreachedOperator,
    Unwatched,
)
from backprint.values.statistics import Stats
from backprint.values.tensor_files import write_safetensors

# ---- Writing a pass: a folder of its own, written beside its place and renamed, so that it is complete or absent


FORMAT = 2


@dataclass(frozen=True, slots=True)
class DumpedPass:
    """The folder of a Pass that was written."""

    place: Path

    def read_pass(self) -> Pass:
        """Read the Pass again."""

        return read_pass(self.place)


# ---- Folders


def write_pass(region_pass: Pass, folder: Path, head: str) -> DumpedPass:
    """Write a pass into the next free folder below `folder`."""
    tensors: dict[str, Tensor] = {}
    content = _pass_json(region_pass, tensors)
    return DumpedPass(_write_dump_folder(folder, head, content, tensors))


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
        "format": FORMAT,
        "region": title,
        "run": RUN,
        "time": time.time(),
        "reached": False,
        "unreached": [_op_json(op) for op in ops],
        "origin": _origin_json(origin),
        "nodes": [_node_json(node) for node in forward.nodes],
        "edges": [list(edge) for edge in forward.edges],
    }
    return _write_dump_folder(folder, f"{head}_unreached", content, {})


def _write_dump_folder(folder: Path, head: str, content: Mapping[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write graph.json and gradients to a new folder below `folder`, all or none."""
    with unfinished_folder(folder, head) as staging:
        (staging / "graph.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        if tensors:
            write_safetensors(staging / "gradients.safetensors", tensors)
        return _rename_to_free_name(staging, folder, head)


_next: dict[tuple[str, str], int] = {}


def forget_numbers(folder: str) -> None:
    """Restart the numbers of a folder that was deleted."""
    for key in [key for key in list(_next) if key[0] == folder]:
        _next.pop(key, None)


def _rename_to_free_name(staging: Path, folder: Path, head: str) -> Path:
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


# ---- As JSON


def number_as_json(value: float | None) -> Any:
    """Return a float as JSON; NaN and Inf as texts."""
    return value if value is None or math.isfinite(value) else str(value)


def _stats_json(stats: Stats | None) -> Any:
    """Stats as a list, in the order of their fields."""
    if stats is None:
        return None
    parts = (stats.min, stats.max, stats.mean, stats.std, stats.norm)
    return [stats.count, *map(number_as_json, parts), stats.nan, stats.inf, stats.zeros]


def _line_json(line: StackLine | None) -> Any:
    """Return a line as a JSON list."""
    return list(line) if line is not None else None


def _node_json(node: Node) -> dict[str, Any]:
    """Return a node as a JSON object."""
    return {
        "name": node.name,
        "kind": node.kind,
        "inside": node.inside,
        "leaf": node.leaf,
        "ops": list(node.ops),
        "tensors": list(node.tensors),
        "line": _line_json(node.line),
        "stack": [list(line) for line in node.stack],
        "opaque": node.opaque,
        "module": node.module,
    }


def _op_json(op: UnreachedOperator) -> dict[str, Any]:
    """Return an unreached operator as a JSON object."""
    return {"name": op.name, "line": _line_json(op.line), "count": op.count}


def _origin_json(origin: NonfiniteOrigin | Unwatched | None) -> dict[str, Any] | None:
    """Return a NonfiniteOrigin as a JSON object; None where there is none, or gradients were not watched."""
    if not isinstance(origin, NonfiniteOrigin):
        return None
    return {
        "what": origin.what,
        "where": origin.where,
        "op": origin.op,
        "line": _line_json(origin.line),
        "tensor": origin.tensor,
        "node": origin.node,
        "detail": origin.detail,
    }


def _pass_json(region_pass: Pass, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return a pass as a JSON object; its gradients go into `tensors`."""
    seen: dict[int, dict[str, Any]] = {}

    def kept(name: str, part: Flowed) -> dict[str, Any]:
        row = {"shape": list(part.shape), "dtype": part.dtype, "device": part.device, "stats": _stats_json(part.stats)}
        if part.gradient is not None:
            row |= _keep_gradient(name, part.gradient, tensors, seen)
        return row

    return {
        "format": FORMAT,
        "region": region_pass.region,
        "run": region_pass.run,
        "reached": True,
        "index": region_pass.index,
        "time": region_pass.time,
        "origin": _origin_json(region_pass.origin),
        "seconds": region_pass.seconds,
        "gradients": region_pass.level,
        "error": region_pass.error,
        "notes": list(region_pass.notes),
        "environment": dict(region_pass.environment),
        "nodes": [_node_json(node) for node in region_pass.nodes],
        "edges": [
            {
                "name": e.name,
                "source": e.source,
                "target": e.target,
                "slot": e.slot,
                "place": e.place,
                "tensor": e.tensor,
                "flows": e.flows,
                **kept(f"edge {e.name}", e),
            }
            for e in region_pass.edges
        ],
        "inputs": [
            {"name": i.name, "node": i.node, "place": i.place, "tensor": i.tensor, **kept(f"input {i.name}", i)}
            for i in region_pass.inputs
        ],
        "roots": [{"name": r.name, "node": r.node, **kept(f"root {n}", r)} for n, r in enumerate(region_pass.roots)],
    }


def _keep_gradient(
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


# ---- Reading: the content of a file is checked, and nothing of it is executed

MOST = 128 << 20
"""The most bytes of a graph.json that is read."""


LATEST, ALL = "latest", "all"


@dataclass(frozen=True, slots=True)
class _DumpRun:
    """The passes that one run of a script, which is one process, wrote to a dump."""

    name: str
    folders: tuple[Path, ...]
    last: float
    reached: int

    def __str__(self) -> str:
        return self.name


def check_dump(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which there is no dump; one that is damaged is for its reader."""
    place = Path(path)
    if not place.is_dir():
        raise UsageError(f"{place}: {'not a folder' if place.exists() else 'no such folder'}")
    if not (place / "graph.json").exists() and not any(place.glob("*/graph.json")):
        raise UsageError(f"{place}: no pass here: a region's dump has folders with graph.json")


def read_passes(path: str | os.PathLike[str], run: str = LATEST) -> list[Pass]:
    """Return the passes of a dump: of a pass's own folder, or of a region's folder, where `run` selects the run:
    `latest`, `all`, or a run's name or the beginning of it."""
    return [read_pass(pass_folder) for pass_folder in folders_of(path, run)]


def folders_of(path: str | os.PathLike[str], run: str = LATEST, unreached: bool = False) -> list[Path]:
    """Return the folders of a run's passes, in order; with `unreached`, also those that have a forward alone."""
    place = Path(path)
    if (place / "graph.json").exists():
        return [place]
    runs = runs_of(place)
    chosen = runs if run == ALL else [select_run(runs, run, place)]
    folders = [folder for run_of_dump in chosen for folder in run_of_dump.folders]
    if unreached:
        return folders
    passes = [folder for folder in folders if read_graph_json(folder).get("reached", True)]
    if not passes:
        where = f" in run {chosen[0]}" if len(runs) > 1 and len(chosen) == 1 else ""
        raise RegionError(f"{path}: no backward pass has reached this region{where}")
    return passes


LISTED = 20
"""How many numbers of passes an error lists."""


def check_number(path: str | os.PathLike[str], number: int, known: Sequence[Any]) -> None:
    """Raise unless a pass of a dump has this number; `known` are those of all its passes."""
    if number not in known:
        more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
        raise UsageError(f"{path}: has no pass {number}; it has {', '.join(map(str, known[:LISTED]))}{more}")


def runs_of(path: str | os.PathLike[str]) -> list[_DumpRun]:
    """Return the runs that wrote to a dump, the latest last; for a pass's own folder, its run."""
    place = Path(path)
    if not place.is_dir():
        raise RegionError(f"{path}: no such folder")
    own = (place / "graph.json").exists()
    every = [place] if own else [file.parent for file in place.glob("*/graph.json") if file.parent.name[0] != "."]
    if not every:
        raise RegionError(f"{path}: no pass here: a region's dump has folders with graph.json")
    folders_of_run: dict[str, list[tuple[Path, float, bool]]] = {}
    for folder in sorted(every, key=_folder_order):
        content = read_graph_json(folder)
        row = (folder, begin_of_pass(content, folder), bool(content.get("reached", True)))
        folders_of_run.setdefault(str(content.get("run", "")), []).append(row)
    runs = [
        _DumpRun(name, tuple(row[0] for row in rows), max(row[1] for row in rows), sum(row[2] for row in rows))
        for name, rows in folders_of_run.items()
    ]
    return sorted(runs, key=lambda run: run.last)


def _folder_order(folder: Path) -> tuple[str, int]:
    """Sort key of folders: the name, then the number as a number."""
    head, _, number = folder.name.rpartition("_")
    return (head, int(number)) if number.isdecimal() else (folder.name, 0)


def begin_of_pass(content: Mapping[str, Any], folder: Path) -> float:
    """Return the time at which a pass began."""
    time = content.get("time", 0.0)
    if type(time) not in (int, float) or not abs(time) < 1e11:
        raise RegionError(f"{folder}: graph.json is malformed: its time is {time!r:.80}")
    return float(time)


def select_run(runs: Sequence[_DumpRun], run: str, place: Path) -> _DumpRun:
    """Select a run by `latest`, its name, or the beginning of its name."""
    if run == LATEST:
        return runs[-1]
    named = [candidate for candidate in runs if candidate.name == run] or [
        candidate for candidate in runs if run and candidate.name.startswith(run)
    ]
    if len(named) != 1:
        count = "no run" if not named else f"{len(named)} runs"
        names = ", ".join(candidate.name for candidate in runs)
        raise RegionError(f"{place}: {count} of the name {run!r}; it has {names}")
    return named[0]


def read_graph_json(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's graph.json, its format checked."""
    place = folder / "graph.json"
    try:
        content = parse_json(read_bytes(place, MOST, links=True, error=RegionError).decode())
    except (ValueError, RecursionError) as error:
        raise RegionError(f"{place}: cannot be read: {error}") from error
    if not isinstance(content, dict) or "region" not in content:
        raise RegionError(f"{place}: is not a region's graph.json")
    if content.get("format") != FORMAT:
        raise RegionError(
            f"{place}: has format {content.get('format')!r:.40}, and this Backprint reads format {FORMAT}: run the "
            "program again"
        )
    return content


def read_pass(folder: Path) -> Pass:
    """Read a pass with its gradients."""
    content = read_graph_json(folder)
    if not content.get("reached"):
        raise RegionError(f"{folder}: no backward pass has reached this region: it has a forward alone")
    return parse_pass(content, folder, read_gradients(folder))


MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, OverflowError)


def parse_pass(content: Mapping[str, Any], folder: Path, tensors: Mapping[str, Tensor] | None = None) -> Pass:
    """Make a Pass of a graph.json's content; without `tensors` it has no gradients."""
    try:
        return _pass_from_json(content, tensors)
    except MALFORMED as error:
        raise RegionError(f"{folder}: graph.json is malformed: {type(error).__name__}: {error}") from error


def parse_forward(content: Mapping[str, Any], folder: Path) -> RegionForward:
    """Make the Forward of a region that no pass has reached."""
    try:
        edges = tuple((str(maker), str(taker), str(tensor)) for maker, taker, tensor in content["edges"])
        return RegionForward(tuple(map(_node_from_json, content["nodes"])), edges)
    except MALFORMED as error:
        raise RegionError(f"{folder}: graph.json is malformed: {type(error).__name__}: {error}") from error


def parse_unreached(
    content: Mapping[str, Any], folder: Path
) -> tuple[tuple[UnreachedOperator, ...], NonfiniteOrigin | Unwatched | None]:
    """Return the operators of a region that no pass has reached, and where NaN and Inf come from."""
    try:
        operators = tuple(
            UnreachedOperator(str(row["name"]), _line_from_json(row["line"]), int(row["count"]))
            for row in content["unreached"]
        )
        return operators, _origin_from_json(content, "")
    except MALFORMED as error:
        raise RegionError(f"{folder}: graph.json is malformed: {type(error).__name__}: {error}") from error


def read_gradients(folder: Path) -> dict[str, Tensor]:
    """Return the gradients that a pass kept, by their names in the file."""
    place = folder / "gradients.safetensors"
    if not place.exists():
        return {}
    from safetensors import SafetensorError
    from safetensors.torch import load

    with open_regular(place, links=True, error=RegionError) as file:
        content = file.read(os.fstat(file.fileno()).st_size)
    try:
        return load(content)
    except (SafetensorError, ValueError) as error:
        raise RegionError(f"{place}: cannot be read: {error}") from error


def _pass_from_json(content: Mapping[str, Any], tensors: Mapping[str, Tensor] | None) -> Pass:
    level = content["gradients"]
    if level not in LEVELS:
        raise ValueError(f"gradients is {level!r}")

    def flowed(row: Mapping[str, Any]) -> dict[str, Any]:
        kind = dict(shape=tuple(map(int, row["shape"])), dtype=str(row["dtype"]), device=str(row["device"]))
        return {
            **kind,
            "stats": stats_from_json(row["stats"]),
            "gradient": None if tensors is None else _gradient_from_json(row, tensors),
        }

    nodes = tuple(map(_node_from_json, content["nodes"]))
    known = {node.name for node in nodes}
    edges = []
    for row in content["edges"]:
        ends = (str(row["name"]), str(row["source"]), str(row["target"]), int(row["slot"]), int(row["place"]))
        if not {*ends[1:3]} <= known:
            raise ValueError(f"edge {ends[0]!r:.80} is from {ends[1]!r:.80} to {ends[2]!r:.80}, and not both are nodes")
        edges.append(Edge(*ends, str(row["tensor"]), bool(row["flows"]), **flowed(row)))
    inputs = tuple(
        Input(str(row["name"]), str(row["node"]), int(row["place"]), str(row["tensor"]), **flowed(row))
        for row in content["inputs"]
    )
    roots = tuple(BackwardRoot(str(row["name"]), str(row["node"]), **flowed(row)) for row in content["roots"])
    return Pass(
        str(content["region"]),
        int(content["index"]),
        float(content["time"]),
        float(content["seconds"]),
        level,
        roots,
        nodes,
        tuple(edges),
        inputs,
        str(content["error"]),
        tuple(map(str, content["notes"])),
        {str(k): str(v) for k, v in content["environment"].items()},
        _origin_from_json(content, level),
        str(content["run"]),
    )


def _node_from_json(row: Mapping[str, Any]) -> Node:
    return Node(
        str(row["name"]),
        str(row["kind"]),
        bool(row["inside"]),
        tuple(map(str, row["ops"])),
        tuple(filter(None, map(_line_from_json, row["stack"]))),
        _line_from_json(row["line"]),
        tuple(map(str, row["tensors"])),
        bool(row["leaf"]),
        str(row["opaque"]),
        str(row["module"]),
    )


def _line_from_json(row: Any) -> StackLine | None:
    return StackLine(str(row[0]), int(row[1]), str(row[2])) if row is not None else None


def _origin_from_json(content: Mapping[str, Any], level: str) -> NonfiniteOrigin | Unwatched | None:
    """Return where NaN and Inf come from; Unwatched where the dump does not say."""
    if level == "none":
        return Unwatched()
    row = content["origin"]
    if row is None:
        return None
    names = ("what", "where", "op", "tensor", "node", "detail")
    origin = NonfiniteOrigin(line=_line_from_json(row["line"]), **{name: str(row[name]) for name in names})
    if origin.where not in ("forward", "inputs", "backward", "gradients"):
        raise ValueError(f"an origin is {origin.where!r}")
    return origin


def stats_from_json(row: Any) -> Stats | None:
    if row is None:
        return None
    count, *parts, norm, nan, inf, zeros = row
    low, high, mean, std = (None if part is None else float(part) for part in parts)
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in (count, nan, inf, zeros)):
        raise ValueError("a count of elements is no whole number, is negative, or is larger than a tensor can have")
    return Stats(count, low, high, mean, std, float(norm), nan, inf, zeros)


def _gradient_from_json(row: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return the kept gradient that a row names, of its own layout and dtype."""
    name = row.get("kept")
    if name is None:
        return None
    tensor = tensors[name]
    if row.get("complex"):
        tensor = torch.view_as_complex(tensor)
    if "sparse" in row:
        places = tensors[f"{name} indices"]
        ordered = bool(row["coalesced"]) or None
        tensor = torch.sparse_coo_tensor(places, tensor, row["sparse"], is_coalesced=ordered, check_invariants=True)
    return tensor

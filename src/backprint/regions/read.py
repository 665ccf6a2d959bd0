"""Dumps, read again. What a file says is checked, and nothing of it is run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint.errors import RegionError
from backprint.plain import parse_json
from backprint.regions.nouns import LEVELS, Edge, Input, Line, Node, Pass, Root, Stats
from backprint.regions.write import FORMAT

MOST = 1 << 29
"""The largest graph.json that is read."""


def read_passes(path: str | os.PathLike[str]) -> list[Pass]:
    """The passes of a dump: of a pass's own folder, or of all below a region's, in order."""
    place = Path(path)
    if (place / "graph.json").exists():
        return [read_pass(place)]
    if not place.is_dir():
        raise RegionError(f"{path}: no such folder")
    found = sorted(each.parent for each in place.glob("*/graph.json") if not each.parent.name.startswith("."))
    passes = [read_pass(each) for each in found if content_of(each).get("reached", True)]
    if not passes:
        raise RegionError(
            f"{path}: " + ("no backward pass has reached this region" if found else "no pass here: a region's dump has "
                           "folders with graph.json")
        )  # fmt: skip
    return passes


def content_of(folder: Path) -> dict[str, Any]:
    """What graph.json says."""
    place = folder / "graph.json"
    try:
        if place.stat().st_size > MOST:
            raise RegionError(f"{place}: is larger than {MOST >> 20} MiB")
        content = parse_json(place.read_bytes().decode())
    except (OSError, ValueError, RecursionError) as error:
        raise RegionError(f"{place}: cannot be read: {error}") from error
    if not isinstance(content, dict) or "region" not in content:
        raise RegionError(f"{place}: is no region's graph.json")
    if content.get("format") != FORMAT:
        raise RegionError(f"{place}: has format {content.get('format')!r}, and this Backprint reads {FORMAT}")
    return content


def read_pass(folder: Path) -> Pass:
    """One pass."""
    content = content_of(folder)
    if not content.get("reached"):
        raise RegionError(f"{folder}: no backward pass has reached this region: it has a forward alone")
    tensors = tensors_of(folder)
    try:
        return build(content, tensors)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise RegionError(f"{folder}: graph.json is malformed: {type(error).__name__}: {error}") from error


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """The gradients that were kept."""
    place = folder / "gradients.safetensors"
    if not place.exists():
        return {}
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(place.read_bytes())
    except (OSError, SafetensorError, ValueError) as error:
        raise RegionError(f"{place}: cannot be read: {error}") from error


def build(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Pass:
    """A Pass from JSON."""
    level = content["gradients"]
    if level not in LEVELS:
        raise ValueError(f"gradients is {level!r}")

    def flowed(row: Mapping[str, Any]) -> dict[str, Any]:
        kind = dict(shape=tuple(map(int, row["shape"])), dtype=str(row["dtype"]), device=str(row["device"]))
        return {**kind, "stats": stats(row["stats"]), "gradient": value(row, tensors)}

    edges = []
    for row in content["edges"]:
        ends = (str(row["name"]), str(row["source"]), str(row["target"]), int(row["slot"]), int(row["place"]))
        edges.append(Edge(*ends, str(row["tensor"]), bool(row["flows"]), **flowed(row)))
    inputs = tuple(
        Input(str(row["name"]), str(row["node"]), int(row["place"]), str(row["tensor"]), **flowed(row))
        for row in content["inputs"]
    )
    roots = tuple(Root(str(row["name"]), str(row["node"]), **flowed(row)) for row in content["roots"])
    return Pass(
        str(content["region"]), int(content["index"]), float(content["time"]), float(content["seconds"]), level, roots,
        tuple(map(node, content["nodes"])), tuple(edges), inputs, str(content["error"]),
        tuple(map(str, content["notes"])), {str(k): str(v) for k, v in content["environment"].items()},
    )  # fmt: skip


def node(row: Mapping[str, Any]) -> Node:
    """One node."""
    return Node(
        str(row["name"]), str(row["kind"]), bool(row["inside"]), tuple(map(str, row["ops"])),
        tuple(filter(None, map(line, row["stack"]))), line(row["line"]), tuple(map(str, row["tensors"])),
        bool(row["leaf"]), str(row["opaque"]),
    )  # fmt: skip


def line(row: Any) -> Line | None:
    """One line."""
    return Line(str(row[0]), int(row[1]), str(row[2])) if row is not None else None


def stats(row: Any) -> Stats | None:
    """One gradient's numbers."""
    if row is None:
        return None
    count, *parts, norm, nan, inf, zeros = row
    low, high, mean, std = (None if part is None else float(part) for part in parts)
    return Stats(int(count), low, high, mean, std, float(norm), int(nan), int(inf), int(zeros))


def value(row: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tensor | None:
    """A gradient's bits."""
    name = row.get("kept")
    if name is None:
        return None
    found = tensors[name]
    if row.get("complex"):
        found = torch.view_as_complex(found)
    if "sparse" in row:
        places = tensors[f"{name} indices"]
        ordered = bool(row["coalesced"]) or None
        found = torch.sparse_coo_tensor(places, found, row["sparse"], is_coalesced=ordered, check_invariants=True)
    return found

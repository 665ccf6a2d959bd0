"""Dumps, read again. What a file says is checked, and nothing of it is run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint.errors import RegionError, UsageError
from backprint.plain import parse_json
from backprint.regions.nouns import (
    LEVELS,
    Edge,
    Forward,
    Input,
    Line,
    Node,
    Origin,
    Pass,
    Root,
    Stats,
    Unwatched,
)
from backprint.regions.write import FORMAT

MOST = 1 << 29
"""The largest graph.json that is read."""


FORMATS = (1, FORMAT)
"""The formats that are read. In 1 a pass does not say in which run it was seen."""

LATEST, ALL = "latest", "all"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a script, which is one process, left in a dump."""

    name: str
    folders: tuple[Path, ...]
    last: float
    reached: int

    def __str__(self) -> str:
        return self.name or "without a name, of format 1"


def check_dump(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which there is no dump; one that is damaged is for its reader."""
    place = Path(path)
    if not place.is_dir():
        raise UsageError(f"{place}: {'not a folder' if place.exists() else 'no such folder'}")
    if not (place / "graph.json").exists() and not any(place.glob("*/graph.json")):
        raise UsageError(f"{place}: no pass here: a region's dump has folders with graph.json")


def read_passes(path: str | os.PathLike[str], run: str = LATEST) -> list[Pass]:
    """The passes of a dump: of a pass's own folder, or of a region's, where `run` says of which run: the latest one,
    the one of a name or of a beginning of it, or `all`."""
    return [read_pass(each) for each in folders_of(path, run)]


def folders_of(path: str | os.PathLike[str], run: str = LATEST, unreached: bool = False) -> list[Path]:
    """The folders of the passes of a run, in order; `unreached` has those with a forward alone as well."""
    place = Path(path)
    if (place / "graph.json").exists():
        return [place]
    runs = runs_of(place)
    chosen = runs if run == ALL else [one_of(runs, run, place)]
    found = [folder for each in chosen for folder in each.folders]
    if unreached:
        return found
    passes = [folder for folder in found if content_of(folder).get("reached", True)]
    if not passes:
        said = f" in run {chosen[0]}" if len(runs) > 1 and len(chosen) == 1 else ""
        raise RegionError(f"{path}: no backward pass has reached this region{said}")
    return passes


def runs_of(path: str | os.PathLike[str]) -> list[Run]:
    """The runs that wrote into a dump, the latest one last; of a pass's own folder, its one."""
    place = Path(path)
    if not place.is_dir():
        raise RegionError(f"{path}: no such folder")
    own = (place / "graph.json").exists()
    every = [place] if own else [each.parent for each in place.glob("*/graph.json") if each.parent.name[0] != "."]
    if not every:
        raise RegionError(f"{path}: no pass here: a region's dump has folders with graph.json")
    found: dict[str, list[tuple[Path, float, bool]]] = {}
    for folder in sorted(every, key=in_order):
        content = content_of(folder)
        row = (folder, moment(content, folder), bool(content.get("reached", True)))
        found.setdefault(str(content.get("run", "")), []).append(row)
    runs = [
        Run(name, tuple(row[0] for row in rows), max(row[1] for row in rows), sum(row[2] for row in rows))
        for name, rows in found.items()
    ]
    return sorted(runs, key=lambda each: (bool(each.name), each.last))


def in_order(folder: Path) -> tuple[str, int]:
    """Folders by their names, and then by their numbers: the ten thousandth comes after the one before it."""
    head, _, number = folder.name.rpartition("_")
    return (head, int(number)) if number.isdecimal() else (folder.name, 0)


def moment(content: Mapping[str, Any], folder: Path) -> float:
    """When a pass began."""
    found = content.get("time", 0.0)
    if type(found) not in (int, float):
        raise RegionError(f"{folder}: graph.json is malformed: its time is {found!r}")
    return float(found)


def one_of(runs: Sequence[Run], run: str, place: Path) -> Run:
    """The run of a name."""
    if run == LATEST:
        return runs[-1]
    named = [each for each in runs if each.name == run] or [each for each in runs if run and each.name.startswith(run)]
    if len(named) != 1:
        said = "no run" if not named else f"{len(named)} runs"
        names = ", ".join(each.name or "(format 1)" for each in runs)
        raise RegionError(f"{place}: {said} of the name {run!r}; it has {names}")
    return named[0]


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
    if content.get("format") not in FORMATS:
        said = " and ".join(map(str, FORMATS))
        raise RegionError(f"{place}: has format {content.get('format')!r}, and this Backprint reads {said}")
    return content


def read_pass(folder: Path) -> Pass:
    """One pass."""
    content = content_of(folder)
    if not content.get("reached"):
        raise RegionError(f"{folder}: no backward pass has reached this region: it has a forward alone")
    return pass_from(content, folder, tensors_of(folder))


MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError)


def pass_from(content: Mapping[str, Any], folder: Path, tensors: Mapping[str, Tensor] | None = None) -> Pass:
    """A Pass; without its tensors, where none are given."""
    try:
        return build(content, tensors)
    except MALFORMED as error:
        raise RegionError(f"{folder}: graph.json is malformed: {type(error).__name__}: {error}") from error


def forward_from(content: Mapping[str, Any], folder: Path) -> Forward:
    """The forward of a region that no pass has reached."""
    try:
        edges = tuple((str(maker), str(taker), str(tensor)) for maker, taker, tensor in content["edges"])
        return Forward(tuple(map(node, content["nodes"])), edges)
    except MALFORMED as error:
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


def build(content: Mapping[str, Any], tensors: Mapping[str, Tensor] | None) -> Pass:
    """A Pass from JSON."""
    level = content["gradients"]
    if level not in LEVELS:
        raise ValueError(f"gradients is {level!r}")

    def flowed(row: Mapping[str, Any]) -> dict[str, Any]:
        kind = dict(shape=tuple(map(int, row["shape"])), dtype=str(row["dtype"]), device=str(row["device"]))
        return {**kind, "stats": stats(row["stats"]), "gradient": None if tensors is None else value(row, tensors)}

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
        origin(content, level), str(content.get("run", "")),
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


def origin(content: Mapping[str, Any], level: str) -> Origin | Unwatched | None:
    """Where NaN and Inf come from."""
    if level == "none":
        return Unwatched()
    if "origin" not in content:
        return Unwatched("a dump of format 1 does not say where NaN and Inf come from")
    row = content["origin"]
    if row is None:
        return None
    names = ("what", "where", "op", "tensor", "node", "detail")
    found = Origin(line=line(row["line"]), **{name: str(row[name]) for name in names})
    if found.where not in ("forward", "inputs", "backward", "gradients"):
        raise ValueError(f"an origin is {found.where!r}")
    return found


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

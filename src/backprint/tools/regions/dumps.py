"""Dumps: passes of a region on disk, each in a folder of its own.

    graph.json             the fields of a Pass but for its tensors: nodes, edges, inputs, roots, stacks, statistics
    gradients.safetensors  with gradients="values": the exact bits, by edge, input and root

`backprint show`, `draw`, `view` and `diff` take a dump; nothing of it is executed.

A Pass is the record of one backward call: its `roots`, `edges` and `inputs` are gradients, each with its shape, dtype,
statistics and, if they were kept, its values in the field `gradient`. A run is one process of a script, which may write
many passes; its name begins with its time. A place is a path.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint._torch.tensors import sparse_indices, sparse_values
from backprint.common.files import from_plain, open_regular, read_bytes
from backprint.common.folders import unfinished_folder
from backprint.common.formats import GRAPH_JSON, has_dump
from backprint.common.text import parse_json
from backprint.errors import RegionError, UsageError
from backprint.tools.regions.nouns import LEVELS, ORIGINS, NonfiniteOrigin, Pass, Unwatched
from backprint.values.statistics import Stats
from backprint.values.tensor_files import write_safetensors

FORMAT = 3
"""The version of graph.json, which has it as `format`."""

GRADIENTS = "gradients.safetensors"

# ---- Writing a pass: a folder of its own, written beside its place and renamed, so that it is complete or absent


@dataclass(frozen=True, slots=True)
class DumpedPass:
    """The folder of a Pass that was written."""

    place: Path

    def read_pass(self) -> Pass:
        """Read the Pass again."""
        return read_pass(self.place)


def write_pass(region_pass: Pass, folder: Path, head: str) -> DumpedPass:
    """Write a pass into the next free folder below `folder`, all or nothing: `head` and a number, as in `pass_0003`."""
    tensors: dict[str, Tensor] = {}
    content = pass_as_json(region_pass, tensors)
    with unfinished_folder(folder, head) as staging:
        (staging / GRAPH_JSON).write_text(json.dumps(content) + "\n", encoding="utf-8")
        if tensors:
            write_safetensors(staging / GRADIENTS, tensors)
        return DumpedPass(_rename_to_free_name(staging, folder, head))


def _rename_to_free_name(staging: Path, folder: Path, head: str) -> Path:
    """Rename the staging folder to the next free name, such as `pass_0003`, and return its path. Another process or
    region may take a name at the same time; then the next one is tried. If the rename fails otherwise, OSError."""
    index = sum(entry.name.startswith(f"{head}_") for entry in os.scandir(folder))  # as if none was deleted
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
            continue  # someone has taken the name since the check
        return place


# ---- A pass as plain values for JSON, and back: the fields of the dataclasses, by their names

FLOWED = ("roots", "edges", "inputs")
"""The fields of a Pass that have gradients."""


def pass_as_json(region_pass: Pass, tensors: dict[str, Tensor] | None = None) -> dict[str, Any]:
    """Return a pass as plain values, in which NaN and Inf are texts.

    The values of gradients are put into `tensors`, by names, and each row says how they are made again from there.
    Without `tensors` they are left out.
    """
    if isinstance(region_pass.origin, Unwatched):  # which `level` says already
        region_pass = replace(region_pass, origin=None)
    content = {"format": FORMAT, **_plain(region_pass)}
    if tensors is None:
        return content
    rows_by_gradient: dict[int, dict[str, Any]] = {}  # by id: an edge and an input may share a gradient
    for kind in FLOWED:
        for index, (flowed, row) in enumerate(zip(getattr(region_pass, kind), content[kind], strict=True)):
            gradient = flowed.gradient
            if gradient is not None and id(gradient) not in rows_by_gradient:
                # `root 0`, `edge mul:0 -> leaf:0`, `input mul:0`: two roots may have one name
                name = f"{kind[:-1]} {index if kind == 'roots' else flowed.name}"
                rows_by_gradient[id(gradient)] = _keep_gradient(name, gradient, tensors)
            row["gradient"] = None if gradient is None else rows_by_gradient[id(gradient)]
    return content


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses as dicts without gradients, tuples as lists, NaN and Inf as texts."""
    kind = type(value)
    if is_dataclass(kind):
        return {name: _plain(getattr(value, name)) for name in _names_of_fields(kind)}
    if kind is tuple:
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@functools.cache
def _names_of_fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "gradient")


def _keep_gradient(name: str, value: Tensor, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Put a gradient into `tensors`, as dense real tensors because a safetensors file has no others, and return what
    `_kept_gradient` needs to put it together again. Of sparse layouts only COO is kept: of another, the row says that
    it is `unkept`."""
    row: dict[str, Any] = {"name": name}
    if value.layout is not torch.strided:
        if value.layout is not torch.sparse_coo:
            return {"unkept": f"layout {value.layout}"}
        tensors[f"{name} indices"] = sparse_indices(value)
        row |= {"sparse": list(value.shape), "coalesced": value.is_coalesced()}
        value = sparse_values(value)
    if value.is_complex():
        row["complex"] = True
        value = torch.view_as_real(value.resolve_conj().resolve_neg())
    tensors[name] = value
    return row


def _kept_gradient(row: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return a gradient that `_keep_gradient` has kept, in its own layout and dtype; None of one that was not kept."""
    if row is None or "unkept" in row:
        return None
    name = row["name"]
    tensor = tensors[name]
    if row.get("complex"):
        tensor = torch.view_as_complex(tensor)
    if "sparse" in row:
        indices = tensors[f"{name} indices"]
        tensor = torch.sparse_coo_tensor(
            indices, tensor, row["sparse"], is_coalesced=bool(row["coalesced"]), check_invariants=True
        )
    return tensor


MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, OverflowError)
"""What reading raises where a file has other content than was written."""


def parse_pass(content: Mapping[str, Any], folder: Path, tensors: Mapping[str, Tensor] | None = None) -> Pass:
    """Make a Pass of the content of a graph.json in `folder`; without `tensors` its gradients have no values. Content
    that is malformed raises RegionError."""
    try:
        return _pass_of_json(content, tensors)
    except MALFORMED as error:
        raise RegionError(f"{folder}: graph.json is malformed: {type(error).__name__}: {error}") from error


def _pass_of_json(content: Mapping[str, Any], tensors: Mapping[str, Tensor] | None) -> Pass:
    """Return the Pass of which `pass_as_json` wrote `content`; raise one of MALFORMED where the content is not that.

    `from_plain` makes the dataclasses, and checks the types of their fields. `origin` is made apart, because its type
    is a union, and the values of gradients are put in afterwards from `tensors`.
    """
    plain = {name: value for name, value in content.items() if name not in ("format", "origin")}
    plain |= {kind: _plain_rows(content[kind]) for kind in FLOWED if kind in content}
    region_pass = from_plain(Pass, plain, "the pass")
    _check_pass(region_pass)
    changes: dict[str, Any] = {"origin": _origin_of_json(content.get("origin")) if region_pass.watched else Unwatched()}
    if tensors is not None:
        for kind in FLOWED:
            flows = zip(getattr(region_pass, kind), content[kind], strict=True)
            changes[kind] = tuple(
                replace(flowed, gradient=_kept_gradient(row.get("gradient"), tensors)) for flowed, row in flows
            )
    return replace(region_pass, **changes)


def _check_pass(region_pass: Pass) -> None:
    """Raise ValueError for a level that there is not, an edge to a node that there is not, or impossible statistics."""
    if region_pass.level not in LEVELS:
        raise ValueError(f"the pass.level is {region_pass.level!r:.80}")
    names = {node.name for node in region_pass.nodes}
    for index, edge in enumerate(region_pass.edges):
        if not {edge.source, edge.target} <= names:
            ends = f"source {edge.source!r:.80} and target {edge.target!r:.80}, and not both are names of nodes"
            raise ValueError(f"the pass.edges[{index}] has {ends}")
    for kind in FLOWED:
        for index, flowed in enumerate(getattr(region_pass, kind)):
            check_stats(flowed.stats, f"the pass.{kind}[{index}].stats")


def _origin_of_json(plain: Any) -> NonfiniteOrigin | None:
    """Return the origin of NaN and Inf; None where the pass has none. Raise ValueError for a kind that there is not."""
    if plain is None:
        return None
    origin = from_plain(NonfiniteOrigin, plain, "the pass.origin")
    if origin.where not in ORIGINS:
        raise ValueError(f"the pass.origin.where is {origin.where!r:.80}")
    return origin


def _plain_rows(rows: Any) -> Any:
    """Return the rows of gradients as `from_plain` takes them: without what `_keep_gradient` wrote of their values, and
    with a norm as a number where the file has `nan` or `inf` as a text. What is no list, or no row, stays as it is, and
    `from_plain` refuses it by name."""
    if not isinstance(rows, list):
        return rows
    plain: list[Any] = []
    for row in rows:
        if isinstance(row, dict):
            row = {name: value for name, value in row.items() if name != "gradient"}
            stats = row.get("stats")
            if isinstance(stats, dict) and stats.get("norm") in ("nan", "inf"):
                row["stats"] = {**stats, "norm": float(stats["norm"])}
        plain.append(row)
    return plain


def check_stats(stats: Stats | None, where: str) -> None:
    """Raise ValueError for counts that no tensor has. `where` is the path of the statistics, for the message."""
    if stats is not None:
        for name in ("count", "nan", "inf", "zeros"):
            if not 0 <= getattr(stats, name) < 1 << 63:
                raise ValueError(f"{where}.{name} is negative, or larger than a tensor can have")


# ---- Reading: the content of a file is checked

MOST = 128 << 20
"""The most bytes of a graph.json that is read."""


def read_graph_json(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's graph.json, its format checked. RegionError if it cannot be read, is no region's
    or has another format."""
    place = folder / GRAPH_JSON
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


def read_gradients(folder: Path) -> dict[str, Tensor]:
    """Return the gradients that a pass kept, by their names in the file; empty if it kept none. RegionError if the file
    cannot be read."""
    place = folder / GRADIENTS
    if not place.exists():
        return {}
    from safetensors import SafetensorError
    from safetensors.torch import load

    with open_regular(place, links=True, error=RegionError) as file:  # which raises RegionError for a pipe or a device
        content = file.read(os.fstat(file.fileno()).st_size)
    try:
        return load(content)
    except (SafetensorError, ValueError) as error:
        raise RegionError(f"{place}: cannot be read: {error}") from error


def read_pass(folder: Path) -> Pass:
    """Read a pass with its gradients."""
    return parse_pass(read_graph_json(folder), folder, read_gradients(folder))


def read_passes(path: str | os.PathLike[str], run: str = "latest") -> list[Pass]:
    """Return the passes of a dump, with their gradients. `path` is the folder of one pass, or that of a region, where
    `run` selects the run: `latest`, `all`, or a run's name or the beginning of it."""
    return [read_pass(folder) for folder in folders_of(path, run)]


LISTED = 20
"""How many numbers of passes an error lists."""


def shown_passes(path: str | os.PathLike[str], run: str, number: int | None = None) -> Iterator[Pass]:
    """Yield the passes of a dump without their gradients, one in memory at a time; with a `number`, only the passes of
    this number. UsageError, at the end, if there is none."""
    numbers = []
    for folder in folders_of(path, run):
        content = read_graph_json(folder)
        numbers.append(content.get("index"))
        if number in (None, numbers[-1]):
            yield parse_pass(content, folder)
    if number is not None and number not in numbers:
        omitted = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
        raise UsageError(f"{path}: has no pass {number}; it has {', '.join(map(str, numbers[:LISTED]))}{omitted}")


# ---- Runs: the passes of one process of a script


def folders_of(path: str | os.PathLike[str], run: str = "latest") -> list[Path]:
    """Return the folders of the passes of the run that `run` selects, or of `all` runs, in order. If `path` is the
    folder of one pass, return it, whatever `run` is."""
    runs = runs_of(path)
    chosen = list(runs) if run == "all" or (Path(path) / GRAPH_JSON).exists() else [select_run(runs, run, path)]
    return [folder for name in chosen for folder in runs[name]]


def runs_of(path: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """Return the folders of the passes that each run wrote to a dump, by the run's name. The run with the latest pass
    is the last. If `path` is the folder of one pass, it is the only one. UsageError if there is no pass."""
    place = Path(path)
    if not has_dump(place):
        missing = "not a folder" if place.exists() else "no such folder"
        raise UsageError(f"{place}: {NO_PASS if place.is_dir() else missing}")
    if (place / GRAPH_JSON).exists():
        folders = [place]
    else:  # hidden folders are those that are not finished
        folders = [file.parent for file in place.glob(f"*/{GRAPH_JSON}") if file.parent.name[0] != "."]
    runs: dict[str, list[Path]] = {}
    latest_begin: dict[str, float] = {}  # when the latest pass of each run began
    for folder in sorted(folders, key=_folder_order):
        content = read_graph_json(folder)
        name = str(content.get("run", ""))
        runs.setdefault(name, []).append(folder)
        latest_begin[name] = max(latest_begin.get(name, 0.0), begin_of_pass(content, folder))
    return {name: runs[name] for name in sorted(runs, key=lambda name: latest_begin[name])}


NO_PASS = (
    "no pass here: a region's dump has folders with graph.json. Where no backward has reached the region, "
    "region.unreached lists its operators"
)


def _folder_order(folder: Path) -> tuple[str, int]:
    """Return the sort key of a folder, with its number as a number: `pass_9999` comes before `pass_10000`."""
    head, _, number = folder.name.rpartition("_")
    return (head, int(number)) if number.isdecimal() else (folder.name, 0)


def begin_of_pass(content: Mapping[str, Any], folder: Path) -> float:
    """Return the time at which a pass began, in seconds since 1970, from its graph.json. RegionError if it is no number
    or far out of range."""
    time = content.get("time", 0.0)
    if type(time) not in (int, float) or not abs(time) < 1e11:
        raise RegionError(f"{folder}: graph.json is malformed: its time is {time!r:.80}")
    return float(time)


def select_run(runs: Collection[str], run: str, place: str | os.PathLike[str]) -> str:
    """Return the name of the run that `run` selects: `latest`, a name, or the beginning of one. RegionError if it
    selects none or several. `runs` are the names, the latest last, and `place` is the dump, for the message."""
    if run == "latest":
        return list(runs)[-1]
    selected = [name for name in runs if name == run] or [name for name in runs if run and name.startswith(run)]
    if len(selected) != 1:
        count = "no run" if not selected else f"{len(selected)} runs"
        raise RegionError(f"{os.fspath(place)}: {count} of the name {run!r}; it has {', '.join(runs)}")
    return selected[0]

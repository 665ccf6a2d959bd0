"""Reads `graph.json`, which lies beside each wrapper that Backprint saves, and says how its kernels are called.

    SAMPLE/TARGET/pair_0/forward/wrapper.py         Inductor's wrapper, with the sources of its kernels
    SAMPLE/TARGET/pair_0/forward/graph.json         target, ports, extern calls; operators and calls of each kernel
    SAMPLE/TARGET/pair_0/forward/kernels/NAME.py    the same kernels, each as a file that runs alone
    SAMPLE/TARGET/pair_0/forward/built/NAME/        what they were compiled to

Everything is checked before it is used: the file may be a stranger's, truncated, or of another version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from backprint.errors import RefusedError
from backprint.extracting.nouns import FusedOperator, Kernel, KernelArgument, KernelCall, KernelConfiguration
from backprint.plain import parse_json

FORMAT = 1
"""The format of `graph.json` that this version reads."""

GRAPH_FILE = "graph.json"
WRAPPER_FILE = "wrapper.py"
ALONE_FOLDER = "kernels"
BUILT_FOLDER = "built"

PAIR = re.compile(r"pair_\d+")
TARGET = re.compile(r"(cpu|cuda)(?:_(\w+))?")
"""A folder's name for a target: `cpu`, `cpu_avx2`, `cuda_90`."""

DIRECTIONS = ("forward", "backward")

LARGEST_SIZE = 1 << 53
"""Of a dimension or a stride."""

NOT_FINITE = ("inf", "-inf", "nan")
"""Numbers that JSON does not have, as they are written."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """What `graph.json` says of one graph."""

    target: str
    direction: str
    kernels: Mapping[str, Kernel]
    """By name: a Kernel without its source."""
    externs: Mapping[str, int]
    """Operators that are called beside the kernels -> how often."""


def graph_folder(file: Path) -> Path | None:
    """Return the folder of the graph that a file of Backprint's layout belongs to; None of another file."""
    for folder in (file.parent, file.parent.parent):
        names = folder.absolute().parts[-3:]
        if len(names) == 3 and folder.name in DIRECTIONS and PAIR.fullmatch(names[1]) and TARGET.fullmatch(names[0]):
            return folder
    return None


def target_of_folder(folder: Path) -> str:
    """Return the target of a graph's folder: `cuda:90` of `cuda_90`."""
    return folder.absolute().parts[-3].replace("_", ":", 1)


def read_saved_graph(text: str, place: str) -> SavedGraph:
    """Return what the text of a `graph.json` says; a text that is none raises RefusedError."""
    try:
        known = parse_json(text)
    except ValueError as error:
        raise RefusedError(f"{place}: not JSON: {error}") from error
    known = checked_type(known, dict, place)
    found = known.get("format")
    if found != FORMAT:
        raise RefusedError(
            f"{place}: a folder of format {str(found)[:40]}; this version reads {FORMAT}: "
            "read it with the Backprint that wrote it, or extract the kernels again"
        )
    target, direction = (field(known, name, str, place) for name in ("target", "direction"))
    blank = Kernel("", "", "", target, direction=direction)
    kernels = {}
    for each in field(known, "kernels", list, place):
        kernel = saved_kernel(checked_type(each, dict, f"{place}: kernels"), blank, place)
        kernels[kernel.name] = kernel
    externs = field(known, "externs", dict, place)
    counts = {name: checked_type(count, int, f"{place}: externs: {name[:80]}") for name, count in externs.items()}
    return SavedGraph(target, direction, kernels, counts)


def saved_kernel(known: dict[str, Any], blank: Kernel, place: str) -> Kernel:
    """Return a kernel without its source."""
    name = field(known, "name", str, place)
    within = f"{place}: kernel {name[:80]}"
    operators = tuple(
        FusedOperator(*(field(each, part, str, within) for part in ("operator", "step", "line")))
        for each in dictionaries(known, "operators", within)
    )
    configurations = tuple(saved_configuration(each, within) for each in dictionaries(known, "configurations", within))
    calls = tuple(saved_call(each, within) for each in dictionaries(known, "calls", within))
    threads = known.get("threads")
    return replace(
        blank, language=field(known, "language", str, within), name=name, operators=operators, calls=calls,
        configurations=configurations, compiler=field(known, "compiler", str, within),
        isa=field(known, "isa", str, within), threads=threads if is_whole(threads) else None,
    )  # fmt: skip


def saved_configuration(known: dict[str, Any], place: str) -> KernelConfiguration:
    """Return a configuration; its sizes are pairs of a name and a number, or a mapping."""
    sizes = known.get("sizes")
    pairs = sizes.items() if isinstance(sizes, dict) else map(pair_of, checked_type(sizes, list, f"{place}: sizes"))
    checked = tuple((str(name), checked_type(size, int, f"{place}: sizes")) for name, size in pairs)
    return KernelConfiguration(checked, field(known, "num_warps", int, place), field(known, "num_stages", int, place))


def pair_of(value: Any) -> tuple[Any, Any]:
    match value:
        case [name, number]:
            return name, number
        case _:
            return "", None


def saved_call(known: dict[str, Any], place: str) -> KernelCall:
    """Return a call: its arguments, and its grid for each configuration."""
    arguments = tuple(saved_argument(each, place) for each in dictionaries(known, "arguments", place))
    grids = tuple(grid_of_three(each, place) for each in list_or_none(known, "grids", place))
    return KernelCall(arguments, grids)


def grid_of_three(value: Any, place: str) -> tuple[int, int, int]:
    match value:
        case [x, y, z] if is_whole(x) and is_whole(y) and is_whole(z):
            return x, y, z
        case _:
            raise RefusedError(f"{place}: a grid is three numbers, found {str(value)[:40]}")


def saved_argument(known: dict[str, Any], place: str) -> KernelArgument:
    """Return an argument: a tensor's dtype, shape and stride, or a number."""
    shape, stride = (tuple(list_or_none(known, name, place)) for name in ("shape", "stride"))
    if not all(is_whole(size) and 0 <= size <= LARGEST_SIZE for size in (*shape, *stride)) or len(shape) != len(stride):
        raise RefusedError(f"{place}: a tensor of shape {str(shape)[:40]} and stride {str(stride)[:40]}")
    value = known.get("value")
    value = float(value) if value in NOT_FINITE else value
    if not isinstance(value, int | float | None):
        raise RefusedError(f"{place}: an argument's value is a number, found {type(value).__name__}")
    return KernelArgument(field(known, "dtype", str, place), shape, stride, value)


# ------------------------------------------------------------------ checks


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_type(value: Any, kind: type[T], place: str) -> T:
    """Return a value of JSON that must be of a type."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RefusedError(f"{place}: expected a {kind.__name__}, found {type(value).__name__}")
    return value


def field(known: Mapping[str, Any], name: str, kind: type[T], place: str) -> T:
    """Return a value of an object that it must have."""
    if name not in known:
        raise RefusedError(f"{place}: it has no {name!r}")
    return checked_type(known[name], kind, f"{place}: {name}")


def list_or_none(known: Mapping[str, Any], name: str, place: str) -> list[Any]:
    """Return a list that an object may leave out."""
    value = known.get(name)
    return [] if value is None else checked_type(value, list, f"{place}: {name}")


def dictionaries(known: Mapping[str, Any], name: str, place: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list that an object must have."""
    for each in field(known, name, list, place):
        yield checked_type(each, dict, f"{place}: {name}")

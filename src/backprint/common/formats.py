"""The formats of samples on disk, and how to recognize the format of a folder by its files alone, without reading them.

A format is a row here, a room that reads it, and a row of the same name in these tables: `target.READERS`,
`tools/corpus/duplicates.KEYS`, `cli/show.SHOWN`.

A Backprint sample has a folder for each Pair, `pair_0`, and in it `forward` and `backward`, which have the files of a
GraphNet sample as well. A *region* is a block of a running program that was watched, and a *dump* what was written of
it: a folder for each *pass*, one call of the block.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CAPTURE = "capture.json"

WORLD = "world.json"
"""The file that says of a folder that its folders `rank_0`, `rank_1` and so on are the samples of ranks."""

GRAPH_JSON = "graph.json"
"""The file that makes a folder a pass of a region; a dump of a region has a folder for each pass."""


@dataclass(frozen=True, slots=True)
class _Format:
    """One format. `main` makes a folder a sample, with `required` beside it; `files` are all files that are read."""

    name: str
    title: str
    main: str
    required: tuple[str, ...]
    files: tuple[str, ...]
    has_sample: Callable[[Path], bool]
    """Whether a folder holds a sample of this format."""


def _has_ours(folder: Path) -> bool:
    """Whether a folder has a Backprint sample."""
    return (folder / CAPTURE).exists()


def has_graphnet(folder: Path) -> bool:
    """Whether a folder has a GraphNet sample that is not part of a Backprint sample."""
    if _has_ours(folder) or not (folder / "model.py").is_file() or is_direction(folder):
        return False
    return (folder / "graph_net.json").is_file() or (folder / "weight_meta.py").is_file()


def is_direction(folder: Path) -> bool:
    """Whether a folder has the forward or the backward of a Backprint sample."""
    return (
        folder.name in ("forward", "backward") and re.fullmatch(r"pair_\d+", folder.resolve().parent.name) is not None
    )


BACKPRINT = _Format(
    "backprint", "a Backprint sample", CAPTURE, (), (CAPTURE, "tensors.safetensors", "exchanges.safetensors"), _has_ours
)
"""Our own. The folders of its Pairs are read as well."""

GRAPHNET = _Format(
    "graphnet",
    "a GraphNet sample",
    "model.py",
    ("graph_net.json", "weight_meta.py"),
    ("model.py", "graph_net.json", "weight_meta.py", "input_meta.py", "input_tensor_constraints.py", "graph_hash.txt"),
    has_graphnet,
)

FORMATS: dict[str, _Format] = {each.name: each for each in (BACKPRINT, GRAPHNET)}
"""The formats in the order in which a folder is asked for them."""


def format_of(folder: Path) -> _Format | None:
    """Return the format of a folder's sample; None if it has none."""
    return next((known for known in FORMATS.values() if known.has_sample(folder)), None)


DUMP_IS_NO_SAMPLE = "this is the dump of a region, which show, diff, draw and view take; it has no program to run again"


def has_dump(folder: Path) -> bool:
    """Whether a folder is the dump of a region, or one pass of it, and no sample."""
    if not folder.is_dir() or format_of(folder) is not None:
        return False
    return (folder / GRAPH_JSON).exists() or any(folder.glob(f"*/{GRAPH_JSON}"))

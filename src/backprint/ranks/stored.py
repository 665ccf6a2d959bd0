"""A World on disk: a folder with a sample of each rank, and `world.json`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.errors import SampleError
from backprint.sample.load import load
from backprint.sample.metadata import MAX_RANKS, Field, Witness, errors_with_path, read_json, write_json
from backprint.sample.place import check_place, settle
from backprint.saving import write_sample

if TYPE_CHECKING:
    from backprint.ranks.world import World

FILE = "world.json"

FORMAT = 1
"""The version of `world.json`; newer ones are refused by name."""


def folder_of_rank(folder: Path, rank: int) -> Path:
    """Return the folder of a rank's sample."""
    return folder / f"rank_{rank}"


def save_world(world: World, path: str | os.PathLike[str], data: str, overwrite: bool) -> Path:
    """Write the sample of each rank, in a folder of a temporary name that is renamed when it is whole."""
    place = Path(path)
    check_place(place, overwrite, FILE)
    place.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
    try:
        for rank, capture in enumerate(world.ranks):
            write_sample(capture, folder_of_rank(staging, rank), data, (), False, "quick")
        content = {"format": FORMAT, "name": world.ranks[0].name, "size": world.size}
        write_json(staging / FILE, {**content, "witness": digests_of(world) if data == "exact" else []})
        staging.chmod(0o755)
        settle(staging, place)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return place


def load_world(path: str | os.PathLike[str], allow: Sequence[str] = (), trust: bool = False) -> World:
    """Read the samples of all ranks."""
    from backprint.ranks.world import World

    folder = Path(path)
    if not (folder / FILE).is_file():
        raise SampleError(
            f"{folder}: not the folder of a World: it has no {FILE}; bp.load reads the sample of one rank"
        )
    content = read_json(folder / FILE)
    with errors_with_path(folder / FILE):
        root: Any = Field(content, "")
        number = root.get("format").whole()
        if number > FORMAT:
            raise SampleError(f"format {number} is newer than this Backprint reads ({FORMAT}): update Backprint")
        size = root.get("size").whole(MAX_RANKS)
        witnesses = tuple(Witness(row, folder / FILE) for row in root.get("witness", []).items(size))
        if witnesses and len(witnesses) != size:
            raise SampleError(f"witness: has the results of {len(witnesses)} ranks, and there are {size}")
    ranks = tuple(load(folder_of_rank(folder, rank), allow, trust) for rank in range(size))
    return World(ranks, witnesses=witnesses)


def digests_of(world: World) -> list[dict[str, Any]]:
    """Return the digests of the results of the step that the ranks ran among each other."""
    from backprint.ranks.world import results_of
    from backprint.replaying.results import numbers_of

    if world.outcomes:
        rows = [results_of(outcome) for outcome in world.outcomes]
        return [{str(key): numbers_of(value) for key, value in row.items()} for row in rows]
    return [dict(witness) for witness in world.witnesses]

"""Several sources of one run: the folder that all are below, and a file with their ids."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from backprint.corpus.find import absent, escape
from backprint.errors import UsageError

LISTED = "samples.txt"
"""The file of a run with the ids of several sources."""


def common_source(places: Sequence[Path], verb: str) -> tuple[Path, list[str]]:
    """Return the folder that all sources are below, and the ids of the sources there; of one source, no ids."""
    if wrong := absent(places) if places else f"{verb} needs a sample, or a folder of samples":
        raise UsageError(wrong)
    if len(places) == 1:
        return places[0].resolve(), []
    resolved = list(dict.fromkeys(place.resolve() for place in places))
    common = Path(os.path.commonpath([place.parent for place in resolved]))
    return common, [escape(place.relative_to(common).as_posix()) for place in resolved]


def begin_several(places: Sequence[Path], out: Path, verb: str, restart: bool) -> tuple[Path, Path | None]:
    """Return the common source of a run, and the file in `out` that lists the sources; of one source, no file."""
    source, ids = common_source(places, verb)
    listed = out / LISTED
    text = "".join(f"{id}\n" for id in ids)
    if listed.exists() and listed.read_text("utf-8") != text and not restart:
        known = listed.read_text("utf-8").split()
        raise UsageError(f"{out} is a run of other samples ({len(known)} there, {len(ids) or 1} now): choose another "
                         "folder, or pass --restart")  # fmt: skip
    if not ids:
        return source, None
    out.mkdir(parents=True, exist_ok=True)
    listed.write_text(text, encoding="utf-8")
    return source, listed

"""Check and fill the folder of a sample; this module loads no torch."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from backprint.errors import UsageError


def check_place(path: str | os.PathLike[str], overwrite: bool, main: str = "capture.json") -> None:
    """Refuse to overwrite an existing path, unless it is an empty folder, or it is a sample (a folder with the file
    `main`) and the user passed `overwrite`."""
    place = Path(path)
    if not place.exists():
        return
    if not place.is_dir() or (any(place.iterdir()) and not (place / main).exists()):
        raise UsageError(f"{place} exists and is not a sample: choose another path")
    if not overwrite and any(place.iterdir()):
        raise UsageError(f"{place} exists already: pass overwrite=True (--overwrite), or choose another path")


def settle(staging: Path, place: Path) -> None:
    """Move the finished folder `staging` to the path `place`; an older sample there is removed only after that."""
    if place.exists():
        # The old sample is moved aside first, because a folder cannot replace one that is not empty.
        old = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".old", dir=place.parent))
        try:
            os.replace(place, old / "sample")
        except BaseException:
            old.rmdir()
            raise
        try:
            os.replace(staging, place)
        except BaseException:
            os.replace(old / "sample", place)  # if this fails too, the old sample stays in `old`
            old.rmdir()
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(staging, place)

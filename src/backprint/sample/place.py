"""Where a sample may be written; this module loads no torch."""

from __future__ import annotations

import os
from pathlib import Path

from backprint.errors import UsageError


def check_place(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse to write over what is there, unless it is a sample and the user said so."""
    place = Path(path)
    if not place.exists():
        return
    if not place.is_dir() or (any(place.iterdir()) and not (place / "capture.json").exists()):
        raise UsageError(f"{place} is there and is no sample: choose another path")
    if not overwrite and any(place.iterdir()):
        raise UsageError(f"{place} is there already: pass overwrite=True (--overwrite), or choose another path")

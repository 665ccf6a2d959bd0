"""Files that are whole or absent: written under another name, and put in place by one rename."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from backprint.errors import PlaceError, UsageError


@contextlib.contextmanager
def whole_file(place: Path) -> Iterator[BinaryIO]:
    """Open a file that appears in its place, with the folders above it, when the block ends without an error."""
    if "\0" in str(place):
        raise UsageError(f"{str(place)!r} is not the name of a file: it has a NUL character")
    part = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{place.name[:80]}.", suffix=".part", dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(part, 0o644)
        os.replace(part, place)
        part = None
    except OSError as error:
        raise PlaceError(f"{place} could not be written: {error.strerror or error}") from error
    finally:
        if part is not None:
            os.unlink(part)


def write_file(place: Path, pieces: Iterable[bytes]) -> Path:
    """Write a file to its place; return the place."""
    with whole_file(place) as file:
        file.writelines(pieces)
    return place

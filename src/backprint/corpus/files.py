"""A sample's own files, and as a mapping of paths to bytes where no file system is shared."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from backprint.errors import SampleError
from backprint.strangers_file import open_regular


def own_files(folder: Path) -> Iterator[str]:
    """Yield a sample's own files: those beside its main file, and those of its pairs; no links."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield entry.name
            elif entry.is_dir(follow_symlinks=False) and re.fullmatch(r"pair_\d+", entry.name):
                yield from (f"{entry.name}/{name}" for name in all_files(Path(entry.path)))


def all_files(folder: Path) -> Iterator[str]:
    """Yield every regular file below a folder; no links."""
    for below, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            path = os.path.join(below, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, folder)


def packed(folder: Path, names: Iterator[str], most: int) -> dict[str, bytes]:
    """Return files as bytes; raise if they are more than may be sent."""
    content: dict[str, bytes] = {}
    size = 0
    for name in sorted(names):
        with open_regular(folder / name) as file:
            content[name] = file.read(most - size + 1)
        size += len(content[name])
        if size > most:
            raise SampleError(
                f"{folder}: more than the {most >> 20:,} MiB of a sample that are sent between machines: "
                "put SRC and OUT on a file system that all of them see"
            )
    return content


def unpacked(content: Mapping[str, bytes], folder: Path) -> Path:
    """Write files that were sent; refuse a path that leaves the folder."""
    for name, data in content.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise SampleError(f"{name!r:.100}: a file of a sample must be in its own folder")
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder

"""A sample's own files, and how they travel where no file system is shared: as a mapping of paths to bytes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from backprint.errors import SampleError


def own_files(folder: Path) -> Iterator[str]:
    """The files that are a sample's own: those beside its main one, and those of its pairs; no links."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield entry.name
            elif entry.is_dir(follow_symlinks=False) and re.fullmatch(r"pair_\d+", entry.name):
                yield from (f"{entry.name}/{name}" for name in all_files(Path(entry.path)))


def all_files(folder: Path) -> Iterator[str]:
    """Every plain file below a folder; no links."""
    for below, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            path = os.path.join(below, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, folder)


def packed(folder: Path, names: Iterator[str], most: int) -> dict[str, bytes]:
    """Files as bytes; refused where they are more than may travel."""
    content: dict[str, bytes] = {}
    size = 0
    for name in sorted(names):
        size += (folder / name).lstat().st_size
        if size > most:
            raise SampleError(
                f"{folder}: more than the {most >> 20:,} MiB that a sample may have to travel between machines: "
                "put SRC and OUT on a file system that all of them see"
            )
        content[name] = (folder / name).read_bytes()
    return content


def unpacked(content: Mapping[str, bytes], folder: Path) -> Path:
    """Write files that have travelled; a path that leads out of the folder is refused."""
    for name, data in content.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise SampleError(f"{name!r:.100}: a file of a sample lies in its own folder")
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder

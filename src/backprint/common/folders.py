"""Folders that appear whole: written under a hidden name, and put in place by one rename.

A process that is killed leaves such a folder behind. Whoever writes beside it later removes it, and so does a process
that has written there, when it ends: a lock on each folder lasts as long as its writer.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such lock: what is left there stays
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".backprint.part"
"""How the name of a folder ends that is being written."""

UNFINISHED = re.compile(rf"\..*\.[a-z0-9_]{{8}}{re.escape(SUFFIX)}")
"""The names of folders that are being written."""

_parents: set[Path] = set()
"""The folders in which this process has written others."""


@contextlib.contextmanager
def unfinished_folder(parent: Path, name: str = "") -> Iterator[Path]:
    """Make a hidden folder in `parent`, whose name has `name` in it; the caller renames it when it is whole. If the
    hidden folder is still there at the end of the block, it is removed. The first call for a parent removes what other
    processes have left in it."""
    parent.mkdir(parents=True, exist_ok=True)
    if (place := parent.absolute()) not in _parents:
        _parents.add(place)
        _remove_abandoned(place)
    folder, lock = _made_and_locked(parent, name)
    try:
        folder.chmod(0o755)  # `mkdtemp` makes it readable by its owner alone
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _made_and_locked(parent: Path, name: str) -> tuple[Path, int | None]:
    """Make a folder, and lock it; return it, and the handle of the lock, None where the system has no such locks. A
    folder that another process has taken for an abandoned one, and removed, before it was locked is made again."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{name[:80]}.", suffix=SUFFIX, dir=parent))
        if fcntl is None:
            return folder, None
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)  # of a folder that is gone


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders whose writers are gone."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if UNFINISHED.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # its writer holds the lock, so it is not abandoned: `flock` raises
                    lock = os.open(entry.path, os.O_RDONLY)
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(entry.path, ignore_errors=True)
                    finally:
                        os.close(lock)


@atexit.register
def _remove_all_abandoned() -> None:
    """Remove what other processes have left where this one has written."""
    for parent in _parents:
        _remove_abandoned(parent)

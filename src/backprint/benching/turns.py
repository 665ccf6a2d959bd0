"""Timed parts take turns: while one process of this user is timing, no other that benches on this machine works.

A process holds the lock `work` shared while it compiles and compares, and alone while it times. It asks for either
with the lock `gate` in hand, so that one that waits to time is not overtaken by others that go on working.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path


class Waited:
    """How long a process has waited for its turns, in memory that its parent sees too."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 16)

    def add(self, began: float, seconds: float) -> None:
        """Keep the seconds waited so far, and since when it waits now (0 if it does not)."""
        self.memory[:] = struct.pack("dd", began, seconds)

    def seconds(self) -> float:
        """Return how long the process has waited, with the wait that still goes on."""
        began, seconds = struct.unpack("dd", self.memory[:])
        return float(seconds + (time.monotonic() - began if began else 0.0))


class Turns:
    """The locks of one process, below a folder. It works while it has entered `working`."""

    def __init__(self, folder: Path, waited: Waited) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self.gate, self.work = (os.open(folder / name, flags, 0o600) for name in ("gate", "work"))
        self.waited = waited

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Work beside others."""
        self.take(fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self.work, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Work while no other does."""
        self.take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self.take(fcntl.LOCK_SH)

    def take(self, kind: int) -> None:
        """Give the lock up, and wait for it in this kind."""
        fcntl.flock(self.work, fcntl.LOCK_UN)
        began, before = time.monotonic(), self.waited.seconds()
        self.waited.add(began, before)
        fcntl.flock(self.gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self.work, kind)
        finally:
            fcntl.flock(self.gate, fcntl.LOCK_UN)
        self.waited.add(0.0, before + time.monotonic() - began)


def turns_folder(below: Path) -> Path:
    """Return the folder of this user's locks below a folder for temporary files."""
    folder = below / f"backprint-turns-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: timed parts cannot take turns; set TMPDIR")
    return folder

"""Timed parts take turns: while one process of this user is timing, no other that benches on this machine works.

A process holds the lock `work` shared while it compiles and compares, and alone while it times. It waits for
either kind while it holds the lock `gate`, so that others that go on working cannot overtake one that waits to time.
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


class GraphClock:
    """The seconds that a process has worked on one graph, without waiting for its turns; its parent reads it too."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 24)  # three doubles, shared with processes that are forked from this one
        self.store(time.monotonic(), 0.0, 0.0)

    def store(self, graph_start: float, wait_start: float, seconds_waited: float) -> None:
        """Store when the graph was begun, since when the process waits (0 if it does not), and the seconds it has
        waited."""
        self.memory[:] = struct.pack("ddd", graph_start, wait_start, seconds_waited)

    def begin_graph(self) -> None:
        """Start the clock for another graph."""
        self.store(time.monotonic(), 0.0, 0.0)

    def begin_wait(self) -> None:
        """Note that the process begins to wait."""
        graph_start, _, seconds_waited = struct.unpack("ddd", self.memory[:])
        self.store(graph_start, time.monotonic(), seconds_waited)

    def end_wait(self) -> None:
        """Note that the process has stopped waiting."""
        graph_start, wait_start, seconds_waited = struct.unpack("ddd", self.memory[:])
        self.store(graph_start, 0.0, seconds_waited + time.monotonic() - wait_start)

    def seconds_of(self, pid: int) -> float:
        """Return how long the process has worked on its graph. It alone has this clock, so its number `pid` is not
        needed; `Child` calls such a function with it."""
        graph_start, wait_start, seconds_waited = struct.unpack("ddd", self.memory[:])
        return float((wait_start or time.monotonic()) - graph_start - seconds_waited)


class Turns:
    """The locks of one process, files below a folder, and the clock that stands still while it waits for them. It works
    while it has entered `working`."""

    def __init__(self, folder: Path, clock: GraphClock) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self.gate, self.work = (os.open(folder / name, flags, 0o600) for name in ("gate", "work"))
        self.clock = clock

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Hold the lock shared: work beside others."""
        self.take(fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self.work, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock exclusively: work while no other process does; then hold it shared again. It is entered while
        `working` is."""
        self.take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self.take(fcntl.LOCK_SH)

    def take(self, kind: int) -> None:
        """Release the lock, and wait for it in this kind: LOCK_SH or LOCK_EX. That is done while `gate` is held (why:
        the module's docstring)."""
        fcntl.flock(self.work, fcntl.LOCK_UN)
        self.clock.begin_wait()
        try:
            fcntl.flock(self.gate, fcntl.LOCK_EX)
            try:
                fcntl.flock(self.work, kind)
            finally:
                fcntl.flock(self.gate, fcntl.LOCK_UN)
        finally:
            self.clock.end_wait()


def turns_folder(below: Path) -> Path:
    """Make the folder of this user's locks below a folder for temporary files, and return it; PermissionError if
    another user has made it."""
    folder = below / f"backprint-turns-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: timed parts cannot take turns; set TMPDIR")
    return folder

"""What one sample may take, and what the machine has: the defaults of `--jobs` and `--memory` come from here."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from backprint.errors import UsageError
from backprint.room import available_bytes

GIB = 1 << 30

ROOM = 2 * GIB
"""What a worker should have at the least: `--jobs` is fewer than there are cores where memory is short."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sample may take: seconds, bytes of memory (all its processes), bytes of disk, processes, threads.

    Memory and threads are one of `shares` equal parts of what the machine has; a sample that is at work alone has all.
    """

    timeout: float = 600.0
    memory: int = 4 * GIB
    disk: int = 16 * GIB
    processes: int = 32
    threads: int = 1
    shares: int = 1

    def __post_init__(self) -> None:
        for name in ("timeout", "memory", "disk", "processes", "threads", "shares"):
            if getattr(self, name) <= 0:
                raise UsageError(f"--{name} {getattr(self, name)}: must be more than 0")

    def undivided(self) -> Limits:
        """What a sample may take that is at work alone."""
        return replace(self, memory=self.memory * self.shares, threads=self.threads * self.shares, shares=1)


FREE = GIB // 2
"""A sample is ended when less than this is free where it writes."""


def limits_of(
    jobs: int, out: Path, timeout: float = 600.0, memory: float | None = None, disk: float | None = None
) -> Limits:
    """Limits for each of several workers, in GiB; what is not said is a fair share of what this machine has free."""
    out = next(folder for folder in (out.resolve(), *out.resolve().parents) if folder.is_dir())
    share = int(available_bytes() * 0.9 / jobs) if memory is None else int(memory * GIB)
    free = max(shutil.disk_usage(out).free - FREE, FREE)
    room = min(16 * GIB, int(free / 2 / jobs)) if disk is None else int(disk * GIB)
    return Limits(timeout, share, room, threads=max(1, cores() // jobs), shares=jobs if memory is None else 1)


def default_jobs() -> int:
    """A worker for each core, as far as memory goes."""
    return max(1, min(cores(), available_bytes() // ROOM))


def cores() -> int:
    """The cores that this process may use."""
    count = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count

"""What one sample may use, and what the machine has: the defaults of `--jobs` and `--memory`."""

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
"""The least memory for each worker: with less, the default of `--jobs` is below the number of cores."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sample may use: seconds, bytes of memory (all its processes), bytes of disk, processes, threads.

    Memory is one of `shares` equal parts of the machine's; a sample that runs alone has all of them. In a run a sample
    has one thread, with any number of workers: what its environment and its rounding are does not depend on `--jobs`.
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
        """Return the limits of a sample that runs alone."""
        return replace(self, memory=self.memory * self.shares, shares=1)


FREE = GIB // 2
"""A sample is ended when the disk that it writes to has less free space."""


def limits_of(
    jobs: int, out: Path, timeout: float = 600.0, memory: float | None = None, disk: float | None = None
) -> Limits:
    """Return limits for each of several workers, in GiB; defaults are a fair share of this machine's free resources."""
    out = next(folder for folder in (out.resolve(), *out.resolve().parents) if folder.is_dir())
    share = int(available_bytes() * 0.9 / jobs) if memory is None else int(memory * GIB)
    free = max(shutil.disk_usage(out).free - FREE, FREE)
    room = min(16 * GIB, int(free / 2 / jobs)) if disk is None else int(disk * GIB)
    return Limits(timeout, share, room, shares=jobs if memory is None else 1)


def default_jobs() -> int:
    """Return one worker for each core, as far as memory allows."""
    return max(1, min(cores(), available_bytes() // ROOM))


def cores() -> int:
    """Return the cores that this process may use."""
    count = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count

"""Limits of a process and of all that it starts, and its use of them: this alone says which limit is exceeded.

A limit that nothing reaches is NO_LIMIT. A *sample* is what one process works on in a run over many, by `jobs` workers
at a time. A ChildEnd says how a process ended: its cause, such as TIMEOUT, with a detail in words. Of the Use of
limits, `spent(pid)` returns the seconds that count of a process (None: all since `began`), `inherited` are bytes of its
parent's memory, which do not count, and `peak` the most bytes that were seen.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from backprint.child.ends import DISK_FULL, NO_MEMORY, TIMEOUT, TOO_MANY, ChildEnd
from backprint.child.processes import memory_in_use, resident_bytes, size_of
from backprint.common.memory import GIB, available_bytes
from backprint.errors import UsageError

WORKER_MEMORY = 2 * GIB
"""The least memory for each worker: with less, the default of `--jobs` is below the number of cores."""

NO_LIMIT = 1 << 62
"""A limit that nothing reaches, in place of None: so limits are compared as numbers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one sample: seconds, bytes of memory (all its processes), bytes of disk, processes, threads.

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

    @property
    def none(self) -> bool:
        """Whether nothing has to be watched."""
        return min(self.timeout, self.memory, self.disk, self.processes) >= NO_LIMIT


def limited(timeout: float = NO_LIMIT, memory: int = 0, processes: int = NO_LIMIT) -> Limits:
    """Return these limits and no others; 0 bytes of memory are no limit."""
    return Limits(timeout, memory or NO_LIMIT, NO_LIMIT, processes)


FREE = GIB // 2
"""A sample is ended when the disk that it writes to has less free space."""


def limits_of(
    jobs: int, out: Path, timeout: float = 600.0, memory: float | None = None, disk: float | None = None
) -> Limits:
    """Return limits for each of `jobs` workers: `timeout` is in seconds, `memory` and `disk` in GiB. By default each
    worker gets an equal part of 90% of the free memory, and of half of the free disk of the folder `out`, at most 16
    GiB of disk."""
    # The nearest folder that exists: `out` need not exist yet, and has the disk of that one.
    out = next(folder for folder in (out.resolve(), *out.resolve().parents) if folder.is_dir())
    memory_limit = int(available_bytes() * 0.9 / jobs) if memory is None else int(memory * GIB)
    free_disk = max(shutil.disk_usage(out).free - FREE, FREE)  # less what must be left; on a full disk FREE, not 0
    disk_limit = min(16 * GIB, int(free_disk / 2 / jobs)) if disk is None else int(disk * GIB)
    # A sample that runs alone may have the shares of all workers, but not more than a limit that the caller gave.
    return Limits(timeout, memory_limit, disk_limit, shares=jobs if memory is None else 1)


def default_jobs() -> int:
    """Return one worker for each core, as far as memory allows."""
    return max(1, min(cores(), available_bytes() // WORKER_MEMORY))


def cores() -> int:
    """Return the cores that this process may use, by its affinity and by the quota of its cgroup."""
    count = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no such file, or `max` in the place of the quota
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count


# ------------------------------------------------------------------ what is used

DISK_EVERY = 0.5
"""Seconds between two looks at the disk, which are slower than those at processes."""


@dataclass(slots=True)
class Use:
    """What a process and those below it have used of their limits.

    `spent` returns the seconds that count of a process; without it, all do. `folder` is the one that it writes to.
    """

    limits: Limits
    spent: Callable[[int], float] | None = None
    folder: Path | None = None
    began: float = field(default_factory=time.monotonic)
    inherited: int = 0
    """Bytes that its parent had before, and that do not count."""
    peak: int = 0
    disk_looked: float = 0.0

    def begin(self) -> None:
        """Count seconds from now on."""
        self.began = time.monotonic()

    def exceeded(self, pid: int, descendants: Callable[[], list[int]]) -> ChildEnd | None:
        """Return the end of a process that exceeds a limit, with both numbers; None if it exceeds none. `descendants`
        returns the processes that it has started."""
        limits = self.limits
        seconds = self.spent(pid) if self.spent else time.monotonic() - self.began
        if seconds > limits.timeout:
            return ChildEnd(cause=TIMEOUT, detail=f"still at work after {limits.timeout:g} s (--timeout)")
        if min(limits.processes, limits.memory) < NO_LIMIT:  # one of them is limited
            alive = [pid, *filter(resident_bytes, descendants())]  # one that has ended has no memory
            if len(alive) > limits.processes:
                return ChildEnd(cause=TOO_MANY, detail=f"{len(alive)} processes, {limits.processes} are allowed")
            # Shared pages are divided, which is slow, only where the processes would exceed the limit without that.
            bytes_in_use = memory_in_use(alive, limits.memory + self.inherited) - self.inherited
            self.peak = max(self.peak, bytes_in_use)
            if bytes_in_use > limits.memory:
                detail = f"{bytes_in_use / GIB:.2f} GiB in use, {limits.memory / GIB:.2f} are allowed (--memory)"
                return ChildEnd(cause=NO_MEMORY, detail=detail)
        return self._exceeded_disk(self.folder) if self.folder is not None else None

    def _exceeded_disk(self, folder: Path) -> ChildEnd | None:
        """Return the end of a process that has written too much into its folder, or has filled the disk; None if it has
        not, or if the last look was less than DISK_EVERY ago."""
        if time.monotonic() - self.disk_looked < DISK_EVERY:
            return None
        self.disk_looked = time.monotonic()
        bytes_written = size_of(folder)
        if bytes_written > self.limits.disk:
            detail = f"{bytes_written / GIB:.2f} GiB written, {self.limits.disk / GIB:.2f} are allowed (--disk)"
            return ChildEnd(cause=DISK_FULL, detail=detail)
        disk = os.statvfs(folder)
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes >= FREE:
            return None
        detail = f"{free_bytes / GIB:.2f} GiB are left on the disk, {FREE / GIB:.2f} have to be"
        return ChildEnd(cause=DISK_FULL, detail=detail, again=bytes_written < FREE)  # it may be another that fills it

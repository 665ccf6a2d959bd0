"""Processes as Linux's /proc shows them: who descends from whom, what they hold, and their end.

`prctl` is reached through ctypes (tried on Linux 6.18): a process dies with its parent, or takes in orphans.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from backprint.errors import UsageError

PAGE = os.sysconf("SC_PAGE_SIZE")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

MARK = "BACKPRINT_RUN"
"""The environment variable by which the processes of a run are known, wherever they went."""


def check_platform() -> None:
    """Refuse where processes cannot be watched."""
    if not sys.platform.startswith("linux") or not os.path.exists("/proc/self/statm"):
        raise UsageError(f"a corpus run watches its processes through Linux's /proc, which {sys.platform} has not here")


def prctl(option: int, value: int) -> None:
    """Set one of this process's own attributes."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with(parent: int) -> None:
    """Be killed when the parent ends; at once where it has already."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of whatever below this process loses its own."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


# ------------------------------------------------------------------ looking


def children(pid: int) -> list[int]:
    """The processes that a process is the parent of."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        return []
    return found


def descendants(pid: int) -> list[int]:
    """Every process below a process, parents before children."""
    found: list[int] = []
    new = children(pid)
    while new:
        found += new
        new = [child for parent in new for child in children(parent)]
    return found


def resident(pid: int) -> int:
    """The bytes of memory that a process has in use; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def shared_out(pid: int) -> int:
    """The same, a page that several processes share counted in parts (PSS); slow, so only for a second look."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def held_by(pids: Sequence[int], most: int) -> int:
    """The bytes that processes have in use together; exact where a sum that counts shared pages twice is too much."""
    held = sum(map(resident, pids))
    return sum(map(shared_out, pids)) if held > most and len(pids) > 1 else held


def status(field: str, pid: int | str = "self") -> int:
    """A field of /proc/PID/status that is in kB, in bytes; 0 where there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(f"{field}:".encode()):
                return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    """Begin to measure this process's peak anew (VmHWM)."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def processes_of_run(value: str) -> list[int]:
    """Every process, but this one, whose environment says that it is of a run."""
    wanted = f"{MARK}={value}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(name))
    return found


# ------------------------------------------------------------------ ending


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Signal processes that may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_descendants(seconds: float = 10.0) -> tuple[int, dict[int, int]]:
    """Kill all below this process and wait for them: how many there were, and the status of those that were its own.

    They are stopped first, until none is new, so that one that forks faster than it is killed cannot get away.
    """
    seen: set[int] = set()
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        statuses |= reap()
        alive = descendants(os.getpid())
        if not alive:
            break
        fresh = set(alive) - seen
        seen |= fresh
        kill(fresh, signal.SIGSTOP)
        if not fresh:
            kill(alive)
            time.sleep(0.002)
    return len(seen), statuses


def reap() -> dict[int, int]:
    """The statuses of own children that have ended, by pid."""
    found: dict[int, int] = {}
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found[pid] = code


def end_marked(value: str, seconds: float = 10.0) -> int:
    """Kill what is left of a run that has no parent any more: how many processes there were."""
    seen: set[int] = set()
    deadline = time.monotonic() + seconds
    while (alive := processes_of_run(value)) and time.monotonic() < deadline:
        seen |= set(alive)
        kill(alive)
        time.sleep(0.01)
    return len(seen)


def size_of(folder: Path) -> int:
    """The bytes of the files below a folder that may change meanwhile."""
    total = 0
    places = [os.fspath(folder)]
    while places:
        try:
            with os.scandir(places.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            places.append(entry.path)
                        else:
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total

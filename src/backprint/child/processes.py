"""Processes in Linux's /proc, what they use, and how they are killed.

`prctl` is called through ctypes (tried on Linux 6.18): a process can die with its parent, or adopt orphans, which are
processes whose parents have ended. A process may be gone while its files in /proc are read: then the answer is that it
has nothing. A *status* is what `waitpid` returns of a process that has ended. A *run* works on many samples, in
processes that have its mark in their environment (MARK).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from backprint.errors import UsageError

PAGE = os.sysconf("SC_PAGE_SIZE")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of prctl, from linux/prctl.h."""

MARK = "BACKPRINT_RUN"
"""The environment variable that identifies the processes of a run."""


def check_platform() -> None:
    """Raise UsageError if processes cannot be watched on this platform."""
    if not sys.platform.startswith("linux") or not os.path.exists("/proc/self/statm"):
        raise UsageError(
            "corpora, benches and kernels of samples run in processes that are watched in Linux's /proc, which is "
            f"missing here ({sys.platform})"
        )


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, on Linux; do nothing elsewhere. OSError says why the kernel refuses."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends; end at once if the parent already has."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


# -------------------------------------------------------------- reading


def children(pid: int) -> list[int]:
    """Return the processes that the threads of a process have started, and that still exist; none if it is gone."""
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += map(int, file.read().split())
    except OSError:
        return []
    return pids


def descendants(pid: int) -> list[int]:
    """Return every process below a process, parents before children."""
    pids: list[int] = []
    new = children(pid)
    while new:
        pids += new
        new = [child for parent in new for child in children(parent)]
    return pids


def processor_seconds(pid: int) -> float:
    """Return the seconds of processors that a process and those below it have used."""
    ticks = 0
    for process in [pid, *descendants(pid)]:
        with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:
            # After the name in parentheses, which may have blanks: fields 14 to 17 of stat, the time in user and kernel
            # mode of the process, and of its children that have ended.
            _, _, fields_from_3 = file.read().rpartition(")")
            ticks += sum(map(int, fields_from_3.split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the bytes of memory that a process has in use; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE  # statm: all pages, then those in memory, …
    except (OSError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    """Return the bytes of a process with shared pages divided among their processes (PSS); reading it is slow."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def memory_in_use(pids: Sequence[int], limit: int) -> int:
    """Return the bytes that processes use together. Shared pages count once for each process, unless the sum exceeds
    `limit`; then they are divided."""
    total = sum(map(resident_bytes, pids))
    return sum(map(_proportional_bytes, pids)) if total > limit and len(pids) > 1 else total


def status(field: str, pid: int | str = "self") -> int:
    """Return a field of /proc/PID/status, such as `VmHWM`, which has it in kB, in bytes; 0 if there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(f"{field}:".encode()):
                return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    """Reset this process's peak memory (VmHWM)."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the kernel's code for that


def processes_of_run(value: str) -> list[int]:
    """Return every process except this one whose environment has the mark of a run (MARK) with this value."""
    wanted = f"{MARK}={value}".encode()
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    pids.append(int(name))
    return pids


# -------------------------------------------------------------- ending


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to processes, which may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_tree(pid: int) -> int:
    """Kill a child, its process group, and all below it; return how many there were below it. It is not waited for, so
    its pid is no other process's yet."""
    # Without those that have ended already, which have no memory.
    seen = _stop_all(lambda: [*filter(resident_bytes, [pid, *descendants(pid)])])
    kill(seen)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    kill([pid])
    return len(seen - {pid})


def end_descendants(seconds: float = 10.0) -> tuple[int, dict[int, int]]:
    """Kill all descendants of this process and wait for them, for at most so many seconds; return how many there were,
    and the statuses of own children, by pid. Descendants come to be its own children if it adopts orphans."""
    seen: set[int] = set()
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        statuses |= reap()
        alive = _stop_all(lambda: descendants(os.getpid()))
        if not alive:
            break
        seen |= alive
        kill(alive)
        time.sleep(0.002)
    return len(seen), statuses


def _stop_all(list_pids: Callable[[], Sequence[int]], seconds: float = 10.0) -> set[int]:
    """Stop the processes that `list_pids` returns, until it returns no new ones, for at most so many seconds; return
    them. So one that forks faster than it is killed cannot escape: a stopped process cannot fork."""
    stopped: set[int] = set()
    deadline = time.monotonic() + seconds
    while (new_pids := set(list_pids()) - stopped) and time.monotonic() < deadline:
        kill(new_pids, signal.SIGSTOP)
        stopped |= new_pids
    return stopped


def reap() -> dict[int, int]:
    """Return the statuses of own children that have ended, by pid."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, ended_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # there is no child
            return statuses
        if not pid:  # no other has ended
            return statuses
        statuses[pid] = ended_status


def end_marked(value: str, seconds: float = 10.0) -> int:
    """Kill the processes with the mark of a run that are left, though their parent is gone, for at most so many
    seconds; return how many there were."""
    seen: set[int] = set()
    deadline = time.monotonic() + seconds
    while (alive := processes_of_run(value)) and time.monotonic() < deadline:
        seen |= set(alive)
        kill(alive)
        time.sleep(0.01)
    return len(seen)


def size_of(folder: Path) -> int:
    """Return the bytes of the files below a folder, which may change meanwhile."""
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
                            # What it takes on the disk: a file with holes takes less than its size.
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total

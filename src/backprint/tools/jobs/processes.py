"""Processes: limits of a sample, processes in Linux's /proc and their memory, ending them, calls in a forked one."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from backprint.common.memory import available_bytes
from backprint.errors import UsageError

# ------------------------------------------------------------------ limits, and the resources of the machine

GIB = 1 << 30

WORKER_MEMORY = 2 * GIB
"""The least memory for each worker: with less, the default of `--jobs` is below the number of cores."""


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


FREE = GIB // 2
"""A sample is ended when the disk that it writes to has less free space."""


def limits_of(
    jobs: int, out: Path, timeout: float = 600.0, memory: float | None = None, disk: float | None = None
) -> Limits:
    """Return limits for each of several workers, in GiB; defaults are a fair share of this machine's free resources."""
    out = next(folder for folder in (out.resolve(), *out.resolve().parents) if folder.is_dir())
    share = int(available_bytes() * 0.9 / jobs) if memory is None else int(memory * GIB)
    free = max(shutil.disk_usage(out).free - FREE, FREE)
    disk_share = min(16 * GIB, int(free / 2 / jobs)) if disk is None else int(disk * GIB)
    return Limits(timeout, share, disk_share, shares=jobs if memory is None else 1)


def default_jobs() -> int:
    """Return one worker for each core, as far as memory allows."""
    return max(1, min(cores(), available_bytes() // WORKER_MEMORY))


def cores() -> int:
    """Return the cores that this process may use."""
    count = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count


# ------------------------------------------------------------------ processes in Linux's /proc
#
# `prctl` is called through ctypes (tried on Linux 6.18): a process can die with its parent, or adopt orphans.

PAGE = os.sysconf("SC_PAGE_SIZE")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

MARK = "BACKPRINT_RUN"
"""The environment variable that identifies the processes of a run."""


def check_platform() -> None:
    """Raise if processes cannot be watched on this platform."""
    if not sys.platform.startswith("linux") or not os.path.exists("/proc/self/statm"):
        raise UsageError(
            "corpora, benches and kernels of samples run in processes that are watched in Linux's /proc, which is "
            f"missing here ({sys.platform})"
        )


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
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
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the bytes of memory that a process has in use; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    """Return the bytes of a process with shared pages divided among their processes (PSS); reading it is slow."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def memory_in_use(pids: Sequence[int], most: int) -> int:
    """Return the bytes that processes use together. Shared pages count once for each process, unless the sum exceeds
    `most`; then they are divided."""
    held = sum(map(resident_bytes, pids))
    return sum(map(_proportional_bytes, pids)) if held > most and len(pids) > 1 else held


def status(field: str, pid: int | str = "self") -> int:
    """Return a field of /proc/PID/status, given in kB, in bytes; 0 if there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(f"{field}:".encode()):
                return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    """Reset this process's peak memory (VmHWM)."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def processes_of_run(value: str) -> list[int]:
    """Return every process except this one whose environment has the mark of a run."""
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


def end_descendants(seconds: float = 10.0) -> tuple[int, dict[int, int]]:
    """Kill all descendants and wait for them; return how many there were, and the statuses of own children.

    They are stopped first, until there are no new ones, so that one that forks faster than it is killed cannot escape.
    """
    seen: set[int] = set()
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        statuses |= reap()
        alive = descendants(os.getpid())
        if not alive:
            break
        fresh = set(alive) - seen  # a stopped process cannot fork; kill only when no new ones appear
        seen |= fresh
        kill(fresh, signal.SIGSTOP)
        if not fresh:
            kill(alive)
            time.sleep(0.002)
    return len(seen), statuses


def reap() -> dict[int, int]:
    """Return the statuses of own children that have ended, by pid."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if not pid:
            return statuses
        statuses[pid] = code


def end_marked(value: str, seconds: float = 10.0) -> int:
    """Kill the remaining processes of a run without a parent; return how many there were."""
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
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total


# ------------------------------------------------------------------ a call in a forked process
#
# Compilers crash and hang, so they are called in a process of their own, under a limit of time. The calling process
# must have one thread and must not have loaded a compiler: processes that a compiler starts end with its own. The
# function returns plain values, which are sent back as JSON.

PIECE = 1 << 16

POLL = 100
"""Milliseconds between two looks at a child."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a call in a process of its own: a value, or a cause and its detail.

    The cause is `timeout`, `out of memory`, `crashed` (by a signal, or without an answer) or `raised`.
    """

    value: Any = None
    cause: str = ""
    detail: str = ""

    @property
    def ended_well(self) -> bool:
        """Whether the function returned."""
        return not self.cause


def in_child(
    function: Callable[[], Any], timeout: float, memory: int = 0, spent: Callable[[int], float] | None = None
) -> ChildEnd:
    """Call a function in a forked process; end it and its descendants after `timeout` seconds, or when they use more
    than `memory` bytes (0: no limit). `spent` returns the seconds that count of a process; without it, all do."""
    answers, tell = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(answers)
        _run_in_this_process(function, tell)
    os.close(tell)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    try:
        began = time.monotonic()
        limits = _ChildLimits(pid, timeout, memory, spent or (lambda pid: time.monotonic() - began))
        text, blame = _read_answer(answers, limits)
    finally:
        os.close(answers)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return blame or _child_end(text, status)


@dataclass(frozen=True, slots=True)
class _ChildLimits:
    """The limits of a child process, and the function that returns its seconds."""

    pid: int
    timeout: float
    memory: int
    spent: Callable[[int], float]

    def exceeded(self) -> ChildEnd | None:
        """Return the end of a child that exceeds a limit; None if it exceeds none."""
        if self.spent(self.pid) > self.timeout:
            return ChildEnd(cause="timeout", detail=f"still at work after {self.timeout:g} s (--timeout)")
        if not self.memory:
            return None
        held = memory_in_use([self.pid, *descendants(self.pid)], self.memory)
        both = f"{held / GIB:.2f} GiB in use, {self.memory / GIB:.2f} are allowed (--memory)"
        return ChildEnd(cause="out of memory", detail=both) if held > self.memory else None


def _read_answer(answers: int, limits: _ChildLimits) -> tuple[bytes, ChildEnd | None]:
    """Return a child's output until it closes the pipe, and its end if it exceeds a limit."""
    text = bytearray()
    poller = select.poll()
    poller.register(answers, select.POLLIN)
    while (blame := limits.exceeded()) is None:
        if poller.poll(POLL):
            piece = os.read(answers, PIECE)
            text += piece
            if not piece or text.endswith(b"\n"):
                return bytes(text), None
    return bytes(text), blame


def _child_end(text: bytes, status: int) -> ChildEnd:
    """Return the end of a child, from its output and its exit status."""
    if text.endswith(b"\n"):
        return ChildEnd(**json.loads(text))
    if os.WIFSIGNALED(status):
        return ChildEnd(cause="crashed", detail=f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    return ChildEnd(cause="crashed", detail=f"its process ended with exit code {os.WEXITSTATUS(status)}")


def _run_in_this_process(function: Callable[[], Any], tell: int) -> NoReturn:
    """Call the function, write its answer as one line of JSON, and end this process."""
    try:
        os.setpgid(0, 0)
        try:
            end: dict[str, Any] = {"value": function()}
        except BaseException as error:
            traceback.print_exc()
            end = {"cause": "raised", "detail": f"{type(error).__name__}: {error}"}
        content = json.dumps(end).encode() + b"\n"
        while content:
            content = content[os.write(tell, content) :]
    finally:
        os._exit(0)  # without exit handlers and threads, which may wait for each other

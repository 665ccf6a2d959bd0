"""How much memory there is for one result: this process's limit, or the machine's free memory.

No torch here: a corpus run's parent imports it too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

CONTAINERS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""The files with a container's memory limit, and with what it uses."""

SMALL = 1 << 28
"""Results up to this many bytes are never checked."""

GIB = 1 << 30

_allowed = 0
"""How many bytes this process may hold; 0 where nobody has said so."""


def limit_memory(bytes: int) -> None:
    """Set how many bytes this process may hold from now on."""
    global _allowed
    _allowed = bytes


def held_bytes(column: int = 1) -> int:
    """Return the bytes of memory that this process holds (the resident set, column 1 of /proc/self/statm); with column
    0, the bytes of its address space. 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[column]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def available_bytes() -> int:
    """Return the bytes of memory that are still free on this machine, or in its container, whichever is less; 0 where
    the system does not tell."""
    available = total = 0
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
            if line.startswith("MemTotal:"):
                total = int(line.split()[1]) * 1024
    for limit, used in CONTAINERS:
        with contextlib.suppress(OSError, ValueError):  # a container without a limit says `max`
            most = int(Path(limit).read_text())
            if most < total:  # in the older form of these files, no limit is a number larger than any memory
                available = min(available, max(0, most - int(Path(used).read_text())))
    return available


def why_too_large(bytes: int, what: str = "a result of") -> str:
    """Return why a result of this many bytes does not fit in memory; '' where it does. `what` begins the text, for a
    thing that is no result. What is free on the machine counts, and what `ulimit -v` and `limit_memory` leave."""
    if bytes <= SMALL:
        return ""
    import resource

    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)  # `ulimit -v`
    rooms = [available_bytes()]
    if address_space != resource.RLIM_INFINITY:
        rooms.append(max(address_space - held_bytes(column=0), 1))
    if _allowed:
        rooms.append(max(_allowed - held_bytes(), 1))
    most = min(filter(None, rooms), default=bytes)  # 0 is a room that this machine does not tell
    return "" if bytes <= most else f"{what} {bytes / GIB:,.1f} GiB, and there is room for {most / GIB:,.1f}"

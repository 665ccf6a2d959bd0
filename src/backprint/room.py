"""How much memory there is for one result: what this process was allowed, or what the machine has free.

No torch here: a corpus run's parent asks too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

CONTAINERS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""What a container may take, and has taken."""

_allowed = 0


def limit_memory(bytes: int) -> None:
    """From now on this process may hold so much."""
    global _allowed
    _allowed = bytes


def memory_limit() -> int:
    """How large one result may be; 0 where nobody knows."""
    rooms = [available_bytes(), free_address_space()]
    rooms += [max(_allowed - held_bytes(), 1)] if _allowed else []
    return min(filter(None, rooms), default=0)


def free_address_space() -> int:
    """The bytes that this process may still ask for (`ulimit -v`); 0 where nothing limits them."""
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if most == resource.RLIM_INFINITY else max(most - held_bytes(0), 1)


def held_bytes(column: int = 1) -> int:
    """The bytes of memory that this process holds; of column 0, those that it has asked for."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[column]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def available_bytes() -> int:
    """The bytes of memory that this process may still take: the machine's, or its container's."""
    found = total = 0
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) * 1024
            if line.startswith("MemTotal:"):
                total = int(line.split()[1]) * 1024
    for limit, used in CONTAINERS:
        with contextlib.suppress(OSError, ValueError):
            most = int(Path(limit).read_text())
            if most < total:
                found = min(found, max(0, most - int(Path(used).read_text())))
    return found


def why_too_large(bytes: int) -> str:
    """What is said of a result of this size; '' where there is room for it."""
    if bytes <= SMALL:
        return ""
    most = memory_limit()
    if not most or bytes <= most:
        return ""
    return f"a result of {bytes / GIB:,.1f} GiB, and there is room for {most / GIB:,.1f}"


SMALL = 1 << 28
"""A result of which nobody asks whether there is room for it."""

GIB = 1 << 30

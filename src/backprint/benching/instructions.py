"""Instructions that this process executes in user mode, of all of its threads, through Linux's perf_event_open.

Torch is not needed. Counts hardly depend on what else the machine does, so they tell apart what times cannot. A thread
counts if it was started after the counter: open it before a compiler is loaded. One counter is kept for the process,
because each takes a register of the processor; with too many of them the kernel lets them take turns.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from dataclasses import dataclass

CALLS = {"x86_64": 298, "aarch64": 241}
"""The number of the system call perf_event_open, by machine."""

SIZE = 112
"""The size of perf_event_attr that is passed."""

INSTRUCTIONS = 1
"""PERF_COUNT_HW_INSTRUCTIONS, of the type PERF_TYPE_HARDWARE, which is 0."""

TIMES = 3
"""PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING."""

INHERITED, NO_KERNEL, NO_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6

CLOSED_ON_EXEC = 8

TRIED = 1000
"""A loop of so many turns in Python executes more instructions than its turns."""


@dataclass(frozen=True, slots=True)
class InstructionCounter:
    """An open counter of one process."""

    descriptor: int

    def count(self) -> int | None:
        """Return the instructions since it was opened; None if the kernel did not count all the time."""
        value, enabled, running = struct.unpack("<QQQ", os.read(self.descriptor, 24))
        return value if value and enabled == running else None


KEPT: dict[int, InstructionCounter | None] = {}
"""The counter of each process that asked; a forked process opens its own."""


def instruction_counter() -> InstructionCounter | None:
    """Return the counter of this process; None where the machine or its settings do not let it count."""
    process = os.getpid()
    if process not in KEPT:
        KEPT[process] = opened_counter()
    return KEPT[process]


def opened_counter() -> InstructionCounter | None:
    """Open a counter and see that it counts."""
    try:
        counter = InstructionCounter(asked_of_kernel())
        before = counter.count()
        for _ in range(TRIED):
            pass
        after = counter.count()
    except OSError:
        return None
    if before is None or after is None or after - before < TRIED:
        os.close(counter.descriptor)
        return None
    return counter


def asked_of_kernel() -> int:
    """Return the descriptor of a new counter of this thread and of the threads that it starts."""
    call = CALLS.get(platform.machine()) if platform.system() == "Linux" else None
    if call is None:
        raise OSError(f"no system call perf_event_open is known for {platform.system()} on {platform.machine()}")
    attributes = bytearray(SIZE)
    struct.pack_into("<IIQ", attributes, 0, 0, SIZE, INSTRUCTIONS)
    struct.pack_into("<QQ", attributes, 32, TIMES, INHERITED | NO_KERNEL | NO_HYPERVISOR)
    library = ctypes.CDLL(None, use_errno=True)
    memory = (ctypes.c_char * SIZE).from_buffer(attributes)
    descriptor = library.syscall(ctypes.c_long(call), memory, 0, -1, -1, ctypes.c_ulong(CLOSED_ON_EXEC))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"perf_event_open: {os.strerror(number)}")
    return int(descriptor)

"""How long a call takes, without the time for which its thread waited for a processor.

On a machine that others use too, a call of 10 ms may take 50. Linux counts for how long a thread was ready to run and
had to wait (the second number of /proc/thread-self/schedstat), which is taken off. No more is taken off than leaves the
processor time of the whole process, so that what other threads do in the meantime counts; and not what may have been
waited while the counts were read, which is not in the time of the call. Elsewhere nothing is taken off.

The clocks are bound when this module is imported: import it before a compiler.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

CLOCK, PROCESSOR, READ = time.perf_counter_ns, time.process_time_ns, os.pread

SHORT = 50_000
"""Nanoseconds: shorter calls are seldom interrupted, and reading what was waited takes a fifth of that."""

OPENED: dict[tuple[int, int], int] = {}
"""The descriptor of the counts of each process and thread that asked; -1 where there are none."""


def counts_of_thread() -> int:
    """Return the descriptor of this thread's counts, or -1."""
    key = os.getpid(), threading.get_ident()
    if key not in OPENED:
        try:
            OPENED[key] = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            OPENED[key] = -1
    return OPENED[key]


def waited(counts: int) -> int:
    """Return the nanoseconds for which the thread has waited for a processor since it was started."""
    return int(READ(counts, 64, 0).split()[1])


def timed(function: Callable[..., Any], values: Sequence[Any], short: bool) -> tuple[int, Any]:
    """Call a function; return the nanoseconds, and the results. Of a `short` call nothing is taken off."""
    counts = -1 if short else counts_of_thread()
    if counts < 0:
        begun = CLOCK()
        results = function(*values)
        ended = CLOCK()
        return ended - begun, results
    before = CLOCK()
    waited_before, worked_before = waited(counts), PROCESSOR()
    begun = CLOCK()
    results = function(*values)
    ended = CLOCK()
    worked, waiting = PROCESSOR() - worked_before, waited(counts) - waited_before
    beside = begun - before + CLOCK() - ended
    return max(ended - begun - max(waiting - beside, 0), min(ended - begun, worked)), results

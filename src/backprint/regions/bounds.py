"""How many passes are kept, counted over the regions of one folder, name and line of code in one process.

A loop makes a new region on the same line each time, so a region alone cannot count. Without a folder each region
counts its own.
"""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, field
from typing import Any

from backprint.errors import UsageError


@dataclass(frozen=True, slots=True)
class PassBounds:
    """Which passes are kept: one of `every`, at most `limit`; with `only_bad` only those with NaN, Inf or an error."""

    every: int = 1
    limit: int | None = None
    only_bad: bool = False


def bounds_of(every: Any, limit: Any, only_bad: Any, gradients: str) -> PassBounds:
    """Check the options of `bp.region`, and make PassBounds of them."""
    for name, value, free in (("every", every, False), ("limit", limit, True)):
        if value is None and free:
            continue
        if type(value) is not int or value < 1:
            hint = ", or None for all" if free else ""
            raise UsageError(f"{name}={value!r}: a whole number of passes is expected, 1 or more{hint}")
    if type(only_bad) is not bool:
        raise UsageError(f"only_bad={only_bad!r} is neither True nor False")
    if only_bad and gradients == "none":
        raise UsageError('only_bad=True looks for NaN and Inf: write gradients="stats" or gradients="values" too')
    return PassBounds(every, limit, only_bad)


@dataclass(slots=True)
class PassCount:
    """How many passes began, and how many of them were kept."""

    begun: int = 0
    kept: int = 0
    free: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> int:
        """Take the number of a pass that begins."""
        with self.lock:
            if self.free:
                return heapq.heappop(self.free)
            self.begun += 1
            return self.begun - 1

    def give_back(self, number: int) -> None:
        """Give back the number of a call that ran nothing in the region."""
        with self.lock:
            heapq.heappush(self.free, number)

    def is_due(self, number: int, bounds: PassBounds) -> bool:
        """Whether the pass of this number may be kept."""
        return number % bounds.every == 0 and (bounds.limit is None or self.kept < bounds.limit)

    def keep(self, bounds: PassBounds) -> bool:
        """Whether one more pass is kept; counts it if so."""
        with self.lock:
            if bounds.limit is not None and self.kept >= bounds.limit:
                return False
            self.kept += 1
            return True


_counts: dict[tuple[str, ...], PassCount] = {}
_lock = threading.Lock()


def count_of(*key: str) -> PassCount:
    """The PassCount of a folder, a name and a line."""
    with _lock:
        return _counts.setdefault(key, PassCount())


def forget_counts(folder: str) -> None:
    """Forget the counts of a folder that was deleted."""
    with _lock:
        for key in [key for key in _counts if key[0] == folder]:
            del _counts[key]

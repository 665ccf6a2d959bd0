"""What a machine reaches with a matmul and with copies, and the share of it that a call reached.

A copy is measured at several sizes, because caches are faster than memory. A work of so many bytes is held against the
fastest copy of its size or more, so a call whose inputs lie in a cache has a share of that cache. A share is
the least time over the time of a call; launches and intermediate values that leave the caches make it small. Nothing
caps it: a load on the machine while the peaks are measured raises all shares, and reading alone can be faster than a
copy. Matmuls and copies take turns, and the best of each counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from backprint.bench.roofline import Work
from backprint.errors import UsageError

SIZES = (2**15, 2**18, 2**20, 2**22, 2**25, 2**28)
"""Bytes that the copies move, half of them read and half written."""

WIDTHS = {"cpu": (512, 1024)}
"""The sizes of square matrices; the best counts. On other devices, `WIDE`."""

WIDE = (4096, 8192)

FEWEST_TURNS = 3


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most floating-point operations (float32) and bytes a second. `bytes` is a copy far beyond all caches;
    `copies` has pairs of bytes and bytes a second; `flops_by_dtype` the matmuls of further dtypes."""

    flops: float
    bytes: float
    copies: tuple[tuple[int, float], ...] = ()
    flops_by_dtype: tuple[tuple[str, float], ...] = ()

    def flops_of(self, dtype: str) -> float:
        """Return the peak of a dtype; where it was not measured, that of float32."""
        return dict(self.flops_by_dtype).get(dtype, self.flops)

    def bytes_at(self, moved: int) -> float:
        """Return the fastest copy of so many bytes or more; between two sizes, of the smaller one or more."""
        below = max((size for size, _ in self.copies if size <= moved), default=0)
        return max((rate for size, rate in self.copies if size >= below), default=self.bytes)


def share_reached(work: Work, seconds: float, peaks: Peaks) -> float:
    """Return the least time that the work takes at these peaks, as a share of the time that it took."""
    if not seconds > 0:
        raise UsageError(f"a share of {seconds!r} seconds: the time of a call is above 0")
    return least_seconds(work, peaks) / seconds


def least_seconds(work: Work, peaks: Peaks) -> float:
    """Return the time of the work's arithmetic or of its bytes, whichever is longer."""
    by_dtype = work.flops_by_dtype or (("float32", work.flops),)
    return max(
        sum(count / peaks.flops_of(dtype) for dtype, count in by_dtype),
        work.bytes / peaks.bytes_at(work.bytes),
    )


def measure_peaks(
    threads: int, device: str = "cpu", seconds: float = 1.0, dtypes: Sequence[str] = ("float32",)
) -> Peaks:
    """Measure a matmul of each dtype (float32 always) and copies of all sizes, in turns for about so many seconds, and
    at least three turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            return measured_peaks(device, seconds, ("float32", *(name for name in dtypes if name != "float32")))
    finally:
        torch.set_num_threads(before)


def measured_peaks(device: str, seconds: float, dtypes: Sequence[str]) -> Peaks:
    widths = WIDTHS.get(torch.device(device).type, WIDE)
    matmuls = {(dtype, width): matmul_of(dtype, width, device) for dtype in dtypes for width in widths}
    copies = {size: copy_of(size, device) for size in SIZES}
    best = best_of([*matmuls.values(), *copies.values()], waiter(device), seconds)
    took = dict(zip(matmuls, best, strict=False))
    rates = tuple((size, size / seconds) for size, seconds in zip(copies, best[len(took) :], strict=True))
    flops = {dtype: max(2 * width**3 / took[dtype, width] for width in widths) for dtype in dtypes}
    return Peaks(flops["float32"], rates[-1][1], rates, tuple(flops.items()))


def best_of(
    calls: Sequence[tuple[Callable[[], object], int]], wait: Callable[[], object], seconds: float
) -> list[float]:
    """Return the shortest time of one call of each. They take turns, each in blocks of its number of calls."""
    best = [math.inf] * len(calls)
    start, turns = time.perf_counter(), 0
    while turns <= FEWEST_TURNS or time.perf_counter() - start < seconds:
        for place, (call, times) in enumerate(calls):
            wait()
            began = time.perf_counter()
            for _ in range(times):
                call()
            wait()
            if turns:  # the first turn touches memory and starts threads
                best[place] = min(best[place], (time.perf_counter() - began) / times)
        turns += 1
    return best


def matmul_of(dtype: str, width: int, device: str) -> tuple[Callable[[], object], int]:
    """Return a matmul of square matrices, to be called once a block."""
    left, right = (torch.rand(width, width, device=device).to(getattr(torch, dtype)) for _ in range(2))
    result = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=result), 1


def copy_of(size: int, device: str) -> tuple[Callable[[], object], int]:
    """Return a copy that moves so many bytes, and how often it is called in a block."""
    source = torch.rand(size // 8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), max(1, 2**20 // size)


def waiter(device: str) -> Callable[[], object]:
    """Return what waits for a device."""
    kind = torch.device(device).type
    return (lambda: None) if kind == "cpu" else torch.get_device_module(device).synchronize

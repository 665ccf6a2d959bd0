"""What a machine reaches with matmuls, convolutions and copies, and the share of it that a call reached.

Arithmetic is the best of matmuls and a convolution, because they may come from different libraries. Memory is the best
of a copy and a sum of two tensors, at several sizes, because caches are faster than memory. A work of so many bytes is
held against the fastest of its size or more, so a call whose inputs lie in a cache has a share of that cache.

A share is the least time over the time of a call; launches, and intermediate values that leave the caches, make it
small. Nothing caps it: a load on the machine while the peaks are measured raises all shares. All take turns, and the
best of each counts. `python -m backprint.bench.peaks THREADS DEVICE` measures in a process of its own, and prints them
as JSON with the version of torch.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from backprint.bench.roofline import Work
from backprint.errors import UsageError

SIZES = (2**15, 2**18, 2**20, 2**22, 2**25, 2**28)
"""The bytes that are moved."""

WIDTHS = {"cpu": (512, 1024)}
"""The sizes of square matrices; the best counts. On other devices, `WIDE`."""

WIDE = (4096, 8192)

FEWEST_TURNS = 3


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most floating-point operations (float32) and bytes a second. `bytes` is memory far beyond all caches; `moves`
    has pairs of bytes and bytes a second; `flops_by_dtype` has the operations of each dtype."""

    flops: float
    bytes: float
    moves: tuple[tuple[int, float], ...] = ()
    flops_by_dtype: tuple[tuple[str, float], ...] = ()

    def flops_of(self, dtype: str) -> float:
        """Return the peak of a dtype; where it was not measured, that of float32."""
        return dict(self.flops_by_dtype).get(dtype, self.flops)

    def bytes_at(self, moved: int) -> float:
        """Return the most bytes a second of those measured sizes that are at least so many, and of the next smaller."""
        below = max((size for size, _ in self.moves if size <= moved), default=0)
        return max((rate for size, rate in self.moves if size >= below), default=self.bytes)


def peaks_from_json(row: Mapping[str, Any]) -> Peaks:
    """Return the peaks of plain values; those of a file may have the first two alone."""
    moves = tuple((int(size), float(rate)) for size, rate in row.get("moves", ()))
    by_dtype = tuple((str(dtype), float(rate)) for dtype, rate in row.get("flops_by_dtype", ()))
    return Peaks(float(row["flops"]), float(row["bytes"]), moves, by_dtype)


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
    """Measure arithmetic of each dtype (float32 always) and memory of all sizes, in turns for about so many seconds,
    and at least three turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            return peaks_in_turns(device, seconds, ("float32", *(name for name in dtypes if name != "float32")))
    finally:
        torch.set_num_threads(before)


def peaks_in_turns(device: str, seconds: float, dtypes: Sequence[str]) -> Peaks:
    computing = [(dtype, call) for dtype in dtypes for call in computing_calls(dtype, device)]
    moving = [(size, call) for size in SIZES for call in moving_calls(size, device)]
    took = best_of([call for _, call in (*computing, *moving)], waiter(device), seconds)
    rates: dict[object, float] = {}
    for (key, call), best in zip((*computing, *moving), took, strict=True):
        rates[key] = max(rates.get(key, 0), call.amount / best)
    moves = tuple((size, rates[size]) for size in SIZES)
    return Peaks(rates["float32"], moves[-1][1], moves, tuple((dtype, rates[dtype]) for dtype in dtypes))


@dataclass(frozen=True, slots=True)
class PeakCall:
    """A call, how many operations or bytes it takes, and how often it is called in a block."""

    call: Callable[[], object]
    amount: int
    times: int = 1


def best_of(calls: Sequence[PeakCall], wait: Callable[[], object], seconds: float) -> list[float]:
    """Return the shortest time of one call of each. They take turns, in blocks."""
    best = [math.inf] * len(calls)
    start, turns = time.perf_counter(), 0
    while turns <= FEWEST_TURNS or time.perf_counter() - start < seconds:
        for place, each in enumerate(calls):
            wait()
            began = time.perf_counter()
            for _ in range(each.times):
                each.call()
            wait()
            if turns:  # the first turn touches memory and starts threads
                best[place] = min(best[place], (time.perf_counter() - began) / each.times)
        turns += 1
    return best


def computing_calls(dtype: str, device: str) -> Iterator[PeakCall]:
    """Yield matmuls of square matrices, and a convolution."""

    def made(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device=device).to(getattr(torch, dtype))

    for width in WIDTHS.get(torch.device(device).type, WIDE):
        left, right = made(width, width), made(width, width)
        yield PeakCall(partial(torch.mm, left, right, out=torch.empty_like(left)), 2 * width**3)
    images, kernels = made(2, 64, 34, 34), made(64, 64, 3, 3)
    yield PeakCall(partial(torch.conv2d, images, kernels), 2 * 2 * 64 * 32 * 32 * 64 * 9)


def moving_calls(size: int, device: str) -> Iterator[PeakCall]:
    """Yield a copy that moves so many bytes, and a sum of two tensors that does, with a third of them written."""
    times = max(1, 2**20 // size)
    source, target = torch.rand(2, size // 8, device=device)
    yield PeakCall(partial(target.copy_, source), 2 * source.nbytes, times)
    left, right, result = torch.rand(3, size // 12, device=device)
    yield PeakCall(partial(torch.add, left, right, out=result), 3 * left.nbytes, times)


def waiter(device: str) -> Callable[[], object]:
    """Return what waits for a device."""
    kind = torch.device(device).type
    return (lambda: None) if kind == "cpu" else torch.get_device_module(device).synchronize


if __name__ == "__main__":
    print(json.dumps({**asdict(measure_peaks(int(sys.argv[1]), sys.argv[2])), "torch": torch.__version__}))

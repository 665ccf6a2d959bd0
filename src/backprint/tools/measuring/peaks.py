"""The peaks of a machine: operations a second of matmuls and convolutions, bytes a second of copies.

Arithmetic is the best of matmuls and a convolution, because they may come from different libraries. Memory is the best
of a copy and a sum of two tensors, at several sizes, because caches are faster than memory. A work of so many bytes is
held against the fastest of its size or more, so a call whose inputs lie in a cache has a share of that cache.

A share is the least time over the time of a call; launches, and intermediate values that leave the caches, make it
small. Nothing caps it: a load on the machine while the peaks are measured raises all shares. All take turns, and the
best of each counts.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch

from backprint.tools.measuring.roofline import Peaks

SIZES = (2**15, 2**18, 2**20, 2**22, 2**25, 2**28)
"""The bytes that are moved."""

WIDTHS = {"cpu": (512, 1024)}
"""The sizes of square matrices; the best counts. On other devices, `WIDE`."""

WIDE = (4096, 8192)

FEWEST_TURNS = 3


def measure_peaks(
    threads: int, device: str = "cpu", seconds: float = 1.0, dtypes: Sequence[str] = ("float32",)
) -> Peaks:
    """Measure arithmetic of each dtype (float32 always) and memory of all sizes, in turns for about so many seconds,
    and at least three turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            return _peaks_in_turns(device, seconds, ("float32", *(name for name in dtypes if name != "float32")))
    finally:
        torch.set_num_threads(before)


def _peaks_in_turns(device: str, seconds: float, dtypes: Sequence[str]) -> Peaks:
    computing = [(dtype, call) for dtype in dtypes for call in _computing_calls(dtype, device)]
    moving = [(size, call) for size in SIZES for call in _moving_calls(size, device)]
    took = best_of([call for _, call in (*computing, *moving)], _waiter(device), seconds)
    rates: dict[object, float] = {}
    for (key, call), best in zip((*computing, *moving), took, strict=True):
        rates[key] = max(rates.get(key, 0), call.amount / best)
    moves = tuple((size, rates[size]) for size in SIZES)
    return Peaks(rates["float32"], moves[-1][1], moves, tuple((dtype, rates[dtype]) for dtype in dtypes))


@dataclass(frozen=True, slots=True)
class _PeakCall:
    """A call, how many operations or bytes it takes, and how often it is called in a block."""

    call: Callable[[], object]
    amount: int
    times: int = 1


def best_of(calls: Sequence[_PeakCall], wait: Callable[[], object], seconds: float) -> list[float]:
    """Return the shortest time of one call of each. They take turns, in blocks."""
    best = [math.inf] * len(calls)
    start, turns = time.perf_counter(), 0
    while turns <= FEWEST_TURNS or time.perf_counter() - start < seconds:
        for place, peak_call in enumerate(calls):
            wait()
            began = time.perf_counter()
            for _ in range(peak_call.times):
                peak_call.call()
            wait()
            if turns:  # the first turn touches memory and starts threads
                best[place] = min(best[place], (time.perf_counter() - began) / peak_call.times)
        turns += 1
    return best


def _computing_calls(dtype: str, device: str) -> Iterator[_PeakCall]:
    """Yield matmuls of square matrices, and a convolution."""

    def random_tensor(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device=device).to(getattr(torch, dtype))

    for width in WIDTHS.get(torch.device(device).type, WIDE):
        left, right = random_tensor(width, width), random_tensor(width, width)
        yield _PeakCall(partial(torch.mm, left, right, out=torch.empty_like(left)), 2 * width**3)
    images, kernels = random_tensor(2, 64, 34, 34), random_tensor(64, 64, 3, 3)
    yield _PeakCall(partial(torch.conv2d, images, kernels), 2 * 2 * 64 * 32 * 32 * 64 * 9)


def _moving_calls(size: int, device: str) -> Iterator[_PeakCall]:
    """Yield a copy that moves so many bytes, and a sum of two tensors that does, with a third of them written."""
    times = max(1, 2**20 // size)
    source, target = torch.rand(2, size // 8, device=device)
    yield _PeakCall(partial(target.copy_, source), 2 * source.nbytes, times)
    left, right, result = torch.rand(3, size // 12, device=device)
    yield _PeakCall(partial(torch.add, left, right, out=result), 3 * left.nbytes, times)


def _waiter(device: str) -> Callable[[], object]:
    """Return what waits for a device."""
    kind = torch.device(device).type
    return (lambda: None) if kind == "cpu" else torch.get_device_module(device).synchronize


if __name__ == "__main__":  # for a process that does not load torch
    count, place = sys.argv[1:]
    print(
        json.dumps(
            {
                "torch": str(torch.__version__),
                **asdict(measure_peaks(int(count), place, dtypes=("float64", "bfloat16"))),
            }
        )
    )

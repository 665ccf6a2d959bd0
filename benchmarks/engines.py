"""What a capture by engine `aot` and by engine `eager` takes, and what comes of it.

    python benchmarks/engines.py [ROUNDS]

The processor's time of a capture with its proof, on one thread: the least of several rounds in turns in one process.
Steps and saved bytes are of each engine's own choice of what is saved: min-cut for `aot`, autograd's for `eager`.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import backprint as bp

Case = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]


def encoder(layers: int, width: int, length: int) -> Case:
    def make() -> tuple[nn.Module, tuple[Tensor, ...]]:
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), (torch.randn(2, length, width),)

    return make


def convolutions() -> tuple[nn.Module, tuple[Tensor, ...]]:
    blocks = [nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(12)]
    return nn.Sequential(*blocks), (torch.randn(4, 16, 32, 32),)


CASES: dict[str, Case] = {
    "transformer, 12 layers of 512": encoder(12, 512, 64),
    "transformer, 48 layers of 64": encoder(48, 64, 16),
    "12 convolutions with batch norm": convolutions,
    "LSTM, 2 layers": lambda: (nn.LSTM(32, 64, 2, batch_first=True), (torch.randn(4, 16, 32),)),
}


def measured(make: Case, engine: str) -> tuple[float, int, int, int]:
    """Seconds of a capture, its steps forward and backward, and the KiB that it saves."""
    model, args = make()
    gc.collect()
    begun = time.process_time()
    capture = bp.capture(model, *args, engine=engine)
    seconds = time.process_time() - begun
    pair = capture.pairs[0]
    assert pair.backward is not None
    saved = sum(getattr(port.spec, "nbytes", 0) for port in pair.saved)
    capture.release()
    return seconds, len(pair.forward.steps), len(pair.backward.steps), saved >> 10


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    print("| model | engine | seconds | steps forward | backward | saved KiB |\n|---|---|---:|---:|---:|---:|")
    for name, make in CASES.items():
        rows: dict[str, list[Any]] = {"aot": [], "eager": []}
        for _ in range(rounds):
            for engine, found in rows.items():
                found.append(measured(make, engine))
        for engine, found in rows.items():
            seconds, forward, backward, saved = min(found)
            print(f"| {name} | `{engine}` | {seconds:.2f} | {forward:,} | {backward:,} | {saved:,} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)

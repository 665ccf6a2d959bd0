"""What `bp.region` costs a training step: CPU time against the plain step, taken in turns, in one run.

The step is forward and backward of ResNet-18 (width 64, 8 blocks) on 16 pictures, and one step of SGD. Bars: a region
around the whole step without gradients <= 1.10, with stats <= 1.35, with values written to disk <= 2; around one block
of eight <= 1.05.

    python benchmarks/regions.py [rounds] [picture size]
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from eager import resnet18
from torch import Tensor, nn

import backprint as bp

Block = Callable[[], AbstractContextManager[Any]]


def step(model: nn.Sequential, optimizer: torch.optim.Optimizer, x: Tensor, whole: Block, one: Block) -> float:
    """One training step; gives its CPU seconds."""
    started = time.process_time()
    with whole():
        y = model[:7](x)
        with one():
            y = model[7](y)
        loss = model[8:](y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.process_time() - started


def main() -> None:
    """Print a ratio a row."""
    rounds, size = (int(each) for each in (*sys.argv[1:3], *("9", "64")[len(sys.argv) - 1 :]))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = resnet18(size)
    assert isinstance(model, nn.Sequential)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    folder = Path(tempfile.mkdtemp(prefix="regions-"))
    nothing: Block = contextlib.nullcontext
    ways: dict[str, tuple[Block, Block]] = {
        "plain": (nothing, nothing),
        "whole step": (bp.region, nothing),
        "whole step, stats": (lambda: bp.region(gradients="stats"), nothing),
        "whole step, values to disk": (lambda: bp.region(folder, gradients="values"), nothing),
        "one block of eight": (nothing, bp.region),
        "one block of eight, stats": (nothing, lambda: bp.region(gradients="stats")),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for index in range(rounds + 1):
        for name, (whole, one) in ways.items():
            taken = step(model, optimizer, x, whole, one)
            if index:
                seconds[name].append(taken)
            shutil.rmtree(folder, ignore_errors=True)
    print(f"torch {torch.__version__}, one thread, {rounds} rounds, pictures of {size} x {size}")
    for name in ways:
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds["plain"], strict=True))
        print(f"{name:28} {statistics.median(seconds[name]) * 1000:8.1f} ms   {ratio:.3f}")


if __name__ == "__main__":
    main()

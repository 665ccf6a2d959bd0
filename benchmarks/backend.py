"""A training step under `torch.compile(backend="backprint")`, against plain eager and against backend="eager".

Bar: at most 1.05 times backend="eager" once everything is captured. Rounds of the three alternate, and the median of
the ratios within a round is told, because a machine's speed drifts.

    python benchmarks/backend.py [rounds]
"""

from __future__ import annotations

import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from backprint.examples import convnet, gpt
from backprint.tools.torch_backend import backend

STEPS = 20


def training_step(model: torch.nn.Module, run: Callable[..., object], args: tuple[torch.Tensor, ...]) -> None:
    """One forward and backward."""
    model.zero_grad()
    output = run(*args)
    first = output[0] if isinstance(output, tuple) else output
    first.float().sum().backward()


def seconds(step: Callable[[], None]) -> float:
    """The time of a step, from STEPS of them."""
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - start) / STEPS


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    for name, factory in (("convnet", convnet.factory), ("gpt", gpt.factory)):
        with tempfile.TemporaryDirectory() as folder:
            model, args = factory()
            start = time.perf_counter()
            ways = {
                "plain": model,
                "eager": torch.compile(model, backend="eager"),
                "backprint": torch.compile(model, backend=backend, options={"dir": folder}),
            }
            for run in ways.values():
                training_step(model, run, args)
            compiled = time.perf_counter() - start
            kept = len(list(Path(folder).iterdir()))
            times = [
                {way: seconds(functools.partial(training_step, model, run, args)) for way, run in ways.items()}
                for _ in range(rounds)
            ]
        plain = statistics.median(row["plain"] for row in times)
        print(f"{name}: {kept} samples; the first steps took {compiled:.1f} s; a plain step {1e3 * plain:.2f} ms")
        for way in ("plain", "eager"):
            ratio = statistics.median(row["backprint"] / row[way] for row in times)
            print(f"  backprint against {way}: {ratio:.3f}")


if __name__ == "__main__":
    main()

"""What a capture costs against PyTorch's own tracing of the same model, in one process, taken in turns.

The limit is AOTAutograd's joint export and the min-cut partition. Bars: a capture with its witness <= 1.6 of it, with
a save <= 2.

    python benchmarks/tracing.py [ROUNDS]
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from results import Figure, keep
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._functorch.partitioners import min_cut_rematerialization_partition

import backprint as bp

MODELS = ("resnet18", "gpt")


def plain(model: Any, args: tuple[Any, ...]) -> None:
    """PyTorch's own joint export and partition."""
    with contextlib.ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, model, args)
        module = joint.graph_module
        outputs = sum("Grad" not in type(desc).__name__ for desc in module.graph.output_node().meta["desc"] if desc)
        min_cut_rematerialization_partition(module, [], num_fwd_outputs=outputs)


def captured(model: Any, args: tuple[Any, ...]) -> None:
    """A capture."""
    bp.capture(model, args=args)


def saved(model: Any, args: tuple[Any, ...]) -> None:
    """A capture, saved as a sample with its proof."""
    folder = Path(tempfile.mkdtemp())
    try:
        bp.save(bp.capture(model, args=args), folder / "sample")
    finally:
        shutil.rmtree(folder)


WAYS: dict[str, Callable[..., None]] = {"plain": plain, "capture": captured, "capture + save": saved}


BARS = {"capture": 1.6, "capture + save": 2.0}


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {rounds} rounds after one to warm up")
    figures = []
    for name in MODELS:
        model, args = importlib.import_module(f"backprint.examples.{name}").factory()
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(rounds + 1):
            for way, run in WAYS.items():
                gc.collect()
                start = time.perf_counter()
                run(model, args)
                if turn:
                    times[way].append(time.perf_counter() - start)
        base = times["plain"]
        for way, found in times.items():
            ratios = [mine / theirs for mine, theirs in zip(found, base, strict=True)]
            ratio = statistics.median(ratios)
            print(f"{name:<10} {way:<15} {statistics.median(found):6.3f} s   ratio {ratio:.2f}")
            if way in BARS:
                what = f"{way} of {name}, against PyTorch's joint export and partition"
                figures.append(Figure(what, ratio, "×", at_most=BARS[way]))
    return keep("tracing", figures)


if __name__ == "__main__":
    sys.exit(main())

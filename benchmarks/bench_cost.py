"""What a sample's bench costs beside its compilations and trials: comparisons, copies, pauses, statistics.

A trial is every call of eager, of float64 and of what was compiled, and every check that calls them; a compilation is
what the compiler does. Their time is taken inside of the whole, with nothing counted twice. What a thread waited for a
processor is taken off both, where the system counts it: on a machine that others use, the whole has more of it.

    python benchmarks/bench_cost.py SAMPLE... [--compiler eager,inductor]
"""

from __future__ import annotations

import argparse
import functools
import mmap
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import backprint as bp
from backprint.tools.bench import performer
from backprint.tools.bench.compilers.table import compiler_named
from backprint.tools.bench.judge import PartJudge
from backprint.tools.bench.trial import TrialPlan, tried
from backprint.tools.export.rerun import EagerRun, Program
from backprint.tools.jobs.turns import GraphClock, Turns, turns_folder
from backprint.tools.measuring import clocks


class Spent:
    """The seconds inside of the functions that it counts, those of one inside of another once.

    Beside them are the seconds for which the process of the compiler waited for a processor. Both are in memory that
    this process, which is forked later, has too; one of the two works at a time.
    """

    def __init__(self) -> None:
        self.memory, self.depth = mmap.mmap(-1, 16), 0

    @property
    def seconds(self) -> float:
        """The seconds so far."""
        return float(struct.unpack("dd", self.memory[:])[0])

    @property
    def others_wait(self) -> float:
        """The seconds for which the process of the compiler has waited so far."""
        return float(struct.unpack("dd", self.memory[:])[1])

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose time counts."""

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            began = time.perf_counter() - own_wait()
            try:
                return function(*args, **kwargs)
            finally:
                self.depth -= 1
                if not self.depth:
                    spent = time.perf_counter() - own_wait() - began
                    self.memory[:] = struct.pack("dd", self.seconds + spent, self.others_wait)

        return called

    def waits_told(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the compiler's process that tells for how long this has waited."""

        @functools.wraps(answer)
        def called(*args: Any, **kwargs: Any) -> Any:
            before = own_wait()
            try:
                return answer(*args, **kwargs)
            finally:
                self.memory[:] = struct.pack("dd", self.seconds, self.others_wait + own_wait() - before)

        return called


def own_wait() -> float:
    """Return the seconds for which this thread has waited for a processor; 0 where they are not counted."""
    counts = clocks.counts_of_thread()
    return clocks.waited(counts) * 1e-9 if counts >= 0 else 0.0


def count_calls(spent: Spent) -> None:
    """Count compilations, and calls of graphs wherever a bench makes them."""
    for module in (clocks, clocks, performer):
        module.timed = spent.counted(module.timed)  # type: ignore[attr-defined]
    performer.compile_timed = spent.counted(performer.compile_timed)  # type: ignore[attr-defined]
    performer.with_device_bytes = spent.counted(performer.with_device_bytes)  # type: ignore[attr-defined]
    EagerRun.again = spent.counted(EagerRun.again)  # type: ignore[method-assign]
    Program.play = spent.counted(Program.play)  # type: ignore[method-assign]
    eager = cached_property(lambda part: spent.counted(part.module()))
    eager.__set_name__(PartJudge, "function")
    PartJudge.function = eager  # type: ignore[method-assign]
    performer.Performer.answer = spent.waits_told(performer.Performer.answer)  # type: ignore[method-assign]  # it is counted


def cost(sample: Path, name: str, spent: Spent) -> tuple[float, float, list[str]]:
    """Return the seconds of a sample's bench, those of its compilations and trials, and the outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        turns = Turns(turns_folder(Path(folder)), GraphClock())
        plan = TrialPlan(compiler_named(name), ("forward", "backward", "step"), True, Path(folder) / "caches")
        before, waits, began = spent.seconds, spent.others_wait, time.perf_counter() - own_wait()
        with turns.working():
            cells = list(tried(bp.load(sample), plan, {}, turns, lambda title, part: None))
        whole = time.perf_counter() - own_wait() - began - (spent.others_wait - waits)
        return whole, spent.seconds - before, [cell.outcome for cell in cells]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("samples", nargs="+", type=Path)
    parser.add_argument("--compiler", default="eager,inductor")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    spent = Spent()
    count_calls(spent)
    for name in arguments.compiler.split(","):
        whole, parts = 0.0, 0.0
        for sample in arguments.samples:
            seconds, inside, outcomes = cost(sample, name, spent)
            whole, parts = whole + seconds, parts + inside
            print(
                f"{name} {sample.name}: {seconds:.2f} s, {inside:.2f} in compilations and trials: "
                f"{seconds / inside:.2f} ({', '.join(outcomes)})",
                flush=True,
            )
        print(f"{name}: {whole / parts:.2f} times its compilations and trials")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a capture of many small layers costs, with its proof: seconds, and the memory of the process, a step of a graph.

The model is BLOCKS of `x + Linear(GELU(Linear(LayerNorm(x))))` on 4 × 64 numbers: 26 steps a block, little arithmetic.
Each stage has a process of its own with one thread, which does it twice.

    python benchmarks/cost_of_proof.py [BLOCKS...] [--engine auto]

Bars, for 512 blocks: 4 s for a capture and for `verify`, each the first of its process, and 600 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results import Figure, keep

Row = dict[str, Any]

BLOCKS = 512

BARS = {"capture": 4.0, "verify": 4.0}
"""Seconds, for BLOCKS blocks."""


def main() -> int:
    """All numbers of blocks, all stages; a process each."""
    if sys.argv[1:2] == ["--stage"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("blocks", nargs="*", type=int, default=[BLOCKS])
    parser.add_argument("--engine", default="auto")
    options = parser.parse_args()
    figures = []
    for blocks in options.blocks:
        for stage in STAGES:
            row = in_process(stage, blocks, options.engine)
            print(blocks, stage, row, flush=True)
            seconds, mebibytes = (BARS.get(stage), 600.0) if blocks == BLOCKS else (None, None)
            what = f"{stage} of {blocks} blocks, {row['steps']:,} steps"
            figures.append(Figure(what, row["wall_1"], "s", at_most=seconds))
            figures.append(Figure("the same, peak memory", row["mebibytes"], "MiB", at_most=mebibytes))
    return keep("cost_of_proof", figures)


def in_process(stage: str, blocks: int, engine: str) -> Row:
    """One stage, in a process of its own with one thread."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--stage", stage, str(blocks), engine, folder]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    row: Row = json.loads(printed.splitlines()[-1])
    return row


# ------------------------------------------------------------------ in the process of a stage


def measure(stage: str, blocks: int, engine: str, folder: Path) -> Row:
    """Do one stage twice."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    row: Row = {}
    step = STAGES[stage](built(blocks), torch.randn(4, 64), engine, folder)
    for turn in (1, 2):
        with timed(row, turn):
            capture = step()
        row["steps"] = sum(len(graph.steps) for pair in capture.pairs for graph in (pair.forward, pair.backward))
        del capture
    row["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return row


def built(blocks: int) -> Any:
    """The model."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    return nn.Sequential(*(Block() for _ in range(blocks)))


@contextmanager
def timed(row: Row, turn: int) -> Iterator[None]:
    """Put wall clock and CPU seconds of the body into a row."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    row |= {f"wall_{turn}": time.perf_counter() - wall, f"cpu_{turn}": time.process_time() - cpu}


Step = Callable[[], Any]


def capturing(model: Any, x: Any, engine: str, folder: Path) -> Step:
    """A capture, accepted after it was compared with the program."""
    import backprint as bp

    return lambda: bp.capture(model, args=(x,), engine=engine)


def verifying(model: Any, x: Any, engine: str, folder: Path) -> Step:
    """All draws of a proof."""
    capture = capturing(model, x, engine, folder)()

    def verify() -> Any:
        [verdict] = capture.verify()
        if verdict.verdict != "bitwise":
            raise SystemExit(f"{verdict.verdict}: {verdict.detail}")
        return capture

    return verify


def saving(model: Any, x: Any, engine: str, folder: Path) -> Step:
    """A sample on disk, with its proof."""
    capture = capturing(model, x, engine, folder)()

    def save() -> Any:
        capture.save(folder / "sample", overwrite=True)
        return capture

    return save


def loading(model: Any, x: Any, engine: str, folder: Path) -> Step:
    """Both graphs of a sample, which another process saved."""
    import backprint as bp

    if os.fork() == 0:
        saving(model, x, engine, folder)()
        os._exit(0)
    _, status = os.wait()
    if status:
        raise SystemExit("the process that saves the sample failed")

    def load() -> Any:
        capture = bp.load(folder / "sample")
        if any(pair.forward is None or pair.backward is None for pair in capture.pairs):  # reads the graphs
            raise SystemExit("a sample without a backward")
        return capture

    return load


STAGES: dict[str, Callable[[Any, Any, str, Path], Step]] = {
    "capture": capturing,
    "verify": verifying,
    "save": saving,
    "load": loading,
}
"""What is measured, as functions that prepare a stage and return it."""


if __name__ == "__main__":
    sys.exit(main())

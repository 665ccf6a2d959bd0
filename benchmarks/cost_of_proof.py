"""What a capture of many small layers costs, with its proof: seconds, and the memory of the process, a step of a graph.

The model is BLOCKS of `x + Linear(GELU(Linear(LayerNorm(x))))` on 4 × 64 numbers: 26 steps a block, little arithmetic.
Each stage has a process of its own with one thread, which does it twice. With `--against` another checkout takes turns
with this one, so that both are measured on the same machine under the same load.

    python benchmarks/cost_of_proof.py [BLOCKS...] [--against CHECKOUT] [--engine auto] [--rounds 1]

The least wall clock and CPU seconds over the rounds are shown, and the largest peak of memory. Bars, for 512 blocks:
4 s for a capture and for `verify`, each the first of its process, and 600 MiB.
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

Row = dict[str, Any]

HERE = Path(__file__).resolve().parent.parent
BARRED_BLOCKS = 512
BARS = {"capture": 4.0, "verify": 4.0}
BAR_MEBIBYTES = 600.0


def main() -> None:
    """All numbers of blocks, all stages, all checkouts in turns; a process each."""
    if sys.argv[1:2] == ["--stage"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("blocks", nargs="*", type=int, default=[BARRED_BLOCKS])
    parser.add_argument("--against", type=Path, help="another checkout, which takes turns with this one")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    checkouts = {"before": options.against.resolve(), "after": HERE} if options.against else {"": HERE}
    print("| blocks | steps | stage | checkout | first, wall | CPU | second, wall | CPU | peak memory |")
    print("|---:|---:|---|---|---:|---:|---:|---:|---:|")
    missed = []
    for blocks in options.blocks:
        for stage in STAGES:
            rows: dict[str, list[Row]] = {name: [] for name in checkouts}
            for _ in range(options.rounds):
                for name, checkout in checkouts.items():
                    rows[name].append(in_process(stage, blocks, options.engine, checkout))
            for name in checkouts:
                best = least(rows[name])
                print(shown(blocks, stage, name, best), flush=True)
            missed += missed_bars(blocks, stage, best)
    print("; ".join(missed) or "within the bars, where there are any")


def in_process(stage: str, blocks: int, engine: str, checkout: Path) -> Row:
    """One stage of one checkout, in a process of its own with one thread."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--stage", stage, str(blocks), engine, folder]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    row: Row = json.loads(printed.splitlines()[-1])
    return row


def least(rows: list[Row]) -> Row:
    """The least seconds of several rounds, and the largest peak."""
    best = {key: min(row[key] for row in rows) for key in rows[0]}
    return best | {"mebibytes": max(row["mebibytes"] for row in rows)}


def shown(blocks: int, stage: str, checkout: str, row: Row) -> str:
    """A row of the table."""
    seconds = " | ".join(f"{row[key]:.2f} s" for key in ("wall_1", "cpu_1", "wall_2", "cpu_2"))
    return f"| {blocks} | {row['steps']:,} | {stage} | {checkout} | {seconds} | {row['mebibytes']:.0f} MiB |"


def missed_bars(blocks: int, stage: str, row: Row) -> list[str]:
    """The bars that a stage misses."""
    if blocks != BARRED_BLOCKS or stage not in BARS:
        return []
    misses = [] if row["wall_1"] <= BARS[stage] else [f"{stage} over {BARS[stage]:.0f} s"]
    return misses + ([] if row["mebibytes"] <= BAR_MEBIBYTES else [f"{stage} over {BAR_MEBIBYTES:.0f} MiB"])


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
    main()

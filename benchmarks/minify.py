"""Minify planted faults in forward and backward graphs of about 500 operators and more: the table of results.

Bar: at most 5 operators and 100 tests each.

    python benchmarks/minify.py [FAULT...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import backprint as bp
from backprint.tools.bench.shrinking import MinifiedGraph, minify_graph
from backprint.tools.lowering.subjects import bench_graphs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from subjects.faults import FAULTS, gated_stack

LIMITS = {"hang": 5.0}
"""The seconds of a test before any has failed, where they decide how long the search takes."""


def main() -> None:
    torch.set_num_threads(1)
    capture = bp.capture(*gated_stack(), engine="aot")
    print("| fault | direction | operators | left | tests | seconds | what the last shows |")
    print("|---|---|---|---|---|---|---|")
    for graph in bench_graphs(capture):
        for name in sys.argv[1:] or FAULTS:
            found = minify_graph(graph, FAULTS[name], seed=capture.seed, limit=LIMITS.get(name, 60.0))
            if not isinstance(found, MinifiedGraph):
                print(f"| {name} | {graph.direction} | not minified: {found.why} |")
                continue
            calls = " ".join(step.target for step in found.cut.graph.steps)
            counts = f"{found.operators} | {found.cut.operators} | {found.tests} | {found.seconds:.1f}"
            print(f"| {name} | {graph.direction} | {counts} | {found.last.kind}: {calls} |", flush=True)


if __name__ == "__main__":
    main()

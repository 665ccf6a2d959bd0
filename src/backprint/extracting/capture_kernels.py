"""The kernels of a whole Capture for one target."""

from __future__ import annotations

from dataclasses import replace

from backprint.choices import check_choice
from backprint.errors import UsageError
from backprint.extracting.extract import extracted_graphs
from backprint.extracting.lowering.kernel_compilers import kernel_compiler
from backprint.extracting.nouns import CaptureKernels, ExtractedGraph
from backprint.extracting.targets import target_named
from backprint.graph.nouns import Capture


def capture_kernels(
    capture: Capture, target: str = "cpu", direction: str = "both", threads: int = 1, compiler: str = "inductor"
) -> CaptureKernels:
    """Have a compiler write the kernels of each Pair of a Capture; what it refuses is named, and the rest is done."""
    check_choice("direction", direction)
    if threads < 1:
        raise UsageError(f"threads={threads!r} must be 1 or more")
    aim, row, graphs, refused = target_named(target), kernel_compiler(compiler), [], []
    for place, pair in enumerate(capture.pairs):
        for found in extracted_graphs(pair, aim, threads, capture.name, direction, row):
            title = f"pair_{place} {found.direction}"
            if isinstance(found, ExtractedGraph):
                graphs.append(replace(found, title=title))
            else:
                refused.append((title, found.reason))
    return CaptureKernels(capture, aim, threads, tuple(graphs), tuple(refused), compiler)

"""The kernels of a whole Capture for one target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backprint.choices import check_choice
from backprint.errors import UsageError
from backprint.extracting.extract import ExtractedGraph, extracted_graphs
from backprint.extracting.lowering.kernel_compilers import kernel_compiler
from backprint.extracting.nouns import Kernel
from backprint.extracting.targets import KernelTarget, target_named
from backprint.graph.nouns import Capture

if TYPE_CHECKING:
    from backprint.graph.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class CaptureKernels:
    """What a compiler made of a Capture for one target. Iterating yields its kernels."""

    capture: Capture
    target: KernelTarget
    threads: int
    graphs: tuple[ExtractedGraph, ...]
    refused: tuple[tuple[str, str], ...] = ()
    """The title of each graph that has no kernels here, and the reason."""
    compiler: str = "inductor"

    def __iter__(self) -> Iterator[Kernel]:
        return (kernel for graph in self.graphs for kernel in graph.kernels)

    def check(self, configurations: str = "first", timeout: float = 600.0) -> list[Verdict]:
        """Run the kernels on the Capture's inputs, and compare the results with those of its graphs in eager.

        Triton's run in its interpreter, C++ is compiled; both in a process of their own, for `timeout` seconds at most.
        Returns a Verdict for each graph; a backward takes what the kernels of its forward saved.
        `configurations="all"` runs each configuration of Triton's kernels, instead of the first of each.
        """
        from backprint.extracting.checking.check import checked

        return checked(self, configurations, timeout)


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

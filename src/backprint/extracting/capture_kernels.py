"""The kernels of a whole Capture for one target, and the compilers that make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from backprint.choices import check_choice
from backprint.errors import UsageError
from backprint.extracting.extract import ExtractedGraph, RefusedGraph, extracted_graphs
from backprint.extracting.nouns import Kernel
from backprint.extracting.targets import KernelTarget, target_named
from backprint.graph.nouns import Capture, Pair

if TYPE_CHECKING:
    from backprint.graph.verdicts import Verdict

Extract = Callable[[Pair, KernelTarget, int, str, str], Iterable[ExtractedGraph | RefusedGraph]]
"""A compiler: a function of a Pair, a target, a number of threads, the sample's name and a direction or `both`."""

COMPILERS: Mapping[str, Extract] = MappingProxyType({"inductor": extracted_graphs})
"""The compilers by name; another one is another row."""


@dataclass(frozen=True, slots=True)
class CaptureKernels:
    """What a compiler made of a Capture for one target. Iterating yields its kernels."""

    capture: Capture
    target: KernelTarget
    threads: int
    graphs: tuple[ExtractedGraph, ...]
    refused: tuple[tuple[str, str], ...] = ()
    """The title of each graph that has no kernels here, and the reason."""

    def __iter__(self) -> Iterator[Kernel]:
        return (kernel for graph in self.graphs for kernel in graph.kernels)

    def check(self, configurations: str = "first", timeout: float = 600.0) -> list[Verdict]:
        """Run the kernels on the Capture's inputs, and compare the results with those of its graphs in eager.

        Triton's run in its interpreter, C++ is compiled; both in a process of their own, for `timeout` seconds at most.
        Returns a Verdict for each graph; a backward takes what the kernels of its forward saved.
        `configurations="all"` runs each configuration of Triton's kernels, instead of the first of each.
        """
        from backprint.extracting.check import checked

        return checked(self, configurations, timeout)


def capture_kernels(
    capture: Capture, target: str = "cpu", direction: str = "both", threads: int = 1, compiler: str = "inductor"
) -> CaptureKernels:
    """Have a compiler write the kernels of each Pair of a Capture; what it refuses is named, and the rest is done."""
    check_choice("direction", direction)
    if compiler not in COMPILERS:
        raise UsageError(f"compiler={compiler!r} is not one of {', '.join(map(repr, COMPILERS))}")
    if threads < 1:
        raise UsageError(f"threads={threads!r} must be 1 or more")
    aim, graphs, refused = target_named(target), [], []
    for place, pair in enumerate(capture.pairs):
        for found in COMPILERS[compiler](pair, aim, threads, capture.name, direction):
            title = f"pair_{place} {found.direction}"
            if isinstance(found, ExtractedGraph):
                graphs.append(replace(found, title=title))
            else:
                refused.append((title, found.reason))
    return CaptureKernels(capture, aim, threads, tuple(graphs), tuple(refused))

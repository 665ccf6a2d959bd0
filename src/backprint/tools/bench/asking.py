"""The process of a compiler (`performer`), seen from the judging process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backprint.child.child import Line, Start, forked
from backprint.child.tensors import SharedMemory, TensorChild
from backprint.graph.nouns import Graph
from backprint.tools.bench.compilers.table import Compiler
from backprint.tools.measuring.asking import TOLD


class CompilerProcess(TensorChild):
    """A compiler's own process. It is forked before eager has run, and so has no results of eager."""

    told = TOLD

    def __init__(self, compiler: Compiler, caches: Path, graphs: Mapping[str, Graph]) -> None:
        def start(inputs: SharedMemory, results: SharedMemory) -> Start:
            def work(line: Line) -> None:
                from backprint.child.answering import serve
                from backprint.tools.bench.performer import Performer

                serve(lambda: Performer(compiler, caches, graphs, inputs, results), line)

            return forked(work)

        super().__init__(start)

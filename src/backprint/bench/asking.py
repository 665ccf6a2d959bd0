"""The process of a compiler (`performer`), seen from the judging process."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from backprint.bench.compilers.table import Compiler
from backprint.graph.nouns import Graph
from backprint.measuring.asking import AskedProcess
from backprint.measuring.transfer import SharedMemory


class CompilerProcess(AskedProcess):
    """A compiler's own process. It is forked before eager has run, and so has no results of eager."""

    def __init__(self, compiler: Compiler, caches: Path, graphs: Mapping[str, Graph]) -> None:
        def work(inputs: SharedMemory, results: SharedMemory, line: socket.socket) -> NoReturn:
            from backprint.bench.performer import Performer
            from backprint.measuring.answering import serve

            serve(lambda: Performer(compiler, caches, graphs, inputs, results), line)

        super().__init__(work)

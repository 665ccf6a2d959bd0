"""The process of a compiler (`performer`), seen from the judging process."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from backprint.graph.nouns import Graph
from backprint.tools.bench.compilers.table import Compiler
from backprint.tools.measuring.asking import AskedProcess
from backprint.tools.measuring.transfer import SharedMemory


class CompilerProcess(AskedProcess):
    """A compiler's own process. It is forked before eager has run, and so has no results of eager."""

    def __init__(self, compiler: Compiler, caches: Path, graphs: Mapping[str, Graph]) -> None:
        def work(inputs: SharedMemory, results: SharedMemory, line: socket.socket) -> NoReturn:
            from backprint.tools.bench.performer import Performer
            from backprint.tools.measuring.answering import serve

            serve(lambda: Performer(compiler, caches, graphs, inputs, results), line)

        super().__init__(work)

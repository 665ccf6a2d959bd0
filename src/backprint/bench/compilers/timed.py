"""Compile and take the time: cold with empty caches, then warm in the same process with the caches of the first.

Before the clock starts, the compiler compiles one addition: its imports, the test of the processor and the precompiled
headers are no part of a graph's time. Inductor's headers lie beside its caches, so an empty cache keeps them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from backprint._torch.inductor import clear_caches_if_loaded
from backprint.bench.compilers.table import Compiler, compiled_by
from backprint.sample.rerun import copies

CACHE = "TORCHINDUCTOR_CACHE_DIR"

READY: set[str] = set()
"""The compilers that have compiled something in this process."""


def compile_timed(
    compiler: Compiler, module: fx.GraphModule, inputs: Sequence[Any], caches: Path, cold: bool
) -> tuple[Callable[..., Any], float, Any]:
    """Compile a graph; return the function, the seconds with one call, and the results of that.

    `caches` is a folder for this compiler and this graph: a cold compilation empties it, a warm one uses it.
    """
    compiled = compiled_by(compiler)
    if compiler.name not in READY:
        READY.add(compiler.name)
        prepare(compiled, caches.parent / "prepared")
    if cold:
        shutil.rmtree(caches, ignore_errors=True)
    with cached_in(caches):
        values = copies(inputs)
        start = time.perf_counter()
        call = compiled(module, inputs)
        results = call(*values)
        return call, time.perf_counter() - start, results


def prepare(compiled: Callable[..., Any], caches: Path) -> None:
    """Compile one addition. Its errors are ignored: the graph's own compilation raises them too."""
    graph = fx.Graph()
    value = graph.placeholder("value")
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (value, value)),))
    with cached_in(caches), contextlib.suppress(BaseException):
        compiled(fx.GraphModule(torch.nn.Module(), graph), [torch.ones(8)])


@contextlib.contextmanager
def cached_in(caches: Path) -> Iterator[None]:
    """Let torch's compilers use this folder for their caches, and clear their caches in memory."""
    caches.mkdir(parents=True, exist_ok=True)
    before = os.environ.get(CACHE)
    os.environ[CACHE] = str(caches.resolve())
    forget()
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(CACHE, None)
        else:
            os.environ[CACHE] = before


def forget() -> None:
    """Empty the caches in memory of compilers that were imported; functions compiled before stay."""
    clear_caches_if_loaded()

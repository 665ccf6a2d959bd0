"""Compile and take the time: cold with empty caches, then warm in the same process with the caches of the first.

Before the clock starts, the compiler compiles one addition: its imports, the test of the processor and the precompiled
headers are no part of a graph's time. Inductor's headers lie beside its caches, so an empty cache keeps them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx

from backprint._torch.inductor import clear_caches_if_loaded
from backprint.child.strangers import compiler_errors
from backprint.graph.fx.to_fx import to_fx
from backprint.graph.sizes import unguarded_graph
from backprint.tools.bench.compilers.table import Compiler, compiled_by
from backprint.tools.export.rerun import copies
from backprint.tools.lowering.subjects import BenchGraph
from backprint.values.settings import SETTINGS

CACHE = "TORCHINDUCTOR_CACHE_DIR"

READY: set[str] = set()
"""The compilers that have compiled something in this process."""


REMARKS: dict[int, tuple[Callable[..., Any], str]] = {}
"""By its id, a compiled function and a sentence on how it was compiled. It is kept, so that no other gets its id."""


def remark(function: Callable[..., Any], text: str) -> None:
    """Keep a sentence on how a function was compiled, where that is not the usual way of its compiler."""
    REMARKS[id(function)] = function, text


def remarks_on(function: Callable[..., Any]) -> list[str]:
    """Return what was said of a compiled function by `remark`, in a list; an empty one if nothing was."""
    return [REMARKS[id(function)][1]] if id(function) in REMARKS else []


class CompiledNow(NamedTuple):
    """A graph that has been compiled and called once: the function, the seconds of both, the inputs and the answer of
    the call, as they are after it, and notes."""

    function: Callable[..., Any]
    seconds: float
    inputs: list[Any]
    answer: Any
    notes: list[str]


def compiled_now(compiler: Compiler, graph: BenchGraph, caches: Path, cold: bool) -> CompiledNow:
    """Compile a graph and call it once on copies of its inputs; raise CompilerFailed if the compiler raises. Each graph
    has a folder of its own for caches, `caches` with its title behind; it is emptied first if `cold`.

    Settings of torch that the compiler changes are restored and noted, because eager runs in the same process.
    """
    inputs, before = copies(graph.run.inputs), read_all_settings()
    place = caches.with_name(f"{caches.name}_{graph.title.replace(' ', '_')}")
    module = to_fx(unguarded_graph(graph.graph))
    with compiler_errors():
        function, seconds, answer = compile_timed(compiler, module, inputs, place, cold)
    notes = [f"the compiler changed {text}; restored" for text in restore_settings(before)]
    return CompiledNow(function, seconds, inputs, answer, [*notes, *remarks_on(function)])


def compile_timed(
    compiler: Compiler, module: fx.GraphModule, inputs: Sequence[Any], caches: Path, cold: bool
) -> tuple[Callable[..., Any], float, Any]:
    """Compile a graph; return the function, the seconds with one call, and the results of that.

    `caches` is a folder for this compiler and this graph: a cold compilation empties it, a warm one uses it. The call
    is in the time because many compilers compile in the first call of the function that they return.
    """
    compiled = compiled_by(compiler)
    if compiler.name not in READY:
        READY.add(compiler.name)
        prepare(compiled, caches.parent / "prepared")
    if cold:
        shutil.rmtree(caches, ignore_errors=True)
    with _using_cache_folder(caches):
        values = copies(inputs)
        start = time.perf_counter()
        call = compiled(module, inputs)
        results = call(*values)
        return call, time.perf_counter() - start, results


def compile_to_differentiate(compiler: Compiler, module: fx.GraphModule) -> Callable[..., Any]:
    """Return a graph compiled as torch.compile's users have it, forward and backward; it compiles in its first call."""
    if compiler.backend != "inductor":
        return torch.compile(module, backend=compiler.backend)
    from backprint._torch.inductor import mode_options

    return torch.compile(module, options=mode_options(*(compiler.options or ("default",))))


def prepare(compiled: Callable[..., Any], caches: Path) -> None:
    """Compile one addition, so that what a compiler does once in a process is not timed (see the module's docstring).
    Its errors are ignored: the graph's own compilation raises them too."""
    graph = fx.Graph()
    value = graph.placeholder("value")
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (value, value)),))
    with _using_cache_folder(caches), contextlib.suppress(BaseException):
        compiled(fx.GraphModule(torch.nn.Module(), graph), [torch.ones(8)])


@contextlib.contextmanager
def _using_cache_folder(caches: Path) -> Iterator[None]:
    """Let torch's compilers use this folder for their caches, and clear their caches in memory."""
    caches.mkdir(parents=True, exist_ok=True)
    before = os.environ.get(CACHE)
    os.environ[CACHE] = str(caches.resolve())
    clear_compiler_caches()
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(CACHE, None)
        else:
            os.environ[CACHE] = before


def clear_compiler_caches() -> None:
    """Empty the caches in memory of compilers that were imported; functions compiled before stay."""
    clear_caches_if_loaded()


# ------------------------------------------------------------------ settings that a compiler changes


def read_all_settings() -> dict[str, str]:
    """Return torch's settings as texts, for `restore_settings`."""
    return {name: str(read()) for name, (read, _) in SETTINGS.items()} | {"grad_mode": str(torch.is_grad_enabled())}


def restore_settings(before: Mapping[str, str]) -> tuple[str, ...]:
    """Restore settings that differ from `before`, which `read_all_settings` returned; return a text with both values
    for each."""
    changes = []
    for name, now in read_all_settings().items():
        if now != before[name]:
            changes.append(f"{name} from {before[name]} to {now}")
            if name == "grad_mode":
                torch.set_grad_enabled(before[name] == "True")
            else:
                _, set_from_text = SETTINGS[name]
                set_from_text(before[name])
    return tuple(changes)

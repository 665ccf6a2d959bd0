"""Inductor, by its own entry without Dynamo, and AOTInductor. Both draw random numbers as eager does.

A graph with sizes that depend on values goes through Dynamo (`control.build_or_break`).
They trace a graph again with decompositions, whose results may have other strides, so its views are reshapes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from backprint._torch.inductor import compile_and_package, compile_graph, load_package, mode_options
from backprint.tools.bench.calls import on_gpu
from backprint.tools.bench.compilers.control import build_or_break
from backprint.tools.bench.compilers.exchange import compile_core
from backprint.tools.lowering.operators import replace_views

AS_EAGER = {"fallback_random": True}
"""Options that make random draws those of eager."""


def build_inductor(module: fx.GraphModule, inputs: Sequence[Any], mode: str = "default") -> Callable[..., Any]:
    """Compile with Inductor in a mode of torch.compile. A core is the part of a graph that computes, with tensors
    alone as inputs and results (`exchange.core_of`)."""
    options = {**mode_options(mode), **AS_EAGER}

    def build(core: fx.GraphModule, core_inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
        replace_views(core)  # by reshapes: the module's docstring
        with torch.no_grad():
            call = compile_graph(core, core_inputs, options=options)
        if options.get("triton.cudagraphs") and on_gpu(core_inputs):
            return partial(_results_of_cuda_graph, call)
        compiled: Callable[..., Sequence[Tensor]] = call
        return compiled

    return build_or_break(lambda: compile_core(module, inputs, build), module, inputs, options=options)


def _results_of_cuda_graph(call: Callable[..., Sequence[Tensor]], *values: Tensor) -> Sequence[Tensor]:
    """Call a CUDA graph and copy its results, because its next call writes into their memory."""
    torch.compiler.cudagraph_mark_step_begin()
    return [value.clone() if isinstance(value, Tensor) else value for value in call(*values)]


def build_aotinductor(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile with AOTInductor to a package, and load it."""
    return compile_core(module, inputs, _packaged)


def _packaged(core: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Return a core as the function of AOTInductor's package, loaded; its results are always in a sequence."""
    replace_views(core)  # by reshapes: the module's docstring
    with torch.no_grad():
        program = torch.export.export(core, tuple(inputs), strict=False)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "core.pt2")
            compile_and_package(program, package_path=path, inductor_configs=AS_EAGER)
            call = load_package(path)

    def called(*values: Tensor) -> Sequence[Tensor]:
        results = call(*values)
        return (results,) if isinstance(results, Tensor) else results

    return called

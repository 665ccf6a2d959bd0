"""Compilers that are torch's own control: eager, AOTAutograd without a compiler; and every backend of torch.compile.

The core of a graph is the part of it that computes, with tensors alone as inputs and results (`exchange.core_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from backprint._torch.fake import DataDependentOutputException, DynamicOutputShapeException
from backprint.tools.bench.compilers.exchange import core_of
from backprint.tools.bench.compilers.timed import remark
from backprint.tools.export.rerun import copies
from backprint.tools.lowering.operators import replace_views


def build_eager(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return the graph itself, without the hooks of a module's call."""
    return module.forward


def build_aot(module: fx.GraphModule, inputs: Sequence[Any], backend: str) -> Callable[..., Any]:
    """Compile with a backend that is AOTAutograd and no compiler, without Dynamo where the graph does not need it."""
    from backprint._torch.dynamo import lookup_backend

    def build() -> Callable[..., Any]:
        core = core_of(module, inputs)
        replace_views(core.module)  # results of decompositions may have other strides
        with torch.no_grad():
            call = lookup_backend(backend)(core.module, core.pick_inputs(copies(inputs)))
        return core.wrap(call, len(inputs))

    return build_or_break(build, module, inputs, backend=backend)


SIZED_BY_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
"""What a compiler of one graph raises for an operator whose results have sizes that only values tell, as `nonzero`."""


def build_or_break(
    build: Callable[[], Callable[..., Any]], module: fx.GraphModule, inputs: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """Return what `build`, a compiler of one graph, returns. A graph with sizes that only values tell is compiled by
    torch.compile instead, as its users do: Dynamo breaks it at such an operator, which runs in eager. `options` are
    those of torch.compile."""
    try:
        return build()
    except SIZED_BY_VALUES as error:
        call = torch.compile(fx.GraphModule(module, module.graph), **options)
        call(*copies(inputs))  # it compiles in its first call
        remark(call, f"compiled by torch.compile, which breaks the graph at {error.func}: its sizes depend on values")
        return call


def build_backend(module: fx.GraphModule, inputs: Sequence[Any], backend: str) -> Callable[..., Any]:
    """Compile with a backend of torch.compile as its users call it: Dynamo first, and one call, which compiles."""
    own = fx.GraphModule(module, module.graph)  # its code is new, so nothing compiled before is used again
    call = torch.compile(own, backend=backend, fullgraph=True, dynamic=False)
    call(*copies(inputs))
    return call

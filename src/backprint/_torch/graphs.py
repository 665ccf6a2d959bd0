"""Graphs of torch.fx: tracing operators, the metadata of nodes, the functions that dead code elimination keeps, and
when code is written.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x` (`private`). Each function under *Probes* tries what this file takes a private name to do, and
returns whether it does that on this torch.
"""

from __future__ import annotations

from typing import Any

import torch

from backprint._torch import private
from backprint._torch.private import Private, is_there, look_up, probes_of

# ---- Probes


def tracing_is_noticed() -> bool:
    """Whether the mode that traces is there while a function is traced, and can be turned off for a block."""
    tracing_mode = NAMES["tracing_mode"].value()
    seen: list[Any] = []

    def traced(x: torch.Tensor) -> torch.Tensor:
        seen.append(tracing_mode())
        with NAMES["without_tracing"].value()():
            seen.append(tracing_mode())
        return x.sin()

    graph = NAMES["make_fx"].value()(traced, decomposition_table={}, tracing_mode="real")(torch.zeros(1)).graph
    operators = [node.target for node in graph.nodes if node.op == "call_function"]
    return (
        tracing_mode() is None and seen[0] is not None and seen[1] is None and operators == [torch.ops.aten.sin.default]
    )


def kept_functions_are_a_set() -> bool:
    return isinstance(NAMES["side_effectful"].value(), set)


def metadata_is_extracted() -> bool:
    return tuple(NAMES["tensor_metadata"].value()(torch.zeros(2)).shape) == (2,)


# ---- Names

NAMES = {
    "make_fx": Private(
        "torch.fx.experimental.proxy_tensor.make_fx",
        "Return a function that traces a function's operators to a GraphModule.",
        (
            private.BENCH,
            private.KERNELS,
        ),
        passed=("decomposition_table", "tracing_mode"),
    ),
    "tracing_mode": Private(
        "torch.fx.experimental.proxy_tensor.get_proxy_mode",
        "Return the mode that traces in this thread, or None.",
        (private.TO_FX,),
        holds=tracing_is_noticed,
    ),
    "without_tracing": Private(
        "torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing",
        "Turn tracing off for a block.",
        (private.BENCH,),
    ),
    "tensor_metadata": Private(
        "torch.fx.passes.shape_prop._extract_tensor_metadata",
        "Return a tensor's TensorMetadata, as a node of a graph has it.",
        (private.TO_FX,),
        holds=metadata_is_extracted,
    ),
    "side_effectful": Private(
        "torch.fx.node._side_effectful_functions",
        "The functions that `eliminate_dead_code` keeps.",
        (private.TO_FX,),
        holds=kept_functions_are_a_set,
    ),
    "lazy_code": Private(
        "torch.fx._lazy_graph_module._use_lazy_graph_module",
        "Have GraphModules write their code when it is first needed, for a block.",
        (private.AOT,),
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    is_there("torch.fx.traceback.current_meta", (private.CAPTURE,)),
    is_there("torch.fx.traceback.preserve_node_meta", (private.CAPTURE,)),
    is_there("torch.fx.traceback.format_stack", (private.REGIONS,)),
    is_there("torch.fx.traceback.should_preserve_node_meta", (private.REGIONS,)),
)

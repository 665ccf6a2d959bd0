"""A Pair as two directions in Inductor's code, for a GPU that need not be there.

A PreparedGraph is a captured graph on the target: `module` has ATen operators, `inputs` are fake tensors of the
target's device, and `saved` the dtype, shape and strides of what a forward saves there. A wrapper is the Python code
with which Inductor calls its kernels. `file_names` has the name in the file of each of Inductor's symbols for sizes,
`s0` -> `n`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from backprint._torch.shapes import conditions_of, size_at_capture, size_text
from backprint.graph.fx.to_fx import Examples
from backprint.graph.nouns import Graph, Pair, Port
from backprint.tools.kernels.alone_file import minimum_bytes
from backprint.tools.kernels.build_triton import with_grids
from backprint.tools.kernels.compilers import inductor
from backprint.tools.kernels.extraction import (
    FORMS_OF_CPU_OPERATORS,
    blank_kernel,
    record_calls,
    refuse_cpu_only,
    with_origin,
)
from backprint.tools.kernels.fused.nouns import CodePort, Direction, identifier, unique
from backprint.tools.kernels.inductor import lower_with_inductor, lowering_for
from backprint.tools.kernels.nouns import KernelTarget
from backprint.tools.kernels.prepare import PortLayout, PreparedGraph, prepare_graph
from backprint.tools.kernels.read import kernels_of_wrapper

UNPADDED = {"comprehensive_padding": False}
"""Settings of Inductor with which a forward returns what a backward takes, in the layouts of eager."""


def lower_pair(pair: Pair, target: KernelTarget) -> tuple[list[Direction], list[str]]:
    """Return the directions of a Pair, the forward first, and what Inductor assumed of symbolic sizes, as expressions
    of the file."""
    from backprint._torch.inductor import config

    graphs = {"forward": pair.forward, **({"backward": pair.backward} if pair.backward is not None else {})}
    symbols = {symbol.name: symbol for graph in graphs.values() for symbol in graph.symbols}
    examples = Examples(tuple(symbols.values())) if symbols else None
    # `examples` makes a SymInt for each symbol of the Pair: its text is Inductor's name
    file_names = {size_text(size): identifier(name) for name, size in (examples.sizes if examples else {}).items()}
    directions: list[Direction] = []
    saved: Mapping[str, PortLayout] = {}
    with lowering_for(target, threads=1), config.patch(UNPADDED):
        for name, graph in graphs.items():
            prepared = prepare_graph(graph, target, FORMS_OF_CPU_OPERATORS, saved, examples)
            refuse_cpu_only(prepared, target)
            saved = prepared.saved  # the backward takes what the forward saves, as it is on the target
            directions.append(lower_direction(name, graph, prepared, target, file_names))
    conditions = conditions_of(examples.mode.shape_env) if examples else []
    return directions, [with_file_names(text, file_names) for text in conditions]


def lower_direction(
    name: str, graph: Graph, prepared: PreparedGraph, target: KernelTarget, file_names: Mapping[str, str]
) -> Direction:
    """Return a direction in Inductor's code: its ports, its kernels with their calls and grids at the captured sizes,
    and the bytes that they move."""
    compiler = inductor()
    (results,) = prepared.module.graph.output_node().args
    values = [result.meta.get("val") if isinstance(result, fx.Node) else result for result in results]
    names_taken = {*file_names.values()}  # of the arguments alone: a result may have the name of one
    inputs = tuple(_ports_in_code(graph.inputs, prepared.inputs, file_names, names_taken))
    outputs = tuple(_ports_in_code(graph.outputs, values, file_names, set()))  # before Inductor rewrites the module
    code = lower_with_inductor(prepared, backward=name == "backward")
    # the wrapper runs on meta tensors, which says how each kernel is called
    recorded = record_calls(code.wrapper, with_captured_sizes(prepared), compiler)
    blank = blank_kernel(target, threads=1, direction=name, compiler=compiler)  # the facts that all kernels share
    compiled = kernels_of_wrapper(code.wrapper, name)
    kernels = tuple(with_grids(with_origin(kernel, blank, code, recorded, graph)) for kernel in compiled)
    kernel_bytes = sum(minimum_bytes(call, kernel) for kernel in kernels for call in kernel.calls)
    return Direction(
        name,
        graph,
        code,
        kernels,
        inputs,
        outputs,
        symbols=file_names,
        bytes_moved=kernel_bytes + recorded.extern_bytes,
        extern_counts=dict(recorded.externs),
        notes=prepared.notes,
    )


def with_captured_sizes(prepared: PreparedGraph) -> PreparedGraph:
    """Return a prepared graph whose inputs have the sizes of the capture, to count bytes and grids with."""
    return replace(prepared, inputs=[_value_at_capture(value) for value in prepared.inputs])


def _value_at_capture(value: Any) -> Any:
    """Return an input with the sizes of the capture, without memory."""
    if not isinstance(value, Tensor):
        return size_at_capture(value) if isinstance(value, torch.SymInt) else value
    shape, stride = (tuple(map(size_at_capture, sizes)) for sizes in (value.shape, value.stride()))
    return torch.empty_strided(shape, stride, dtype=value.dtype, device="meta")


def _ports_in_code(
    ports: Sequence[Port], values: Sequence[Any], file_names: Mapping[str, str], names_taken: set[str]
) -> Iterator[CodePort]:
    """Yield the ports of a direction with names in the file, which are added to `names_taken`, and their layouts on the
    target, which are those of `values`: fake tensors, or numbers."""
    for port, value in zip(ports, values, strict=True):
        name = f"grad_{identifier(port.name)}" if port.role in ("tangent", "gradient") else identifier(port.name)
        name = unique(name, names_taken)
        names_taken.add(name)
        if not isinstance(value, Tensor):
            yield CodePort(port, name, dtype=None)
            continue
        shape = tuple(with_file_names(size_text(size), file_names) for size in value.shape)
        stride = tuple(with_file_names(size_text(step), file_names) for step in value.stride())
        captured_shape = tuple(map(size_at_capture, value.shape))
        yield CodePort(port, name, value.dtype, shape, stride, captured_shape)


def with_file_names(text: str, file_names: Mapping[str, str]) -> str:
    """Return an expression of Inductor's symbols, such as `s0 + 1`, with the file's names of them."""
    from backprint.tools.kernels.fused.kernel_text import rename_in_text

    return rename_in_text(text, file_names) if file_names else text

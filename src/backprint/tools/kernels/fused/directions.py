"""A Pair as two directions in Inductor's code, for a GPU that need not be there."""

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
    """Return the directions of a Pair, and what Inductor assumed of symbolic sizes, as expressions of the file."""
    from backprint._torch.inductor import config

    graphs = {"forward": pair.forward, **({"backward": pair.backward} if pair.backward is not None else {})}
    symbols = {symbol.name: symbol for graph in graphs.values() for symbol in graph.symbols}
    examples = Examples(tuple(symbols.values())) if symbols else None
    file_names = {
        size_text(size): identifier(name) for name, size in (examples.sizes if examples else {}).items()
    }  # Inductor's names of symbols
    directions: list[Direction] = []
    saved: Mapping[str, PortLayout] = {}
    with lowering_for(target, 1), config.patch(UNPADDED):
        for name, graph in graphs.items():
            prepared = prepare_graph(graph, target, FORMS_OF_CPU_OPERATORS, saved, examples)
            refuse_cpu_only(prepared, target)
            saved = prepared.saved
            directions.append(lower_direction(name, graph, prepared, target, file_names))
    conditions = conditions_of(examples.mode.shape_env) if examples else []
    return directions, [with_file_names(text, file_names) for text in conditions]


def lower_direction(
    name: str, graph: Graph, prepared: PreparedGraph, target: KernelTarget, file_names: Mapping[str, str]
) -> Direction:
    """Return a direction in Inductor's code. `file_names` has the file's name of each of Inductor's symbols."""
    compiler = inductor()
    (results,) = prepared.module.graph.output_node().args
    values = [result.meta.get("val") if isinstance(result, fx.Node) else result for result in results]
    names_taken = {*file_names.values()}
    inputs = tuple(_ports_in_code(graph.inputs, prepared.inputs, file_names, names_taken))
    outputs = tuple(_ports_in_code(graph.outputs, values, file_names, set()))  # before Inductor rewrites the module
    code = lower_with_inductor(prepared, name == "backward")
    recorded = record_calls(code.wrapper, with_captured_sizes(prepared), compiler)
    blank = blank_kernel(target, 1, name, compiler)
    compiled = kernels_of_wrapper(code.wrapper, name)
    kernels = tuple(with_grids(with_origin(kernel, blank, code, recorded, graph)) for kernel in compiled)
    bytes_moved = (
        sum(minimum_bytes(call, kernel) for kernel in kernels for call in kernel.calls) + recorded.extern_bytes
    )
    extern_counts = dict(recorded.externs)
    return Direction(
        name, graph, code, kernels, inputs, outputs, file_names, bytes_moved, extern_counts, prepared.notes
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
    target."""
    for port, value in zip(ports, values, strict=True):
        name = f"grad_{identifier(port.name)}" if port.role in ("tangent", "gradient") else identifier(port.name)
        name = unique(name, names_taken)
        names_taken.add(name)
        if not isinstance(value, Tensor):
            yield CodePort(port, name, None)
            continue
        shape = tuple(with_file_names(size_text(size), file_names) for size in value.shape)
        stride = tuple(with_file_names(size_text(step), file_names) for step in value.stride())
        yield CodePort(port, name, value.dtype, shape, stride, tuple(map(size_at_capture, value.shape)))


def with_file_names(text: str, file_names: Mapping[str, str]) -> str:
    """Return an expression of Inductor's symbols, such as `s0 + 1`, with the file's names of them."""
    from backprint.tools.kernels.fused.kernel_text import rename_in_text

    return rename_in_text(text, file_names) if file_names else text

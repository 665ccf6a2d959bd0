"""The range of values of each tensor that a kernel is called with, as the Capture's own run has them.

The graphs run once in eager, on the Capture's inputs, and the least and the largest value of each tensor are kept. The
calls of a wrapper were recorded on tensors without data, so a value is followed by its memory: a kernel's argument has
the range of a graph's input while nothing has written into that memory, and of a graph's output once nothing writes
into it any more.

    call(buf0 of input x)                x's range
    call(buf1, written, then read)       not known: a value between two kernels
    call(buf2, written, then returned)   the output's range, for those who read it after its last write

A range is the least and the largest finite value of a tensor. A storage is a number for the memory of a tensor on which
calls were recorded (Memory), None for a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch.tensors import storage_id
from backprint.common.text import one_line
from backprint.errors import is_defect
from backprint.graph.nouns import Capture, Graph, Ref
from backprint.prove.run import RunOptions
from backprint.prove.whole import replay
from backprint.tools.kernels.alone_file import parameter_uses
from backprint.tools.kernels.nouns import Kernel, KernelCall

Range = tuple[float, float]
Ranges = Mapping[tuple[int, str], Range]
"""id of a Graph, name of a value in it -> its range."""


def ranges_of(capture: Capture) -> tuple[Ranges, str]:
    """Run the graphs of a Capture once on its own inputs; return the range of each tensor that has one, and '' or why
    others have none: a Capture without values, or whose graphs do not run here."""
    ranges: dict[tuple[int, str], Range] = {}
    graphs = {id(graph): _ports_of(graph) for pair in capture.pairs for graph in pair.graphs}

    def watch(graph: Graph, name: str, value: Any) -> None:
        """Keep the range of an input or a result of a graph; the replay calls this with each value that it makes."""
        if name in graphs.get(id(graph), ()) and isinstance(value, Tensor) and (value_range := range_of(value)):
            ranges[id(graph), name] = value_range

    try:
        replay(capture, options=RunOptions(watch=watch))
    except Exception as error:  # of any kind: the program's operators run
        if is_defect(error):
            raise
        return ranges, one_line(f"{type(error).__name__}: {error}")[:200]
    return ranges, ""


def _ports_of(graph: Graph) -> set[str]:
    """Return the names of a graph's results, and of its inputs but for tangents, which stand for any gradient."""
    inputs = {port.local for port in graph.inputs if port.role != "tangent"}
    return inputs | {value.name for value in graph.results if isinstance(value, Ref)}


def range_of(value: Tensor) -> Range | None:
    """Return the least and the largest finite number of a tensor; None if it has none, or is complex, sparse or
    quantized."""
    if value.layout is not torch.strided or value.is_complex() or value.is_quantized:
        return None
    values = value.detach()
    if values.is_floating_point():
        values = values.double() if values.dtype.itemsize == 1 else values  # of float8, torch computes next to nothing
        values = values[values.isfinite()]
    elif values.dtype == torch.bool:
        values = values.to(torch.uint8)
    return (values.amin().item(), values.amax().item()) if values.numel() else None


@dataclass(slots=True)
class Memory:
    """The memory that the calls of a wrapper read and write, in their order."""

    calls: list[tuple[str, list[int | None]]] = field(default_factory=list)
    """The name of each kernel that is called, and the memory of each argument, None of a number. An operator beside
    the kernels has the name '', and the memory that it writes."""
    inputs: list[int | None] = field(default_factory=list)
    outputs: list[int | None] = field(default_factory=list)
    alive: list[Tensor] = field(default_factory=list)
    """Tensors that must live while memory is told apart by its number."""

    def storage_of(self, value: Any) -> int | None:
        """Return a number for the memory of an argument, None for a number."""
        if not isinstance(value, Tensor):
            return None
        self.alive.append(value)
        return storage_id(value.untyped_storage())


def with_ranges(kernels: Sequence[Kernel], memory: Memory, graph: Graph, ranges: Ranges) -> tuple[Kernel, ...]:
    """Return kernels with the ranges of their arguments, as far as they are known: from the inputs until a call writes
    into their memory (`ranges_before`), and from the outputs after the last call that does (`ranges_after`, walked
    backwards). `memory` has the calls of the graph's wrapper, and `ranges` those of the graph's values."""
    input_names = [port.local for port in graph.inputs]
    output_names = [value.name if isinstance(value, Ref) else "" for value in graph.results]
    if not ranges or (len(memory.inputs), len(memory.outputs)) != (len(input_names), len(output_names)):
        return tuple(kernels)
    writes_by_kernel = {kernel.name: _written_arguments(kernel) for kernel in kernels}
    ranges_before = _ranges_by_storage(memory.inputs, input_names, graph, ranges)
    ranges_after = _ranges_by_storage(memory.outputs, output_names, graph, ranges)
    ranges_by_call: list[list[Range | None]] = []
    for name, storages in memory.calls:
        ranges_by_call.append([ranges_before.get(storage) for storage in storages])
        for storage in _written_storages(writes_by_kernel, name, storages):
            ranges_before.pop(storage, None)
    for number, (name, storages) in reversed(list(enumerate(memory.calls))):
        for storage in _written_storages(writes_by_kernel, name, storages):
            ranges_after.pop(storage, None)  # what the call itself reads there is not the output yet
        ranges_by_call[number] = [
            one or ranges_after.get(storage) for one, storage in zip(ranges_by_call[number], storages, strict=True)
        ]
    ranges_by_kernel: dict[str, list[list[Range | None]]] = {}
    for (name, _), row in zip(memory.calls, ranges_by_call, strict=True):
        ranges_by_kernel.setdefault(name, []).append(row)
    return tuple(
        replace(kernel, calls=tuple(map(_call_with_ranges, kernel.calls, ranges_by_kernel.get(kernel.name, []))))
        for kernel in kernels
    )


def _ranges_by_storage(
    storages: Sequence[int | None], names: Sequence[str], graph: Graph, ranges: Ranges
) -> dict[int | None, Range]:
    """Return the range of each memory that holds one known value; where two values share a memory, it is left out."""
    known: dict[int | None, Range] = {}
    shared = {storage for storage in storages if storages.count(storage) > 1}
    for storage, name in zip(storages, names, strict=True):
        if storage is not None and storage not in shared and (id(graph), name) in ranges:
            known[storage] = ranges[id(graph), name]
    return known


def _written_arguments(kernel: Kernel) -> list[bool]:
    """Return for each argument of a kernel whether the kernel may write into it; of C++, by its declared types, such as
    `['const float*', 'float*']`: a pointer that is not const."""
    if kernel.language == "triton":
        return [use.writes for use in parameter_uses(kernel)]
    types = kernel.declared.strip("[]").split(", ") if kernel.declared else []
    return ["*" in kind and "const " not in kind for kind in types]


def _written_storages(
    writes_by_kernel: Mapping[str, Sequence[bool]], name: str, storages: Sequence[int | None]
) -> list[int | None]:
    """Return the memory that a call writes: of an operator beside the kernels, all that was recorded. The launcher of a
    Triton template takes numbers that the kernel does not take, so a call may have more arguments."""
    if name not in writes_by_kernel:
        return list(storages)
    return [storage for storage, writes in zip(storages, writes_by_kernel[name], strict=False) if writes]


def _call_with_ranges(call: KernelCall, ranges: Sequence[Range | None]) -> KernelCall:
    """Return a call with the ranges of its arguments, None where one is not known."""
    arguments = tuple(
        argument if span is None else replace(argument, low=span[0], high=span[1])
        for argument, span in zip(call.arguments, ranges, strict=True)
    )
    return replace(call, arguments=arguments)

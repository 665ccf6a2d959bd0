"""The kernels that a compiler makes of a graph for a target, each with its calls and the operators it fuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from backprint.benching.forms import attention
from backprint.errors import RefusedError
from backprint.extracting.grids import with_grids
from backprint.extracting.lowering_inductor import InductorCode, isa_in_use, lower_with_inductor, lowering_for
from backprint.extracting.nouns import FusedOperator, Kernel
from backprint.extracting.prepare import PortLayout, PreparedGraph, prepared_graph
from backprint.extracting.read import kernels_of_wrapper
from backprint.extracting.recorded_calls import RecordedCalls, recorded_calls
from backprint.extracting.targets import KernelTarget
from backprint.graph.nouns import Graph, Pair, Step

CPU_ONLY = ("mkldnn", "_for_cpu", "mkl::", "onednn")
"""Parts of the names of operators that only a CPU has."""


@dataclass(frozen=True, slots=True)
class LoweredPort:
    """An input or an output of a graph as it is on the target."""

    role: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExtractedGraph:
    """What a compiler made of one graph: its wrapper, its kernels, and what it calls beside them."""

    direction: str
    target: KernelTarget
    wrapper: str
    """Python code that calls the kernels, as the compiler wrote it."""
    kernels: tuple[Kernel, ...]
    order: tuple[str, ...]
    """The names of the kernels in the order of their calls."""
    externs: Mapping[str, int]
    """Operators that no kernel computes, such as matmuls and convolutions -> how often each is called."""
    inputs: tuple[LoweredPort, ...]
    guards: tuple[str, ...]
    """Lines that must hold before the kernels are called."""
    notes: tuple[str, ...]
    """What was rewritten to get there."""
    title: str = ""
    """`pair_0 forward`, in a Capture."""


def extracted_pair(
    pair: Pair, target: KernelTarget, threads: int = 1, sample: str = "", direction: str = "both"
) -> tuple[ExtractedGraph, ...]:
    """Return the kernels of a forward, and of its backward, which takes what the forward saves on the target."""
    forward, saved = extracted_graph(pair.forward, "forward", target, threads, sample, {})
    if pair.backward is None or direction == "forward":
        return (forward,) if direction != "backward" else ()
    backward, _ = extracted_graph(pair.backward, "backward", target, threads, sample, saved)
    return (forward, backward) if direction == "both" else (backward,)


def extracted_graph(
    graph: Graph, direction: str, target: KernelTarget, threads: int, sample: str, saved: Mapping[str, PortLayout]
) -> tuple[ExtractedGraph, Mapping[str, PortLayout]]:
    """Return the kernels of a graph, and the layouts of what it saves."""
    forms: Mapping[Any, Any] = attention.FORMS if target.device == "cuda" else {}
    with lowering_for(target, threads):
        prepared = prepared_graph(graph, target, forms, saved)
        refuse_cpu_only(prepared, target)
        code = lower_with_inductor(prepared, direction == "backward")
        recorded = recorded_calls(code.wrapper, prepared.inputs)
        blank = blank_kernel(target, threads, sample, direction)
        written = (found for found in kernels_of_wrapper(code.wrapper, direction) if isinstance(found, Kernel))
        kernels = tuple(with_origin(kernel, blank, code, recorded, graph) for kernel in written)
        if target.language == "triton":
            kernels = tuple(map(with_grids, kernels))
    found = ExtractedGraph(
        direction, target, code.wrapper, kernels, tuple(recorded.order), dict(recorded.externs),
        lowered_ports(graph, prepared), guard_lines(graph), prepared.notes,
    )  # fmt: skip
    return found, prepared.saved


def blank_kernel(target: KernelTarget, threads: int, sample: str, direction: str) -> Kernel:
    """Return what all kernels of a graph have in common."""
    on_cpu = target.device == "cpu"
    isa = isa_in_use() if on_cpu else ""
    compiler = f"inductor {torch.__version__.partition('+')[0]}"
    return Kernel(
        target.language, "", "", target.name, compiler=compiler, threads=threads if on_cpu else None, isa=isa,
        sample=sample, direction=direction,
    )  # fmt: skip


def refuse_cpu_only(prepared: PreparedGraph, target: KernelTarget) -> None:
    """Raise for an operator that only a CPU has, on another target."""
    if target.device == "cpu":
        return
    for node in prepared.module.graph.nodes:
        name = str(getattr(getattr(node.target, "_schema", None), "name", ""))
        if any(part in name for part in CPU_ONLY):
            raise RefusedError(f"{node.target} runs on a CPU only, and has no form of common operators here: capture "
                               f"the program on a GPU, or extract for target cpu")  # fmt: skip


def with_origin(kernel: Kernel, blank: Kernel, code: InductorCode, recorded: RecordedCalls, graph: Graph) -> Kernel:
    """Return a kernel with its target, its calls, and the operators that it computes."""
    steps = {step.name: step for step in graph.steps}
    own = [steps[name] for name in code.steps.get(kernel.name, ()) if name in steps]
    operators = tuple(FusedOperator(step.target, step.name, program_line(step)) for step in own)
    calls = tuple(recorded.kernels.get(kernel.name, ()))
    known = replace(blank, name=kernel.name, source=kernel.source, declared=kernel.declared)
    return replace(known, operators=operators, calls=calls)


def program_line(step: Step) -> str:
    """Return the line of the program that a step came from."""
    source = step.source
    return "" if source is None else f"{source.file}:{source.line} in {source.function}: {source.code}"


def lowered_ports(graph: Graph, prepared: PreparedGraph) -> tuple[LoweredPort, ...]:
    """Return the inputs of a graph as they are on the target."""
    pairs = zip(graph.inputs, prepared.inputs, strict=True)
    return tuple(
        LoweredPort(port.role, port.name, str(value.dtype)[6:], tuple(value.shape), tuple(value.stride()))
        for port, value in pairs
    )


def guard_lines(graph: Graph) -> tuple[str, ...]:
    """Return the guards of a graph as lines."""
    from backprint.graph.text import show_step

    return tuple(show_step(step) for step in graph.steps if step.is_guard)

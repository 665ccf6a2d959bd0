"""The kernels that a compiler makes of a graph for a target, each with its calls and the operators it fuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import torch

from backprint._torch.operators import schema_if_any
from backprint.benching.forms import attention, recurrent
from backprint.errors import BackprintError, RefusedError
from backprint.extracting.grids import with_grids
from backprint.extracting.lowering.inductor import InductorCode, isa_in_use, lowering_for
from backprint.extracting.lowering.kernel_compilers import KernelCompiler, inductor
from backprint.extracting.lowering.prepare import PortLayout, PreparedGraph, prepared_graph
from backprint.extracting.lowering.recorded_calls import RecordedCalls, recorded_calls
from backprint.extracting.nouns import ExtractedGraph, FusedOperator, Kernel, LoweredPort
from backprint.extracting.programs.read import kernels_of_wrapper
from backprint.extracting.targets import KernelTarget, target_named
from backprint.graph.nouns import Graph, Pair, Port, Step
from backprint.graph.sizes import hints

FORMS: Mapping[Any, Any] = {**attention.FORMS, **recurrent.FORMS}
"""Operators that only a CPU has -> what computes the same with common ones."""

CPU_ONLY = ("mkldnn", "_for_cpu", "mkl::", "onednn")
"""Parts of the names of operators that only a CPU has."""


@dataclass(frozen=True, slots=True)
class RefusedGraph:
    """A direction of a Pair that has no kernels, and why."""

    direction: str
    reason: str


def extracted_graphs(
    pair: Pair,
    target: KernelTarget,
    threads: int = 1,
    sample: str = "",
    direction: str = "both",
    compiler: KernelCompiler | None = None,
) -> Iterator[ExtractedGraph | RefusedGraph]:
    """Yield the kernels of a forward and of its backward, one graph at a time; if one is refused, the other is not.

    The backward takes what the forward saves on the target; if the forward cannot be prepared, it takes the saved
    tensors as they were captured.
    """
    compiler = compiler or inductor()
    saved: Mapping[str, PortLayout] = {}
    forms = FORMS if target.device == "cuda" else {}
    for name, graph in (("forward", pair.forward), ("backward", pair.backward)):
        if graph is None or (name, direction) == ("backward", "forward"):
            continue
        found: ExtractedGraph | RefusedGraph | None = None
        try:
            with lowering_for(target, threads):
                prepared = prepared_graph(graph, target, forms, saved)
                saved = prepared.saved
                if direction in (name, "both"):
                    blank = blank_kernel(target, threads, name, compiler, sample)
                    found = extracted_graph(graph, prepared, blank, compiler)
        except BackprintError as error:
            found = RefusedGraph(name, str(error))
        if found is not None:
            yield found


def extracted_alone(
    graph: Graph,
    direction: str,
    target: KernelTarget,
    threads: int,
    saved: Mapping[str, PortLayout],
    compiler: KernelCompiler,
) -> ExtractedGraph:
    """Return the kernels of one graph; a backward takes saved tensors in these layouts."""
    with lowering_for(target, threads):
        prepared = prepared_graph(graph, target, FORMS if target.device == "cuda" else {}, saved)
        return extracted_graph(graph, prepared, blank_kernel(target, threads, direction, compiler), compiler)


def extracted_graph(graph: Graph, prepared: PreparedGraph, blank: Kernel, compiler: KernelCompiler) -> ExtractedGraph:
    """Return the kernels of a prepared graph; `blank` has what they have in common."""
    target = target_named(blank.target)
    refuse_cpu_only(prepared, target)
    outputs = output_ports(graph, prepared)  # before Inductor rewrites the module
    code = compiler.write(prepared, target.name, blank.direction == "backward")
    recorded = calls_of(code.wrapper, prepared, compiler)
    written = (found for found in kernels_of_wrapper(code.wrapper, blank.direction) if isinstance(found, Kernel))
    kernels = tuple(with_origin(kernel, blank, code, recorded, graph) for kernel in written)
    if target.language == "triton":
        kernels = tuple(map(with_grids, kernels))
    return ExtractedGraph(
        blank.direction, target, code.wrapper, kernels, tuple(recorded.order), dict(recorded.externs),
        input_ports(graph, prepared), outputs, guard_lines(graph), prepared.notes,
    )  # fmt: skip


def calls_of(wrapper: str, prepared: PreparedGraph, compiler: KernelCompiler) -> RecordedCalls:
    """Return the calls of a wrapper; raise RefusedError for one that does not run."""
    try:
        return recorded_calls(wrapper, prepared.inputs)
    except BackprintError:
        raise
    except Exception as error:  # of any kind: the code is a compiler's
        said = f"{type(error).__name__}: {str(error).strip()[:300]}"
        raise RefusedError(f"what {compiler.version} wrote does not run on meta tensors, with which calls are "
                           f"recorded: {said}") from error  # fmt: skip


def blank_kernel(
    target: KernelTarget, threads: int, direction: str, compiler: KernelCompiler, sample: str = ""
) -> Kernel:
    """Return what all kernels of a graph have in common."""
    on_cpu = target.device == "cpu"
    isa = isa_in_use() if on_cpu else ""
    return Kernel(
        target.language, "", "", target.name, compiler=compiler.version, threads=threads if on_cpu else None, isa=isa,
        sample=sample, direction=direction,
    )  # fmt: skip


def refuse_cpu_only(prepared: PreparedGraph, target: KernelTarget) -> None:
    """Raise for an operator that only a CPU has, on another target."""
    if target.device == "cpu":
        return
    for node in prepared.module.graph.nodes:
        name = str(getattr(schema_if_any(node.target), "name", ""))
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


def input_ports(graph: Graph, prepared: PreparedGraph) -> tuple[LoweredPort, ...]:
    """Return the inputs of a graph as they are on the target."""
    return tuple(starmap(lowered_port, zip(graph.inputs, prepared.inputs, strict=True)))


def output_ports(graph: Graph, prepared: PreparedGraph) -> tuple[LoweredPort, ...]:
    """Return the outputs of a graph as they are on the target; None, and numbers, are no tensors and left out."""
    (results,) = prepared.module.graph.output_node().args
    values = (getattr(result, "meta", {}).get("val") for result in results)
    pairs = zip(graph.outputs, values, strict=True)
    return tuple(lowered_port(port, value) for port, value in pairs if isinstance(value, torch.Tensor))


def lowered_port(port: Port, value: torch.Tensor | int | float | bool) -> LoweredPort:
    if not isinstance(value, torch.Tensor):
        return LoweredPort(port.role, port.name, type(value).__name__, value=value)
    return LoweredPort(port.role, port.name, str(value.dtype)[6:], tuple(value.shape), tuple(value.stride()))


def guard_lines(graph: Graph) -> tuple[str, ...]:
    """Return what must hold as lines: sizes that have symbols in the graph, and its guards."""
    from backprint.graph.text import show_step

    sizes = (f"{name} == {size}" for name, size in hints(graph).items())
    return (*sizes, *(show_step(step) for step in graph.steps if step.is_guard))

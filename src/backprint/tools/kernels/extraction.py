"""The kernels that a compiler writes for a graph, a Pair and a Capture, each with its calls and the operators it fuses.

The wrapper that the compiler wrote runs on meta tensors, which have no data, to record the calls that it makes. A
kernel records its arguments and computes nothing; extern calls (matmuls, convolutions) run on meta tensors. The wrapper
is code that the compiler wrote in this process: none of it comes from a file.

Words of this file:

- wrapper: the Python module that a compiler writes: its `call(inputs)` allocates memory and calls kernels, whose
  sources are strings in it.
- target: what kernels are for (KernelTarget): a processor with its vector instructions, or a GPU.
- PreparedGraph: a captured graph for a target: `module` has ATen operators, `inputs` are fake tensors, or numbers. In
  its node's `meta["val"]`, a result is a fake tensor too.
- saved: the tensors that a forward saves, as they are on the target (PortLayout), which its backward takes.
- form: a composition of common operators that stands for one that only a CPU has.
- ranges: the least and the largest value of tensors of the graphs, where the Capture ran on its own inputs.
- blank: a Kernel without name and source, with the facts that all kernels of a graph share.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from types import MappingProxyType
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from backprint._torch import pytree
from backprint._torch.inductor import devices_not_switched, kernels_compiled_by
from backprint._torch.modes import TorchDispatchMode
from backprint._torch.operators import HigherOrderOperator, schema_if_any, schema_of
from backprint.common.text import check_choice
from backprint.derive import forms
from backprint.errors import BackprintError, RefusedError, UsageError, for_program, is_defect
from backprint.graph.nouns import Capture, Graph, Pair, Port, Step
from backprint.graph.sizes import example_sizes
from backprint.tools.kernels.build_triton import with_grids
from backprint.tools.kernels.compilers import KernelCompiler, inductor, kernel_compiler
from backprint.tools.kernels.inductor import RESULT_LIKE, InductorCode, isa_in_use, lowering_for, result_like
from backprint.tools.kernels.nouns import (
    CaptureKernels,
    ExtractedGraph,
    FusedOperator,
    Kernel,
    KernelArgument,
    KernelCall,
    KernelTarget,
    LoweredPort,
    target_named,
)
from backprint.tools.kernels.prepare import PortLayout, PreparedGraph, prepare_graph
from backprint.tools.kernels.ranges import Memory, Ranges, ranges_of, with_ranges
from backprint.tools.kernels.read import kernels_of_wrapper

# ------------------------------------------------------------------ the calls of a wrapper, recorded on meta tensors


META = torch.device("meta")

ALLOCATING_OPERATORS = ("aten.empty_strided.default", "aten.set_.source_Tensor")
"""Operators that a wrapper calls only to get memory."""

ALLOCATORS = ("empty_strided_cpu", "empty_strided_cuda", "empty_strided_cpu_pinned")
"""The functions with which a wrapper allocates memory."""


@dataclass(slots=True)
class _RecordedCalls:
    """The calls that a wrapper made: the calls of each kernel, and the number of calls of each extern operator."""

    kernels: dict[str, list[KernelCall]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    externs: Counter[str] = field(default_factory=Counter)
    extern_bytes: int = 0
    """The bytes of the arguments and results of the extern operators."""
    memory: Memory = field(default_factory=Memory)

    def add_call(self, name: str, args: Sequence[Any]) -> None:
        """Record a call of a kernel."""
        self.memory.calls.append((name, [self.memory.storage_of(value) for value in args]))
        self.kernels.setdefault(name, []).append(KernelCall(tuple(map(_argument_of, args))))
        self.order.append(name)


def _argument_of(value: Any) -> KernelArgument:
    """Return the record of one argument: the dtype, shape and strides of a tensor, or the type and value of a
    number."""
    if isinstance(value, Tensor):
        return KernelArgument(str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()))
    return KernelArgument(type(value).__name__, value=value)


@dataclass(frozen=True, slots=True)
class _RecordedKernel:
    """Replaces a kernel in a wrapper, and records its calls."""

    name: str
    recorded: _RecordedCalls

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Record a call of a kernel; the keywords, as the stream, are no arguments of it."""
        self.recorded.add_call(self.name, args)

    __call__ = run  # C++ kernels are called, Triton's are run


class _ExternRecorder(TorchDispatchMode):
    """Counts the operators that a wrapper calls beside its kernels, draws under a saved random state among them."""

    supports_higher_order_operators = True

    def __init__(self, recorded: _RecordedCalls) -> None:
        super().__init__()
        self.recorded = recorded

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on meta tensors, and record it, unless it is a view or only gets memory."""
        if isinstance(function, HigherOrderOperator):
            return self.run_with_rng_state(function, args, kwargs or {})
        is_view = any(value.alias_info and not value.alias_info.is_write for value in schema_of(function).returns)
        is_recorded = not is_view and str(function) not in ALLOCATING_OPERATORS
        if is_recorded:
            self.recorded.externs[str(function)] += 1
        try:
            if function in RESULT_LIKE:  # it has no rule for tensors without data
                results = result_like(function, *args)
            else:
                results = for_program(function, *args, **(kwargs or {}))
            if is_recorded:
                self.record_memory(args, kwargs, results)
            return results
        except Exception as error:  # of any kind: each operator has its own code for meta tensors
            if is_defect(error):
                raise
            message = str(error).strip().partition(". ")[0][:200]
            raise RefusedError(
                f"{function} is called beside the kernels, and does not run on meta tensors, with which calls are "
                f"recorded: {type(error).__name__}: {message}; capture the program without it"
            ) from error

    def record_memory(self, args: Any, kwargs: Any, results: Any) -> None:
        """Record the memory that an operator writes, and the bytes of its arguments and results, each tensor once."""
        memory = self.recorded.memory
        written = results if results is not None else (args, kwargs)  # one that returns nothing may write all
        no_kernel = ""
        memory.calls.append((no_kernel, [memory.storage_of(value) for value in pytree.tree_leaves(written)]))
        tensors = {id(value): value for value in pytree.tree_leaves((args, kwargs, results))}
        self.recorded.extern_bytes += sum(value.nbytes for value in tensors.values() if isinstance(value, Tensor))

    def run_with_rng_state(self, function: HigherOrderOperator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the results of a draw that saves its random state, or that runs under a saved one, on meta tensors.
        Such operators are calls of another operator, with its arguments."""
        name = f"torch.ops.higher_order.{function.name()}"
        self.recorded.externs[name] += 1
        match function.name(), args:
            case "run_and_save_rng_state", (operator, *rest):
                # the saved state, which nothing reads on meta tensors, and the draw
                return torch.empty(0, dtype=torch.uint8, device=META), operator(*rest, **on_meta(kwargs))
            case "run_with_rng_state", (_, operator, *rest):
                return operator(*rest, **on_meta(kwargs))
        raise RefusedError(
            f"{name} is called beside the kernels, and has no form on meta tensors, with which calls "
            "are recorded: capture the program without it"
        )


def on_meta(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call with the meta device in the place of another."""
    return {name: META if isinstance(value, torch.device) else value for name, value in options.items()}


def _run_on_meta(wrapper: str, inputs: Sequence[Any]) -> _RecordedCalls:
    """Run a wrapper on meta tensors of the shapes, strides and dtypes of these inputs, and on those of them that are
    numbers; return its calls."""
    recorded = _RecordedCalls()
    namespace = load_wrapper(wrapper, lambda name, types: _RecordedKernel(name, recorded))
    values = [_meta_like(value) if isinstance(value, Tensor) else value for value in inputs]
    recorded.memory.inputs = [recorded.memory.storage_of(value) for value in values]
    with without_gpu(), _ExternRecorder(recorded):
        results = namespace["call"](values)  # which empties the list
    recorded.memory.outputs = [recorded.memory.storage_of(value) for value in results]
    return recorded


def _meta_like(value: Tensor) -> Tensor:
    """Return a meta tensor with a tensor's shape, strides and dtype."""
    return _empty_on_meta(value.shape, value.stride(), value.dtype)


def load_wrapper(
    wrapper: str,
    make_kernel: Callable[[str, Any], Any],
    allocate: Callable[[Sequence[int], Sequence[int], torch.dtype], Tensor] | None = None,
    device: torch.device = META,
) -> dict[str, Any]:
    """Execute a wrapper's module and return its namespace, whose `call` runs it.

    What `make_kernel(name, types)` returns replaces its kernels (`types` are those of the arguments, None for a Triton
    kernel); `allocate(shape, stride, dtype)` allocates its memory, on `device`, by default meta tensors. Assertions of
    layouts are replaced by functions that set them.
    """

    class CompileStandIn:
        """Replaces AsyncCompile in a wrapper. Kernels have the names that the wrapper gives them."""

        def triton(self, name: str, *args: Any, **kwargs: Any) -> Any:
            return make_kernel(name, None)

        def cpp_pybinding(self, types: Any, *args: Any, **kwargs: Any) -> Any:
            return _UnnamedKernel(types)

        def wait(self, scope: dict[str, Any]) -> None:
            """Replace the C++ kernels in a module's names: only there a kernel's name is known."""
            for name, value in list(scope.items()):
                if isinstance(value, _UnnamedKernel):
                    scope[name] = make_kernel(name, value.types)

    namespace: dict[str, Any] = {"__name__": "wrapper"}
    with kernels_compiled_by(CompileStandIn):
        exec(compile(wrapper, "<wrapper of Inductor>", "exec"), namespace)
    # the module imported these names of Inductor's
    namespace.update(dict.fromkeys(ALLOCATORS, allocate or _empty_on_meta))
    namespace.update(
        device=lambda *args, **kwargs: device, assert_alignment=lambda *args: None, **ASSERTION_REPLACEMENTS
    )
    return namespace


@dataclass(frozen=True, slots=True)
class _UnnamedKernel:
    """A C++ kernel whose name in the wrapper is not known yet."""

    types: Any


def _set_strides(value: Tensor | None, shape: Sequence[int], stride: Sequence[int], *args: Any) -> None:
    """Give a result the strides that Inductor expects of it, in the place of an assertion that it has them: some
    operators have others on this device. A workspace of a library may have another size; any other result with values
    is refused if it has another shape. None, a result that an operator left out, has no layout. The rest of the
    assertion's arguments, as the operator's name, are for the message."""
    if value is None:
        return
    has_shape = tuple(value.shape) == tuple(shape) or may_be_workspace(value)
    if tuple(value.stride()) == tuple(stride) and has_shape:
        return
    expected = torch.empty_strided(tuple(shape), tuple(stride), dtype=value.dtype, device=value.device)
    if value.device == META:  # only the record of the call counts
        value.set_(expected)
        return
    if value.shape != expected.shape:
        raise RefusedError(
            f"{' '.join(map(str, args)) or 'an operator'} gives {list(value.shape)} here, and "
            f"{list(shape)} on the target: run the kernels there"
        )
    value.set_(expected.copy_(value))


def _set_all_strides(values: Sequence[Tensor], shapes: Sequence[Any], strides: Sequence[Any], *args: Any) -> None:
    """Give several results their strides."""
    for value, shape, stride in zip(values, shapes, strides, strict=True):
        _set_strides(value, shape, stride, *args)


ASSERTION_REPLACEMENTS = {
    "assert_size_stride": _set_strides,
    "assert_size_stride_grouped": _set_all_strides,  # these two since torch 2.14
    "assert_tensor_metadata": _set_strides,
}
"""The functions with which a wrapper asserts layouts -> their replacements."""


def may_be_workspace(value: Any) -> bool:
    """Whether a tensor may be the workspace of a library, whose size only the library knows."""
    return isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def _empty_on_meta(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an unwritten meta tensor, in the place of a wrapper's allocations."""
    return torch.empty_strided(shape, stride, dtype=dtype, device=META)


@contextlib.contextmanager
def without_gpu() -> Any:
    """Let a wrapper choose a GPU that is not there, as it does before it calls its kernels."""
    with (
        devices_not_switched(),
        mock.patch.object(torch.cuda, "set_device", return_value=None),
    ):
        yield


# ------------------------------------------------------------------ the kernels of one graph

FORMS_OF_CPU_OPERATORS: Mapping[Any, Any] = {**forms.ATTENTION, **forms.RECURRENT}
"""Operators that only a CPU has -> their forms with common operators."""

CPU_ONLY = ("mkldnn", "_for_cpu", "mkl::", "onednn")
"""Parts of the names of operators that only a CPU has."""


@dataclass(frozen=True, slots=True)
class RefusedGraph:
    """A direction of a Pair that has no kernels, and why."""

    direction: str
    reason: str


def extract_graphs(
    pair: Pair,
    target: KernelTarget,
    threads: int = 1,
    sample: str = "",
    direction: str = "both",
    compiler: KernelCompiler | None = None,
    ranges: Ranges = MappingProxyType({}),
) -> Iterator[ExtractedGraph | RefusedGraph]:
    """Yield the kernels of a forward and of its backward, one graph at a time; if one is refused, the other is not.
    `ranges` are those of the values of the graphs.

    The backward takes what the forward saves on the target, so a forward is prepared even if only the backward's
    kernels are asked for; if it cannot be, the backward takes the saved tensors as they were captured.
    """
    compiler = compiler or inductor()
    saved: Mapping[str, PortLayout] = {}
    operator_forms = FORMS_OF_CPU_OPERATORS if target.device == "cuda" else {}
    for name, graph in (("forward", pair.forward), ("backward", pair.backward)):
        if graph is None or (name, direction) == ("backward", "forward"):
            continue
        extracted: ExtractedGraph | RefusedGraph | None = None
        try:
            with lowering_for(target, threads):
                prepared = prepare_graph(graph, target, operator_forms, saved)
                saved = prepared.saved
                if direction in (name, "both"):
                    blank = blank_kernel(target, threads, name, compiler, sample)
                    extracted = _extract_prepared(graph, prepared, blank, compiler, ranges)
        except BackprintError as error:
            extracted = RefusedGraph(name, str(error))
        if extracted is not None:
            yield extracted


def extract_one_graph(
    graph: Graph,
    direction: str,
    target: KernelTarget,
    threads: int,
    saved: Mapping[str, PortLayout],
    compiler: KernelCompiler,
) -> ExtractedGraph:
    """Return the kernels of one graph; `direction` says whether it is a forward, or a backward, which takes saved
    tensors in the layouts `saved`. `threads` are those that C++ is written for."""
    with lowering_for(target, threads):
        prepared = prepare_graph(graph, target, FORMS_OF_CPU_OPERATORS if target.device == "cuda" else {}, saved)
        return _extract_prepared(graph, prepared, blank_kernel(target, threads, direction, compiler), compiler)


def _extract_prepared(
    graph: Graph,
    prepared: PreparedGraph,
    blank: Kernel,
    compiler: KernelCompiler,
    ranges: Ranges = MappingProxyType({}),
) -> ExtractedGraph:
    """Return the kernels of a prepared graph; `blank` has the facts that they share. Refuse operators that the target
    lacks."""
    target = target_named(blank.target)
    refuse_cpu_only(prepared, target)
    outputs = _output_ports(graph, prepared)  # before Inductor rewrites the module
    code = compiler.write(prepared, target.name, blank.direction == "backward")
    recorded = record_calls(code.wrapper, prepared, compiler)
    compiled = kernels_of_wrapper(code.wrapper, blank.direction)
    kernels = tuple(with_origin(kernel, blank, code, recorded, graph) for kernel in compiled)
    kernels = with_ranges(kernels, recorded.memory, graph, ranges)
    if target.language == "triton":
        kernels = tuple(map(with_grids, kernels))
    return ExtractedGraph(
        direction=blank.direction,
        target=target,
        wrapper=code.wrapper,
        kernels=kernels,
        order=tuple(recorded.order),
        externs=dict(recorded.externs),
        inputs=input_ports(graph, prepared),
        outputs=outputs,
        guards=_guard_lines(graph),
        notes=prepared.notes,
    )


def record_calls(wrapper: str, prepared: PreparedGraph, compiler: KernelCompiler) -> _RecordedCalls:
    """Return the calls of a wrapper; raise RefusedError for one that does not run."""
    try:
        return _run_on_meta(wrapper, prepared.inputs)
    except BackprintError:
        raise
    except Exception as error:  # of any kind: the code is a compiler's
        message = f"{type(error).__name__}: {str(error).strip()[:300]}"
        raise RefusedError(
            f"what {compiler.version} wrote does not run on meta tensors, with which calls are recorded: {message}"
        ) from error


def blank_kernel(
    target: KernelTarget, threads: int, direction: str, compiler: KernelCompiler, sample: str = ""
) -> Kernel:
    """Return a Kernel without name and source, with the facts that all kernels of a graph share: `with_origin` fills it
    in."""
    on_cpu = target.device == "cpu"
    isa = isa_in_use() if on_cpu else ""
    return Kernel(
        target.language,
        name="",
        source="",
        target=target.name,
        compiler=compiler.version,
        threads=threads if on_cpu else None,
        isa=isa,
        sample=sample,
        direction=direction,
    )


def refuse_cpu_only(prepared: PreparedGraph, target: KernelTarget) -> None:
    """Raise for an operator that only a CPU has, on another target."""
    if target.device == "cpu":
        return
    for node in prepared.module.graph.nodes:
        name = str(getattr(schema_if_any(node.target), "name", ""))
        if any(part in name for part in CPU_ONLY):
            raise RefusedError(
                f"{node.target} runs on a CPU only, and has no form of common operators here: capture "
                f"the program on a GPU, or extract for target cpu"
            )


def with_origin(kernel: Kernel, blank: Kernel, code: InductorCode, recorded: _RecordedCalls, graph: Graph) -> Kernel:
    """Return `blank` with a kernel's name and source, its calls, and the operators that it computes: `code.steps` names
    the steps of the captured graph that Inductor put into it, none where a compiler does not say."""
    steps = {step.name: step for step in graph.steps}
    computed = [steps[name] for name in code.steps.get(kernel.name, ()) if name in steps]
    operators = tuple(FusedOperator(step.target, step.name, program_line(step)) for step in computed)
    calls = tuple(recorded.kernels.get(kernel.name, ()))
    known = replace(blank, name=kernel.name, source=kernel.source, declared=kernel.declared)
    return replace(known, operators=operators, calls=calls)


def program_line(step: Step) -> str:
    """Return the line of the program that a step came from."""
    source = step.source
    return "" if source is None else f"{source.at} in {source.function}: {source.code}"


def input_ports(graph: Graph, prepared: PreparedGraph) -> tuple[LoweredPort, ...]:
    """Return the inputs of a graph as they are on the target."""
    return tuple(starmap(_lowered_port, zip(graph.inputs, prepared.inputs, strict=True)))


def _output_ports(graph: Graph, prepared: PreparedGraph) -> tuple[LoweredPort, ...]:
    """Return the outputs of a graph as they are on the target; None, and numbers, are no tensors and left out."""
    (results,) = prepared.module.graph.output_node().args
    values = (getattr(result, "meta", {}).get("val") for result in results)  # a result may be None or a number
    pairs = zip(graph.outputs, values, strict=True)
    return tuple(_lowered_port(port, value) for port, value in pairs if isinstance(value, torch.Tensor))


def _lowered_port(port: Port, value: torch.Tensor | int | float | bool) -> LoweredPort:
    """Return a port as it is on the target: a tensor, or a number with its value."""
    if not isinstance(value, torch.Tensor):
        return LoweredPort(port.role, port.name, type(value).__name__, value=value)
    return LoweredPort(port.role, port.name, str(value.dtype)[6:], tuple(value.shape), tuple(value.stride()))


def _guard_lines(graph: Graph) -> tuple[str, ...]:
    """Return the conditions of the kernels as lines: the values of symbolic sizes, and the graph's guards."""
    from backprint.graph.text import show_step

    sizes = (f"{name} == {size}" for name, size in example_sizes(graph).items())
    return (*sizes, *(show_step(step) for step in graph.steps if step.is_guard))


# ------------------------------------------------------------------ the kernels of a Capture


def extract_kernels(
    capture: Capture, target: str = "cpu", direction: str = "both", threads: int = 1, compiler: str = "inductor"
) -> CaptureKernels:
    """Return the kernels that a compiler writes for each Pair of a Capture; graphs that it refuses are listed, with the
    reason. The arguments are those of `bp.kernels.extract`."""
    check_choice("direction", direction)
    if threads < 1:
        raise UsageError(f"threads={threads!r} must be 1 or more")
    resolved_target, writer = target_named(target), kernel_compiler(compiler)
    graphs: list[ExtractedGraph] = []
    refused: list[tuple[str, str]] = []
    ranges, unknown = ranges_of(capture)
    notes = (f"ranges of arguments are not known: {unknown}",) if unknown else ()
    for index, pair in enumerate(capture.pairs):
        for extracted in extract_graphs(pair, resolved_target, threads, capture.name, direction, writer, ranges):
            title = f"pair_{index} {extracted.direction}"
            if isinstance(extracted, ExtractedGraph):
                graphs.append(replace(extracted, title=title, notes=(*extracted.notes, *notes)))
            else:
                refused.append((title, extracted.reason))
    return CaptureKernels(capture, resolved_target, threads, tuple(graphs), tuple(refused), compiler)

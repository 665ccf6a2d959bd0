"""The code that Inductor writes for a prepared graph, for a target that need not be there. Nothing is compiled or
run.

Words of this file:

- target: a processor with its vector instructions (an ISA), or a GPU of a compute capability (KernelTarget).
- prepared: a graph of ATen operators on fake tensors of the target (PreparedGraph).
- wrapper: the Python module that Inductor writes: it calls the kernels, whose sources are strings in it.
- steps: calls of operators in the captured graph, which nodes of the prepared graph name in their metadata. Nodes are
  either those of an fx graph, or those of Inductor's schedule (BaseSchedulerNode), of which kernels are made.
- `backprint._torch.inductor` has Inductor's private names; `settings` is `torch._inductor.config`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx

from backprint._torch.inductor import as_for_gxx, cuda_is_compiled, load_inductor
from backprint.errors import BackprintError, RefusedError, is_defect
from backprint.tools.kernels.nouns import GPUS, ISAS, KernelTarget
from backprint.tools.kernels.prepare import PreparedGraph

# ------------------------------------------------------------------ a GPU that is not there
#
# A build of PyTorch without CUDA has no device guard for it, so an operator on a fake CUDA tensor raises. The guard of
# the meta device, which does nothing, is registered in its place. No backward may run on such tensors: autograd would
# ask for the device's streams, and end the process.
#
# The table is `c10::impl::device_guard_impl_registry` of torch's C++ library, tried on torch 2.13.


CUDA, META = 1, 14
"""The places of devices in the registry of guards: values of c10::DeviceType."""

RANDOM_STATE = 16
"""The bytes of a GPU's random state."""

CODEGEN_SETTINGS = {
    "compile_threads": 1,
    "fx_graph_cache": False,
    "shape_padding": False,
    "joint_graph_constant_folding": False,
    "triton.cudagraphs": False,
}
"""Settings of Inductor for code that is only written: padding and folding would run operators on the GPU."""


def _allow_fake_cuda() -> None:
    """Register a guard for CUDA that does nothing, in a build without CUDA; refuse a build whose table of guards is
    elsewhere. 22 is how many kinds of devices the table has."""
    if cuda_is_compiled():
        return
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        guards = (ctypes.c_void_p * 22).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
        allow = library._ZN3c104impl24ensureCUDADeviceGuardSetEv
    except (OSError, ValueError, AttributeError) as error:
        raise RefusedError(
            f"this build of PyTorch {torch.__version__} has no CUDA, and its tables of devices are not where they are "
            f"in torch 2.13 ({error}): install a build with CUDA; no GPU is needed"
        ) from error
    if guards[CUDA] is None:
        guards[CUDA] = guards[META]
    allow.restype = None
    allow()


def gpu_properties(target: KernelTarget) -> Any:
    """Return the properties of a GPU as `torch.cuda.get_device_properties` does. The clocks are those of an
    H100; GPUS has the facts that differ."""
    facts = GPUS[target.capability]
    return types.SimpleNamespace(
        name=target.name,
        major=target.capability // 10,
        minor=target.capability % 10,
        multi_processor_count=facts.multiprocessors,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=facts.threads_of_multiprocessor,
        max_threads_per_block=1024,
        warp_size=32,
        total_memory=facts.memory,
        L2_cache_size=facts.cache,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=facts.shared_of_block,
        shared_memory_per_multiprocessor=facts.shared_of_multiprocessor,
        gcnArchName="",
        clock_rate=1_980_000,
        memory_clock_rate=2_619_000,
        memory_bus_width=5120,
        is_integrated=False,
    )


@contextlib.contextmanager
def fake_gpu(target: KernelTarget) -> Iterator[None]:
    """Let torch report one GPU of a target, while code for it is written: Inductor asks for its properties, and decides
    by them."""
    from backprint._torch.inductor import CudaInterface, DeviceProperties, triton_support
    from backprint._torch.inductor import config as settings

    _allow_fake_cuda()
    device_properties, capability = gpu_properties(target), divmod(target.capability, 10)
    replacements: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "get_device_properties": lambda *args, **kwargs: device_properties,
            "get_device_capability": lambda *args, **kwargs: capability,
            "current_device": lambda: 0,
            "device_count": lambda: 1,
            "get_rng_state": lambda *args, **kwargs: torch.empty(RANDOM_STATE, dtype=torch.uint8),
        },
        CudaInterface: {
            "get_device_properties": staticmethod(lambda *args, **kwargs: device_properties),
            "current_device": staticmethod(lambda: 0),
            "device_count": staticmethod(lambda: 1),
            "is_available": staticmethod(lambda: True),
            "get_compute_capability": staticmethod(lambda *args, **kwargs: target.capability),
        },
        CudaInterface.Worker: {"get_device_properties": staticmethod(lambda *args, **kwargs: device_properties)},
        triton_support: {"triton_hash_with_backend": lambda: "none"},  # Triton's own asks a driver
    }
    # they keep what torch reported before, and would keep what it reports now: cleared here and at the end
    caches = (DeviceProperties.create, triton_support.has_triton)
    with contextlib.ExitStack() as patches:
        for owner, names in replacements.items():
            for name, value in names.items():
                patches.enter_context(mock.patch.object(owner, name, value))
        patches.enter_context(settings.patch(CODEGEN_SETTINGS))
        for cache in caches:
            patches.callback(cache.cache_clear)
            cache.cache_clear()
        yield


# ------------------------------------------------------------------ rules for fake tensors
#
# Without a rule, a whole graph would have no kernels.

aten = torch.ops.aten

RESULT_LIKE: Mapping[Any, int] = MappingProxyType(
    {
        aten.multi_margin_loss_backward.default: 1,
        aten.multilabel_margin_loss_backward.default: 1,
        aten.fractional_max_pool3d_backward.default: 1,
        aten._ctc_loss_backward.default: 1,
        aten._ctc_loss_backward.Tensor: 1,
    }
)
"""Operator -> the argument, counted from 0, whose sizes and dtype its result has."""


def result_like(function: Any, *args: Any) -> Tensor:
    """Return a contiguous tensor of the shape and dtype that an operator's result has, without running the operator."""
    return torch.empty_like(args[RESULT_LIKE[function]], memory_format=torch.contiguous_format)


@contextlib.contextmanager
def _fake_tensor_rules() -> Iterator[None]:
    """Let the operators of RESULT_LIKE run on fake tensors, by `result_like`."""
    from backprint._torch.fake import fake_rules

    def rule(mode: Any, function: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the result of an operator, as FakeTensorMode asks its rules."""
        with mode:
            return result_like(function, *args)

    with mock.patch.dict(fake_rules, dict.fromkeys(RESULT_LIKE, rule)):
        yield


# ------------------------------------------------------------------ the code of a graph

OPERATOR_LINE = re.compile(r"^ *target: (\S+)", re.MULTILINE)
"""The line of Inductor's errors that names an operator."""


@contextlib.contextmanager
def lowering_for(target: KernelTarget, threads: int) -> Iterator[None]:
    """Let Inductor write code for a target that need not be there; `threads` are those of C++."""
    _import_inductor()
    settings_of_target = fake_gpu(target) if target.device == "cuda" else _lowering_for_cpu(target, threads)
    with warnings.catch_warnings(), _fake_tensor_rules(), settings_of_target:
        warnings.simplefilter("ignore")  # where warnings are errors, Inductor's would be refusals
        yield


def _import_inductor() -> None:
    """Import Inductor without the warnings of torch about torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        load_inductor()


@contextlib.contextmanager
def _lowering_for_cpu(target: KernelTarget, threads: int) -> Iterator[None]:
    """Let Inductor write C++ for a number of threads and vector instructions.

    If the target names its instructions, no C++ compiler is run to find out which ones there are. Refuse one that does
    not where there is no compiler.
    """
    from backprint._torch.inductor import codecache, cpu_vec_isa
    from backprint._torch.inductor import config as settings

    options = {"compile_threads": 1, "fx_graph_cache": False, "cpp.threads": threads}
    with contextlib.ExitStack() as patches:
        if target.isa:
            isa = getattr(cpu_vec_isa, ISAS[target.isa])()
            options["cpp.vec_isa_ok"] = True
            for place in (cpu_vec_isa, codecache):  # which writes C++, and which compiles it
                patches.enter_context(mock.patch.object(place, "pick_vec_isa", return_value=isa))
            if not _has_compiler():
                # Inductor tests for extensions of AVX-512 that do not change the code. Some lines depend on the
                # compiler: they are written for g++.
                patches.enter_context(mock.patch.object(cpu_vec_isa.VecISA, "check_build", return_value=False))
                patches.enter_context(as_for_gxx())
        elif not _has_compiler():
            known = ", ".join(f"cpu:{name}" for name in ISAS)
            raise RefusedError(
                "there is no C++ compiler here to say which vector instructions this machine has: name them, as one of "
                f"the targets {known}, or install g++"
            )
        patches.enter_context(settings.patch(options))
        yield


def _has_compiler() -> bool:
    """Whether Inductor finds a C++ compiler here."""
    from backprint._torch.inductor import InvalidCxxCompiler, cpp_compiler

    try:
        cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


def isa_in_use() -> str:
    """Return the vector instructions that Inductor writes for: a name of ISAS, its own of others, `scalar` for none."""
    from backprint._torch.inductor import cpu_vec_isa

    chosen = cpu_vec_isa.pick_vec_isa()
    if isinstance(chosen, cpu_vec_isa.InvalidVecISA):
        return "scalar"
    families = {name: getattr(cpu_vec_isa, kind) for name, kind in ISAS.items()}  # of some there are finer kinds
    return next((name for name, family in families.items() if isinstance(chosen, family)), str(chosen))


@dataclass(frozen=True, slots=True)
class InductorCode:
    """The code of a graph: the wrapper, and the steps of the captured graph that each kernel computes."""

    wrapper: str
    steps: Mapping[str, tuple[str, ...]]
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The nodes of Inductor's schedule that each kernel is made of."""
    fusion_refusals: tuple[tuple[frozenset[str], frozenset[str], str], ...] = ()
    """Two sets of such nodes, and why Inductor did not make one kernel of them."""


def lower_with_inductor(prepared: PreparedGraph, backward: bool) -> InductorCode:
    """Return the code that Inductor writes for a forward or a backward: its kernels as texts, and the calls of them.
    Refuse a graph that Inductor does not lower."""
    from backprint._torch.inductor import (
        DebugContext,
        GraphLowering,
        V,
        joint_graph_passes,
        post_grad_passes,
        record_strides,
        view_to_reshape,
    )

    on_gpu = any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in prepared.inputs)
    if on_gpu and importlib.util.find_spec("triton") is None:
        raise RefusedError(
            "Inductor's kernels for GPUs are written with triton, which is not installed: pip install triton"
        )
    # the passes of compile_fx, in their order, and its GraphLowering; what follows it, compilation, is left out. Each
    # direction is lowered as a graph of its own (`is_inference`), and not as half of a training step
    with V.set_fake_mode(prepared.mode), V.set_debug_handler(DebugContext()), torch.no_grad(), _lowering_errors():
        module = joint_graph_passes(prepared.module)
        view_to_reshape(module)
        record_strides(module)
        with fx.traceback.preserve_node_meta():
            post_grad_passes(module, is_inference=True)
        graph = GraphLowering(
            module,
            example_inputs=prepared.inputs,
            is_backward=backward,
            is_inference=True,
            shape_env=prepared.mode.shape_env,
        )
        with V.set_graph_handler(graph), _record_steps() as parts, _record_fusion_refusals() as fusion_refusals:
            graph.run(*prepared.inputs)
            code, _ = graph.codegen()
    text = str(getattr(code, "value", code))  # `codegen` returns a str, or an object with the text as `value`
    return InductorCode(text, steps=parts.steps, nodes=parts.nodes, fusion_refusals=tuple(fusion_refusals))


@contextlib.contextmanager
def _lowering_errors() -> Iterator[None]:
    """Raise a RefusedError that names the operator, in place of any error of Inductor's. An error of Backprint's own
    code is raised as it is."""
    try:
        yield
    except BackprintError:
        raise
    except Exception as error:  # of any kind: the code of a lowering raises what it meets
        if is_defect(error):
            raise
        message = str(error).strip()
        match = OPERATOR_LINE.search(message)
        operators = [match[1]] if match else _operators_in_traceback(error)
        what = ", ".join(operators) or "the graph, and names no operator"
        raise RefusedError(
            f"Inductor does not lower {what}: {type(error).__name__}: {message.partition(chr(10))[0][:300]}; "
            "rewrite the program without it, or extract for another target"
        ) from error


def _operators_in_traceback(error: Exception) -> list[str]:
    """Return the operators of the nodes in the innermost frame of an error that has any."""
    operators: list[str] = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        nodes = [node for value in frame.f_locals.values() for node in nodes_of(value)]
        operators = sorted({str(node.target) for node in nodes if node.op == "call_function"}) or operators
    return operators


def nodes_of(value: Any) -> list[fx.Node]:
    """Return the graph's nodes that a value in a frame of Inductor stands for; none for other values."""
    from backprint._torch.inductor import BaseSchedulerNode, aggregate_origins

    if isinstance(value, BaseSchedulerNode):
        return list(aggregate_origins([value]))
    return [value] if isinstance(value, fx.Node) else []


@dataclass(frozen=True, slots=True)
class _KernelParts:
    """What each kernel is made of: the steps of the captured graph, and the nodes of Inductor's schedule."""

    steps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)


@contextlib.contextmanager
def _record_steps() -> Iterator[_KernelParts]:
    """Record, for each kernel that Inductor writes, its steps and nodes, by patching the methods that give it its
    name."""
    from backprint._torch.inductor import BaseSchedulerNode, CppScheduling, TritonScheduling

    parts = _KernelParts()

    def recording(define: Callable[..., str]) -> Callable[..., str]:
        """Return `define_kernel` of a writer of code, which notes what the kernel is made of under the name that it
        returns. Kernels of the same source have one name."""

        def define_and_record(self: Any, source: str, nodes: Any, *args: Any) -> str:
            name = define(self, source, nodes, *args)
            parts.steps[name] = tuple(dict.fromkeys([*parts.steps.get(name, ()), *steps_of(nodes)]))
            schedule_nodes = [node.get_name() for node in nodes or [] if isinstance(node, BaseSchedulerNode)]
            parts.nodes[name] = tuple(dict.fromkeys([*parts.nodes.get(name, ()), *schedule_nodes]))
            return name

        return define_and_record

    with contextlib.ExitStack() as patches:
        for writer in (CppScheduling, TritonScheduling):
            patches.enter_context(mock.patch.object(writer, "define_kernel", recording(writer.define_kernel)))
        yield parts


@contextlib.contextmanager
def _record_fusion_refusals() -> Iterator[list[tuple[frozenset[str], frozenset[str], str]]]:
    """Record why Inductor does not fuse two sets of nodes, by patching the call with which it says so; it names a set
    by its nodes, joined by `_`."""
    from backprint._torch.inductor import WhyNoFuse

    refusals: list[tuple[frozenset[str], frozenset[str], str]] = []

    def record_refusal(self: Any, reason: str, *args: Any) -> None:
        text = reason % args if args else reason
        refusals.append((frozenset(self.name1.split("_")), frozenset(self.name2.split("_")), text))

    with mock.patch.object(WhyNoFuse, "__call__", record_refusal):
        yield refusals


def steps_of(nodes: Any) -> list[str]:
    """Return the steps of the captured graph that nodes of Inductor's schedule come from, in their order."""
    from backprint._torch.inductor import aggregate_origins

    # the nodes of the fx graph from which nodes of the schedule were lowered
    origins = [origin for origin in aggregate_origins(nodes or []) if origin.op == "call_function"]
    # the order of the graph, which `aggregate_origins` does not keep
    positions = {node: place for origin in origins[:1] for place, node in enumerate(origin.graph.nodes)}
    origins.sort(key=lambda origin: positions.get(origin, len(positions)))
    # written by `_name_sources` in prepare, as a list of one; a node that a pass of Inductor made may have none
    return [name for origin in origins for name, _ in origin.meta.get("source_fn_stack", ())[-1:]]

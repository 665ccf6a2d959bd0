"""Ask Inductor for the code of a prepared graph. Nothing is compiled, and no kernel is run.

Private torch APIs of this module, tried on torch 2.13: `torch._inductor.graph.GraphLowering`,
`torch._inductor.fx_passes.joint_graph.joint_graph_passes`, `torch._inductor.fx_passes.post_grad.post_grad_passes`,
`torch._inductor.compile_fx`, `torch._inductor.virtualized.V`, `torch._inductor.debug.DebugContext`,
`torch._inductor.cpu_vec_isa`, `torch._inductor.config`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import fx

from backprint.extracting.fake_gpu import pretended
from backprint.extracting.prepare import PreparedGraph
from backprint.extracting.targets import ISAS, KernelTarget


@contextlib.contextmanager
def lowering_for(target: KernelTarget, threads: int) -> Iterator[None]:
    """While this lasts, Inductor writes code for a target."""
    with pretended(target) if target.device == "cuda" else written_for_cpu(target, threads):
        yield


@contextlib.contextmanager
def written_for_cpu(target: KernelTarget, threads: int) -> Iterator[None]:
    """While this lasts, Inductor writes C++ for a number of threads and vector instructions.

    With instructions that are named, no C++ compiler is asked which ones it has.
    """
    import torch._inductor.config as settings
    from torch._inductor import cpu_vec_isa

    options = {"compile_threads": 1, "fx_graph_cache": False, "cpp.threads": threads}
    with contextlib.ExitStack() as held:
        if target.isa:
            isa = getattr(cpu_vec_isa, ISAS[target.isa])()
            options["cpp.vec_isa_ok"] = True
            held.enter_context(mock.patch.object(cpu_vec_isa, "pick_vec_isa", return_value=isa))
        held.enter_context(settings.patch(options))
        yield


def isa_in_use() -> str:
    """Return the vector instructions that Inductor writes for: a name of ISAS, its own of others, `scalar` for none."""
    from torch._inductor import cpu_vec_isa

    chosen = cpu_vec_isa.pick_vec_isa()
    if isinstance(chosen, cpu_vec_isa.InvalidVecISA):
        return "scalar"
    families = {name: getattr(cpu_vec_isa, kind) for name, kind in ISAS.items()}  # of some there are finer kinds
    return next((name for name, family in families.items() if isinstance(chosen, family)), str(chosen))


@dataclass(frozen=True, slots=True)
class InductorCode:
    """What Inductor wrote for a graph: the wrapper, and the steps of the captured graph that each kernel computes."""

    wrapper: str
    steps: Mapping[str, tuple[str, ...]]


def lower_with_inductor(prepared: PreparedGraph, backward: bool) -> InductorCode:
    """Return the code that Inductor writes: its kernels as texts, and the calls of them."""
    from torch._inductor.compile_fx import record_original_output_strides, view_to_reshape
    from torch._inductor.debug import DebugContext
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.fx_passes.post_grad import post_grad_passes
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    with V.set_fake_mode(prepared.mode), V.set_debug_handler(DebugContext()), torch.no_grad():
        module = joint_graph_passes(prepared.module)
        view_to_reshape(module)
        record_original_output_strides(module)
        with fx.traceback.preserve_node_meta():
            post_grad_passes(module, True)
        graph = GraphLowering(module, example_inputs=prepared.inputs, is_backward=backward, is_inference=True)
        with V.set_graph_handler(graph), steps_recorded() as steps:
            graph.run(*prepared.inputs)
            code, _ = graph.codegen()
    return InductorCode(str(getattr(code, "value", code)), steps)


@contextlib.contextmanager
def steps_recorded() -> Iterator[dict[str, tuple[str, ...]]]:
    """While this lasts, note of each kernel that is written the steps that it computes."""
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling

    found: dict[str, tuple[str, ...]] = {}

    def noting(define: Callable[..., str]) -> Callable[..., str]:
        def defined(self: Any, source: str, nodes: Any, *args: Any) -> str:
            name = define(self, source, nodes, *args)
            found[name] = tuple(dict.fromkeys([*found.get(name, ()), *steps_of(nodes)]))
            return name

        return defined

    with contextlib.ExitStack() as held:
        for writer in (CppScheduling, TritonScheduling):
            held.enter_context(mock.patch.object(writer, "define_kernel", noting(writer.define_kernel)))
        yield found


def steps_of(nodes: Any) -> list[str]:
    """Return the steps of the captured graph that nodes of Inductor's schedule come from, in their order."""
    from torch._inductor.utils import aggregate_origins

    origins = [origin for origin in aggregate_origins(nodes or []) if origin.op == "call_function"]
    places = {node: place for origin in origins[:1] for place, node in enumerate(origin.graph.nodes)}
    origins.sort(key=lambda origin: places.get(origin, len(places)))
    return [name for origin in origins for name, _ in origin.meta.get("source_fn_stack", ())[-1:]]

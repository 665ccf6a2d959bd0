"""Inductor: compiling graphs, its passes, settings and code generation, and its questions about compilers and devices.

To import a name of this module loads the part of Inductor that has it, so other rooms do that where they need it.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from backprint._torch import private
from backprint._torch.private import Private, Probe, is_there, look_up, probes_of, uses


def load_inductor(*parts: str) -> None:
    """Import parts of Inductor, by default the part that compiles a graph, so that a later first use does not pay for
    it."""
    for part in parts or ("compile_fx",):
        private.imported(f"torch._inductor.{part}")


def clear_caches_if_loaded() -> None:
    """Clear the caches that Inductor keeps in this process, if it has been imported."""
    if "torch._inductor.utils" in sys.modules:
        sys.modules["torch._inductor.utils"].clear_caches()


@uses("torch._inductor.cpp_builder.is_gcc", "torch._inductor.cpp_builder.is_msvc_cl", needed_by=(private.KERNELS,))
def taken_for_gxx() -> bool:
    """Whether Inductor takes the C++ compiler for g++ and not for Microsoft's."""
    from torch._inductor import cpp_builder

    return bool(cpp_builder.is_gcc()) and not cpp_builder.is_msvc_cl()


@uses("torch._inductor.cpp_builder.is_gcc", "torch._inductor.cpp_builder.is_msvc_cl", needed_by=(private.KERNELS,))
@contextlib.contextmanager
def as_for_gxx() -> Iterator[None]:
    """Have Inductor write C++ for g++, and ask no compiler which one it is."""
    from torch._inductor import cpp_builder

    with (
        mock.patch.object(cpp_builder, "is_msvc_cl", return_value=False),
        mock.patch.object(cpp_builder, "is_gcc", return_value=True),
    ):
        yield


@uses("torch._inductor.async_compile.AsyncCompile", needed_by=(private.KERNELS,))
@contextlib.contextmanager
def kernels_compiled_by(compiler: type) -> Iterator[None]:
    """In this block, a wrapper (the Python code that Inductor writes around its kernels) that is loaded finds
    `compiler` in the place of AsyncCompile, and a function for the current CUDA stream, though torch may be built
    without CUDA."""
    from torch._inductor import async_compile

    # `create`, because a torch without CUDA has no such function.
    stream = mock.patch.object(torch._C, "_cuda_getCurrentRawStream", return_value=0, create=True)
    with mock.patch.object(async_compile, "AsyncCompile", compiler), stream:
        yield


@uses("torch.cuda._DeviceGuard", needed_by=(private.KERNELS,))
@contextlib.contextmanager
def devices_not_switched() -> Iterator[None]:
    """In this block, a wrapper of Inductor that switches to a CUDA device stays on its own: there may be none."""
    with mock.patch.object(torch.cuda, "_DeviceGuard", side_effect=lambda index: contextlib.nullcontext()):
        yield


@uses("torch._inductor.runtime.triton_helpers.set_driver_to_gpu", needed_by=(private.KERNELS,))
@contextlib.contextmanager
def no_gpu_driver() -> Iterator[None]:
    """In this block, a Triton kernel of Inductor's that is loaded does not look for the driver of a GPU."""
    from torch._inductor.runtime import triton_helpers

    with mock.patch.object(triton_helpers, "set_driver_to_gpu"):
        yield


@uses(
    "torch._inductor.runtime.triton_heuristics.CachingAutotuner._create_compile_meta",
    "torch._inductor.runtime.triton_heuristics.CachingAutotuner._create_compile_options",
    needed_by=(private.KERNELS,),
)
def compilation_of(tuner: Any, configuration: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata and the options with which Triton compiles a kernel: that of Inductor's autotuner `tuner`, in
    one of its configurations (block sizes, warps and stages)."""
    meta = tuner._create_compile_meta(configuration)
    return meta, tuner._create_compile_options(configuration, meta)


# ---- Probes


def compiler_is_taken_for_gxx() -> bool:
    with as_for_gxx():
        return taken_for_gxx()


def settings_are_patched() -> bool:
    config = NAMES["config"].value()
    with config.patch({"fallback_random": True}):
        return bool(config.fallback_random) and "fallback_random" in config.get_config_copy()


def modes_have_settings() -> bool:
    return "max-autotune" in NAMES["mode_options"].value()()


def instructions_are_known() -> bool:
    module = NAMES["cpu_vec_isa"].value()
    return all(hasattr(module, name) for name in ("VecISA", "InvalidVecISA", "pick_vec_isa", "valid_vec_isa_list"))


def handlers_are_set() -> bool:
    virtual = NAMES["V"].value()
    return all(hasattr(virtual, f"set_{name}") for name in ("graph_handler", "fake_mode", "debug_handler"))


def properties_of_devices_are_kept() -> bool:
    return hasattr(NAMES["DeviceProperties"].value().create, "cache_clear")


def wrappers_are_given_a_compiler() -> bool:
    from torch._inductor import async_compile

    with kernels_compiled_by(Probe):
        return async_compile.AsyncCompile is Probe


def devices_are_guarded() -> bool:
    with devices_not_switched():
        return isinstance(torch.cuda._DeviceGuard(0), contextlib.nullcontext)


def tuners_say_how_to_compile() -> bool:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    return all(hasattr(CachingAutotuner, name) for name in ("_create_compile_meta", "_create_compile_options"))


# ---- Names

NAMES = {
    "config": Private("torch._inductor.config", "Inductor's settings.", (private.KERNELS,), holds=settings_are_patched),
    "compile_graph": Private(
        "torch._inductor.compile",
        "Compile a GraphModule for example inputs, without Dynamo.",
        (private.INDUCTOR,),
        passed=("options",),
    ),
    "mode_options": Private(
        "torch._inductor.list_mode_options",
        "Return the settings of each mode of `torch.compile`.",
        (private.INDUCTOR,),
        holds=modes_have_settings,
    ),
    "compile_and_package": Private(
        "torch._inductor.aoti_compile_and_package",
        "Compile an exported program into a package of AOTInductor.",
        (private.INDUCTOR,),
        passed=("package_path", "inductor_configs"),
    ),
    "load_package": Private(
        "torch._inductor.aoti_load_package", "Load a package of AOTInductor as a function.", (private.INDUCTOR,)
    ),
    "cpu_vec_isa": Private(
        "torch._inductor.cpu_vec_isa",
        "The module that has the vector instructions of processors: VecISA, pick_vec_isa, valid_vec_isa_list.",
        (private.KERNELS,),
        holds=instructions_are_known,
    ),
    "codecache": Private("torch._inductor.codecache", "The module that keeps compiled code.", (private.KERNELS,)),
    "cpp_compiler": Private(
        "torch._inductor.cpp_builder.get_cpp_compiler", "Return the command of the C++ compiler.", (private.KERNELS,)
    ),
    "InvalidCxxCompiler": Private(
        "torch._inductor.exc.InvalidCxxCompiler", "Raised if there is no C++ compiler.", (private.KERNELS,)
    ),
    "GraphLowering": Private(
        "torch._inductor.graph.GraphLowering",
        "Lowers a graph to Inductor's loops, and writes a wrapper and kernels of them.",
        (private.KERNELS,),
        passed=("example_inputs", "is_backward", "is_inference", "shape_env"),
    ),
    "record_strides": Private(
        "torch._inductor.compile_fx.record_original_output_strides",
        "Note on a graph the strides that its outputs have.",
        (private.KERNELS,),
    ),
    "view_to_reshape": Private(
        "torch._inductor.compile_fx.view_to_reshape", "Replace views of a graph by reshapes.", (private.KERNELS,)
    ),
    "DebugContext": Private(
        "torch._inductor.debug.DebugContext", "What writes Inductor's debug files.", (private.KERNELS,)
    ),
    "joint_graph_passes": Private(
        "torch._inductor.fx_passes.joint_graph.joint_graph_passes",
        "Run the passes of Inductor on a joint graph.",
        (private.KERNELS,),
    ),
    "post_grad_passes": Private(
        "torch._inductor.fx_passes.post_grad.post_grad_passes",
        "Run the passes of Inductor on a forward or backward graph.",
        (private.KERNELS,),
        passed=("is_inference",),
    ),
    "V": Private(
        "torch._inductor.virtualized.V",
        "What is current in Inductor: the graph, the fake mode, the debug context.",
        (private.KERNELS,),
        holds=handlers_are_set,
    ),
    "BaseSchedulerNode": Private(
        "torch._inductor.scheduler.BaseSchedulerNode",
        "The class of what is scheduled: the nodes that a kernel is made of.",
        (private.KERNELS,),
    ),
    "WhyNoFuse": Private(
        "torch._inductor.scheduler.WhyNoFuse",
        "Called with the reason why two nodes of a schedule are not one kernel; `name1` and `name2` are theirs.",
        (private.KERNELS,),
    ),
    "aggregate_origins": Private(
        "torch._inductor.utils.aggregate_origins",
        "Return the nodes of the graph that scheduled nodes come from.",
        (private.KERNELS,),
    ),
    "CppScheduling": Private("torch._inductor.codegen.cpp.CppScheduling", "Writes kernels in C++.", (private.KERNELS,)),
    "TritonScheduling": Private(
        "torch._inductor.codegen.triton.TritonScheduling", "Writes kernels in Triton.", (private.KERNELS,)
    ),
    "select_decompositions": Private(
        "torch._inductor.decomposition.select_decomp_table",
        "Return the decompositions that Inductor uses with the present settings.",
        (private.KERNELS,),
    ),
    "AsyncCompile": Private(
        "torch._inductor.async_compile.AsyncCompile",
        "Compiles the kernels of a wrapper; `wait` replaces futures in the wrapper's names.",
        (private.KERNELS,),
    ),
    "DeviceProperties": Private(
        "torch._inductor.runtime.hints.DeviceProperties",
        "What Inductor knows of a device; `create` keeps it.",
        (private.KERNELS,),
        holds=properties_of_devices_are_kept,
    ),
    "GridExpr": Private(
        "torch._inductor.runtime.triton_heuristics.GridExpr",
        "Computes the grid of a Triton kernel from its configuration; `from_meta` makes one.",
        (private.KERNELS,),
    ),
    "triton_support": Private(
        "torch.utils._triton",
        "The module that says whether Triton is there: `has_triton`, `triton_hash_with_backend`.",
        (private.KERNELS,),
    ),
    "CudaInterface": Private(
        "torch._dynamo.device_interface.CudaInterface",
        "What Inductor asks about CUDA devices; `Worker` has what its processes ask.",
        (private.KERNELS,),
    ),
    "cuda_is_compiled": Private("torch.cuda._is_compiled", "Whether torch is built with CUDA.", (private.KERNELS,)),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    is_there("torch._inductor.utils.clear_caches", (private.BENCH,)),
    Probe("torch._inductor.cpp_builder.is_gcc", compiler_is_taken_for_gxx, (private.KERNELS,)),
    Probe("torch._inductor.async_compile.AsyncCompile of a wrapper", wrappers_are_given_a_compiler, (private.KERNELS,)),
    Probe("torch.cuda._DeviceGuard", devices_are_guarded, (private.KERNELS,)),
    Probe(
        "torch._inductor.runtime.triton_heuristics.CachingAutotuner._create_compile_meta",
        tuners_say_how_to_compile,
        (private.KERNELS,),
    ),
)

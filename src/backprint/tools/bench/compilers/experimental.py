"""ExecuTorch, IREE and TVM: compilers that refuse many graphs, or end the process on some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from backprint.tools.bench.compilers.exchange import NUMPY, exchanged, exported, refuse_dtypes, result_kinds


def build_executorch(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile with ExecuTorch for XNNPACK."""
    return exchanged(module, inputs, method_of)


def method_of(core: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Return a core as a function that calls a method of ExecuTorch's runtime, and copies its results."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from executorch.runtime import Runtime

    edge = to_edge_transform_and_lower(
        exported(core, inputs),
        partitioner=[XnnpackPartitioner()],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),  # the check refuses all but core operators
    )
    executorch_program = edge.to_executorch()
    program = Runtime.get().load_program(executorch_program.buffer)
    method = program.load_method("forward")
    held = (executorch_program, program)  # the method reads their memory

    def called(*values: Tensor) -> Sequence[Tensor]:
        # `held` is named here so that it lives as long as this function; the method's next call writes into its results
        return [value.clone() for value in method.execute(list(values))] if held else []

    return called


def build_iree(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile with IREE for the CPU."""
    return exchanged(module, inputs, _loaded_module)


def _loaded_module(core: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Return a core as a function of IREE's runtime, whose arrays are numpy's."""
    import iree.runtime
    from iree.turbine import aot

    kinds = result_kinds(core, inputs)
    refuse_dtypes("IREE's runtime", [*(value.dtype for value in inputs), *(dtype for dtype, _ in kinds)], NUMPY)
    program = aot.export(exported(core, inputs))
    binary = program.compile(save_to=None, target_backends="llvm-cpu")  # None: the binary stays in memory
    context = iree.runtime.SystemContext(config=iree.runtime.Config("local-task"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, binary.map_memory()))
    call = context.modules.module["main"]

    def called(*values: Tensor) -> Sequence[Tensor]:
        results = call(*(value.numpy() for value in values))
        listed = results if isinstance(results, tuple | list) else (results,)
        return [torch.from_numpy(value.to_host().copy()) for value in listed]

    return called


def build_tvm(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile with TVM Relax for the CPU."""
    return exchanged(module, inputs, _virtual_machine)


def _virtual_machine(core: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Return a core as a function of TVM's virtual machine."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    program = from_exported_program(exported(core, inputs))
    target = tvm.target.Target("llvm")
    optimized = relax.get_pipeline("zero")(program)  # TVM's passes without its search for faster kernels
    compiled = tvm.compile(optimized, target=target)
    machine = relax.VirtualMachine(compiled, tvm.cpu())

    def called(*values: Tensor) -> Sequence[Tensor]:
        results = machine["main"](*(tvm.runtime.from_dlpack(value) for value in values))
        listed = [results] if isinstance(results, tvm.runtime.Tensor) else list(results)
        return [torch.from_dlpack(value) for value in listed]

    return called

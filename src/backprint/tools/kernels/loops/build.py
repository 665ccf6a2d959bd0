"""PTX and cubin of the kernels of a file that was lowered, for a GPU that need not be there.

`lowered.load()` is the file as a module. `lowered.parts` is what the file is made of: its `forward` and `backward` are
KernelTexts, each with the name of a kernel and the tensors that it takes, and its `layout` has the facts of each tensor
(`layout.facts`; `dims` is None but for a gradient that is summed over dimensions) and its name in the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from backprint.errors import RefusedError
from backprint.tools.kernels.build_triton import name_files_by_package, use_separate_cache
from backprint.tools.kernels.loops.triton_text import HALVES, KernelText
from backprint.tools.kernels.lowered_build import BuiltFunction, read_resources

if TYPE_CHECKING:
    from backprint.tools.kernels.loops.lowered import LoweredLoop

POINTERS: Mapping[torch.dtype, str] = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.bool: "*i8",
}
"""Triton's types of pointers to tensors: a bool is a byte in memory."""


def compile_kernels(lowered: LoweredLoop, capability: int) -> tuple[BuiltFunction, ...]:
    """Return the kernels of a LoweredLoop, the forward's and the backward's, compiled for a compute capability, 90 for
    9.0. Refuse where Triton interprets kernels in this process."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise RefusedError("TRITON_INTERPRET=1 is set: triton interprets kernels in this process, and compiles none")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    module = lowered.load()
    kernels = [lowered.parts.forward, *([lowered.parts.backward] if lowered.parts.backward else [])]
    results = []
    with use_separate_cache(), name_files_by_package():  # the same text on every machine, without paths of this one
        for kernel in kernels:
            function = getattr(module, kernel.name)
            signature, constants = _signature_and_constants(lowered, kernel, function)
            source = ASTSource(function, signature, constants)
            # as the file launches them (`launch_lines` in file_text), with Triton's default of 4 warps
            options = {"num_warps": 4, "enable_fp_fusion": False}
            compiled = compile(source, target=GPUTarget("cuda", capability, warp_size=32), options=options)
            registers, spilled = read_resources(compiled.asm["cubin"])
            results.append(
                BuiltFunction(kernel.name, capability, compiled.asm["ptx"], compiled.asm["cubin"], registers, spilled)
            )
    return tuple(results)


def _signature_and_constants(
    lowered: LoweredLoop, kernel: KernelText, function: Any
) -> tuple[dict[str, str], dict[tuple[int, ...], Any]]:
    """Return the types of a kernel's arguments as the file passes them, and its constants by their place, as ASTSource
    takes them: a tuple of one index, since Triton has paths into tuples there. Sums of halves are float32 until torch
    has added them up."""
    layout = lowered.parts.layout
    pointers = {}
    for name in kernel.tensors:
        facts = layout.facts[name]
        wide = facts.dims is not None and facts.dtype in HALVES
        pointers[f"{layout.name(name)}_ptr"] = "*fp32" if wide else POINTERS[facts.dtype]
    # SAVE: as a call whose inputs require grad passes it
    flags: dict[str, Any] = {"SAVE": True, "BLOCK": _module_block(lowered)}
    names = list(function.arg_names)
    # what is neither a pointer nor a flag is a size
    signature = {name: pointers.get(name, "constexpr" if name in flags else "i32") for name in names}
    signature |= {name: "i64" for name in names if name == "last"}  # (T - 1) * n may need 64 bits
    return signature, {(names.index(name),): value for name, value in flags.items() if name in names}


def _module_block(lowered: LoweredLoop) -> int:
    """Return the value of BLOCK in the file: `_block_text` in file_text writes it."""
    columns = lowered.parts.layout.columns
    return 1 << (columns - 1).bit_length() if columns else 128

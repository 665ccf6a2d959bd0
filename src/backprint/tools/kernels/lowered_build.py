"""PTX and cubin of the kernels of a file that was lowered, for a GPU that need not be there."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backprint.child.child import run_command
from backprint.errors import RefusedError
from backprint.tools.kernels.build_triton import name_files_by_package, use_separate_cache


@dataclass(frozen=True, slots=True)
class BuiltFunction:
    """A kernel that Triton compiled. `registers` and `spilled` bytes are known where cuobjdump is there."""

    name: str
    capability: int
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    registers: int | None = None
    spilled: int | None = None


def compile_function(
    function: Any, name: str, types: Mapping[str, str], constants: Mapping[str, Any], warps: int, capability: int
) -> BuiltFunction:
    """Return a kernel of a file, compiled for a compute capability, 90 for 9.0: `types` are Triton's of its arguments,
    and `constants` the values of those that are constants. Refuse in a process where Triton interprets kernels."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise RefusedError("TRITON_INTERPRET=1 is set: triton interprets kernels in this process, and compiles none")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    parameter_names = list(function.arg_names)
    signature = {key: "constexpr" if key in constants else types[key] for key in parameter_names}
    # Triton's keys of constants are paths: a tuple of one index is an argument itself
    constants_by_position = {
        (parameter_names.index(name),): value for name, value in constants.items() if name in parameter_names
    }
    options = {"num_warps": warps}
    with use_separate_cache(), name_files_by_package():
        source = ASTSource(function, signature, constants_by_position)
        compiled = compile(source, target=GPUTarget("cuda", capability, warp_size=32), options=options)
    registers, spilled = read_resources(compiled.asm["cubin"])
    return BuiltFunction(name, capability, compiled.asm["ptx"], compiled.asm["cubin"], registers, spilled)


def read_resources(cubin: bytes) -> tuple[int | None, int | None]:
    """Return registers and spilled bytes of a cubin, from cuobjdump; None where that is not there."""
    import triton

    bundled = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    tool = str(bundled) if bundled.exists() else shutil.which("cuobjdump")
    if tool is None:
        return None, None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = run_command([tool, "-res-usage", file.name], timeout=60.0).printed
    # what spills is on the stack: `REG:32 STACK:8 SHARED:0 ...`
    match = re.search(r"REG:(\d+) STACK:(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (None, None)

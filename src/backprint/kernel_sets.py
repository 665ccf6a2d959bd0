"""`backprint kernels` for Python: the kernels that a compiler makes of a Capture or a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backprint.errors import UsageError
from backprint.graph.nouns import Capture

if TYPE_CHECKING:
    from backprint.extracting.capture_kernels import CaptureKernels


def kernels(
    program: Any,
    *args: Any,
    target: str = "cpu",
    direction: str = "both",
    threads: int = 1,
    compiler: str = "inductor",
    **kwargs: Any,
) -> CaptureKernels:
    """Return the kernels that a compiler makes of a Capture, or of a module or a function that is captured first.

    `target` is `"cpu"` (this machine's vector instructions), `"cpu:avx2"`, `"cpu:avx512"`, `"cpu:neon"`, or a GPU's
    compute capability, `"cuda:80"`, `"cuda:90"`, …: that GPU need not be there. `direction` is `"forward"`,
    `"backward"` or `"both"`; `threads` are those that C++ is written for. `compiler` is `"inductor"`, Inductor with
    other settings of `torch._inductor.config`, `"inductor:combo_kernels=True"`, or the place of a function of yours,
    `"file.py:function"`. Other arguments are those of `bp.capture`.
    Nothing is compiled and no kernel runs, until `.check()`, or `.ptx()` of a kernel, asks for it.
    """
    from backprint.api import capture
    from backprint.extracting.capture_kernels import capture_kernels

    made = program if isinstance(program, Capture) else capture(program, *args, **kwargs)
    if made is program and (args or kwargs):
        raise UsageError("a Capture takes no further arguments: pass the module or function to capture another")
    return capture_kernels(made, target, direction, threads, compiler)

"""A kernel with its calls as one file, whatever its language."""

from __future__ import annotations

import ast

from backprint.errors import RefusedError
from backprint.extracting.alone.alone_cpp import cpp_file
from backprint.extracting.alone.alone_triton import triton_file
from backprint.extracting.nouns import Kernel


def alone_text(kernel: Kernel) -> str:
    """Return a kernel with its calls as one file, `python kernel.py`; a kernel without calls raises RefusedError."""
    if kernel.language not in ("triton", "cpp"):
        raise RefusedError(f"{kernel.name}: {kernel.language!r:.40} is no language of kernels: triton and cpp are")
    if not kernel.calls:
        raise RefusedError(f"{kernel.name}: there is no recorded call of this kernel, so nothing could run it: extract "
                           f"it from a Capture with `backprint kernels`")  # fmt: skip
    text = triton_file(kernel) if kernel.language == "triton" else cpp_file(kernel)
    ast.parse(text)  # what Python cannot read is never handed out
    return text

"""The bytes that the calls of a kernel move at least, from the sizes that were recorded.

A call that reads all of its inputs and writes all of its outputs cannot move less than the elements that its tensors
have, each once. A kernel that gathers some rows of a table may move less, and one that reads an input twice moves more.
"""

from __future__ import annotations

import re

from backprint.extracting.nouns import Kernel, KernelArgument

BITS = re.compile(r"[a-z]+?(\d+)(?:_?[a-z]\w*?)??(?:_x(\d))?")
"""The width in the name of a dtype: `float32`, `float8_e4m3fn`, `float4_e2m1fn_x2`."""


def kernel_bytes(kernel: Kernel) -> int | None:
    """Return the bytes that all recorded calls of a kernel move at least; None without calls."""
    if not kernel.calls:
        return None
    return sum(argument_bytes(argument) for call in kernel.calls for argument in call.arguments)


def argument_bytes(argument: KernelArgument) -> int:
    """Return the bytes of a tensor's elements, those at the same place counted once; 0 of a number."""
    if argument.value is not None:
        return 0
    count = 1
    for size, stride in zip(argument.shape, argument.stride, strict=True):
        count *= size if stride or not size else 1
    return count * element_bytes(argument.dtype)


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element: 1 of `bool` and of a dtype whose name has no width."""
    found = BITS.fullmatch(dtype)
    return -(-int(found[1]) * int(found[2] or 1) // 8) if found else 1

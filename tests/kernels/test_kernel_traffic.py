"""The bytes that the calls of kernels move at least, by what their code reads and writes."""

from __future__ import annotations

import pytest

from face import Kernel, KernelArgument, KernelCall, RefusedError, argument_bytes, minimum_bytes

GATHER = """
import triton
import triton.language as tl

@triton.jit
def kernel(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tmp0 = tl.load(in_ptr0 + (xindex), xindex < xnumel)
    tmp1 = tl.load(in_ptr1 + (tmp0), xindex < xnumel)
    tl.store(out_ptr0 + (xindex), tmp1, xindex < xnumel)
"""


def tensor(size: int, dtype: str = "float32") -> KernelArgument:
    return KernelArgument(dtype, (size,), (1,))


def test_a_triton_kernel_moves_what_it_loads_and_stores() -> None:
    call = KernelCall((tensor(14, "int64"), tensor(50000), tensor(14), KernelArgument("int", value=14)))
    assert minimum_bytes(call, Kernel("triton", "kernel", GATHER, "cuda:90")) == 14 * 8 + 50000 * 4 + 14 * 4
    with pytest.raises(RefusedError, match="no Triton kernel"):
        minimum_bytes(call, Kernel("triton", "kernel", "x = 1", "cuda:90"))


def test_a_dtype_that_is_not_known_is_refused() -> None:
    call = KernelCall((tensor(14, "quint4x2"), tensor(50000), tensor(14), KernelArgument("int", value=14)))
    with pytest.raises(RefusedError, match="'quint4x2' are not known"):
        minimum_bytes(call, Kernel("triton", "kernel", GATHER, "cuda:90"))


def test_an_element_of_an_expanded_tensor_counts_once() -> None:
    assert argument_bytes(KernelArgument("bfloat16", (8, 16), (0, 1))) == 32
    assert argument_bytes(KernelArgument("float32", (8, 0), (0, 1))) == 0
    assert argument_bytes(KernelArgument("int", value=14)) == 0

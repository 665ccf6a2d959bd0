"""Wrappers that Inductor 2.13.0 wrote of small functions, for a CPU and for sm_90: `sources/*.txt`."""

# ruff: noqa: E501 - the lines are those of Inductor

from __future__ import annotations

from pathlib import Path

from backprint.tools.kernels.nouns import Kernel
from backprint.tools.kernels.read import kernels_of_wrapper

SOURCES = Path(__file__).parent / "sources"

TEMPLATE = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties

@triton_heuristics.template(

num_stages=4,
num_warps=8,
triton_meta={'signature': {'arg_A': '*fp16', 'arg_B': '*fp16', 'out_ptr0': '*fp16'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32), 'constants': {}, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]]}]},
inductor_meta={'kernel_name': 'triton_tem_fused_mm_0', 'backend_hash': 'AB', 'grid_type': 'FixedGrid', 'fixed_grid': ['_grid_0', '_grid_1', '_grid_2'], 'extra_launcher_args': ['_grid_0', '_grid_1', '_grid_2'], 'config_args': {'EVEN_K': True, 'BLOCK_M': 64, 'BLOCK_N': 128, 'BLOCK_K': 32, 'GROUP_M': 8}},

)
@triton.jit
def triton_tem_fused_mm_0(arg_A, arg_B, out_ptr0):
    EVEN_K : tl.constexpr = True
    BLOCK_M : tl.constexpr = 64
    BLOCK_N : tl.constexpr = 128
    BLOCK_K : tl.constexpr = 32
    GROUP_M : tl.constexpr = 8
    A = arg_A
    B = arg_B
    M = 512
    N = 256
    K = 1024
    pid = tl.program_id(0).to(tl.int32)
    grid_n = (N + BLOCK_N - 1) // BLOCK_N
    pid_m = pid // grid_n
    pid_n = pid % grid_n
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k_idx in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(A + ((rm % M)[:, None] * K + (offs_k[None, :] + k_idx * BLOCK_K)))
        b = tl.load(B + ((offs_k[:, None] + k_idx * BLOCK_K) * N + (rn % N)[None, :]))
        acc += tl.dot(a, b, allow_tf32=False, out_dtype=tl.float32)
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    tl.store(out_ptr0 + (rn[None, :] + N * rm[:, None]), acc, mask)
"""
"""A matrix product as Inductor's template writes it, shortened."""


def inductor_kernels(language: str = "") -> list[Kernel]:
    """Return the kernels of all wrappers, and a template, of one language or both."""
    found = [kernel for text in sorted(SOURCES.glob("*.txt")) for kernel in kernels_of_text(text)]
    found.append(Kernel("triton", "triton_tem_fused_mm_0", TEMPLATE))
    return [kernel for kernel in found if language in ("", kernel.language)]


def kernels_of_text(text: Path) -> list[Kernel]:
    return list(kernels_of_wrapper(text.read_text(), text.name))

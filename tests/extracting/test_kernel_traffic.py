"""The bytes that kernels ask for, against the least: counted in their code, with what is not known named."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from inductor_sources import inductor_kernels

from backprint.errors import RefusedError, UsageError
from backprint.extracting import block_traffic
from backprint.extracting.nouns import Kernel, KernelArgument, KernelCall, KernelConfiguration
from backprint.extracting.traffic import kernel_traffic, least_bytes, tensor_bytes

HEAD = """
import triton
import triton.language as tl

@triton.jit
def kernel({parameters}, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
"""

POINTWISE = """
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tl.store(out_ptr0 + (xindex), tmp0 + 1, xmask)
"""

TWICE = """
    _acc = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp0 = tl.load(in_ptr0 + (r0_index + r0_numel*xindex), r0_mask & xmask, other=0.0)
        _acc = tl.where(r0_mask & xmask, _acc + tmp0, _acc)
    tmp1 = tl.sum(_acc, 1)[:, None]
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp2 = tl.load(in_ptr0 + (r0_index + r0_numel*xindex), r0_mask & xmask, other=0.0)
        tl.store(out_ptr0 + (r0_index + r0_numel*xindex), tmp2 / tmp1, r0_mask & xmask)
"""

GATHER = """
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tmp1 = tl.load(in_ptr1 + (tmp0), xmask)
    tl.store(out_ptr0 + (xindex), tmp1, xmask)
"""


def tensor(*shape: int, dtype: str = "float32", stride: tuple[int, ...] = ()) -> KernelArgument:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return KernelArgument(dtype, shape, stride or tuple(steps[: len(shape)]))


def kernel(body: str, arguments: list[KernelArgument], sizes: tuple[int, int], grid: int) -> Kernel:
    tensors = sum(argument.value is None for argument in arguments)
    names = [*(f"in_ptr{number}" for number in range(tensors - 1)), "out_ptr0"]
    names += ["xnumel", "r0_numel"][: len(arguments) - tensors]
    configuration = KernelConfiguration((("XBLOCK", sizes[0]), ("R0_BLOCK", sizes[1])), 4, 1)
    source = HEAD.format(parameters=", ".join(names)) + body
    call = KernelCall(tuple(arguments), ((grid, 1, 1),))
    return Kernel("triton", "kernel", source, "cuda:90", configurations=(configuration,), calls=(call,))


def number(value: int) -> KernelArgument:
    return KernelArgument("int", value=value)


def test_a_pointwise_kernel_asks_for_the_least() -> None:
    made = kernel(POINTWISE, [tensor(1000), tensor(1000), number(1000)], (128, 1), 8)
    found = kernel_traffic(made.calls[0], made)
    assert (found.least, found.asked, found.exact, found.unknown, found.ratio) == (8000, 8000, True, (), 1.0)


def test_a_looped_reduction_that_reads_twice_is_seen() -> None:
    made = kernel(TWICE, [tensor(6, 500), tensor(6, 500), number(6), number(500)], (4, 64), 2)
    found = kernel_traffic(made.calls[0], made)
    assert (found.least, found.asked) == (2 * 12000, 3 * 12000)
    assert found.ratio == 1.5


def test_what_the_data_decide_is_named_and_bounded() -> None:
    made = kernel(GATHER, [tensor(14, dtype="int64"), tensor(50000), tensor(14), number(14)], (16, 1), 1)
    found = kernel_traffic(made.calls[0], made)
    assert found.asked == 14 * 8 + 14 * 4 + 14 * 4
    assert found.least == found.asked
    assert found.unknown == ("in_ptr1: the data decide the addresses, and each lane counts",)
    assert least_bytes(made.calls[0], made) == 14 * 8 + 50000 * 4 + 14 * 4


def test_blocks_that_stand_for_others_count_as_all_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kernel(TWICE, [tensor(999, 70), tensor(999, 70), number(999), number(70)], (2, 32), 500)
    sampled = kernel_traffic(made.calls[0], made)
    monkeypatch.setattr(block_traffic, "BLOCKS", 10_000)
    whole = kernel_traffic(made.calls[0], made)
    assert (sampled.exact, whole.exact) == (False, True)
    assert sampled.asked == whole.asked == 3 * 999 * 70 * 4


def test_a_tensor_counts_what_it_has_in_memory() -> None:
    assert tensor_bytes(tensor(4, 5, dtype="bfloat16")) == 40
    assert tensor_bytes(tensor(4, 5, stride=(0, 1))) == 20
    assert tensor_bytes(tensor(4, 5, stride=(10, 1))) == 80
    assert tensor_bytes(tensor(0, 5)) == 0
    assert tensor_bytes(KernelArgument("bool", value=True)) == 0
    assert tensor_bytes(tensor(3, dtype="bool")) == 3
    with pytest.raises(RefusedError, match="'quint4x2' are not known"):
        tensor_bytes(tensor(3, dtype="quint4x2"))


def test_cpp_says_that_it_is_not_known() -> None:
    source = 'extern "C"  void  kernel(float* in_out_ptr0, const float* in_ptr0, float* out_ptr0)\n{}\n'
    call = KernelCall((tensor(10), tensor(20), tensor(30)))
    made = Kernel("cpp", "cpp_fused", source, "cpu", "['float*', 'const float*', 'float*']", calls=(call,))
    found = kernel_traffic(call, made)
    assert (found.least, found.asked, found.ratio) == (4 * (2 * 10 + 20 + 30), None, None)
    assert found.unknown == ("the loops of a C++ kernel are not counted",)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("    while xnumel:\n        pass\n", "While"),
        ("    for index in tl.range(0, 1000000000000):\n        tmp0 = index\n", "more than 100000 statements"),
        ("    for index in tl.range(0, tl.load(in_ptr0)):\n        tmp0 = index\n", "bounds are not known"),
        ("    if tl.load(in_ptr0):\n        tmp0 = 1\n", "a condition that the data decide"),
        ("    tmp0 = tl.arange(0, 1000000000000)\n", "lanes"),
        ("    tmp0 = tl.arange(0, 4000000)[:, None] + tl.arange(0, 4000000)[None, :]\n", "lanes"),
        ("    tmp0 = " + " * ".join(["9999999999"] * 9) + "\n", "beyond 64 bits"),
        ("    tmp0 = tl.load(elsewhere + xindex, xmask)\n", "begins at no parameter"),
        ("    tmp0 = 1 // 0\n", "zero"),
    ],
)
def test_code_that_is_not_followed_is_said_to_be(code: str, says: str) -> None:
    made = kernel(code + POINTWISE, [tensor(1000), tensor(1000), number(1000)], (128, 1), 8)
    found = kernel_traffic(made.calls[0], made)
    assert found.asked is None
    assert found.least == 8000
    assert says in found.unknown[0]


def test_a_configuration_without_a_grid_is_refused() -> None:
    made = kernel(POINTWISE, [tensor(1000), tensor(1000), number(1000)], (128, 1), 8)
    with pytest.raises(UsageError, match="configuration 1 of 1 has no grid"):
        kernel_traffic(made.calls[0], made, 1)
    with pytest.raises(RefusedError, match="no Triton kernel"):
        least_bytes(made.calls[0], replace(made, source="x = 1"))


def test_the_evaluator_follows_the_kernels_of_inductor() -> None:
    """Each access of the sources is counted on arguments that are large enough, for the block at the origin."""
    followed = 0
    for made in inductor_kernels("triton"):
        tree = next(node for node in ast.parse(made.source).body if isinstance(node, ast.FunctionDef))
        sizes = {one.arg: 4 for one in tree.args.args if "ptr" in one.arg}
        known = {one.arg: 8 for one in tree.args.args if "BLOCK" in one.arg} | {"load_seed_offset": 0}
        if not sizes or "fused_mm" in made.name:
            continue
        found = block_traffic.asked_bytes(tree, known, sizes, (1, 1, 1))
        assert found.complete, (made.name, found.unknown)
        assert found.read.keys() | found.written.keys() == sizes.keys()
        followed += 1
    assert followed > 10

"""Checks of kernels whose operators give something else on their target than here, or that draw from a saved state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels.test_checking_kernels import needs_compiler, told
from kernels.test_extract_kernels import made as extracted
from kernels.test_extract_kernels import needs_triton
from kernels.test_kernels_alone import run_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import backprint as bp
from face import HEADER, CaptureKernels, Pair, RefusedError, extract_kernels, parse, standalone_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]  # torch's own, of Inductor's import

BOTH = [pytest.param("cuda:90", marks=needs_triton), pytest.param("cpu", marks=needs_compiler)]


def kernels_of(program: Any, *inputs: Tensor, target: str = "cuda:90", **options: Any) -> CaptureKernels:
    torch.manual_seed(0)
    return extract_kernels(bp.capture(program, *inputs, **options), target)


def moving(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


# ------------------------------------------------------------------ results that have another shape on a GPU

OTHER_SHAPES = {
    "statistics of an evaluation": (nn.BatchNorm1d(4).eval(), (2, 4, 9), "[4], and eager's here [0]"),
    "buffer of a log-sigmoid": (F.logsigmoid, (2, 9), "[0], and eager's here [2, 9]"),
}


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_what_is_saved_in_another_shape_on_a_gpu_is_not_wrong(name: str) -> None:
    program, shape, said = OTHER_SHAPES[name]
    found = kernels_of(program, moving(*shape)).check()
    assert all(verdict.good for verdict in found), told(found)
    assert f"its shape on the target is {said}" in found[0].detail


@pytest.mark.slow
@needs_triton
def test_a_backward_whose_saved_tensors_eager_lacks_is_unproven() -> None:
    capture = bp.capture(F.logsigmoid, moving(2, 9))
    (found,) = extract_kernels(capture, "cuda:90", "backward").check()
    assert found.verdict == "unproven"
    assert "check the backward with its forward" in found.detail


@pytest.mark.slow
@needs_triton
def test_an_output_of_another_shape_on_a_gpu_is_unproven() -> None:
    def normed(x: Tensor, mean: Tensor, variance: Tensor) -> Any:
        return torch.native_batch_norm(x, None, None, mean, variance, False, 0.1, 1e-5)

    (found,) = kernels_of(normed, torch.randn(3, 2, 4), torch.zeros(2), torch.ones(2), requires_grad=False).check()
    assert found.verdict == "unproven"
    assert "its shape on the target is [2], and eager's here [0]" in found.detail


@pytest.mark.slow
@needs_triton
def test_a_call_beside_the_kernels_with_another_result_here_is_unproven() -> None:
    inputs = torch.randint(0, 20, (9,)), torch.tensor([0, 3, 3, 9])
    program = nn.EmbeddingBag(20, 6, include_last_offset=True)
    assert not kernels_of(program, *inputs, target="cpu:avx2", mode="train").refused
    found = kernels_of(program, *inputs, mode="train").check()
    assert {verdict.verdict for verdict in found} == {"unproven"}, told(found)
    assert "on the target: run the kernels there" in found[0].detail


def in_half(x: Tensor) -> Tensor:
    return x.chalf()


@pytest.mark.slow
@needs_triton
def test_inputs_that_cannot_be_made_are_unproven() -> None:
    found = kernels_of(in_half, moving(3)).check()
    assert {verdict.verdict for verdict in found} == {"unproven"}, told(found)
    assert "tangent" in found[0].detail


# ------------------------------------------------------------------ PTX, and rounding


def arctangent(x: Tensor) -> Tensor:
    return torch.atan(x * 3)


EDGES = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1 / 3, 1e-40)


@pytest.mark.slow
@needs_triton
def test_an_arctangent_written_in_ptx_is_right() -> None:
    x = torch.cat([torch.randn(500) * 10, torch.tensor(EDGES)]).requires_grad_()
    kernels = kernels_of(arctangent, x)
    assert "fma.rn.f32" in kernels.graphs[0].wrapper
    found = kernels.check()
    assert all(verdict.good for verdict in found), told(found)


@needs_triton
def test_an_arctangent_written_in_ptx_runs_alone(tmp_path: Path) -> None:
    (kernel,) = kernels_of(arctangent, torch.randn(300), requires_grad=False)
    done = run_file(tmp_path / "atan.py", standalone_text(kernel))
    assert done.returncode == 0, done.stdout + done.stderr


def to_thousandths(x: Tensor) -> Tensor:
    return torch.round(x, decimals=3)


@pytest.mark.slow
@needs_triton
def test_a_last_bit_of_float32_is_not_wrong() -> None:
    (found,) = kernels_of(to_thousandths, torch.randn(5, 5) * 3, requires_grad=False).check()
    assert found.good, told([found])


# ------------------------------------------------------------------ draws from a saved state


class Recomputed(nn.Module):
    """Its backward draws again what its forward drew."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + checkpoint(lambda v: self.last(F.dropout(self.first(v).tanh(), 0.3)), x, use_reentrant=False)


@pytest.mark.slow
@pytest.mark.parametrize("target", BOTH)
def test_a_dropout_that_is_computed_again_has_kernels(target: str) -> None:
    kernels = kernels_of(Recomputed(), moving(4, 8), target=target, mode="train")
    assert not kernels.refused
    forward, backward = kernels.graphs
    assert "torch.ops.higher_order.run_and_save_rng_state" in forward.externs
    assert "torch.ops.higher_order.run_with_rng_state" in backward.externs
    found = kernels.check()
    assert all(verdict.good for verdict in found), told(found)
    assert "1 draws of torch.ops.higher_order.run_and_save_rng_state were inputs" in found[0].detail


def dropped_twice(x: Tensor) -> Tensor:
    """The capture has the second draw in place."""
    return F.dropout(F.dropout(x.sin(), 0.2).cos(), 0.5)


@pytest.mark.slow
@needs_triton
def test_a_draw_into_a_new_tensor_is_an_input_of_the_check() -> None:
    found = kernels_of(dropped_twice, moving(4, 5)).check()
    assert all(verdict.good for verdict in found), told(found)
    assert "1 draws of aten.bernoulli_.float were inputs" in found[0].detail


# ------------------------------------------------------------------ what checks and the interpreter take for given


@pytest.mark.slow
@needs_triton
def test_a_saved_tensor_lies_in_eager_as_it_was_saved() -> None:
    """The backward of a GRU reads storages from their start."""
    found = kernels_of(nn.GRU(3, 4), moving(3, 2, 3), mode="train").check()
    assert all(verdict.good for verdict in found), told(found)


def places(x: Tensor) -> tuple[Tensor, ...]:
    return x.argmax(-1), x.argmin(0), x.amax(), x.cummax(1)[1], x.max(1)[1]


@pytest.mark.slow
@needs_triton
def test_the_place_of_a_nan_is_found() -> None:
    x = torch.randn(4, 70)
    x[0, 5] = x[1, 60] = x[1, 3] = float("nan")
    (found,) = kernels_of(places, x, requires_grad=False).check()
    assert found.good, told([found])


# ------------------------------------------------------------------ operators that PyTorch has no rule for

CLASSES = torch.tensor([1, 2, 0])


def margins(x: Tensor) -> Tensor:
    return F.multi_margin_loss(x.sin(), CLASSES)


def spoken(x: Tensor) -> Tensor:
    return F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2, 2], [3, 1, 1]]), (6, 6), (3, 2))


@pytest.mark.slow
@needs_triton
def test_a_backward_with_an_operator_without_a_rule_has_kernels() -> None:
    kernels = kernels_of(margins, moving(3, 4))
    assert not kernels.refused
    assert kernels.graphs[1].externs == {"aten.multi_margin_loss_backward.default": 1}
    found = kernels.check()
    assert all(verdict.good for verdict in found), told(found)


@pytest.mark.parametrize("target", ["cpu:avx2", pytest.param("cuda:90", marks=needs_triton)])
def test_the_backward_of_a_loss_over_sequences_has_kernels(target: str) -> None:
    kernels = kernels_of(spoken, moving(6, 2, 5), target=target)
    assert [title for title, _ in kernels.refused] == ["pair_0 forward"]
    assert kernels.graphs[0].kernels


KEPT = (
    HEADER
    + """

class GraphModule(torch.nn.Module):
    def forward(
        self,
        x: "f32[4, 3] input x",
        rng_0: "u8[5056] rng rng_0",
    ) -> (
        "f32[4, 3] output output",
        "f32[4, 3] saved softmax",
    ):
        softmax: "f32[4, 3]" = aten._softmax.default(x, -1, False)
        empty_like: "f32[4, 3]" = aten.empty_like.default(softmax)
        drawn: "f32[4, 3]" = torch.ops.higher_order.run_with_rng_state(rng_0, aten.bernoulli_.float, empty_like)
        div: "f32[4, 3]" = aten.div.Scalar(empty_like, 0.5)
        mul: "f32[4, 3]" = aten.mul.Tensor(softmax, div)
        return (mul, softmax)
"""
)


@pytest.mark.parametrize("target", ["cpu:avx2", pytest.param("cuda:90", marks=needs_triton)])
def test_a_draw_with_a_kept_state_does_not_share_the_memory_of_what_is_saved(target: str) -> None:
    (found,) = extracted(Pair("pair_0", parse(KEPT)), target)
    assert "run_with_rng_state(arg1_1, torch.ops.aten.bernoulli.p," in found.wrapper
    assert "bernoulli_" not in found.wrapper


ROW = '        row: "f32[3]" = aten.select.int(empty_like, 0, 0)\n        drawn:'

OF_OTHERS = {
    "an input": {"aten.bernoulli_.float, empty_like": "aten.bernoulli_.float, x"},
    "another distribution": {"aten.bernoulli_.float": "aten.geometric_.default"},
    "a tensor with a view": {"        drawn:": ROW, "aten.mul.Tensor(softmax, div)": "aten.mul.Tensor(row, div)"},
}


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_draw_with_a_kept_state_into_a_tensor_of_others_is_refused(name: str) -> None:
    text = KEPT
    for before, after in OF_OTHERS[name].items():
        assert before in text
        text = text.replace(before, after)
    with pytest.raises(RefusedError, match="draws into a tensor that was there before, with a random state"):
        extracted(Pair("pair_0", parse(text)), "cpu:avx2")

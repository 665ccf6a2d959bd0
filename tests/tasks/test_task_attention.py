"""Attention as kernels compute it: right though it is rounded otherwise than eager, and wrong where it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import backprint as bp

FLASH = '''
import torch


class Solution(torch.autograd.Function):
    """Saves its result, with which autograd refuses a backward if the result was written to."""

    @staticmethod
    def forward(ctx, q, k, v):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        top = scores.amax(-1, keepdim=True)
        weights = (scores - top).exp()
        total = weights.sum(-1, keepdim=True)
        result = weights @ v / total
        ctx.save_for_backward(q, k, v, result, top, total)
        return result

    @staticmethod
    def backward(ctx, g):
        q, k, v, result, top, total = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        weights = (q @ k.mT * scale - top).exp() / total
        scores = weights * (g @ v.mT - (g * result).sum(-1, keepdim=True)) * scale
        return scores @ k, scores.mT @ q, weights.mT @ g
'''

FROM_TORCH = """
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.attention import SDPBackend, sdpa_kernel


def Solution(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v

    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("task") / "attention"
    bp.tasks.make(bp.capture(attention, *(torch.randn(2, 64, 16, requires_grad=True) for _ in range(3))), place)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("text", [FLASH, FROM_TORCH], ids=["flash", "torch"])
def test_other_rounding_where_a_softmax_saturates_is_no_fault(text: str, task: Path, tmp_path: Path) -> None:
    """Eager is exact there by accident: a weight is 1, and its gradient 0."""
    (tmp_path / "solution.py").write_text(text)
    report = bp.tasks.check(task, tmp_path / "solution.py", timed=False)
    assert report.good, report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("scores = q @ k.mT * q.shape[-1] ** -0.5\n", "scores = (q @ k.mT * q.shape[-1] ** -0.5).clamp(-60, 60)\n"),
        ("(q @ k.mT * scale - top).exp() / total", "((q @ k.mT * scale - top).exp() / total).clamp(max=0.999)"),
        ("top = scores.amax(-1, keepdim=True)", "top = torch.zeros_like(scores[..., :1])"),
    ],
    ids=["scores are clamped", "weights are clamped", "no maximum is subtracted"],
)
def test_what_is_wrong_where_it_saturates_is_a_fault(before: str, after: str, task: Path, tmp_path: Path) -> None:
    assert before in FLASH
    (tmp_path / "solution.py").write_text(FLASH.replace(before, after, 1))
    report = bp.tasks.check(task, tmp_path / "solution.py", timed=False)
    assert not report.good, report


@pytest.mark.slow
def test_the_reference_is_right_for_inputs_in_other_memory(tmp_path: Path) -> None:
    """The kernel that it calls reads garbage from other memory than the captured one."""
    inputs = (torch.randn(2, 5, 2, 8).transpose(1, 2).requires_grad_() for _ in range(3))
    capture = bp.capture(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v), *inputs)
    bp.tasks.make(capture, tmp_path / "T")
    report = bp.tasks.check(tmp_path / "T", tmp_path / "T" / "reference.py", timed=False)
    assert report.good, report


@pytest.mark.slow
def test_a_result_that_is_transposed_has_such_a_tangent_when_it_is_timed(tmp_path: Path) -> None:
    """As in the model: eager's backward has a view that takes no other."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(32, 32) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (project(x).view(2, 16, 4, 8).transpose(1, 2) for project in (self.q, self.k, self.v))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 16, 32)

    torch.manual_seed(0)
    parts = bp.split(bp.capture(Attention(), torch.randn(2, 16, 32)), "module").parts
    tasks = 0
    for number, part in enumerate(parts):
        graph = part.capture.pairs[0].forward
        transposed = any(port.role == "output" and port.spec.stride is not None for port in graph.outputs)
        if transposed and part.capture.pairs[0].backward is not None:
            place = tmp_path / f"{number}"
            bp.tasks.make(part.capture, place)
            report = bp.tasks.check(place, place / "reference.py")
            assert report.good, report
            assert not report.untimed or "too short" in report.untimed, report
            tasks += 1
    assert tasks

"""A write that PyTorch does not know of is named: contents changed, and no operator wrote them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import CaptureError


def overwrite(tensor: Tensor, value: Tensor) -> None:
    """Write as a kernel does."""
    value = value.contiguous()
    ctypes.memmove(tensor.data_ptr(), value.data_ptr(), tensor.numel() * tensor.element_size())


class ExpInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor) -> Tensor:
        gradient = torch.exp(p)
        total = gradient.sum()
        overwrite(p, gradient)
        ctx.save_for_backward(p)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (gradient,) = ctx.saved_tensors
        return gradient * grad


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        array = self.count.numpy()
        array += 1
        return (x * self.count).sum()


def through_numpy(x: Tensor) -> Tensor:
    array = x.detach().numpy()
    array *= 2
    return (x * x).sum()


@pytest.fixture
def operator() -> Callable[[Tensor], Tensor]:
    @torch.library.custom_op("backprint_tests::silent", mutates_args=())
    def silent(x: Tensor) -> Tensor:
        result = x * 2
        overwrite(x, result)
        return result

    silent.register_autograd(lambda ctx, grad: grad * 2)
    return silent


@pytest.mark.parametrize(
    ("program", "written"),
    [
        (lambda x: ExpInPlace.apply(x), "x changed by the end of the forward"),
        (lambda x: ExpInPlace.apply(torch.sigmoid(x)), "the result of aten.sigmoid.default at .* changed"),
        (through_numpy, "x changed before aten.mul.Tensor runs at test_silent_writes.py"),
        (Counting(), "count changed before aten.mul.Tensor runs"),
    ],
    ids=["input", "saved", "numpy", "buffer"],
)
def test_a_write_that_no_operator_makes_is_named(program: Any, written: str) -> None:
    with pytest.raises(CaptureError, match=written) as caught:
        bp.capture(program, torch.rand(3, 4))
    assert "no operator of PyTorch wrote to it" in str(caught.value)


def test_an_operator_that_writes_against_its_schema_is_named(operator: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(CaptureError, match=r"silent.default writes into an argument of shape .* its schema does not"):
        bp.capture(lambda x: operator(torch.tanh(x)).sum(), torch.rand(3, 4), allow=("backprint_tests::silent",))


def reads_numpy(x: Tensor) -> Tensor:
    return x.sum() * float(np.sign(x.detach().numpy().sum()))


def writes_data(x: Tensor) -> Tensor:
    y = x * 2
    y.data.mul_(3)
    return (y * y).sum()


@pytest.mark.parametrize(
    "program", [reads_numpy, writes_data, nn.BatchNorm1d(4)], ids=["reads_numpy", "writes_data", "batch_norm"]
)
def test_programs_that_write_as_pytorch_knows_are_captured(program: Any) -> None:
    assert bp.capture(program, torch.rand(3, 4)).verify()[0].verdict == "bitwise"

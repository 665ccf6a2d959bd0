"""`@bp.region(derivative=True)`: whether the backward of one function of an eager program is the derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import Region


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


def region_of(function: Callable[..., Any]) -> Region:
    return function.region  # type: ignore[attr-defined]


def test_the_one_block_with_a_wrong_backward_is_found() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        @bp.region(derivative=True)
        def forward(self, x: Tensor) -> Tensor:
            return Halved.apply(x * self.w)

    @bp.region(derivative=True)
    def right(x: Tensor) -> Tensor:
        return x.softmax(0)

    block, x = Block(), torch.randn(3)
    block(right(x)).sum().backward()
    (answer,) = region_of(Block.forward).derivatives
    assert (answer.word, answer.ports) == ("not the derivative", ("w",))
    assert (answer.name, answer.wrong[0].function) == (
        "test_the_one_block_with_a_wrong_backward_is_found.<locals>.Block.forward",
        "Halved",
    )
    assert [answer.word for answer in region_of(right).derivatives] == ["derivative"]
    right(x)
    assert len(region_of(right).derivatives) == 1, "it is the first call's"


def test_the_program_is_as_without_it() -> None:
    drawn, calls = [], []

    def program(x: Tensor) -> Tensor:
        calls.append(len(calls))
        y = torch.nn.functional.dropout(Halved.apply(x))
        drawn.append(y.detach())
        return y.sum()

    x = torch.randn(8, requires_grad=True)
    torch.manual_seed(3)
    program(x).backward()
    expected, gradient, x.grad = drawn[-1], x.grad, None
    torch.manual_seed(3)
    region = bp.region(derivative=True, gradients="stats")
    region(program)(x).backward()
    assert torch.equal(drawn[-1], expected)
    assert torch.equal(x.grad, gradient)
    assert len(region.passes) == 1
    assert region.derivatives[0].word == "not the derivative"


def test_a_block_that_cannot_run_again_is_refused() -> None:
    with pytest.raises(bp.errors.UsageError, match="derivative=True needs a function"), bp.region(derivative=True):
        pass


def test_what_cannot_be_captured_does_not_stop_the_program() -> None:
    @bp.region(derivative=True)
    def program(x: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(x.square().sum(), x)
        gradient.backward(gradient)
        return x + gradient

    with pytest.raises(RuntimeError):
        program(torch.randn(3, requires_grad=True))
    (answer,) = region_of(program).derivatives
    assert answer.word == "cannot tell"
    assert "does not require grad" in answer.detail

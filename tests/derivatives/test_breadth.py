"""The derivative of PyTorch's own programs: what once raised a false alarm, or no answer, has the right word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp
from backprint.derivatives.setting import make_setting
from backprint.graph.nouns import Pair
from backprint.graph.verdicts import CANNOT_TELL, DERIVATIVE, NOT_THE_DERIVATIVE, Derivative


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def only(function: Callable[..., Any], *args: Any) -> Derivative:
    (result,) = bp.derivative(function, *args)
    return result


def test_an_operator_with_its_own_generator_state() -> None:
    assert only(lambda x: F.rrelu(x, 0.1, 0.9, training=True), leaf(20)).word == DERIVATIVE


def test_a_constant_that_the_backward_alone_takes() -> None:
    assert only(lambda x: x[[1, 2]], leaf(5, 3)).word == DERIVATIVE


def test_a_value_that_an_operator_refuses_is_not_passed_to_its_decomposition() -> None:
    x = torch.full((40,), 0.99, dtype=torch.float64, requires_grad=True)
    target = (torch.arange(40) % 2).double()
    assert only(F.binary_cross_entropy, x, target).word == DERIVATIVE


def test_inputs_for_which_the_program_returns_nan() -> None:
    result = only(lambda x: x.pow(1.5).sum(), leaf(6))
    assert result.word == DERIVATIVE
    assert "absolute values" in result.detail


def test_inputs_with_nan() -> None:
    result = only(lambda x: (x * x).sum(), torch.full((3,), float("nan"), requires_grad=True))
    assert result.word == CANNOT_TELL
    assert "as input" in result.detail


def test_a_wrong_forward_mode_formula() -> None:
    index = torch.tensor([[0, 1], [0, 2]])
    result = only(lambda x, y: x.scatter_reduce(0, index, y, "prod"), leaf(3, 2), leaf(2, 2, seed=1))
    assert result.word == DERIVATIVE
    assert "forward-mode formula of aten.scatter_reduce.two is wrong" in result.detail


@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        (lambda x: torch.corrcoef(x), (leaf(3, 2),)),
        (lambda x: F.normalize(x, 0.5, 0), (leaf(1, 4),)),
        (lambda x, w, b: F.layer_norm(x, (1,), w, b), (leaf(1), leaf(1, seed=1), leaf(1, seed=2))),
    ],
    ids=["corrcoef", "normalize", "layer_norm"],
)
def test_gradients_that_are_0_but_for_rounding(program: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    assert only(program, *inputs).word == DERIVATIVE


class InFewDigits(torch.autograd.Function):
    """Has a backward that computes in bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grads[0] * torch.complex(x.cos(), x).real.mul(512).round().div(512)


def test_few_digits_are_no_rounding() -> None:
    assert only(InFewDigits.apply, leaf(50)).word == NOT_THE_DERIVATIVE


def test_a_steep_operator_by_differences() -> None:
    half = torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    value = (half @ half.mT + 0.05 * torch.eye(6, dtype=torch.float64)).requires_grad_()
    assert only(lambda x: torch.ops.aten.cholesky.default(x), value).word == DERIVATIVE


def test_conventions_of_operators_with_several_results() -> None:
    assert only(lambda x: torch.linalg.eigh(x)[0], leaf(4, 4)).good


def test_a_defect_of_pytorch() -> None:
    """The gradient of as_strided_scatter's first argument is that of what was overwritten."""
    result = only(lambda x, y: torch.as_strided_scatter(x, y, (2,), (1,), 0), leaf(4), leaf(2, seed=1))
    assert result.word == NOT_THE_DERIVATIVE
    assert result.wrong[0].operators == ("aten.as_strided_scatter.default",)


def test_a_weight_of_zeros_is_no_symmetric_matrix() -> None:
    capture = bp.capture(nn.Linear(3, 3).double().requires_grad_(), leaf(2, 3))
    (pair,) = capture.pairs
    values = {name: torch.zeros(3, 3, dtype=torch.float64) for name in ("weight",)}
    setting = make_setting(pair, {**capture.origin.values(), **values}, 0, capture.seed)
    direction = setting.direction["weight"]
    assert not torch.allclose(direction, direction.mT)


def test_a_dropped_addend_is_a_place() -> None:
    """The sum of the gradients of a value is wrong, though each of its addends is right."""
    capture = bp.capture(lambda x: x.sin() * x.exp(), leaf(5))
    (pair,) = capture.pairs
    assert pair.backward is not None
    total = next(step for step in pair.backward.steps if step.target == "aten.add.Tensor")
    from dataclasses import replace

    from backprint.derivatives.check import check_pair

    alias = replace(total, target="aten.alias.default", args=total.args[:1], kwargs=())
    steps = tuple(alias if step is total else step for step in pair.backward.steps)
    wrong = Pair(pair.name, pair.forward, replace(pair.backward, steps=steps))
    result = check_pair(wrong, capture.origin.values(), capture.seed)
    assert result.word == NOT_THE_DERIVATIVE
    assert result.rest_is_right
    assert set(result.wrong[0].operators) == {"aten.sin.default", "aten.exp.default"}

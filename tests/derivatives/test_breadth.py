"""The derivative of PyTorch's own programs: what once raised a false alarm, or no answer, has the right word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import backprint as bp
from face import CANNOT_TELL, DERIVATIVE, NOT_THE_DERIVATIVE, Derivative, Pair, duals, make_setting


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


def test_a_wrong_forward_mode_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    index = torch.tensor([[0, 1], [0, 2]])
    known = only(lambda x, y: x.scatter_reduce(0, index, y, "prod"), leaf(3, 2), leaf(2, 2, seed=1))
    assert known.by_second_derivative or known.by_differences
    monkeypatch.setattr(duals, "WRONG_FORMULAS", {})
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
    assert [place.function for place in result.wrong] == ["aten.as_strided_scatter.default"]
    assert result.wrong[0].operators == ("aten.as_strided_scatter.default",)


def test_a_weight_of_zeros_is_no_symmetric_matrix() -> None:
    capture = bp.capture(nn.Linear(3, 3).double().requires_grad_(), leaf(2, 3))
    (pair,) = capture.pairs
    values = {name: torch.zeros(3, 3, dtype=torch.float64) for name in ("weight",)}
    setting = make_setting(pair, {**capture.origin.values(), **values}, 0, capture.seed)
    direction = setting.direction["weight"]
    assert not torch.allclose(direction, direction.mT)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.eye(4) @ x,
        lambda x: (torch.arange(4) * 0.1) @ x,
        lambda x: torch.randn(4) @ x,
        lambda x: torch.zeros(4).add_(1) @ x,
    ],
    ids=["eye", "arange", "randn", "zeros"],
)
def test_an_operator_that_names_no_dtype(program: Callable[..., Any]) -> None:
    """It takes the default dtype, which is float64 in a graph of float64."""
    assert only(program, torch.randn(4, 3, requires_grad=True)).word == DERIVATIVE


def test_as_strided_reads_the_storage_behind_a_view() -> None:
    view = torch.randn(20, dtype=torch.float64)[5:15].requires_grad_()
    assert only(lambda x: x.as_strided((2, 3), (4, 1), 0) * x[0], view).word == DERIVATIVE


def test_a_formula_for_tangents_that_loses_digits() -> None:
    x = torch.tensor([-20.0, -10.0, 0.0, 5.0], dtype=torch.float64, requires_grad=True)
    result = only(lambda x: x.logcumsumexp(0), x)
    assert result.word == DERIVATIVE
    assert result.by_second_derivative or result.by_differences


def test_an_operator_that_takes_no_float64() -> None:
    left, right = torch.randn(8, 16, requires_grad=True), torch.randn(3, 16, 16, requires_grad=True)
    ends = torch.tensor([3, 3, 8], dtype=torch.int32)
    assert only(lambda a, b: torch.ops.aten._grouped_mm.default(a, b, ends), left, right).word == DERIVATIVE


def test_a_gradient_of_hardsigmoid_with_all_digits() -> None:
    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return F.hardsigmoid(x)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return torch.where(x.abs() < 3, grads[0] / 6, 0.0)

    assert only(Gate.apply, leaf(20)).word == DERIVATIVE
    assert only(F.hardsigmoid, torch.randn(20, requires_grad=True)).word == DERIVATIVE


def with_numpy(name: str, backward: Callable[[Any, Tensor], Any]) -> Any:
    """Return a custom operator x·w whose body passes no tangent on, with a backward."""

    def body(x: Tensor, w: Tensor) -> Tensor:
        return torch.from_numpy(np.multiply(x.detach().numpy(), w.detach().numpy()))

    def setup(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    operator = torch.library.custom_op(f"breadth::{name}", body, mutates_args=())
    operator.register_fake(lambda x, w: torch.empty_like(x))
    operator.register_autograd(backward, setup_context=setup)
    return operator


@pytest.mark.parametrize(
    ("name", "backward", "word"),
    [
        ("right", lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]), DERIVATIVE),
        ("forgotten", lambda ctx, g: (g * ctx.saved_tensors[1], None), NOT_THE_DERIVATIVE),
    ],
)
def test_a_custom_operator_whose_body_passes_no_tangent_on(
    name: str, backward: Callable[[Any, Tensor], Any], word: str
) -> None:
    operator = with_numpy(name, backward)
    assert only(lambda x, w: operator(x.tanh(), w).exp(), leaf(5), leaf(5, seed=1)).word == word


def test_a_gradient_of_0_where_a_tangent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgotten(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return x.scatter_reduce(0, torch.tensor([0, 0, 1]), y, "prod")

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return torch.zeros_like(grads[0]), torch.zeros_like(grads[0])

    assert only(Forgotten.apply, leaf(3), leaf(3, seed=1)).word == NOT_THE_DERIVATIVE
    monkeypatch.setattr(duals, "WRONG_FORMULAS", {})
    result = only(Forgotten.apply, leaf(3), leaf(3, seed=1))
    assert (result.word, "the results change" in result.detail) == (CANNOT_TELL, True)


@pytest.mark.parametrize(("factor", "word"), [(2, DERIVATIVE), (2.001, NOT_THE_DERIVATIVE)])
def test_sparse_gradients_and_inputs(factor: float, word: str) -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return factor * ctx.saved_tensors[0] * grads[0]

    index = torch.tensor([[0, 1], [1, 2]])
    assert only(lambda w: Square.apply(F.embedding(index, w, sparse=True)), leaf(5, 3)).word == word
    matrix = torch.eye(4, dtype=torch.float64).to_sparse()
    assert only(lambda s, x: torch.sparse.mm(s, Square.apply(x)), matrix, leaf(4, 3)).word == word


def test_a_sparse_output_cannot_be_compared() -> None:
    result = only(lambda x: (x * x).to_sparse(), leaf(4, 3))
    assert (result.word, "is sparse_coo" in result.detail) == (CANNOT_TELL, True)


def test_a_branch_by_random_numbers_is_the_captured_one() -> None:
    """In float64 the same generator draws other numbers, so that other rows would be chosen."""
    assert only(lambda x: x[torch.rand(40) > 0.5].exp(), torch.randn(40, requires_grad=True)).word == DERIVATIVE


def test_a_draw_whose_gradient_is_that_along_its_distribution() -> None:
    result = only(lambda x: torch._standard_gamma(x.exp()).square(), leaf(6))
    assert result.word == f"{DERIVATIVE} but for aten._standard_gamma.default"


def test_a_rounding_that_gradients_pass_through() -> None:
    result = only(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127).exp(), leaf(6))
    assert result.word == f"{DERIVATIVE} but for aten.fake_quantize_per_tensor_affine_cachemask.default"


def test_several_values_for_one_place() -> None:
    index = torch.tensor([0, 0, 1])
    result = only(lambda x, y: x.scatter(0, index, y).sin(), leaf(4), leaf(3, seed=1))
    assert result.word == f"{DERIVATIVE} but for aten.scatter.src"


def test_a_value_that_depends_on_weights_through_no_grad_only() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3).double())
    assert only(layer, leaf(5, 4)).word == NOT_THE_DERIVATIVE
    (result,) = bp.derivative(bp.capture(layer, leaf(5, 4), meant=("no_grad",)))
    assert result.word == f"{DERIVATIVE} but for no_grad"


def test_a_recomputed_dropout() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(lambda x, w: F.dropout(x @ w, 0.4).tanh(), x, w, use_reentrant=False)

    (result,) = bp.derivative(bp.capture(program, leaf(4, 3), leaf(3, 5, seed=1), engine="dynamo"))
    assert result.word == DERIVATIVE


def test_an_output_without_elements() -> None:
    result = only(torch.mm, leaf(0, 3), leaf(3, 5, seed=1))
    assert (result.word, result.detail) == (CANNOT_TELL, "no output that requires grad has an element")


def test_a_dropped_addend_is_a_place() -> None:
    """The sum of the gradients of a value is wrong, though each of its addends is right."""
    capture = bp.capture(lambda x: x.sin() * x.exp(), leaf(5))
    (pair,) = capture.pairs
    assert pair.backward is not None
    total = next(step for step in pair.backward.steps if step.target == "aten.add.Tensor")
    from dataclasses import replace

    from face import check_pair

    alias = replace(total, target="aten.alias.default", args=total.args[:1], kwargs=())
    steps = tuple(alias if step is total else step for step in pair.backward.steps)
    wrong = Pair(pair.name, pair.forward, replace(pair.backward, steps=steps))
    result = check_pair(wrong, capture.origin.values(), capture.seed)
    assert result.word == NOT_THE_DERIVATIVE
    assert result.rest_is_right
    assert set(result.wrong[0].operators) == {"aten.sin.default", "aten.exp.default"}

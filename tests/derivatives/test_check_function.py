"""`bp.check`: what it says of functions that are right, wrong in one way, and opaque."""

from __future__ import annotations

import importlib
import math
import random
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects.wrong_backwards import ROWS, Row
from torch import Tensor, nn
from torch.autograd import Function

import backprint as bp

NAMES = [row.name for row in ROWS]
FAST = "weight_of_a_norm loss_with_an_expanded_tangent mask_read_off_the_output ties_that_count_twice kept_and_constant"


def report_of(fn: Callable[..., Any], *inputs: Any, **options: Any) -> bp.types.CheckReport:
    return bp.check(fn, *inputs, raises=False, **options)


def wrong_checks(report: bp.types.CheckReport) -> set[str]:
    return {row.check for row in report.wrong}


class Square(Function):
    """The square; subclasses have its backward wrong in one way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class OneRow(Square):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grad[:1]


class Dense(Square):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if not grad.is_contiguous():
            grad = -grad
        return 2 * x * grad


class DenseInput(Square):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return (2 if x.is_contiguous() else 3) * x * grad


class NoGradient(Square):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None


class ConstantGradient(Square):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x.detach() * grad


class AtZero(Square):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return torch.where(x == 0, 1.0, 2 * x) * grad


class Refuses(Square):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if not grad.is_contiguous():
            raise RuntimeError("tangents have to be contiguous")
        return 2 * x * grad


def square(x: Tensor) -> Tensor:
    return x * x


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------ what is right


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (F.gelu, (drawn(3, 4),)),
        (layer_norm, (drawn(3, 4), drawn(4, seed=1), drawn(4, seed=2))),
        (F.scaled_dot_product_attention, tuple(drawn(2, 3, 4, seed=seed) for seed in range(3))),
        (F.cross_entropy, (drawn(4, 5), torch.tensor([0, 3, 3, 1]))),
    ],
    ids=["gelu", "layer_norm", "attention", "cross_entropy"],
)
def test_functions_of_pytorch_are_themselves(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    report = bp.check(function, *inputs, like=function, dtypes=(torch.float32, torch.bfloat16))
    assert report.good
    assert {row.dtype for row in report.rows} == {"float32", "bfloat16", "float64"}
    assert all(row.tried for row in report.rows)


def test_a_right_function_is_good_and_every_row_says_what_was_compared() -> None:
    report = bp.check(Square.apply, drawn(3, 4), like=square, order=2)
    assert report.good
    checks = {row.check for row in report.rows}
    assert {"forward", "gradient, random tangents", "gradient, expanded tangents", "gradient, strided inputs"} <= checks
    assert {"gradient, zeros among inputs", "gradient of the gradient", "derivative", "derivative, order 2"} <= checks
    assert all(row.error is not None and row.allowed is not None and row.error <= row.allowed for row in report.rows)
    lines = str(report).splitlines()
    assert lines[0].startswith("Square: good (")
    assert lines[2].split() == ["check", "dtype", "of", "error", "allowed", "verdict"]
    assert len({line.rindex("ok") for line in lines[3:]}) == 1


def test_a_function_that_cannot_be_captured_may_be_meant_to_differ() -> None:
    class Step(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return torch.from_numpy((x.detach().numpy() > 0).astype(x.detach().numpy().dtype))

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 0.5 * grad

    class Plain(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return (x > 0).to(x)

        backward = Step.backward

    assert not report_of(Step.apply, torch.randn(5), like=Plain.apply).good
    assert report_of(Step.apply, torch.randn(5), like=Plain.apply, meant=("Step",)).good


def test_a_module_with_two_paths_keeps_its_parameters() -> None:
    linear = nn.Linear(2, 2)
    net, parameters = nn.Sequential(linear, nn.Tanh(), linear), dict(linear.named_parameters())
    assert report_of(net, torch.randn(3, 2), like=net, dtypes=[torch.float64]).good
    assert all(parameter is parameters[name] for name, parameter in linear.named_parameters())


def test_without_a_reference_the_forward_itself_is_one() -> None:
    assert bp.check(Square.apply, drawn(3, 4)).good
    assert "derivative" in wrong_checks(report_of(OneRow.apply, drawn(3, 4)))
    assert wrong_checks(report_of(Dense.apply, drawn(3, 4))) >= {"same gradient, transposed tangents"}


def by_length(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-12).sqrt()


class ByLength(Function):
    """Divides by a length; `least` is what the backward adds to it."""

    least = 1e-12

    @classmethod
    def forward(cls, ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return by_length(x)

    @classmethod
    def backward(cls, ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        length = (x.square().sum(-1, keepdim=True) + cls.least).sqrt()
        return grad / length - x * (grad * x).sum(-1, keepdim=True) / length**3


class ByLengthAlone(ByLength):
    least = 0.0


def test_a_row_of_zeros_as_that_of_padding_is_tried() -> None:
    report = report_of(ByLengthAlone.apply, drawn(3, 4), like=by_length)
    assert wrong_checks(report) == {"gradient, a row of zeros"}
    report = report_of(ByLength.apply, drawn(3, 4), like=by_length)
    assert report.good
    assert "gradient, a row of zeros" in {row.check for row in report.rows}


def test_a_row_that_is_missing_for_zeros_is_wrong() -> None:
    report = report_of(lambda x: x[x.abs().sum(-1) > 0] * 2, drawn(3, 4), like=lambda x: x * 2)
    assert "forward, a row of zeros" in wrong_checks(report)


# ------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("function", "wrong", "right"),
    [
        (OneRow, "gradient, random tangents", "gradient, tangents of ones"),
        (Dense, "gradient, transposed tangents", "gradient, random tangents"),
        (DenseInput, "gradient, transposed inputs", "gradient, transposed tangents"),
        (NoGradient, "gradient, tangents of ones", "forward"),
        (AtZero, "gradient, zeros among inputs", "gradient, random tangents"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_wrong_backward_is_wrong_where_it_is(function: type[Function], wrong: str, right: str) -> None:
    report = report_of(function.apply, drawn(3, 4), like=square)
    assert not report.good
    assert wrong in wrong_checks(report)
    assert right not in wrong_checks(report)
    text = str(report)
    assert f"First fault: {report.wrong[0].check}, float32: the gradient of x is wrong by " in text.replace(
        "args.0", "x"
    )


def test_the_error_of_a_test_is_the_table_with_the_line_of_the_backward() -> None:
    with pytest.raises(AssertionError, match="First fault") as raised:
        bp.check(OneRow.apply, drawn(3, 4), like=square)
    assert isinstance(raised.value, bp.errors.CheckError)
    text = str(raised.value)
    assert "right with tangents of ones" in text
    assert "OneRow at test_check_function.py" in text


def test_a_gradient_of_the_gradient_that_is_wrong() -> None:
    assert report_of(ConstantGradient.apply, drawn(3, 4), like=square).good
    report = report_of(ConstantGradient.apply, drawn(3, 4), like=square, order=2)
    assert wrong_checks(report) == {"gradient of the gradient", "derivative, order 2"}


class Once(Square):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def test_a_backward_that_refuses_to_be_differentiated_is_not_tried() -> None:
    report = bp.check(Once.apply, drawn(3, 4), like=square, order=2)
    left = {row.check for row in report.rows if not row.tried}
    assert left == {"gradient of the gradient", "derivative, order 2"}
    assert "a backward is marked with once_differentiable" in str(report)


class Estimator(Function):
    """Rounds, and passes the tangent on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def test_a_gradient_that_is_meant_to_differ_is_named() -> None:
    def straight(x: Tensor) -> Tensor:
        return x + (x.round() - x).detach()

    assert wrong_checks(report_of(Estimator.apply, drawn(3, 4), like=straight)) == {"derivative"}
    assert bp.check(Estimator.apply, drawn(3, 4), like=straight, meant=("Estimator",)).good


def test_a_reference_that_does_not_run_is_none() -> None:
    def needs_float32(x: Tensor) -> Tensor:
        return x @ torch.ones(4)

    report = report_of(needs_float32, drawn(3, 4), like=needs_float32)
    assert not report.good
    assert not report.wrong
    assert "in float64 the reference raised RuntimeError: " in str(report)
    assert "The reference was not compared" in str(report)


def test_a_wrong_forward() -> None:
    report = report_of(lambda x: x * x + 1e-3, drawn(3, 4), like=square)
    assert "forward" in wrong_checks(report)
    assert "gradient, random tangents" not in wrong_checks(report)
    assert "First fault: forward, float32: output is wrong by 1.0e-03" in str(report)


def test_a_wrong_score_beside_the_huge_number_of_a_mask() -> None:
    hidden = torch.ones(16, 16, dtype=torch.bool).triu(1)

    def masked_scores(x: Tensor, least: float = torch.finfo(torch.float32).min) -> Tensor:
        return (x @ x.mT).masked_fill(hidden, least)

    x = drawn(16, 4)
    assert report_of(masked_scores, x, like=masked_scores).good
    report = report_of(lambda x: masked_scores(x) + 0.01 * ~hidden, x, like=masked_scores)
    assert "forward" in wrong_checks(report)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: (x * x).sum(-1, keepdim=True), "its shape is (3, 1), and the reference's (3,)"),
        (lambda x: ((x * x).sum(-1), x), "it returns output.0, output.1, and the reference output"),
        (lambda x: (x * x).sum(-1).double(), "its dtype is float64, and the reference's float32"),
    ],
)
def test_results_of_another_kind(function: Callable[..., Any], words: str) -> None:
    report = report_of(function, drawn(3, 4), like=lambda x: (x * x).sum(-1))
    assert not report.good
    assert words in str(report)


def test_a_dtype_that_was_requested_and_is_refused() -> None:
    def only_float32(x: Tensor) -> Tensor:
        assert x.dtype is torch.float32, "float32 only"
        return x * x

    report = report_of(only_float32, drawn(3, 4), like=square, dtypes=(torch.float32, torch.bfloat16))
    assert [(row.check, row.dtype) for row in report.wrong] == [("forward", "bfloat16")]
    assert "the function raised AssertionError: float32 only" in str(report)


def test_a_refusal_of_strange_memory_is_no_wrong_gradient_and_is_said() -> None:
    report = bp.check(Refuses.apply, drawn(3, 4), like=square)
    left = {row.check for row in report.rows if not row.tried}
    assert "gradient, transposed tangents" in left
    assert "gradient, random tangents" not in left
    assert "the function raised RuntimeError: tangents have to be contiguous" in str(report)


def test_a_reference_that_depends_on_the_memory_of_its_inputs() -> None:
    def diagonal(x: Tensor) -> Tensor:
        return x.as_strided((3,), (4,))

    report = bp.check(diagonal, drawn(3, 3), like=lambda x: x.as_strided((3,), (4,)))
    assert "not tried: the reference's own results depend on the memory of its inputs" in {
        row.verdict for row in report.rows
    }
    assert bp.check(lambda x: x.view(-1), drawn(3, 3), like=lambda x: x.reshape(-1)).good


# ------------------------------------------------------------------ masks, kinks, random numbers


class Masked(Function):
    """The squares of what a mask shows, and their weighted sum over rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, shown: Tensor) -> Tensor:
        kept = torch.where(shown, x, 0)
        ctx.save_for_backward(kept, x, weight, shown)
        return kept * kept * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        kept, _, weight, _ = ctx.saved_tensors
        return 2 * kept * weight * grad, (kept * kept * grad).sum(0), None


class MaskedAtTheEnd(Masked):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        _, x, weight, shown = ctx.saved_tensors
        return 2 * x * shown * weight * grad, (x * x * shown * grad).sum(0), None


def masked(x: Tensor, weight: Tensor, shown: Tensor) -> Tensor:
    kept = torch.where(shown, x, 0)
    return kept * kept * weight


def test_nan_behind_a_mask() -> None:
    inputs = drawn(3, 4), drawn(4, seed=1), torch.arange(12).reshape(3, 4) % 3 > 0
    right, wrong = (report_of(fn.apply, *inputs, like=masked) for fn in (Masked, MaskedAtTheEnd))
    (check,) = {row.check for row in right.rows if "NaN" in row.check and row.name == "args.1"}
    assert right.good
    assert wrong_checks(wrong) == {check}
    assert check == "gradient, NaN in args.0 behind args.2"


def test_a_mask_of_one_number() -> None:
    inputs = torch.tensor(True), torch.tensor(0.5), torch.tensor(0.25)
    assert bp.check(torch.where, *inputs, like=torch.where).good


class Centred(Function):
    """Its gradient for one number a row is 0, here but for rounding, and exactly in the reference."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad - (grad / 3).sum(-1, keepdim=True) * (3 / grad.shape[-1])


def test_a_gradient_whose_terms_cancel_exactly_may_be_rounding() -> None:
    assert report_of(Centred.apply, drawn(3, 8), like=lambda x: x - x.mean(-1, keepdim=True)).good


class Largest(Function):
    """The largest of each window, and a gradient for each element that is it, or for the last of these."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, last: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.last = last
        return F.max_pool1d(x, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        windows = x.unflatten(-1, (-1, 2))
        is_largest = windows == windows.amax(-1, keepdim=True)
        if ctx.last:
            is_largest = is_largest & (is_largest.flip(-1).cumsum(-1).flip(-1) == 1)
        return (is_largest * grad[..., None]).flatten(-2), None


def test_a_gradient_for_each_of_equal_values_is_no_subgradient() -> None:
    pool = lambda x: F.max_pool1d(x, 2)  # noqa: E731
    for dtype in (torch.float32, torch.bfloat16):
        x = drawn(3, 4, 12).to(dtype)
        x[..., ::3] = x[..., 1::3]
        assert report_of(lambda x: Largest.apply(x, True), x, like=pool).good
        assert not report_of(lambda x: Largest.apply(x, False), x, like=pool).good


def test_a_kink_has_more_than_one_right_gradient() -> None:
    x = torch.tensor([0.0, 1, -1, 0])
    report = bp.check(F.relu, x, like=lambda x: x.clamp(min=0))  # 0 at 0, and 1
    assert "a kink: another subgradient than the reference's" in {row.detail for row in report.rows}
    beyond = report_of(lambda x: F.relu(x) + (x - x.detach()) * (x == 0) * -1.0, x, like=lambda x: x.clamp(min=0))
    assert "gradient, random tangents" in wrong_checks(beyond)


def test_random_numbers() -> None:
    assert bp.check(F.dropout, drawn(3, 4), like=F.dropout).good
    report = report_of(lambda x: F.dropout(x, 0.5), drawn(3, 4), like=lambda x: F.dropout(x.mT, 0.5).mT)
    assert not {row.check for row in report.wrong}
    assert "draws other random numbers here: pass them as an input" in str(report)
    source = random.Random(0)
    report = report_of(lambda x: x * x * source.random(), drawn(3, 4), like=square)
    assert not report.wrong
    assert not report.good


# ------------------------------------------------------------------ what cannot be captured


def define(name: str, forward: Callable[[Tensor], Tensor], slope: float) -> Any:
    """An operator whose body no tracer sees into, with the gradient slope·x."""

    def body(x: Tensor) -> Tensor:
        return torch.frombuffer(
            bytearray(bytes(forward(x.detach()).contiguous().untyped_storage())), dtype=x.dtype
        ).view(x.shape)

    body.__annotations__ = {"x": Tensor, "return": Tensor}
    operator = torch.library.custom_op(f"check_function::{name}", body, mutates_args=())
    operator.register_fake(torch.empty_like)

    def keep(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return slope * x * grad

    operator.register_autograd(backward, setup_context=keep)
    return operator


def in_float32(x: Tensor) -> Tensor:
    return (x.float() * x.float()).to(x.dtype)


def float32_alone(x: Tensor) -> Tensor:
    if x.dtype is not torch.float32:
        raise TypeError("float32 only")
    return x * x


@pytest.mark.slow
def test_an_opaque_operator_is_checked_by_differences() -> None:
    right, wrong = define("right", square, 2.0), define("wrong", square, 2.01)
    report = bp.check(right, drawn(3, 4))
    assert [row.name for row in report.rows if row.check == "derivative, by differences"] == ["args.0"]
    assert wrong_checks(report_of(wrong, drawn(3, 4))) == {"derivative, by differences"}
    assert bp.check(right, drawn(3, 4), like=square).good
    assert "gradient, random tangents" in wrong_checks(report_of(wrong, drawn(3, 4), like=square))


def test_differences_of_what_computes_in_float32_take_its_rounding_for_rounding() -> None:
    assert bp.check(define("right32", in_float32, 2.0), drawn(3, 4)).good
    assert not report_of(define("wrong32", in_float32, 2.1), drawn(3, 4)).good


def test_where_nothing_says_that_the_gradient_is_right_it_is_not_good() -> None:
    operator = define("alone", float32_alone, 2.0)
    report = report_of(operator, drawn(3, 4))
    assert not report.good
    assert not report.wrong
    with pytest.raises(bp.errors.CheckError, match="nothing is known of the backward"):
        report.raise_if_wrong()
    assert "float32 only" in str(report)
    assert bp.check(operator, drawn(3, 4), like=square).good


# ------------------------------------------------------------------ calls


def test_parameters_of_a_module_are_checked_and_those_of_the_reference_are_the_same() -> None:
    report = bp.check(nn.Linear(4, 2), drawn(3, 4), like=nn.Linear(4, 2))
    assert {row.name for row in report.rows if row.check == "gradient, random tangents"} == {"input", "weight", "bias"}

    class WrongWeight(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return F.linear(input, self.weight + (OneRow.apply(self.weight) - self.weight**2), self.bias)

    report = report_of(WrongWeight(4, 2), drawn(3, 4), like=nn.Linear(4, 2))
    assert {row.name for row in report.wrong} == {"weight"}


def test_arguments_of_all_kinds() -> None:
    def scaled(x: Tensor, i: Tensor, *, by: float, weights: dict[str, list[Tensor]]) -> dict[str, Tensor]:
        return {"rows": x[i] * by, "sum": (x * weights["w"][0]).sum()}

    inputs = dict(by=2.0, weights={"w": [drawn(3, 4, seed=1)]})
    report = bp.check(scaled, drawn(3, 4), torch.tensor([0, 2, 2]), like=scaled, **inputs)
    assert {row.name for row in report.rows if row.check == "gradient, random tangents"} == {"x", "weights.w.0"}
    assert {row.name for row in report.rows if row.check == "forward"} == {"output.rows", "output.sum"}
    assert "gradient, output.sum alone" in {row.check for row in report.rows}
    x = drawn(3)
    assert bp.check(lambda a, b: a * b, x, x, like=lambda a, b: a * b).good
    assert bp.check(torch.sin, torch.tensor(0.5), like=torch.sin).good
    assert bp.check(lambda z: (z * z).abs(), torch.randn(3, dtype=torch.complex64), like=lambda z: z.abs() ** 2).good


def power(x: Tensor, order: int = 3) -> Tensor:
    return x**order


def test_a_parameter_that_is_called_as_an_option() -> None:
    assert bp.check(power, args=(drawn(3),), kwargs={"order": 2}, like=lambda x, order: x * x).good


def test_times_is_how_much_less_exact_than_the_reference_a_function_may_be() -> None:
    def rounded(x: Tensor) -> Tensor:
        return x * x * (1 + 1e-5)

    assert "forward" in wrong_checks(report_of(rounded, drawn(3, 4), like=square))
    assert bp.check(rounded, drawn(3, 4), like=square, times=10).good


def test_which_gradients_are_checked() -> None:
    def names(*inputs: Tensor, **options: Any) -> set[str]:
        report = bp.check(lambda x, y: x * y, *inputs, like=lambda x, y: x * y, **options)
        return {row.name for row in report.rows if row.check == "gradient, random tangents"}

    x, y = drawn(3), drawn(3, seed=1)
    assert names(x, y) == {"x", "y"}
    assert names(x.clone().requires_grad_(), y) == {"x"}
    assert names(x, y, requires_grad=("y",)) == {"y"}
    assert names(x, y, requires_grad=(True, False)) == {"x"}


def test_everything_of_the_caller_stays_as_it_is() -> None:
    x = drawn(3, 4).requires_grad_()
    x.grad = torch.full_like(x, 7)
    norm = nn.BatchNorm1d(4)
    state, before = torch.get_rng_state(), x.detach().clone()
    with torch.no_grad():
        bp.check(norm, x, like=nn.BatchNorm1d(4))
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, before)
    assert bool((x.grad == 7).all())
    assert norm.weight.grad is None
    assert bool((norm.running_mean == 0).all())
    assert int(norm.num_batches_tracked) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bp.check(drawn(3), drawn(3)), "fn is a tensor"),
        (lambda: bp.check(Square, drawn(3)), r"pass Square\.apply"),
        (lambda: bp.check(square, drawn(3), like=drawn(3)), "like is a tensor"),
        (lambda: bp.check(square, drawn(3), dtypes=("float32",)), "name floating-point dtypes"),
        (lambda: bp.check(square, drawn(3), order=3), "order=3"),
        (lambda: bp.check(square, drawn(3), times=0), "times=0"),
        (lambda: bp.check(power, drawn(3), order=2), "order"),
        (lambda: bp.check(square, torch.arange(3)), "no input of the function requires grad"),
        (lambda: bp.check(lambda x: x.long(), drawn(3)), "returns no floating-point tensor"),
        (lambda: bp.check(lambda: 0), "needs a tensor among the inputs"),
        (lambda: bp.check(square, drawn(3).to_sparse()), "x is sparse_coo"),
        (lambda: bp.check(lambda x: x.to_sparse(), drawn(3)), "output is sparse_coo"),
    ],
)
def test_calls_that_cannot_be_right(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(bp.errors.UsageError, match=words):
        call()


def test_an_error_of_the_function_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        bp.check(lambda x: x * (1 / 0), drawn(3), like=square)


def test_without_elements_nothing_is_compared() -> None:
    report = report_of(torch.sin, drawn(0, 3), like=torch.sin)
    assert not report.good
    assert "it has no elements" in str(report)


# ------------------------------------------------------------------ one file


MODULE = """
import torch

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        BODY

def square(x):
    return x * x
"""

BODIES = {
    "one_row": "return 2 * x * grad[:1]",
    "no_gradient": "return None",
    "dense": "return 2 * x * (grad if grad.is_contiguous() else -grad)",
    "constant": "return 2 * x.detach() * grad",
}


def module_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of a user, with a wrong backward."""
    (folder / f"mine_{name}.py").write_text(MODULE.replace("BODY", BODIES[name]))
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module(f"mine_{name}")


@pytest.mark.parametrize(("name", "order"), [("one_row", 1), ("no_gradient", 1), ("dense", 1), ("constant", 2)])
def test_a_file_shows_the_first_fault_without_backprint(
    name: str, order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = module_of(name, tmp_path, monkeypatch)
    report = report_of(mine.Wrong.apply, drawn(3, 4), like=mine.square, order=order)
    path = report.write_repro(tmp_path / "fault.py")
    assert "import backprint" not in path.read_text()
    assert not (tmp_path / "fault.safetensors").exists()
    runpy.run_path(str(path))
    assert difference_in(capsys.readouterr().out) == pytest.approx(report.wrong[0].error, rel=1e-3)


def difference_in(printed: str) -> float:
    return float(printed.rsplit("largest difference:", 1)[1])


def test_large_tensors_lie_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = module_of("dense", tmp_path, monkeypatch)
    report = report_of(mine.Wrong.apply, drawn(90, 100), like=mine.square)
    path = report.write_repro(tmp_path / "fault.py")
    assert (tmp_path / "fault.safetensors").exists()
    runpy.run_path(str(path))
    assert difference_in(capsys.readouterr().out) == pytest.approx(report.wrong[0].error, rel=1e-3)


def test_a_file_lays_inputs_with_gaps_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = module_of("dense", tmp_path, monkeypatch)
    x = torch.randn(3, 8, dtype=torch.complex64)[:, ::2].conj()  # to read its numbers makes a copy without the gaps
    report = report_of(mine.Wrong.apply, x, like=mine.square)
    runpy.run_path(str(report.write_repro(tmp_path / "fault.py")))
    assert difference_in(capsys.readouterr().out) == pytest.approx(report.wrong[0].error, rel=1e-3)


@pytest.mark.slow
def test_a_file_runs_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = module_of("one_row", tmp_path, monkeypatch)
    path = report_of(mine.Wrong.apply, drawn(3, 4), like=mine.square).write_repro(tmp_path / "fault.py")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, timeout=100)
    assert difference_in(done.stdout) > 0.1


def test_what_no_file_can_show_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fault.py"

    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return OneRow.apply(x)

    functions: list[tuple[Callable[..., Any], str]] = [
        (lambda x: OneRow.apply(x), "defined inside a function"),
        (square, "there is no fault"),
        (Wrong(), "the module Wrong"),
    ]
    for function, words in functions:
        with pytest.raises(bp.errors.UsageError, match=words):
            report_of(function, drawn(3, 4), like=square).write_repro(path)
    assert not path.exists()


# ------------------------------------------------------------------ the wrong backwards that shipped


def swept(rows: list[Row]) -> list[Any]:
    slow = [pytest.param(row, id=row.name, marks=pytest.mark.slow) for row in rows if row.name not in FAST.split()]
    return [*(pytest.param(row, id=row.name) for row in rows if row.name in FAST.split()), *slow]


@pytest.mark.parametrize("row", swept(ROWS))
def test_a_backward_that_shipped_is_wrong_and_the_mended_one_is_good(row: Row) -> None:
    wrong, mended = (
        report_of(form, *row.inputs(), like=row.plain, order=row.order) for form in (row.wrong, row.mended)
    )
    assert not wrong.good
    assert any(other.check.startswith("gradient") for other in wrong.wrong)
    assert mended.good, f"{mended}"
    assert all(math.isfinite(other.error) for other in mended.rows if other.error is not None)


@pytest.mark.parametrize("seed", [7, 2**40])
def test_a_seed_may_be_any_number(seed: int) -> None:
    assert bp.check(torch.sin, torch.randn(8, requires_grad=True), like=torch.sin, seed=seed).good

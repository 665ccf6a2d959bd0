"""Backwards that are wrong only for unusual tangents or inputs: each has a wrong form, which is found, and a right one,
which raises no alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import backprint as bp
from face import DERIVATIVE, NOT_THE_DERIVATIVE

INF = float("inf")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def function(forward: Callable[..., Any], backward: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a custom autograd.Function with this forward, which saves what it returns after the output."""

    def saving(ctx: Any, *inputs: Tensor) -> Tensor:
        output, *kept = forward(*inputs)
        ctx.save_for_backward(*kept)
        return output

    def loading(ctx: Any, *tangents: Tensor) -> Any:
        return backward(*tangents, *ctx.saved_tensors)

    methods = {"forward": staticmethod(saving), "backward": staticmethod(loading)}
    return type(name, (torch.autograd.Function,), methods).apply  # type: ignore[no-any-return, attr-defined]


@dataclass(frozen=True)
class Row:
    """One forward with a right and a wrong backward, ordinary inputs, and the words with which the fault is told."""

    forward: Callable[..., Any]
    right: Callable[..., Any]
    wrong: Callable[..., Any]
    inputs: Callable[[], tuple[Tensor, ...]]
    words: str
    like: Callable[..., Any] | None = None


def square(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * x, x


def of_square(g: Tensor, x: Tensor) -> Tensor:
    return 2 * x * g


def lookup(w: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return w[i], w, i


def masked_softmax(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    p = x.masked_fill(~mask, -INF).softmax(-1).nan_to_num()
    return p, p, mask


def of_masked_softmax(g: Tensor, p: Tensor, mask: Tensor) -> tuple[Tensor, None]:
    return p * (g - (p * g).sum(-1, keepdim=True)), None


def product(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.prod(1), x, x.prod(1)


def of_product(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    columns = [torch.cat([x[:, :i], x[:, i + 1 :]], 1).prod(1) for i in range(x.shape[1])]
    return torch.stack(columns, 1) * g[:, None]


def half_mask() -> tuple[Tensor, Tensor]:
    return drawn(3, 4), torch.tensor([[True, False, True, True], [False, True, False, False], [True] * 4])


ROWS = {
    "one-hot tangents": Row(
        square,
        of_square,
        lambda g, x: x * g * (1 + ((g != 0).sum() > 1).to(g.dtype)),
        lambda: (drawn(4, 3),),
        "one-hot",
    ),
    "a branch for one-hot tangents": Row(
        square, of_square, lambda g, x: x * g if (g != 0).sum() == 1 else 2 * x * g, lambda: (drawn(4, 3),), "one-hot"
    ),
    "divided by the size of a row of tangents": Row(
        square,
        of_square,
        lambda g, x: 2 * x * (g / g.norm(dim=1, keepdim=True)) * g.norm(dim=1, keepdim=True),
        lambda: (drawn(4, 3),),
        "has NaN or Inf",
    ),
    "tangents of zeros": Row(
        square, of_square, lambda g, x: 2 * x * g + (g == 0).to(g.dtype), lambda: (drawn(4, 3),), "zero-row"
    ),
    "a branch for tangents of ones": Row(
        square, of_square, lambda g, x: x * g if torch.all(g == 1) else 2 * x * g, lambda: (drawn(4, 3),), "ones"
    ),
    "a branch for negative tangents": Row(
        square, of_square, lambda g, x: 2 * x * g if g[0, 0] > 0 else x * g, lambda: (drawn(4, 3),), "negative"
    ),
    "tangents that are clipped far away": Row(
        square, of_square, lambda g, x: 2 * x * g.clamp(-1000, 1000), lambda: (drawn(4, 3),), "not linear"
    ),
    "small tangents that are dropped": Row(
        square,
        of_square,
        lambda g, x: torch.where(g.abs() < 1e-6, torch.zeros_like(g), 2 * x * g),
        lambda: (drawn(4, 3),),
        "not linear",
    ),
    "repeated indices": Row(
        lookup,
        lambda g, w, i: (torch.zeros_like(w).index_add(0, i, g), None),
        lambda g, w, i: (torch.zeros_like(w).index_copy(0, i, g), None),
        lambda: (drawn(5, 3), torch.tensor([1, 2, 4, 0])),
        "repeated indices in args.1",
        lambda w, i: w[i],
    ),
    "a row that a mask hides": Row(
        masked_softmax,
        of_masked_softmax,
        lambda g, p, mask: (torch.where(mask.any(-1, keepdim=True), of_masked_softmax(g, p, mask)[0], g), None),
        half_mask,
        "a row that a mask hides",
        lambda x, mask: torch.where(mask.any(-1, keepdim=True), x.masked_fill(~mask, -1e30).softmax(-1) * mask, 0),
    ),
    "NaN in a row that a mask hides": Row(
        masked_softmax,
        of_masked_softmax,
        lambda g, p, mask: (of_masked_softmax(g, p, mask)[0] / mask.any(-1, keepdim=True).to(g.dtype), None),
        half_mask,
        "has NaN or Inf",
        lambda x, mask: torch.where(mask.any(-1, keepdim=True), x.masked_fill(~mask, -1e30).softmax(-1) * mask, 0),
    ),
    "a mask that hides nothing at capture": Row(
        lambda x, mask: (x.masked_fill(mask, 7.0), mask),
        lambda g, mask: (g.masked_fill(mask, 0), None),
        lambda g, mask: (g, None),
        lambda: (drawn(2, 3), torch.zeros(2, 3, dtype=torch.bool)),
        "a mask",
        lambda x, mask: x.masked_fill(mask, 7.0),
    ),
    "NaN at zeros": Row(
        product,
        of_product,
        lambda g, x, y: (y * g)[:, None] / x,
        lambda: (drawn(3, 4),),
        "has NaN or Inf",
        lambda x: x.prod(1),
    ),
    "a threshold": Row(
        lambda x: (torch.where(x > 0.25, x, 0.25), x),
        lambda g, x: g * (x > 0.25),
        lambda g, x: g * ((x > 0.25).to(g.dtype) + 5 * (x == 0.25)),
        lambda: (drawn(3, 4),),
        "0.25 in args.0",
    ),
    "a limit of clamp": Row(
        lambda x: (x.clamp(-1, 1), x),
        lambda g, x: g * (x.abs() <= 1),
        lambda g, x: g * ((x.abs() < 1).to(g.dtype) - 1 * (x == 1)),
        lambda: (drawn(3, 4),),
        "1 in args.0",
    ),
}

WITH_REFERENCE = {name: row for name, row in ROWS.items() if row.like is not None}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_wrong_form_is_found_and_the_right_one_is_the_derivative(row: Row) -> None:
    (wrong,) = bp.derivative(function(row.forward, row.wrong, "Wrong"), *row.inputs())
    assert wrong.word == NOT_THE_DERIVATIVE
    assert row.words in str(wrong)
    (right,) = bp.derivative(function(row.forward, row.right, "Right"), *row.inputs())
    assert (right.word, right.wrong) == (DERIVATIVE, ())


@pytest.mark.parametrize("row", WITH_REFERENCE.values(), ids=WITH_REFERENCE)
def test_a_comparison_with_a_reference_shows_it_too(row: Row) -> None:
    wrong = bp.check(function(row.forward, row.wrong, "Wrong"), *row.inputs(), like=row.like, raises=False)
    assert any(line.check.startswith("gradient, ") for line in wrong.wrong)
    assert bp.check(function(row.forward, row.right, "Right"), *row.inputs(), like=row.like).good


# ------------------------------------------------------------------ kinks: any subgradient is right

AT_A_KINK = {
    "0": lambda x: (x > 0).to(x.dtype),
    "1": lambda x: (x >= 0).to(x.dtype),
    "between": lambda x: ((x > 0).to(x.dtype) + (x >= 0).to(x.dtype)) / 2,
}


@pytest.mark.parametrize("slope", AT_A_KINK.values(), ids=AT_A_KINK)
@pytest.mark.parametrize("combine", [torch.add, torch.sub, lambda x, y: x @ y.T], ids=["add", "sub", "matmul"])
def test_any_subgradient_is_right(slope: Callable[[Tensor], Tensor], combine: Callable[..., Tensor]) -> None:
    relu = function(lambda x: (x.clamp(min=0), x), lambda g, x: g * slope(x), "Relu")
    (answer,) = bp.derivative(lambda x, y: combine(relu(x), relu(y)), drawn(5, 4), drawn(5, 4, seed=1))
    assert answer.word == DERIVATIVE


def test_what_is_no_subgradient_is_wrong() -> None:
    relu = function(lambda x: (x.clamp(min=0), x), lambda g, x: g * ((x > 0) + 2.0 * (x == 0)), "Relu")
    (answer,) = bp.derivative(relu, drawn(5, 4))
    assert answer.word == NOT_THE_DERIVATIVE


# ------------------------------------------------------------------ inputs that a program need not take


class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x[order]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (order,) = ctx.saved_tensors
        return g[order.argsort()], None


class Store(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cache: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return cache.index_copy(0, slots, x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (slots,) = ctx.saved_tensors
        return g[slots], g.index_fill(0, slots, 0), None


class MaskedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return (x * mask).sum() / mask.sum()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return g * mask / mask.sum(), None


NOT_TAKEN = {
    "an order has each index once": (Permute.apply, lambda: (drawn(5, 4), torch.tensor([3, 1, 4, 0, 2]))),
    "slots are written to once": (Store.apply, lambda: (drawn(3, 4), drawn(8, 4), torch.tensor([6, 1, 3]))),
    "a mean of nothing is NaN": (MaskedMean.apply, half_mask),
    "a logarithm of 0 is Inf": (
        function(lambda x: (x.log(), x), lambda g, x: g / x, "Log"),
        lambda: (drawn(3, 4).detach().abs().requires_grad_(),),
    ),
    "a root has no derivative at 0": (
        function(lambda x: (x.abs().sqrt(), x), lambda g, x: g * x.sign() / (2 * x.abs().sqrt()), "Root"),
        lambda: (drawn(3, 4),),
    ),
}


@pytest.mark.parametrize(("program", "inputs"), NOT_TAKEN.values(), ids=NOT_TAKEN)
def test_a_fault_is_not_made_of_inputs_that_a_program_does_not_take(program: Any, inputs: Any) -> None:
    (answer,) = bp.derivative(program, *inputs())
    assert answer.word == DERIVATIVE


@pytest.mark.slow
def test_a_row_that_is_hidden_at_capture_is_right() -> None:
    """Forward-mode AD returns NaN for it, and differences do not."""
    mask = torch.tensor([[True, False, True], [False] * 3])
    softmax = function(masked_softmax, of_masked_softmax, "Softmax")
    (answer,) = bp.derivative(softmax, drawn(2, 3), mask)
    assert answer.word == DERIVATIVE
    assert answer.by_differences == ("the whole forward",)
    assert bp.check(softmax, drawn(2, 3), mask).good


# ------------------------------------------------------------------ what only runs of the program show


class TwoOutputs(torch.autograd.Function):
    """Returns no gradient if only one of its outputs is used."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, h: Tensor | None) -> Any:
        (x,) = ctx.saved_tensors
        return None if g is None or h is None else g * x.cos() - h * x.sin()


class Accumulating(torch.autograd.Function):
    """Adds the gradient of the run before."""

    before: list[Tensor] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gradient = 2 * x * g + sum(Accumulating.before[-1:])
        if type(x) is Tensor:
            Accumulating.before.append(gradient.detach().clone())
        return gradient


def test_outputs_are_used_alone() -> None:
    (answer,) = bp.derivative(TwoOutputs.apply, drawn(3, 2))
    assert answer.word == NOT_THE_DERIVATIVE
    assert "output.0 alone" in answer.detail


def test_a_backward_that_keeps_something_between_runs() -> None:
    Accumulating.before.clear()
    (answer,) = bp.derivative(Accumulating.apply, drawn(3, 2))
    assert answer.word == NOT_THE_DERIVATIVE
    assert "the run before" in answer.detail


def test_a_backward_that_writes_into_its_tangent() -> None:
    in_place = function(square, lambda g, x: g.mul_(2 * x), "InPlace")
    report = bp.check(in_place, drawn(3, 2), like=torch.square, raises=False)
    assert {row.name for row in report.wrong} == {"tangent of output"}


# ------------------------------------------------------------------ numbers that a program reads


READS = {
    "a factor": (lambda x: x / x.abs().max().item(), NOT_THE_DERIVATIVE),
    "a factor of a list": (lambda x: x * x[0].tolist()[0], NOT_THE_DERIVATIVE),
    "a branch": (lambda x: x * 2 if x.norm().item() > 0.1 else x, DERIVATIVE),
    "a number that is not used": (lambda x: (x.sum().item(), x.sin())[1], DERIVATIVE),
}


@pytest.mark.parametrize(("program", "word"), READS.values(), ids=READS)
def test_a_number_that_the_program_reads(program: Callable[..., Any], word: str) -> None:
    (answer,) = bp.derivative(program, drawn(3, 2))
    assert answer.word == word
    assert [place.function for place in answer.wrong] == (["item"] if word == NOT_THE_DERIVATIVE else [])


def test_a_read_that_is_meant() -> None:
    (answer,) = bp.derivative(lambda x: x / x.abs().max().item(), drawn(3, 2), meant=("item",))
    assert answer.word == "derivative but for item"


def test_tensors_that_a_program_makes_are_in_float64_too() -> None:
    (answer,) = bp.derivative(lambda x: x @ torch.eye(3) @ torch.full((3, 2), 0.5), drawn(2, 3))
    assert answer.word == DERIVATIVE


# ------------------------------------------------------------------ with a reference


class SumOfRows(torch.autograd.Function):
    """Returns no gradient of the bias for a batch without rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, b: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.sum(0) + b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g.expand(ctx.shape), g if ctx.shape[0] else torch.zeros_like(g)


def test_inputs_without_elements() -> None:
    report = bp.check(SumOfRows.apply, drawn(2, 3), drawn(3), like=lambda x, b: x.sum(0) + b, raises=False)
    assert [(row.check, row.name) for row in report.wrong] == [("gradient, no elements in dimension 0", "args.1")]


def test_an_output_without_elements_is_compared_by_its_shape() -> None:
    assert bp.check(F.linear, drawn(0, 3), drawn(2, 3), like=lambda x, w: x @ w.T).good


def test_a_gradient_that_cancels_is_as_exact_as_its_terms() -> None:
    def softmax(x: Tensor) -> Tensor:
        e = (x - x.max(1, keepdim=True).values.detach()).exp()
        return e / e.sum(1, keepdim=True)

    assert bp.check(softmax, drawn(3, 4), like=lambda x: x.softmax(1)).good

"""Tries of the program itself: sizes and values of tangents, a second backward, a second call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import backprint as bp

DERIVATIVE, NOT_THE_DERIVATIVE = "derivative", "not the derivative"

LOW = (torch.float32, torch.bfloat16, torch.float16)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def square(backward: Callable[[Tensor, Tensor], Tensor | None], name: str = "Square") -> Any:
    """Return `x * x` as a custom Function with this backward, which takes the tangent and `2 * x`."""

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    def of_saved(ctx: Any, g: Tensor) -> Tensor | None:
        return backward(g, 2 * ctx.saved_tensors[0])

    return type(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(of_saved)})


def answer_of(program: Any, *inputs: Tensor, **options: Any) -> Any:
    (answer,) = bp.derivative(bp.capture(program, args=inputs, **options))
    return answer


# ------------------------------------------------------------------ sizes of tangents

OF_SOME_SIZES = {
    "clips at a norm of 100": (lambda g, d: (g * (100 / g.norm()) if g.norm() > 100 else g) * d, "times 2^16"),
    "drops beyond 65504": (lambda g, d: g * d if float(g.abs().max()) < 65504 else torch.zeros_like(g), "times 2^16"),
    "returns None if large": (lambda g, d: g * d if g.norm() < 1000 else None, "times 2^16"),
    "drops below 1e-6": (lambda g, d: g * d if g.abs().max() > 1e-6 else torch.zeros_like(g), "times 2^-24"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("backward", "name"), OF_SOME_SIZES.values(), ids=OF_SOME_SIZES)
def test_a_backward_that_branches_on_the_size_of_its_tangent(backward: Any, name: str, dtype: torch.dtype) -> None:
    answer = answer_of(square(backward).apply, drawn(6, 5, dtype=dtype))
    assert answer.word == NOT_THE_DERIVATIVE
    assert f"with tangents {name}" in answer.detail
    assert [place.function for place in answer.wrong] == ["Square"]


def test_the_tangent_of_a_loss_has_a_size_too() -> None:
    clipped = square(OF_SOME_SIZES["clips at a norm of 100"][0])
    answer = answer_of(lambda x, w: clipped.apply(x @ w).mean(), drawn(4, 5), drawn(5, 3))
    assert answer.word == NOT_THE_DERIVATIVE
    assert "with tangents times 2^16" in answer.detail


class InHalf(Function):
    """Computes in float16, where tangents times 65536 have no place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.half())
        return x.half().square().float()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return (2 * ctx.saved_tensors[0] * g.half()).float()


RIGHT_SQUARE = square(lambda g, d: g * d)


def autocast(x: Tensor, w: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.float16):
        return RIGHT_SQUARE.apply(x @ w).float().mean()


RIGHT = {
    "computes in float16": (InHalf.apply, (drawn(6, 5),), "tangents times 2^16"),
    "autocast": (autocast, (drawn(6, 5), drawn(5, 3)), "tangents times 2^-24"),
    "large": (lambda x: RIGHT_SQUARE.apply(x) * 1e30, (drawn(6, 5),), ""),
    "small": (lambda x: RIGHT_SQUARE.apply(x) * 1e-33, (drawn(6, 5),), ""),
    "a scaled loss": (lambda x: RIGHT_SQUARE.apply(x).mean() * 65536, (drawn(6, 5),), ""),
    "checkpoint": (lambda x: checkpoint(RIGHT_SQUARE.apply, x.sin(), use_reentrant=False), (drawn(6, 5),), ""),
    "used twice": (lambda x: (y := RIGHT_SQUARE.apply(x)) + RIGHT_SQUARE.apply(y), (drawn(6, 5),), ""),
}


@pytest.mark.parametrize(("program", "inputs", "not_tried"), RIGHT.values(), ids=RIGHT)
def test_what_is_beyond_the_numbers_of_a_dtype_is_no_fault(program: Any, inputs: Any, not_tried: str) -> None:
    answer = answer_of(program, *inputs)
    assert answer.word == DERIVATIVE
    assert bool(answer.not_tried) == bool(not_tried)
    assert not_tried in answer.detail


@pytest.mark.parametrize("dtype", LOW)
def test_a_right_backward_was_tried_with_all(dtype: torch.dtype) -> None:
    answer = answer_of(RIGHT_SQUARE.apply, drawn(6, 5, dtype=dtype))
    assert (answer.word, answer.not_tried) == (DERIVATIVE, ())
    assert {"a second backward", "one-hot tangents", "a second call with other values"} <= {*answer.tried}
    assert ("tangents times 2^16" in answer.tried) == (dtype is not torch.float16)


class Clipped(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * (9 / g.norm()) if g.norm() > 9 else g


def test_what_is_meant_to_clip_is_no_fault_beside_another_function() -> None:
    answer = answer_of(lambda x: RIGHT_SQUARE.apply(Clipped.apply(x)), drawn(3, 2), meant=("Clipped",))
    assert answer.good
    assert "Clipped is meant to differ" in answer.detail


# ------------------------------------------------------------------ values of tangents

OF_SOME_VALUES = {
    "ones": (lambda g, d: d / 2 if bool((g == 1).all()) else g * d, "tangents of ones"),
    "one number": (lambda g, d: g * d / 2 if int((g != 0).sum()) == 1 else g * d, "one-hot tangents"),
}


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(("backward", "name"), OF_SOME_VALUES.values(), ids=OF_SOME_VALUES)
def test_16_bits_are_tried_as_32_are(backward: Any, name: str, dtype: torch.dtype) -> None:
    answer = answer_of(square(backward).apply, drawn(6, 5, dtype=dtype))
    assert answer.word == NOT_THE_DERIVATIVE
    assert f"with {name}" in answer.detail


@pytest.mark.parametrize("dtype", LOW)
def test_every_output_is_tried_alone(dtype: torch.dtype) -> None:
    class Heads(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            ctx.set_materialize_grads(False)
            return tuple(x * (factor + 1) for factor in range(8))

        @staticmethod
        def backward(ctx: Any, *tangents: Tensor | None) -> Tensor | None:
            if all(tangent is None for tangent in tangents[:6]):
                return None
            return sum((k + 1) * g for k, g in enumerate(tangents) if g is not None)

    answer = answer_of(Heads.apply, drawn(6, dtype=dtype))
    assert answer.word == NOT_THE_DERIVATIVE
    assert "output.6 alone, output.7 alone" in answer.detail


# ------------------------------------------------------------------ a second backward, and a second call


class Spoiling(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.twice = x.detach().clone()
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        ctx.twice.mul_(2)
        return g * ctx.twice


class Freeing(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, ctx.x = ctx.x, None
        return 2 * g * x


def test_a_second_backward_of_one_graph() -> None:
    answer = answer_of(Spoiling.apply, drawn(5))
    assert answer.word == NOT_THE_DERIVATIVE
    assert "for a second backward the program's own gradient" in answer.detail


def test_a_refusal_of_a_second_backward_is_said() -> None:
    answer = answer_of(Freeing.apply, drawn(5))
    assert answer.word == DERIVATIVE
    assert "not tried: a second backward" in answer.detail
    assert "tangents times 2^16" in answer.tried


class Keeping(Function):
    kept: Tensor | None = None

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        if Keeping.kept is None:
            Keeping.kept = w.detach().clone()
        ctx.save_for_backward(x)
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        assert Keeping.kept is not None
        return g @ Keeping.kept.T, ctx.saved_tensors[0].T @ g


class Latest(Function):
    x: Tensor

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Latest.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g * Latest.x


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(drawn(5, 3).detach())

    def forward(self, x: Tensor) -> Any:
        return Keeping.apply(x, self.w)


class ByAddress(Function):
    """What is kept by the address of an input is for the values that were there once."""

    kept: ClassVar[dict[int, Tensor]] = {}

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.at = x.data_ptr()
        ByAddress.kept.setdefault(ctx.at, x.detach().cos())
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ByAddress.kept[ctx.at]


class ReadsAddress(Function):
    """A kernel asks where its input lies, and keeps nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.aligned = x.data_ptr() % 16 == 0
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0].cos()


def test_what_is_kept_by_an_address_is_not_for_other_values_there() -> None:
    answer = answer_of(lambda x: ByAddress.apply(x), drawn(4, 5))
    assert answer.word == NOT_THE_DERIVATIVE
    assert "for a second call with other values in the same memory the program's own gradient" in answer.detail
    assert answer_of(lambda x: ReadsAddress.apply(x), drawn(4, 5)).word == DERIVATIVE


CALLS = {
    "keeps an argument": (Keeping.apply, (drawn(4, 5), drawn(5, 3)), "a second call with other values"),
    "keeps a parameter": (Linear(), (drawn(4, 5),), "a second call with other values"),
    "has the latest": (Latest.apply, (drawn(4, 5),), "two calls before a backward"),
}


@pytest.mark.parametrize(("program", "inputs", "name"), CALLS.values(), ids=CALLS)
def test_what_one_call_keeps_is_not_for_another(program: Any, inputs: Any, name: str) -> None:
    Keeping.kept = None
    before = [value.detach().clone() for value in inputs]
    answer = answer_of(program, *inputs)
    assert answer.word == NOT_THE_DERIVATIVE
    assert f"for {name} the program's own gradient" in answer.detail
    assert Keeping.kept is None
    assert all(map(torch.equal, before, inputs))


def test_a_program_whose_outputs_depend_on_its_calls_is_not_compared() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Any:
            self.calls += 1
            return RIGHT_SQUARE.apply(x) * self.calls

    answer = answer_of(Counting(), drawn(5))
    assert answer.word == DERIVATIVE
    assert "its outputs depend on the calls before" in answer.detail


# ------------------------------------------------------------------ a row of padding


def test_a_row_of_padding_has_no_gradient_by_convention() -> None:
    embed = lambda w, i: F.embedding(i, w, padding_idx=1).sin()  # noqa: E731
    answer = answer_of(embed, drawn(5, 3), torch.tensor([1, 1, 2, 0]))
    assert (answer.word, answer.good) == ("derivative but for embedding", True)
    assert "padding_idx" in answer.detail
    hidden = lambda w, i: embed(w, i) * (i != 1)[:, None]  # noqa: E731
    assert answer_of(hidden, drawn(5, 3), torch.tensor([1, 1, 2, 0])).word == DERIVATIVE
    assert answer_of(embed, drawn(5, 3), torch.tensor([3, 2, 0])).word == DERIVATIVE
    beside = lambda w, i: RIGHT_SQUARE.apply(embed(w, i))  # noqa: E731
    assert answer_of(beside, drawn(5, 3), torch.tensor([1, 1, 2, 0])).word == "derivative but for embedding"


def test_a_second_call_has_other_signs() -> None:
    """A mask of few elements is the same for inputs that are near."""
    masks: dict[Any, Tensor] = {}

    class Cached(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mask = masks.setdefault((x.shape, x.dtype), x > 0)
            return x.relu()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.mask

    x = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
    assert answer_of(lambda x: Cached.apply(x), x).word == "not the derivative"


def test_tangents_with_one_number_a_row_are_tried() -> None:
    """The backward of `sum(-1)` makes them."""

    class OneNumber(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * (grad.mean().expand_as(grad) if grad.stride(-1) == 0 else grad)

    answer = answer_of(OneNumber.apply, drawn(3, 4))
    assert answer.word == "not the derivative"
    assert "one number a row, expanded" in answer.detail

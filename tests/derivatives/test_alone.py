"""Each custom Function asked alone: behind zeros, and before Functions that are meant to differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function

import backprint as bp

DERIVATIVE, NOT_THE_DERIVATIVE = "derivative", "not the derivative"


def made(name: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """Return a custom Function; its backward takes the tangent and what the forward took."""

    def run(ctx: Any, *inputs: Tensor) -> Any:
        ctx.save_for_backward(*inputs)
        return forward(*inputs)

    def of_saved(ctx: Any, *tangents: Tensor) -> Any:
        return backward(*tangents, *ctx.saved_tensors)

    return type(Function)(name, (Function,), {"forward": staticmethod(run), "backward": staticmethod(of_saved)})


def spike() -> Any:
    return made("Spike", lambda v: (v > 0).to(v.dtype), lambda g, v: g / (1 + v.abs()) ** 2)


def square(factor: float) -> Any:
    return made("Square", lambda x: x * x, lambda g, x: factor * x * g)


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


def answer_of(program: Any, *inputs: Tensor, **options: Any) -> Any:
    (answer,) = bp.derivative(bp.capture(program, args=inputs, **options))
    return answer


# ------------------------------------------------------------------ behind zeros


class WarmUp(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("gate", torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        return x.cos() + self.gate * self.function.apply(x)


ZEROS: dict[str, Callable[[Any], Any]] = {
    "a buffer": WarmUp,
    "a number": lambda function: lambda x: x.cos() + 0.0 * function.apply(x),
    "alpha": lambda function: lambda x: torch.add(x.cos(), function.apply(x), alpha=0),
    "where": lambda function: lambda x: torch.where(torch.zeros(3, 4, dtype=torch.bool), function.apply(x), x.cos()),
    "a dead relu": lambda function: lambda x: x.cos() + (function.apply(x) - 90).relu(),
}


@pytest.mark.parametrize("program", ZEROS.values(), ids=ZEROS)
def test_a_function_behind_a_zero(program: Any) -> None:
    wrong = answer_of(program(square(1.7)), drawn(3, 4))
    assert wrong.word == NOT_THE_DERIVATIVE
    assert [place.function for place in wrong.wrong] == ["Square"]
    assert "Square alone, whose tangents are 0 in the program" in wrong.detail
    right = answer_of(program(square(2.0)), drawn(3, 4))
    assert right.word == DERIVATIVE
    assert not right.not_tried


def test_a_mask_of_floats_is_a_zero_too() -> None:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        return square(1.7).apply(x) * mask + x

    assert answer_of(program, drawn(3, 4), torch.zeros(3, 1)).word == NOT_THE_DERIVATIVE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64])
def test_dtypes_of_a_function_behind_a_zero(dtype: torch.dtype) -> None:
    conjugate = made("Square", lambda x: x * x, lambda g, x: g * (2 * x).conj())
    wrong = made("Square", lambda x: x * x, lambda g, x: g * (1.7 * x).conj())
    for function, word in ((conjugate, DERIVATIVE), (wrong, NOT_THE_DERIVATIVE)):
        assert answer_of(lambda x, f=function: x * 3 + 0.0 * f.apply(x), drawn(3, 4, dtype=dtype)).word == word


class InFloat32(Function):
    """Takes no other dtype, as a kernel does; forward and setup_context are apart."""

    factor = 2.0

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy().astype("float32") ** 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @classmethod
    def backward(cls, ctx: Any, g: Tensor) -> Tensor:
        return (cls.factor * ctx.saved_tensors[0] * g).float()


def test_a_function_of_one_dtype_is_asked_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Tensor:
        return x.cos() + 0.0 * InFloat32.apply(x)

    methods = dict(vars(InFloat32))
    assert answer_of(program, drawn(3, 4)).word == DERIVATIVE
    assert dict(vars(InFloat32)) == methods  # as before
    monkeypatch.setattr(InFloat32, "factor", 1.5)
    assert answer_of(program, drawn(3, 4)).word == NOT_THE_DERIVATIVE


def test_an_output_that_nothing_uses_has_no_tangent() -> None:
    def backward(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return 2 * a  # ignores the second output

    function = made("Two", lambda x: (x * 2, x * 5), backward)
    assert answer_of(lambda x: x.cos() + 0.0 * function.apply(x)[0], drawn(3, 4)).word == DERIVATIVE
    wrong = answer_of(lambda x: function.apply(x)[0] + 0.0 * function.apply(x)[1], drawn(3, 4))
    assert [place.function for place in wrong.wrong] == ["Two"]


def test_functions_that_make_up_for_one_another_are_not_asked_alone() -> None:
    up, down = (made(name, lambda x: x * 1, lambda g, x, k=k: k * g) for name, k in (("Up", 8.0), ("Down", 0.125)))
    assert answer_of(lambda x: up.apply(down.apply(x.relu()).relu()), drawn(3, 4)).word == DERIVATIVE


# ------------------------------------------------------------------ before what is meant to differ


def test_a_function_before_a_surrogate() -> None:
    for factor, word in ((2.0, "derivative but for Spike"), (1.0, NOT_THE_DERIVATIVE)):
        before, after = square(factor), spike()
        answer = answer_of(lambda x, f=before, s=after: s.apply(f.apply(x) - 0.5), drawn(3, 4), meant=("Spike",))
        assert answer.word == word
    assert [place.function for place in answer.wrong] == ["Square"]
    assert "Square alone" in answer.detail


def test_sizes_of_tangents_before_a_surrogate() -> None:
    clips, after = made("Twice", lambda x: x * 2, lambda g, x: (g * 2).clamp(-50, 50)), spike()
    answer = answer_of(lambda x: after.apply(clips.apply(x)), drawn(3, 4), meant=("Spike",))
    assert answer.word == NOT_THE_DERIVATIVE
    assert "Twice alone with tangents times 2^16" in answer.detail


def test_functions_of_one_factory_are_told_apart() -> None:
    """`made` has the lines of all of them."""
    for factor, word in ((2.0, "derivative but for Spike"), (1.5, NOT_THE_DERIVATIVE)):
        first, second = spike(), square(factor)
        answer = answer_of(lambda x, a=first, b=second: b.apply(a.apply(x) + x), drawn(3, 4), meant=("Spike",))
        assert answer.word == word


def test_two_functions_of_a_name_that_is_meant() -> None:
    first, second = spike(), spike()
    answer = answer_of(lambda x: second.apply(first.apply(x) - 0.3), drawn(3, 4), meant=("Spike",))
    assert answer.word == "derivative but for Spike"
    assert "2 Functions have this name" in answer.detail


def test_a_hook_that_is_meant_is_not_taken_for_the_function_before_it() -> None:
    def program(x: Tensor, w: Tensor, function: Any) -> Tensor:
        hidden = function.apply(x, w)
        hidden.register_hook(lambda g: g.clamp(-0.1, 0.1))
        return hidden.tanh()

    for factor, word in ((1.0, "derivative but for hook"), (1.5, NOT_THE_DERIVATIVE)):
        product = made("Product", torch.matmul, lambda g, x, w, k=factor: (g @ w.mT, k * x.mT @ g))
        answer = answer_of(lambda x, w, f=product: program(x, w, f), drawn(3, 4), drawn(4, 2), meant=("hook",))
        assert answer.word == word


def test_a_hook_beside_a_surrogate_is_not_taken_for_it() -> None:
    after = spike()

    def program(x: Tensor, w: Tensor) -> Tensor:
        hidden = x @ w
        hidden.register_hook(lambda g: g * 2)
        return after.apply(hidden) + hidden

    answer = answer_of(program, drawn(3, 4), drawn(4, 2), meant=("Spike",))
    assert answer.word == NOT_THE_DERIVATIVE


def test_the_memory_of_tangents_counts_where_all_functions_are_meant() -> None:
    by_stride = made("Spike", lambda v: (v > 0).to(v.dtype), lambda g, v: g * (0.5 if g.is_contiguous() else 2.0))
    answer = answer_of(by_stride.apply, drawn(3, 4), meant=("Spike",))
    assert answer.word == NOT_THE_DERIVATIVE
    assert "in new memory" in answer.detail


@pytest.mark.parametrize("behind", [lambda y: y, lambda y: (y, y.sin()), lambda y: y.square().sum()])
def test_a_function_that_passes_its_tangent_on_may_be_meant(behind: Callable[[Tensor], Any]) -> None:
    """Its backward has no step, and its result may be the program's."""
    straight = made("Straight", lambda v: (v > 0).to(v.dtype), lambda g, v: g)

    def program(x: Tensor, w: Tensor) -> Any:
        return behind(straight.apply(x @ w))

    answer = answer_of(program, drawn(3, 4), drawn(4, 2, seed=1), meant=("Straight",))
    assert answer.word == "derivative but for Straight"
    assert answer_of(program, drawn(3, 4), drawn(4, 2, seed=1)).word == NOT_THE_DERIVATIVE


@pytest.mark.parametrize(("factor", "word"), [(2.0, "derivative but for Straight"), (2.2, NOT_THE_DERIVATIVE)])
def test_a_function_before_one_that_passes_its_tangent_on_is_asked_alone(factor: float, word: str) -> None:
    straight = made("Straight", lambda v: (v > 0).to(v.dtype), lambda g, v: g)
    before = square(factor)
    answer = answer_of(
        lambda x, w: straight.apply(before.apply(x) @ w), drawn(3, 4), drawn(4, 2, seed=1), meant=("Straight",)
    )
    assert answer.word == word


def test_what_holds_of_an_input_to_rounding_is_no_fault() -> None:
    """The transpose of a matrix is its inverse to rounding."""
    q = torch.linalg.qr(drawn(4, 4).detach())[0]

    def rotated(factor: float) -> Any:
        return made("Rotated", lambda x, q: torch.linalg.solve(q, x.T).T, lambda g, x, q: (factor * g @ q.T, None))

    right = answer_of(lambda x, q: rotated(1.0).apply(x, q), drawn(3, 4), q)
    assert right.word == "cannot tell"
    assert "as much by rounding of q" in right.detail
    assert answer_of(lambda x, q: rotated(1.0 + 1e-4).apply(x, q), drawn(3, 4), q).word == NOT_THE_DERIVATIVE

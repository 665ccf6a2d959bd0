"""Whether a backward is the derivative: right ones, wrong ones, where they are wrong, and what is meant to differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects.wrong_backwards import ROWS
from torch import Tensor, nn

import backprint as bp


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


class RowLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return (x @ w).square().sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, w = ctx.saved_tensors
        y = 2 * (x @ w) * grad[0]  # wrong
        return y @ w.t(), x.t() @ y


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (v,) = ctx.saved_tensors
        return grad / (1 + v.abs()) ** 2  # surrogate


def line_of(mark: str) -> int:
    return next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith(f"# {mark}"))


# ------------------------------------------------------------------ right backwards

RIGHT: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "encoder": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.randn(2, 3, 8),)),
    "batch norm": lambda: (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()), (torch.randn(2, 2, 6, 6),)),
    "LSTM, which oneDNN has in float32 only": lambda: (nn.LSTM(4, 5, batch_first=True), (torch.randn(2, 3, 4),)),
    "embedding with a padding row": lambda: (nn.Embedding(5, 3, padding_idx=1), (torch.tensor([0, 4, 2, 4]),)),
    "complex": lambda: (lambda x: torch.view_as_complex(x).exp() * 2, (leaf(4, 2),)),
    "cholesky": lambda: (lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(4)), (leaf(4, 4),)),
    "relu at 0, and ties": lambda: (lambda x: F.relu(x).amax(0), (torch.zeros(3, 4).requires_grad_(),)),
}


@pytest.mark.parametrize("engine", ["eager", "aot"])
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_backward_is_the_derivative(case: str, engine: str) -> None:
    torch.manual_seed(0)
    program, inputs = RIGHT[case]()
    (answer,) = bp.derivative(bp.capture(program, *inputs, engine=engine))
    assert (answer.word, answer.wrong) == ("derivative", ())
    assert answer.gap is not None
    assert answer.gap < 1e-12


def test_order_2_is_checked_too() -> None:
    (answer,) = bp.derivative(bp.capture(lambda x: x.sin().pow(3), leaf(3), order=2))
    assert answer.word == "derivative"


def test_linked_pairs_are_checked_one_by_one() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.exp()

    answers = bp.derivative(bp.capture(broken, leaf(3), engine="dynamo"))
    assert [answer.word for answer in answers] == ["derivative", "derivative"]


def test_a_tensor_under_two_names_is_one_input() -> None:
    x = leaf(3)
    (answer,) = bp.derivative(lambda a, b: a * b.sin(), x, x)
    assert answer.word == "derivative"


# ------------------------------------------------------------------ wrong backwards


@pytest.mark.parametrize("engine", ["eager", "aot"])
def test_a_wrong_function_is_named_with_its_line(engine: str) -> None:
    x, w, b = leaf(5, 4).detach() / 3, leaf(4, 3).detach() / 3, leaf(5)
    program = lambda x, w, b: (RowLoss.apply(x.tanh(), w.exp()) + b).sigmoid()  # noqa: E731
    (answer,) = bp.derivative(bp.capture(program, x.requires_grad_(), w.requires_grad_(), b, engine=engine))
    assert answer.word == "not the derivative"
    assert answer.ports == ("x", "w")
    assert answer.rest_is_right
    (place,) = answer.wrong
    assert place.function == "RowLoss"
    if engine == "eager":  # AOTAutograd gives a backward the lines of its forward
        assert any(line.endswith(f"test_derivative.py:{line_of('wrong')}") for line in place.lines)
        assert len(place.lines) <= 2  # of the three lines of its backward


def test_the_modules_with_a_wrong_function_are_named() -> None:
    class Block(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y * (Spike.apply(y) if self.out_features == 5 else y.sigmoid())

    blocks = nn.Sequential(Block(4, 4), Block(4, 5), Block(5, 4), Block(4, 5))
    (place,) = bp.derivative(blocks, leaf(6, 4))[0].wrong
    assert (place.function, set(place.modules), place.times) == ("Spike", {"1", "3"}, 2)
    assert f" in module {place.modules[0]} and 1 more (2 times): " in str(place)


@pytest.mark.parametrize("factor", [1 + 3e-10, 1e-310])
def test_a_gradient_that_is_slightly_wrong_or_all_but_0_is_not_the_derivative(factor: float) -> None:
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad * ctx.saved_tensors[0].cos() * factor

    (result,) = bp.derivative(bp.capture(Times.apply, leaf(4).double().detach().requires_grad_()))
    assert result.word == "not the derivative", str(result)
    assert "gradient of" in result.detail


def test_tangents_of_ones_do_not_show_it() -> None:
    (answer,) = bp.derivative(RowLoss.apply, leaf(5, 4), leaf(4, 3))
    assert answer.word == "not the derivative"
    assert answer.ones is not None
    assert answer.ones < 1e-12
    assert "tangents of ones do not show it" in answer.detail


def test_each_call_of_a_surrogate_is_found_and_what_is_around_them_is_right() -> None:
    def lif(x: Tensor, w: Tensor) -> Tensor:
        v, spikes = torch.zeros(3, 5), []
        for row in x:
            v = 0.5 * v + row @ w
            spike = Spike.apply(v - 1)
            v = v * (1 - spike)
            spikes.append(spike)
        return torch.stack(spikes).sum(0)

    cap = bp.capture(lif, torch.randn(4, 3, 4, generator=torch.Generator().manual_seed(0)), leaf(4, 5))
    (answer,) = bp.derivative(cap)
    assert answer.word == "not the derivative"
    assert [(place.function, place.times) for place in answer.wrong] == [("Spike", 4)]
    (meant,) = bp.derivative(cap, meant=("Spike",))
    assert meant.word == "derivative but for Spike"
    assert meant.good


@pytest.mark.parametrize(
    ("name", "program"),
    [("detach", lambda x: x.detach() * x.sin()), ("no_grad", lambda x: (x / torch.no_grad()(torch.norm)(x)).exp())],
)
def test_a_gradient_that_is_stopped_is_named(name: str, program: Any) -> None:
    (answer,) = bp.derivative(bp.capture(program, leaf(4, 4)))
    assert answer.word == "not the derivative"
    assert [place.function for place in answer.wrong] == [name]
    assert bp.derivative(bp.capture(program, leaf(4, 4)), meant=(name,))[0].word == f"derivative but for {name}"


def test_a_stopped_gradient_that_would_be_0_is_no_difference() -> None:
    program = lambda x: (x - x.amax(1, keepdim=True).detach()).softmax(1)  # noqa: E731
    assert bp.derivative(program, leaf(3, 4))[0].word == "derivative"


def test_a_gradient_that_is_wrong_in_one_memory_only_is_found() -> None:
    def program(x: Tensor) -> Tensor:
        return F.batch_norm(x, torch.zeros(4), torch.ones(4)).squeeze(0).permute(1, 2, 0).contiguous()

    x = torch.randn(1, 4, 3, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    tangent = torch.arange(36.0).view(3, 3, 4)
    (gradient,) = torch.autograd.grad(program(x), x, tangent)
    is_right = torch.allclose(gradient, tangent.permute(2, 0, 1)[None], rtol=1e-3)  # it is in later versions, perhaps
    (answer,) = bp.derivative(program, x)
    assert answer.word == ("derivative" if is_right else "not the derivative")
    assert is_right or "batch_norm" in answer.wrong[0].function


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_wrong_backward_that_shipped(row: Any) -> None:
    (answer, *_) = bp.derivative(bp.capture(row.wrong, args=row.inputs(), order=row.order))
    assert answer.word == "not the derivative"
    assert row.operator in [place.function for place in answer.wrong]
    mended = bp.derivative(bp.capture(row.mended, args=row.inputs(), order=row.order))
    assert {answer.word for answer in mended} == {"derivative"}


# ------------------------------------------------------------------ what cannot be told


@pytest.mark.parametrize(
    ("program", "inputs", "options", "reason"),
    [
        (lambda x: x > 0, (leaf(3),), {}, "it has no backward"),
        (torch.sin, (leaf(3),), {"fake": True}, "it was captured without values"),
        (torch.sin, (leaf(0, 3),), {}, "no gradient has an element"),
    ],
)
def test_what_cannot_be_told_has_a_reason(program: Any, inputs: Any, options: Any, reason: str) -> None:
    (answer,) = bp.derivative(bp.capture(program, *inputs, **options))
    assert (answer.word, answer.detail) == ("cannot tell", reason)
    assert not answer.good


def test_arguments_beside_a_capture_are_refused() -> None:
    cap = bp.capture(torch.sin, leaf(3))
    with pytest.raises(bp.errors.UsageError, match="takes a Capture alone"):
        bp.derivative(cap, leaf(3))
    with pytest.raises(bp.errors.UsageError, match=r"meant='Spike' is no custom autograd.Function .* detach, no_grad"):
        bp.derivative(cap, meant=("Spike",))
    with pytest.raises(bp.errors.UsageError, match=r"meant='Spike' is no custom autograd.Function .* detach, no_grad"):
        bp.capture(torch.sin, leaf(3), meant=("Spike",))


# ------------------------------------------------------------------ verdicts, samples, the command line


def test_a_verdict_has_both_words_and_a_sample_keeps_what_is_meant(tmp_path: Path) -> None:
    cap = bp.capture(lambda v: Spike.apply(v * 2), leaf(3, 4), meant=("Spike",))
    (verdict,) = cap.verify(derivative=True)
    assert (verdict.verdict, verdict.derivative.word) == ("bitwise", "derivative but for Spike")
    assert repr(verdict).startswith("Verdict(bitwise, derivative but for Spike: ")
    loaded = bp.load(cap.save(tmp_path / "sample"))
    assert loaded.meant == ("Spike",)
    assert bp.derivative(loaded)[0].word == "derivative but for Spike"

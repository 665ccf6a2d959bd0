"""Tensors that lie in one storage: parameters, as those of an LSTM on a GPU, and inputs, one of which is written to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import backprint as bp


class Flat(nn.Module):
    """Two parameters in one storage, which the forward sees as one tensor too."""

    def __init__(self, used: bool) -> None:
        super().__init__()
        flat = torch.randn(24)
        self.used, self.a, self.b = used, nn.Parameter(torch.empty(0)), nn.Parameter(torch.empty(0))
        self.a.data, self.b.data = flat[:12].view(3, 4), flat[12:].view(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            buffer = torch.empty(0).set_(self.a.untyped_storage(), 0, (24,), (1,))
        y = x @ self.a @ self.b
        return y + buffer.sum() if self.used else y


@pytest.mark.parametrize("used", [False, True])
def test_a_tensor_set_to_the_storage_of_several(used: bool) -> None:
    model, x = Flat(used), torch.randn(2, 3)
    capture = bp.capture(model, x, engine="eager")
    assert capture.pairs[0].forward.by_role("mutation") == ()
    assert {verdict.verdict for verdict in capture.verify()} == {"bitwise"}
    assert torch.equal(bp.replay(capture, x).outputs, model(x))


WEIGHT = torch.randn(4, requires_grad=True)


def of_inputs_alone(flat: Tensor, x: Tensor) -> Tensor:
    flat.mul_(2)
    return x.sum()


def of_a_weight_too(flat: Tensor, x: Tensor) -> Tensor:
    flat.mul_(2)
    return (x.sum() * WEIGHT).sum()


def without_autograd(flat: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    return flat.sum() * WEIGHT.sum()


@pytest.mark.parametrize("engine", ["eager", "aot", "dynamo"])
@pytest.mark.parametrize(
    ("program", "verdict"),
    [(of_inputs_alone, "undifferentiable"), (of_a_weight_too, "bitwise"), (without_autograd, "bitwise")],
)
def test_inputs_that_share_memory_that_is_written_to_get_no_gradient_by_default(
    program: Callable[[Tensor, Tensor], Tensor], verdict: str, engine: str
) -> None:
    flat = torch.randn(12)
    capture = bp.capture(program, flat, flat[2:6], engine=engine)
    assert [result.verdict for result in capture.verify()] == [verdict]
    assert {port.name for port in capture.pairs[0].forward.by_role("mutation")} == {"flat", "x"}
    backward = capture.pairs[0].backward
    gradients = [port.name for port in backward.outputs] if backward else []
    assert gradients == (["WEIGHT"] if verdict == "bitwise" else [])


def test_other_inputs_get_their_gradient_by_default() -> None:
    flat = torch.randn(12)
    capture = bp.capture(lambda flat, x, y: of_inputs_alone(flat, x) * y.sum(), flat, flat[2:6], torch.randn(3))
    assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]
    assert [port.name for port in capture.pairs[0].backward.outputs] == ["y"]
    flat = torch.randn(12)
    capture = bp.capture(lambda x, y: (x * y).sum(), flat[:4], flat[4:8])  # neither is written to
    assert [port.name for port in capture.pairs[0].backward.outputs] == ["x", "y"]


def test_a_program_that_raises_only_below_a_dispatch_mode() -> None:
    def program(x: Tensor) -> Tensor:
        if torch._C._len_torch_dispatch_stack():
            raise RuntimeError("not here")
        return x * 2

    with pytest.raises(
        bp.errors.CaptureError, match="runs, but not while a dispatch mode records it: RuntimeError: not here"
    ):
        bp.capture(program, torch.randn(3))


def test_a_program_that_raises_by_itself() -> None:
    def program(x: Tensor) -> Tensor:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        bp.capture(program, torch.randn(3))


def test_why_arguments_that_share_written_memory_have_no_backward_is_said() -> None:
    whole = torch.randn(8)
    capture = bp.capture(lambda a, b: a.add_(1) * b, whole[:4], whole[4:])
    (note,) = capture.notes
    assert note.startswith("a, b share memory that the program writes to, so they do not require grad by default")
    assert capture.pairs[0].backward is None

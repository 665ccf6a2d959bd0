"""A sample that is captured again from its forward has the gradients of the program that it came from."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import backprint as bp


def twice_in_place(x: Tensor, w: Tensor) -> Tensor:
    """Updates two views of one tensor, and reads what was there before."""
    y = x * w
    before = y[1].exp()
    y[0].mul_(2)
    y[:, 1:3].sigmoid_()
    return (y * before).sum()


def gradients_again(place: Path, program: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The gradients of a capture of a saved forward, for tangents of ones, and those of the program on the same
    values."""
    again = bp.capture(place)
    values = bp.load(place).recipes.make(names=[port.name for port in again.pairs[0].forward.inputs])
    program.load_state_dict({name: values.pop(name) for name in program.state_dict()})
    inputs = {name: value.requires_grad_() for name, value in values.items()}
    program(*inputs.values()).sum().backward()
    wanted = {**dict(program.named_parameters()), **inputs}
    return bp.replay(again).gradients, {name: tensor.grad for name, tensor in wanted.items() if tensor.grad is not None}


def test_updates_of_views_have_the_gradient_of_the_program(tmp_path: Path) -> None:
    """PyTorch's own gradient of `as_strided_scatter`, which stands for such an update in a graph, is wrong."""
    cell = nn.GRUCell(3, 3)
    place = bp.save(bp.capture(cell, torch.randn(2, 3, requires_grad=True)), tmp_path / "cell")
    assert "as_strided_scatter" in bp.load(place).pairs[0].forward.code
    gradients, wanted = gradients_again(place, cell)
    assert set(gradients) == set(wanted)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, wanted[name])
    assert [word.word for word in bp.derivative(bp.capture(place))] == ["derivative"]


def test_a_function_is_captured_again_with_its_derivative(tmp_path: Path) -> None:
    inputs = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    place = bp.save(bp.capture(twice_in_place, *inputs), tmp_path / "function")
    assert [word.word for word in bp.derivative(bp.capture(place))] == ["derivative"]

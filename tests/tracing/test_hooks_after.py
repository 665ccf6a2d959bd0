"""Hooks after accumulation: one that changes `.grad` is captured, and of one that is left out the capture says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import backprint as bp


def model_with(hook: Callable[[Tensor], None]) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    model.weight.register_post_accumulate_grad_hook(hook)
    return model


def scale(parameter: Tensor) -> None:
    parameter.grad.mul_(0.1)


def scale_unseen(parameter: Tensor) -> None:
    parameter.grad.data.mul_(0.1)


def replace(parameter: Tensor) -> None:
    parameter.grad = parameter.grad * 3


def clip(parameter: Tensor) -> None:
    nn.utils.clip_grad_norm_([parameter], 0.5)


def mend_nan(parameter: Tensor) -> None:
    torch.nan_to_num_(parameter.grad)


def clear(parameter: Tensor) -> None:
    parameter.grad = None


def descend(parameter: Tensor) -> None:
    parameter.data.add_(parameter.grad, alpha=-0.1)


LOGGED: list[object] = []


def log(parameter: Tensor) -> None:
    LOGGED.append(parameter.grad.shape)
    LOGGED.append(parameter.grad.norm())


def clip_if_large(parameter: Tensor) -> None:
    if parameter.grad.norm() > 1e4:
        parameter.grad.mul_(0)


@pytest.mark.parametrize("hook", [scale_unseen, replace, clip, mend_nan, log], ids=lambda hook: hook.__name__)
def test_the_replayed_gradient_is_what_backward_leaves_in_grad(hook: Callable[[Tensor], None]) -> None:
    torch.manual_seed(0)
    model, x, tangent = model_with(hook), torch.randn(3, 4), torch.randn(3, 2)
    capture = bp.capture(model, x)
    changes = hook not in (mend_nan, log)
    (verdict,) = capture.verify(derivative=True)
    assert (verdict.verdict, verdict.proof, capture.notes) == ("bitwise", True, ())
    assert verdict.derivative is not None
    assert verdict.derivative.word == ("not the derivative" if changes else "derivative")
    y = torch.randn(3, 4)
    gradients = bp.replay(capture, y, tangents=[tangent]).gradients
    assert model.weight.grad is None
    model(y).backward(tangent)
    assert torch.equal(gradients["weight"], model.weight.grad)


def test_a_hook_is_named_and_can_be_meant() -> None:
    capture = bp.capture(model_with(scale), torch.randn(3, 4), meant=("hook",))
    (edge,) = capture.opaque
    assert edge.text.startswith("weight has a hook after accumulation at test_hooks_after.py:")
    assert bp.derivative(capture)[0].word == "derivative but for hook"


@pytest.mark.parametrize(
    ("hook", "options", "reason"),
    [
        (clear, {}, "updates a parameter or clears .grad inside of the backward"),
        (descend, {}, "updates a parameter or clears .grad inside of the backward"),
        (clip_if_large, {}, "reads a number and changed nothing in the captured step"),
        (scale, {"engine": "aot"}, "is not captured by engine 'aot', but by 'eager'"),
    ],
    ids=["clear", "descend", "clip_if_large", "aot"],
)
def test_a_hook_that_is_left_out_is_said(
    hook: Callable[[Tensor], None], options: dict[str, object], reason: str, tmp_path: Path
) -> None:
    model = model_with(hook)
    before = model.weight.detach().clone()
    capture = bp.capture(model, torch.randn(3, 4), **options)
    assert torch.equal(model.weight, before)
    assert model.weight.grad is None
    begins = "register_post_accumulate_grad_hook is not a part of this capture: the hook on weight"
    (note,) = capture.notes
    assert note.startswith(begins)
    assert reason in note
    (verdict,) = capture.verify(derivative=True)
    assert verdict.verdict == "bitwise"
    assert verdict.derivative is not None
    assert note in verdict.detail
    assert note in verdict.derivative.detail
    sample = bp.load(bp.save(capture, tmp_path / "sample"))
    assert sample.notes == capture.notes
    assert note in sample.verify(derivative=True)[0].detail


def test_a_hook_on_an_accumulating_node_is_said(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    node = model.weight.expand_as(model.weight).grad_fn.next_functions[0][0]  # as libraries for training do
    node.register_prehook(lambda gradients: (gradients[0] * 10,))
    capture = bp.capture(model, torch.randn(3, 4))
    begins = (
        "hooks of AccumulateGrad nodes are not a part of this capture: the program keeps the AccumulateGrad node of"
    )
    (note,) = capture.notes
    assert note.startswith(f"{begins} weight, which may have hooks")
    (verdict,) = capture.verify(derivative=True)
    assert note in verdict.detail
    assert verdict.derivative is not None
    assert note in verdict.derivative.detail
    assert note in bp.load(bp.save(capture, tmp_path / "sample")).verify()[0].detail


def test_a_node_that_nobody_keeps_is_not_said() -> None:
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    output = model(x)  # a graph that is alive has the node, too
    assert bp.capture(model, x).notes == ()
    output.sum().backward()

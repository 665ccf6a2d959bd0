"""Graphs run, whole Captures replay, and what does not fit is said by name."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y = F.dropout(self.bn(self.conv(x)).relu(), 0.5, self.training)
        return y, {"mean": y.mean()}


def test_replay_on_new_inputs_is_autograds_own_to_the_bit() -> None:
    model, x = Net(), torch.randn(2, 2, 5, 5)
    capture = bp.capture(model, x)
    fresh = torch.randn(2, 2, 5, 5)
    tangents = [torch.randn(2, 3, 3, 3), torch.randn(())]

    torch.manual_seed(7)
    out = bp.replay(capture, fresh, tangents=tangents)
    before = model.bn.running_mean.clone()
    torch.manual_seed(7)
    y, more = model(fresh)
    torch.autograd.backward([y, more["mean"]], tangents)

    assert isinstance(out.outputs, tuple)
    assert torch.equal(out.outputs[0], y)
    assert torch.equal(out.outputs[1]["mean"], more["mean"])
    assert list(out.gradients) == [name for name, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        assert torch.equal(out.gradients[name], parameter.grad), name
    assert torch.equal(out.mutations["bn.running_mean"], model.bn.running_mean)
    assert not torch.equal(before, model.bn.running_mean)


def test_replay_follows_the_live_module_and_takes_a_state() -> None:
    model, x = nn.Linear(2, 2), torch.randn(1, 2)
    capture = bp.capture(model, x)
    with torch.no_grad():
        model.weight.mul_(3)
    assert torch.equal(bp.replay(capture, x).outputs, model(x))
    state = {"weight": torch.zeros(2, 2), "bias": torch.ones(2)}
    assert bp.replay(capture, x, state=state).outputs.tolist() == [[1.0, 1.0]]


def test_unused_parameters_have_no_gradient() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    model = Unused()
    out = bp.replay(bp.capture(model, torch.randn(1, 2)), torch.randn(1, 2))
    assert out.gradients["unused.weight"] is None
    assert out.gradients["used.weight"] is not None


def test_one_direction_alone() -> None:
    capture = bp.capture(lambda x, y: x @ y, torch.randn(2, 3).requires_grad_(), torch.randn(3, 2))
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    x, y = torch.randn(2, 3), torch.randn(3, 2)
    results = bp.run(forward, {"x": x, "y": y})
    assert torch.equal(results[0], x @ y)
    assert torch.equal(bp.run(forward, [x, y])[0], x @ y)
    saved = {port.name: value for port, value in zip(forward.outputs, results, strict=True) if port.role == "saved"}
    (gradient,) = bp.run(backward, {**saved, "tangent output": torch.ones(2, 2)})
    assert torch.equal(gradient, torch.ones(2, 2) @ y.t())


def test_to_fx_computes_the_same() -> None:
    model, x = Net().eval(), torch.randn(2, 2, 5, 5)
    capture = bp.capture(model, x)
    module = capture.pairs[0].forward.to_fx()
    module.graph.lint()
    inputs = [dict(model.state_dict(), x=x)[port.name] for port in capture.pairs[0].forward.inputs]
    assert torch.equal(module(*inputs)[0], model(x)[0])


def test_a_seed_gives_the_programs_own_draws() -> None:
    def f(x: Tensor) -> Tensor:
        torch.rand(5)  # thrown away
        return F.dropout(x, 0.5, True) + torch.randn(8) * torch.rand_like(x)

    capture = bp.capture(f, torch.randn(8).requires_grad_())
    x = torch.randn(8)
    torch.manual_seed(3)
    replayed = bp.replay(capture, x).outputs
    torch.manual_seed(3)
    assert torch.equal(replayed, f(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c: bp.replay(c, torch.ones(2), 1), "takes x; 2 were given"),
        (lambda c: bp.replay(c, torch.ones(3)), r"input 'x' was f32\[2\] at capture and is float32\[3\] now"),
        (lambda c: bp.replay(c, torch.ones(2).double()), r"and is float64\[2\] now"),
        (lambda c: bp.replay(c, torch.ones(2), tangents=[]), r"0 tangents for 1 differentiable outputs \(output\)"),
        (lambda c: bp.replay(c, torch.ones(2), tangents=[torch.ones(5)]), "tangent of 'output'"),
        (lambda c: bp.run(c.pairs[0].forward, {}), "input 'x' .* is missing"),
        (lambda c: bp.run(c.pairs[0].forward, []), "takes 1 inputs, not 0"),
    ],
)
def test_what_does_not_fit_is_said_by_name(call: object, text: str) -> None:
    capture = bp.capture(lambda x: x * 2, torch.ones(2))
    with pytest.raises(bp.errors.ReplayError, match=text):
        call(capture)  # type: ignore[operator]  # a lambda of the table


def test_a_tangent_may_lie_in_memory_otherwise_than_its_output() -> None:
    capture = bp.capture(lambda x: x.view(2, 3, 4).permute(0, 2, 1), torch.randn(6, 4).requires_grad_())
    x, tangent = torch.randn(6, 4), torch.randn(2, 4, 3)
    (gradient,) = bp.replay(capture, x, tangents=[tangent]).gradients.values()
    assert torch.equal(gradient, tangent.permute(0, 2, 1).reshape(6, 4))

"""The first wrong place that `bp.derivative` names is the step whose gradient is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp
from face import Capture, Graph, Pair, Ref, Step


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


def spoiled(capture: Capture, name: str, **changes: Any) -> Capture:
    """Return a capture of which one step of the backward is changed."""
    graph = backward_of(capture)
    steps = tuple(replace(step, **changes) if step.name == name else step for step in graph.steps)
    assert steps != graph.steps
    return with_backward(capture, replace(graph, steps=steps))


def backward_of(capture: Capture) -> Graph:
    graph = capture.pairs[0].backward
    assert graph is not None
    return graph


def with_backward(capture: Capture, graph: Graph) -> Capture:
    return replace(capture, pairs=(Pair(capture.pairs[0].name, capture.pairs[0].forward, graph),))


def step_of(capture: Capture, target: str, number: int = 0) -> Step:
    return [step for step in backward_of(capture).steps if step.target == target][number]


def first_place(capture: Capture) -> tuple[str, ...]:
    (answer,) = bp.derivative(capture)
    assert answer.word == "not the derivative"
    return answer.wrong[0].names


def test_the_right_value_of_another_step_is_no_excuse() -> None:
    """The factor is 1, so that the gradient of what `mul` takes is also that of what it makes."""
    cap = bp.capture(lambda x, y: ((x * 1.0).t() @ y).sin(), leaf(3, 4), leaf(3, 4))
    step = next(s for s in backward_of(cap).steps if s.echo and s.echo.names == ("mul",))
    assert first_place(spoiled(cap, step.name, args=(step.args[0], 1.5))) == ("mul",)


def test_a_view_of_a_wrong_value() -> None:
    cap = bp.capture(lambda x, y: (x.tanh().view(6) * y.exp()).sin(), leaf(2, 3), leaf(6))
    step = next(s for s in backward_of(cap).steps if s.echo and s.echo.names == ("view",))
    other = step_of(cap, "aten.mul.Tensor", -1)
    assert other.name not in map(str, step.args)
    assert first_place(spoiled(cap, step.name, args=(Ref(other.name), *step.args[1:]))) == ("view",)


def test_a_dropped_addend_is_in_a_step_that_takes_the_value() -> None:
    cap = bp.capture(lambda x: (h := x.tanh()).sin() * h.exp(), leaf(3, 4))
    step = next(s for s in backward_of(cap).steps if s.echo and s.echo.kind == "sum of gradients of")
    assert set(first_place(spoiled(cap, step.name, target="aten.alias.default", args=step.args[:1]))) == {"sin", "exp"}


def test_swapped_results_are_found_at_the_step_that_takes_them() -> None:
    cap = bp.capture(nn.LayerNorm(4), leaf(3, 4))
    graph = backward_of(cap)
    places = [number for number, port in enumerate(graph.outputs) if port.name in ("weight", "bias")]
    results = list(graph.results)
    results[places[0]], results[places[1]] = results[places[1]], results[places[0]]
    assert "native_layer_norm" in first_place(with_backward(cap, replace(graph, results=tuple(results))))


def test_nan_in_a_backward_has_a_place() -> None:
    cap = bp.capture(lambda x: x.exp().sqrt().sin(), leaf(5))
    *_, step = (s for s in backward_of(cap).steps if s.echo and s.echo.names == ("sqrt",))
    negative = step_of(cap, "aten.mul.Tensor").name
    assert first_place(spoiled(cap, step.name, target="aten.log.default", args=(Ref(negative),))) == ("sqrt",)


def test_dropout_does_not_hide_a_place() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, 2))
    cap = bp.capture(model, leaf(3, 4))
    step = step_of(cap, "aten.tanh_backward.default")
    tangents = [Ref(port.local) for port in backward_of(cap).by_role("saved") if "tanh" in port.name]
    assert first_place(spoiled(cap, step.name, args=(tangents[0], tangents[0]))) == ("tanh",)


@pytest.mark.parametrize("module", [nn.GRU(2, 3), nn.LSTMCell(2, 3)], ids=["GRU", "LSTMCell"])
def test_a_recurrent_module_has_right_gradients_but_for_the_wrong_one(module: nn.Module) -> None:
    """Autograd of `as_strided_scatter`, of which their captured forwards are full, is wrong."""
    cap = bp.capture(module, leaf(2, 2) if isinstance(module, nn.LSTMCell) else leaf(2, 1, 2))
    step = step_of(cap, "aten.tanh_backward.default", -1)
    assert step.echo is not None
    place = first_place(spoiled(cap, step.name, args=(step.args[0], step.args[0])))
    assert place == step.echo.names


def test_a_gradient_that_is_wrong_at_one_point_only() -> None:
    """By its formulas, the gradient of 0 where `x == 0` is right; by its values it is not."""

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.where(x == 0, 0, x.sin())

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * torch.where(x == 0, 0, x.cos())

    (answer,) = bp.derivative(Cube.apply, leaf(9))
    assert answer.word == "not the derivative"
    assert "zeros" in answer.detail
    assert [place.function for place in answer.wrong] == ["Cube"]


# ------------------------------------------------------------------ what has no step of its own in the forward


def straight_through(x: Tensor) -> Tensor:
    return (x + ((x * 4).round() / 4 - x).detach()).square().sum()


def rounded_without_gradients(x: Tensor) -> Tensor:
    y = x * 3
    with torch.no_grad():
        rest = y.round() - y
    return (y + rest).tanh() * y


def clipped(x: Tensor) -> Tensor:
    y = x.sin()
    y.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    return (y * 3).exp()


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return -0.5 * grad


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


def with_hook_of_module() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    net[1].register_full_backward_hook(lambda module, before, after: (before[0] * 2,))
    return net


def with_hook_of_parameter() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    net[0].weight.register_hook(lambda gradient: gradient * 0.5)
    return net


def with_rounded() -> Any:
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    return lambda x: Rounded.apply(net(x) * 9).sin()


MEANT: dict[str, tuple[Any, str]] = {
    "a straight-through estimator": (lambda: straight_through, "detach"),
    "an estimator under no_grad": (lambda: rounded_without_gradients, "no_grad"),
    "a clipped gradient": (lambda: clipped, "hook"),
    "a hook of a module": (with_hook_of_module, "hook"),
    "a hook of a parameter": (with_hook_of_parameter, "hook"),
    "a reversed gradient": (lambda: lambda x: Reversed.apply(x.sin() * 2).sin(), "Reversed"),
    "a gradient in place of 0": (with_rounded, "Rounded"),
}


@pytest.mark.parametrize("case", MEANT)
def test_what_is_meant_to_differ_is_named(case: str) -> None:
    make, name = MEANT[case]
    program = make()
    (answer,) = bp.derivative(program, leaf(3, 4))
    assert answer.word == "not the derivative"
    assert {place.function for place in answer.wrong} == {name}
    (answer,) = bp.derivative(bp.capture(program, leaf(3, 4), meant=(name,)))
    assert answer.word == f"derivative but for {name}"


def test_a_fault_beside_what_is_meant_is_no_part_of_it() -> None:
    """The input's other way has a wrong share: what the estimator returned must not make up for it."""
    cap = bp.capture(lambda x, w: Rounded.apply(x * 3) + (x @ w).exp(), leaf(4, 4), leaf(4, 4), meant=("Rounded",))
    (answer,) = bp.derivative(cap)
    assert answer.word == "derivative but for Rounded"
    _, step = (s for s in backward_of(cap).steps if s.target == "aten.mm.default" and s.echo and "mm" in s.echo.names)
    wrong = spoiled(cap, step.name, args=(step.args[0], step.args[0]))
    (answer,) = bp.derivative(wrong, hostile=False)  # the program itself is right
    assert answer.word == "not the derivative"
    assert ("mm",) in [place.names for place in answer.wrong]


def test_a_right_residual_with_three_takers_hides_no_place() -> None:
    """Autograd adds three gradients up in turns, and echoes name the first sums after what was computed before."""

    def gated(x: Tensor) -> Tensor:
        for _ in range(3):
            y = F.layer_norm(x, (4,))
            x = x + 0.1 * (x * (x + y).exp().tanh()) + y.sigmoid()
        return x

    cap = bp.capture(gated, leaf(3, 4))
    step = [s for s in backward_of(cap).steps if s.echo and s.echo.names == ("sigmoid_1",)][-1]
    assert first_place(spoiled(cap, step.name, args=(step.args[0], step.args[0]))) == ("sigmoid_1",)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        scale = (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        ctx.save_for_backward(x * scale, scale, weight)
        return x * scale * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normal, scale, weight = ctx.saved_tensors
        inner = grad * weight
        wrong = 0.9 * normal * (inner * normal).mean(-1, keepdim=True)
        return scale * (inner - wrong), (grad * normal).sum((0, 1))


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return nn.functional.gelu(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * 0.5 * (1 + torch.erf(ctx.saved_tensors[0] / 2**0.5))  # forgets the density


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8) + 0.5)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        normal = Norm.apply(x, self.weight)
        x = x + self.attention(normal, normal, normal)[0]
        return x + self.down(Gelu.apply(self.up(x)))


@pytest.mark.slow
def test_two_wrong_functions_in_every_block_are_the_only_places() -> None:
    """Nothing between two calls of a wrong Function has a right gradient: it must not be blamed for that."""
    torch.manual_seed(0)
    (answer,) = bp.derivative(bp.capture(nn.Sequential(Block(), Block(), Block()), leaf(2, 3, 8)))
    assert answer.word == "not the derivative"
    assert answer.rest_is_right
    assert [(place.function, len(place.modules)) for place in answer.wrong] == [("Gelu", 3), ("Norm", 3)]


class UnderAutocast(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin() * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad[0] * ctx.saved_tensors[0].cos() * 2


def test_a_function_with_custom_fwd_is_named() -> None:
    (answer,) = bp.derivative(bp.capture(lambda x: UnderAutocast.apply(x.tanh()).exp(), leaf(3, 4)))
    assert [place.function for place in answer.wrong] == ["UnderAutocast"]

"""Programs that capture must get right: each a maker of (callable, args, kwargs), named after the difficulty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Program = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    """Register a maker under its name."""
    PROGRAMS[make.__name__] = make
    return make


def leaf(*shape: int, **options: Any) -> Tensor:
    return torch.randn(*shape, **options).requires_grad_()


@program
def plain_function() -> Program:
    return lambda x, y: (x * y).sin().sum(), (leaf(3), leaf(3)), {}


@program
def no_input_asks() -> Program:
    return lambda x, n: (x * 2).sum() + n.sum(), (torch.randn(3), torch.arange(3)), {}


@program
def in_place_on_input() -> Program:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.add_(1).mul_(2)
        return (x * w).sum()

    return f, (torch.randn(3), leaf(3)), {}


@program
def in_place_on_input_that_asks() -> Program:
    def f(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.exp().sum()

    return f, (leaf(3) * 1,), {}


@program
def in_place_on_a_view() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.clone()
        y[1:].mul_(3)
        y[0] = 5.0
        return (y * y).sum()

    return f, (leaf(4),), {}


@program
def views_of_inputs_as_outputs() -> Program:
    return lambda x: (x.view(-1), x.t(), x[1:], x * 2), (leaf(3, 2),), {}


@program
def outputs_that_alias_each_other() -> Program:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y, y.view(-1), y

    return f, (leaf(3, 2),), {}


@program
def output_is_input() -> Program:
    return lambda x, y: (x, x + y, y), (leaf(2), torch.randn(2)), {}


@program
def mutated_input_is_output() -> Program:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        return x, x * w

    return f, (torch.zeros(2), leaf(2)), {}


@program
def duplicate_inputs() -> Program:
    x = leaf(3)
    return lambda a, b, c: (a * b + c).sum(), (x, x, leaf(3)), {}


@program
def duplicate_of_a_parameter() -> Program:
    model = nn.Linear(3, 3)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return self.inner(x) @ weight

    return Twice(), (leaf(2, 3), model.weight), {}


@program
def aliased_inputs() -> Program:
    base = torch.randn(6)
    return lambda a, b: (a * b).sum(), (base[:4].requires_grad_(), base[2:].requires_grad_()), {}


@program
def aliased_inputs_one_changed() -> Program:
    base = torch.randn(6)

    def f(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        a.mul_(2)
        return (b * w).sum()

    return f, (base[:4], base[2:], leaf(4)), {}


@program
def tied_weights() -> Program:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, idx: Tensor) -> Tensor:
            return self.head(self.embed(idx))

    return Tied(), (torch.tensor([[1, 2, 6]]),), {}


@program
def none_outputs_and_constants() -> Program:
    return (
        lambda x, flag, name=None: {"y": x * 2 if flag else x, "none": None, "n": 3, "name": name},
        (leaf(2), True),
        {"name": "a"},
    )


class Batch(NamedTuple):
    x: Tensor
    labels: Tensor


@program
def nested_containers() -> Program:
    def f(batch: Batch, extra: dict[str, list[Tensor]]) -> dict[str, Any]:
        total = batch.x + extra["more"][0] * extra["more"][1]
        return {"logits": total, "parts": [total.sum(), (batch.labels + 1,)]}

    return f, (Batch(leaf(3), torch.arange(3)), {"more": [leaf(3), torch.randn(3)]}), {}


@program
def star_arguments() -> Program:
    return lambda *xs, scale=1.0, **more: sum(xs) * scale + more["z"], (leaf(2), leaf(2)), {"scale": 2.0, "z": leaf(2)}


@program
def closure_over_tensors() -> Program:
    w, c = leaf(3), torch.tensor([1.0, 2.0, 3.0])
    return lambda x: (x * w + c).sum(), (torch.randn(3),), {}


@program
def closure_over_a_module() -> Program:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    return lambda x: model(x).sum(), (torch.randn(5, 3),), {}


@program
def plain_tensor_attribute() -> Program:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.tensor([2.0, 3.0])
            self.weight = nn.Parameter(torch.randn(2))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale * self.weight + torch.tensor([1.0, 2.0])

    return Scaled(), (leaf(2),), {}


@program
def integer_inputs() -> Program:
    return nn.Embedding(10, 3, padding_idx=0), (torch.tensor([[0, 1, 2], [9, 0, 3]]),), {}


@program
def dropout_in_order() -> Program:
    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            a = F.dropout(x, 0.3, True)
            torch.rand(3)  # an unused draw advances the generator
            b = F.dropout(self.fc(a), 0.5, True)
            return b + torch.randn_like(b) * torch.bernoulli(torch.full_like(b, 0.5))

    return Drops(), (leaf(4, 8),), {}


@program
def batch_norm_training() -> Program:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()), (torch.randn(2, 2, 6, 6),), {}


@program
def batch_norm_eval() -> Program:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).eval(), (torch.randn(2, 2, 6, 6),), {}


@program
def recurrent() -> Program:
    return nn.LSTM(3, 4, num_layers=2, batch_first=True), (leaf(2, 5, 3),), {}


@program
def transformer_layer() -> Program:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), (leaf(2, 5, 8),), {}


@program
def attention() -> Program:
    return (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (leaf(1, 2, 4, 8), leaf(1, 2, 4, 8), leaf(1, 2, 4, 8)),
        {},
    )


@program
def complex_numbers() -> Program:
    return lambda x: torch.fft.ifft(torch.fft.fft(x) * 2j).abs().sum(), (leaf(8),), {}


@program
def complex_output() -> Program:
    return lambda x: x * (1 + 2j), (leaf(4, dtype=torch.complex64),), {}


@program
def half_precision() -> Program:
    return nn.Linear(4, 4).bfloat16(), (torch.randn(2, 4, dtype=torch.bfloat16),), {}


@program
def autocast() -> Program:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).float().sum()

    return f, (leaf(4, 4), leaf(4, 4)), {}


@program
def channels_last() -> Program:
    return nn.Conv2d(2, 3, 3), (torch.randn(2, 2, 6, 6).to(memory_format=torch.channels_last),), {}


@program
def expanded_input() -> Program:
    return lambda x: (x * torch.arange(4.0)).sum(), (torch.randn(3, 1).expand(3, 4).requires_grad_(),), {}


@program
def empty_tensors() -> Program:
    return lambda x: (x * 2, x.sum()), (leaf(0, 3),), {}


@program
def unused_parameter() -> Program:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    return Unused(), (torch.randn(3, 2),), {}


@program
def frozen_parameter() -> Program:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight.requires_grad_(False)
    return model, (torch.randn(3, 2),), {}


@program
def names_that_collide() -> Program:
    class Collide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.torch, self.aten = nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(2))
            self.inner = (
                nn.ParameterDict({"a.b": nn.Parameter(torch.randn(2))})
                if False
                else nn.ParameterList([nn.Parameter(torch.randn(2))])
            )
            self.inner_0 = nn.Parameter(torch.randn(2))

        def forward(self, class_: Tensor, add: Tensor) -> Tensor:
            return class_ * self.torch + self.aten * add + self.inner[0] * self.inner_0

    return Collide(), (leaf(2), leaf(2)), {}


# ------------------------------------------------------------------ opaque edges


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -0.5 * gradient


@program
def straight_through_estimator() -> Program:
    return lambda x: (StraightThrough.apply(x) * x).sum(), (leaf(5),), {}


@program
def gradient_reversal() -> Program:
    return lambda x, w: Reversal.apply(x * w).exp().sum(), (leaf(5), leaf(5)), {}


@program
def no_grad_island() -> Program:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x * x.exp()
        return (scale * x + (x.round() - x).detach() + x.detach() * x).sum()

    return f, (leaf(3),), {}


@program
def tensor_hook() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda gradient: gradient * 10)
        return y.sin().sum()

    return f, (leaf(3),), {}


@program
def hook_on_a_parameter() -> Program:
    model = nn.Linear(3, 2)
    model.weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    return model, (leaf(4, 3),), {}


@program
def checkpoint_without_reentry() -> Program:
    block = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    return lambda x: checkpoint(block, x, use_reentrant=False).sum(), (leaf(3, 4),), {}


@program
def functional_gradient_inside() -> Program:
    return lambda x: torch.func.vmap(torch.func.grad(lambda v: (v**3).sum()))(x), (leaf(3, 2),), {}


@program
def python_state_that_changes() -> Program:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.log = 0, []
            self.weight = nn.Parameter(torch.randn(2))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.log.append(x.shape)
            return x * self.weight

    return Counts(), (leaf(2),), {}


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor | None = None


torch.utils._pytree.register_dataclass(Output) if hasattr(torch.utils._pytree, "register_dataclass") else None


@program
def dataclass_output() -> Program:
    return lambda x: Output(x * 2, x + 1), (leaf(3),), {}

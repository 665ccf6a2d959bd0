"""Difficult programs for engine eager: training steps, second derivatives, checkpoints, seeds, branches on data.

Each row makes a new (target, args, kept); `kept` are the modules, optimizers and tensors that the program's capture
must not change.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Made = tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]
STEPS: dict[str, Callable[[], Made]] = {}


def step(make: Callable[[], Made]) -> Callable[[], Made]:
    STEPS[make.__name__] = make
    return make


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


# ------------------------------------------------------------------ training steps


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, before: int = 0, clip: bool = False) -> Made:
    """Make a whole training step that has run `before` times already."""

    def train(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    for _ in range(before):
        train(torch.randn(5, 4), torch.randn(5, 1))
    return train, (torch.randn(5, 4), torch.randn(5, 1)), (model, optimizer)


def mlp(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), *between, nn.ReLU(), nn.Linear(8, 1))


@step
def first_step_of_adam() -> Made:
    model = mlp(nn.Dropout(0.2))
    return trained(model, torch.optim.Adam(model.parameters()))


@step
def fourth_step_of_adamw() -> Made:
    model = mlp()
    return trained(model, torch.optim.AdamW(model.parameters(), foreach=False), before=3)


@step
def adam_for_each() -> Made:
    model = mlp()
    return trained(model, torch.optim.Adam(model.parameters(), foreach=True), before=1)


@step
def fused_sgd_with_momentum_and_clipping() -> Made:
    model = mlp(nn.BatchNorm1d(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    return trained(model, optimizer, before=2, clip=True)


@step
def fused_adamw() -> Made:
    model = mlp()
    return trained(model, torch.optim.AdamW(model.parameters(), fused=True), before=1)


@step
def lbfgs() -> Made:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def train(x: Tensor, y: Tensor) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return train, (torch.randn(5, 4), torch.randn(5, 2)), (model, optimizer)


@step
def grad_scaler() -> Made:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    def train(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    train(torch.randn(3, 4))
    return train, (torch.randn(3, 4),), (model, optimizer, scaler._scale)


@step
def gradients_added_up() -> Made:
    model = nn.Linear(4, 2)

    def train(x: Tensor, y: Tensor) -> Tensor:
        for i in range(2):
            F.mse_loss(model(x[i]), y[i]).backward()
        return model.weight.grad.norm().detach()

    return train, (torch.randn(2, 5, 4), torch.randn(2, 5, 2)), (model,)


@step
def gradients_added_to_what_is_there() -> Made:
    model = nn.Linear(4, 2)

    def train(x: Tensor, y: Tensor) -> None:
        F.mse_loss(model(x), y).backward()

    train(torch.randn(5, 4), torch.randn(5, 2))
    return train, (torch.randn(5, 4), torch.randn(5, 2)), (model,)


# ------------------------------------------------------------------ derivatives inside


@step
def gradient_penalty() -> Made:
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    class Penalty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = critic

        def forward(self, x: Tensor) -> Tensor:
            x = x.detach().requires_grad_()
            y = self.critic(x)
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            return y.mean() + ((slope.norm(dim=1) - 1) ** 2).mean()

    model = Penalty()
    return model, (torch.randn(5, 4),), (model,)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


@step
def custom_function_twice_differentiated() -> Made:
    def f(x: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
        return (slope**3).sum()

    return f, (leaf(4),), ()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


@step
def custom_function_in_place() -> Made:
    return lambda x: Double.apply(x * 1).sum(), (leaf(4),), ()


@step
def function_transforms() -> Made:
    model = nn.Linear(3, 3)

    def f(x: Tensor) -> Tensor:
        slopes = torch.func.vmap(torch.func.grad(lambda row: (model(row) ** 2).sum()))(x)
        jacobian = torch.func.jacrev(torch.sin)(x[0])
        value, tangent = torch.func.jvp(torch.exp, (x,), (torch.ones_like(x),))
        return slopes.sum() + jacobian.sum() + (value * tangent).sum()

    return f, (leaf(4, 3),), (model,)


# ------------------------------------------------------------------ parts that run twice, and random numbers


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.dropout = nn.Linear(4, 4), nn.Linear(4, 4), nn.Dropout()
        self.reentrant = reentrant

    def part(self, x: Tensor) -> Tensor:
        return self.dropout(torch.relu(self.dropout(self.second(x))))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.part, x, use_reentrant=self.reentrant)
        return x.sum()


@step
def reentrant_checkpoints() -> Made:
    model = Checkpointed(True)
    return model, (torch.randn(5, 4),), (model,)


@step
def checkpoints() -> Made:
    model = Checkpointed(False)
    return model, (torch.randn(5, 4),), (model,)


@step
def seeds_inside() -> Made:
    def f(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return (F.dropout(x) * torch.rand_like(x)).sum()

    return f, (leaf(4),), ()


@step
def generators_inside() -> Made:
    def f(x: Tensor) -> Tensor:
        own = torch.Generator().manual_seed(1)
        noise = torch.randn(4, generator=own) * torch.rand(4, generator=own)
        return (x * noise * torch.bernoulli(torch.full((4,), 0.5))).sum()

    return f, (leaf(4),), ()


@step
def random_of_python_and_numpy() -> Made:
    def f(x: Tensor) -> Tensor:
        for _ in range(6):
            if random.random() < 0.5:
                x = x.sin()
        return (x * torch.from_numpy(numpy.random.rand(3).astype("float32"))).sum()

    return f, (leaf(3),), ()


@step
def recurrent_with_dropout() -> Made:
    model = nn.LSTM(3, 4, num_layers=2, dropout=0.3)
    return (lambda x: model(x)[0].sum()), (torch.randn(5, 2, 3),), (model,)


# ------------------------------------------------------------------ values that are read


@step
def branches_on_data() -> Made:
    def f(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        count = int((x > 0).sum())
        return x[x > 0].sum() * count + x.max().item()

    return f, (leaf(6),), ()


@step
def mixture_of_experts() -> Made:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(4, 3)
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            weight, chosen = self.router(x).softmax(-1).topk(2)
            out = torch.zeros_like(x)
            for index, expert in enumerate(self.experts):
                token, slot = torch.where(chosen == index)
                out.index_add_(0, token, expert(x[token]) * weight[token, slot, None])
            return out.sum()

    model = Mixture()
    return model, (torch.randn(6, 4),), (model,)


@step
def cond() -> Made:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)).sum()

    return f, (leaf(4),), ()


# ------------------------------------------------------------------ what tracing would see differently


@step
def data_is_set() -> Made:
    def f(x: Tensor) -> Tensor:
        other = torch.zeros(3)
        other.data = torch.ones(3) * 2
        other.data[1] = 5
        return (x * other).sum()

    return f, (leaf(3),), ()


@step
def autocast() -> Made:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))

    def f(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float().sum()

    return f, (torch.randn(3, 4),), (model,)


@step
def compiled_inside() -> Made:
    inner = torch.compile(lambda x: x.sin() * 2, backend="eager")
    return (lambda x: inner(x).sum()), (leaf(3),), ()


@step
def scripted_inside() -> Made:
    inner = torch.jit.trace(lambda x: x.sin() * 2, torch.ones(3), check_trace=False)
    return (lambda x: inner(x).sum()), (leaf(3),), ()


@step
def data_parallel() -> Made:
    model = nn.DataParallel(nn.Linear(3, 3))
    return model, (torch.randn(3, 3),), (model,)


@step
def nested_inside() -> Made:
    def f(x: Tensor) -> Tensor:
        ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
        return (ragged.values() * x).sum()

    return f, (leaf(5),), ()


@step
def parametrized() -> Made:
    parametrizations = nn.utils.parametrizations
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(3, 3)), parametrizations.spectral_norm(nn.Linear(3, 3))
    )
    return model, (torch.randn(2, 3),), (model,)

"""Three training steps that every peer is run on: each is a module that returns its loss, and its inputs.

They have what makes a backward hard to keep: custom `autograd.Function`s whose gradient is not the derivative of their
forward, in-place operators, a weight that two layers share, buffers that the forward updates, and a loop over time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Program = tuple[nn.Module, tuple[Tensor, ...]]


class Round(torch.autograd.Function):
    """Rounds to sixteenths; its gradient passes straight through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x * 16).round() / 16

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class Block(nn.Module):
    """A block of a GPT with rounded activations, and its loss."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm_1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
        x = x + self.proj((weights @ v).transpose(1, 2).flatten(2))
        x = x + self.down(Round.apply(F.gelu(self.up(self.norm_2(x)))))
        return x.square().mean()


class Convolutions(nn.Module):
    """Two convolutions that share a weight, with a batch norm, an in-place ReLU and an in-place sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.second.weight = self.first.weight
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)), inplace=True)
        y = self.second(y)
        y += x
        return self.head(y.mean((2, 3))).square().mean()


class Spike(torch.autograd.Function):
    """A step function with a surrogate gradient."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        return (v >= 0).to(v.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (v,) = ctx.saved_tensors
        s = torch.sigmoid(4.0 * v)
        return grad * 4.0 * s * (1 - s)


class Neurons(nn.Module):
    """A layer of leaky neurons over eight times."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(16, width), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        current = self.into(x)
        v, spikes = torch.zeros_like(current[0]), []
        for t in range(x.shape[0]):
            v = v + (current[t] - v) / 2.0
            s = Spike.apply(v - 0.2)
            v = v * (1 - s)
            spikes.append(s)
        return self.out(torch.stack(spikes)).square().mean()


PROGRAMS: dict[str, Callable[[], Program]] = {
    "GPT block": lambda: (Block(), (torch.randn(2, 16, 32),)),
    "convolutions": lambda: (Convolutions(), (torch.randn(4, 8, 12, 12),)),
    "neurons": lambda: (Neurons(), (2 * torch.randn(8, 6, 16),)),
}


def made(name: str) -> Program:
    """Return a program, the same at each call."""
    torch.manual_seed(0)
    model, inputs = PROGRAMS[name]()
    return model.train(), inputs

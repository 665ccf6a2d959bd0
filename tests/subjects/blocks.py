"""Programs with a region, and the same without it: `retain_grad` and `.grad` are the oracle.

Each takes the region (or a null context) and returns the loss and the tensors whose gradients are compared, by the name
that the region should give them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Block = AbstractContextManager[Any]
Program = Callable[[Block], tuple[Tensor, dict[str, Tensor]]]


def retained(**tensors: Tensor) -> dict[str, Tensor]:
    """Tensors that keep their gradients; called outside the block."""
    for tensor in tensors.values():
        if not tensor.is_leaf:
            tensor.retain_grad()
    return tensors


def seed(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    z1, z2 = x - y, x + y
    with block:
        z3 = z1 * z2
        z4, z5 = z3.sum(), z2.mean()
    kept = retained(z1=z1, z2=z2, z3=z3, z4=z4, z5=z5)
    return (z4 + z5).sum(), kept


def conv_bn(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    with block:
        y = model(x)
    kept = retained(x=x, y=y)
    return y.square().sum(), kept | dict(model.named_parameters())


def in_place_and_views(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    x = torch.randn(4, 4, requires_grad=True)
    with block:
        y = x * 2
        y[0].mul_(3)
        flat = y.view(16)
        flat.add_(1)
        z = (flat * flat).view(2, 8)
        z.relu_()
    kept = retained(x=x, z=z)
    return z.sum(), kept


def double_use(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    x = torch.randn(5, requires_grad=True)
    with block:
        a = x.exp()
        b = a * a
        c = b + a + x
    kept = retained(x=x, a=a, b=b, c=c)
    return (c * a).sum(), kept


def unused_outputs(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    x = torch.randn(6, 4, requires_grad=True)
    with block:
        first, second, third = x.split(2)
        values, _ = first.sort(dim=1)
        wasted = second.cos()
    kept = retained(x=x, values=values)
    del wasted, third
    return values[:, 0].sum(), kept


def no_grad_island(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    x = torch.randn(5, requires_grad=True)
    with block:
        y = x.sin()
        with torch.no_grad():
            island = y.exp() * 2
        z = y * island
    kept = retained(x=x, y=y, z=z)
    return z.sum(), kept


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(a)
        return a.exp().sin(), b * 2

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
        (a,) = ctx.saved_tensors
        return given[0] * a, given[1] * 3


def custom_function(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    x = torch.randn(5, requires_grad=True)
    with block:
        b = x + 1
        one, two = Twice.apply(x, b)
        y = one * two
    kept = retained(x=x, b=b, one=one, two=two, y=y)
    return y.sum(), kept


def checkpointed(block: Block, reentrant: bool) -> tuple[Tensor, dict[str, Tensor]]:
    layer = nn.Linear(4, 4)
    x = torch.randn(2, 4, requires_grad=True)
    with block:
        y = checkpoint(lambda t: layer(t).sin(), x, use_reentrant=reentrant)
        z = y.cos()
    kept = retained(x=x, y=y, z=z)
    return z.sum(), kept | ({} if reentrant else dict(layer.named_parameters()))


def checkpoint_reentrant(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    return checkpointed(block, True)


def checkpoint_plain(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    return checkpointed(block, False)


def foreach(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    items = [torch.randn(4, requires_grad=True) for _ in range(3)]
    with block:
        scaled = torch._foreach_mul(items, 2.0)
        summed = torch._foreach_add(scaled, items)
    kept = retained(
        **{
            f"{name}.{i}": t
            for name, each in (("items", items), ("scaled", scaled), ("summed", summed))
            for i, t in enumerate(each)
        }
    )
    return sum((each.square().sum() for each in summed), torch.zeros(())), kept


def autocast(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    x = torch.randn(3, 4, requires_grad=True)
    with block, torch.autocast("cpu", torch.bfloat16):
        y = model(x)
    kept = retained(x=x, y=y)
    return y.float().square().sum(), kept | dict(model.named_parameters())


def complex_numbers(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    x = torch.randn(5, dtype=torch.complex64, requires_grad=True)
    with block:
        y = x * x.conj() + torch.fft.fft(x)
        z = y.abs()
    kept = retained(x=x, y=y, z=z)
    return z.sum(), kept


def tensor_hooks(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    x = torch.randn(5, requires_grad=True)
    with block:
        y = x * 2
        y.register_hook(lambda gradient: gradient * 10)
        z = y.sin()
    kept = retained(x=x, y=y, z=z)
    return z.sum(), kept


def sparse_embedding(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    table = nn.Embedding(10, 4, sparse=True)
    with block:
        y = F.normalize(table(torch.tensor([1, 3, 1])), dim=1)
    kept = retained(y=y)
    return y[:, 0].sum(), kept | {"weight": table.weight}


def lstm(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    model = nn.LSTM(4, 5)
    x = torch.randn(3, 2, 4, requires_grad=True)
    with block:
        y, _ = model(x)
    kept = retained(x=x, y=y)
    return y.square().sum(), kept | dict(model.named_parameters())


def attention(block: Block) -> tuple[Tensor, dict[str, Tensor]]:
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    x = torch.randn(2, 3, 8, requires_grad=True)
    with block:
        y = model(x)
    kept = retained(x=x, y=y)
    return y.square().sum(), kept | dict(model.named_parameters())


PROGRAMS: dict[str, Program] = {
    each.__name__: each
    for each in (
        seed,
        conv_bn,
        in_place_and_views,
        double_use,
        unused_outputs,
        no_grad_island,
        custom_function,
        checkpoint_reentrant,
        checkpoint_plain,
        foreach,
        autocast,
        complex_numbers,
        tensor_hooks,
        sparse_embedding,
        lstm,
        attention,
    )
}

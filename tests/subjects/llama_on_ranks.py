"""Llama on a mesh of data-parallel and tensor-parallel ranks: `large` is Llama-3.1-405B on 128 × 8, `small` a twin.

Each weight is sharded over `tp` as Megatron shards (rows of the weights of q, k, v, gate, up and the head; columns of o
and down), and over `dp` in the first dimension of what is left. The forward gathers a weight over `dp` where it is
used, as FSDP does, and autograd scatters its gradient. Tensor-parallel ranks are neighbours.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor, zeros


@dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int
    groups: int
    head: int
    hidden: int
    words: int
    tokens: int
    dp: int
    tp: int
    dtype: torch.dtype

    def parameters(self) -> int:
        """The elements of all parameters, by hand."""
        attention = 2 * self.heads * self.head * self.width + 2 * self.groups * self.head * self.width
        layer = attention + 3 * self.hidden * self.width + 2 * self.width
        return self.layers * layer + 2 * self.words * self.width + self.width

    def norms(self) -> int:
        """The elements of the weights of norms, which every tensor-parallel rank has."""
        return (2 * self.layers + 1) * self.width

    def bytes_sent(self) -> dict[str, float]:
        """What a rank sends in a step, by hand, if every batch has one sequence.

        Over dp: a gather and a scatter of the tensor-parallel rank's own parameters. Over tp: a sum after attention and
        feed-forward and one before each in the backward, and for the head; and a gather of the embedded words and of
        the scores. Where the rows of the head do not divide by the ranks, DTensor pads them.
        """
        size = self.dtype.itemsize
        rows = self.words // self.tp
        padding = (math.ceil(rows / self.dp) * self.dp - rows) * self.width
        own = (self.parameters() - self.norms()) / self.tp + self.norms() + padding
        over_dp = 2 * (self.dp - 1) / self.dp * own * size
        state = self.tokens * self.width * size
        sums = (4 * self.layers + 1) * 2 * (self.tp - 1) / self.tp * state
        gathers = (self.tp - 1) / self.tp * (state + self.tokens * self.words * size)
        return {"dp": over_dp, "tp": sums + gathers}


LARGE = Sizes(126, 16384, 128, 8, 128, 53248, 128256, 4096, 128, 8, torch.bfloat16)
SMALL = Sizes(3, 16, 4, 2, 4, 24, 32, 6, 2, 2, torch.float32)

COLUMNS: list[Placement] = [Shard(0), Shard(0)]
ROWS: list[Placement] = [Shard(1), Shard(0)]
BATCHES: list[Placement] = [Replicate(), Shard(0)]
"""Placements over tp, then dp."""


def gathered(parameter: Any) -> Any:
    """A parameter, whole over dp."""
    return parameter.redistribute(placements=[parameter.placements[0], Replicate()])


def summed(partial: Any) -> Any:
    """The sum over tp of what its ranks have computed."""
    return partial.redistribute(placements=BATCHES)


def normed(x: Any, scale: Any) -> Any:
    """What enters a tensor-parallel part: in the backward, each rank's gradient is a term of a sum, made here."""
    normal = F.rms_norm(x, x.shape[-1:], gathered(scale), 1e-5)
    return DTensor.from_local(normal.to_local(), normal.device_mesh, BATCHES, run_check=False)


class Made:
    """Makes the sharded weights of a model: drawn, or, of a model without values, empty."""

    def __init__(self, sizes: Sizes, mesh: DeviceMesh, drawn: bool) -> None:
        self.sizes, self.mesh, self.drawn = sizes, mesh, drawn

    def weight(self, placements: list[Placement], *shape: int) -> nn.Parameter:
        if self.drawn:
            whole = torch.randn(shape, dtype=self.sizes.dtype) / shape[-1] ** 0.5
            return nn.Parameter(distribute_tensor(whole, self.mesh, placements))
        return nn.Parameter(zeros(shape, dtype=self.sizes.dtype, device_mesh=self.mesh, placements=placements))


class Attention(nn.Module):
    def __init__(self, made: Made) -> None:
        super().__init__()
        sizes = made.sizes
        self.head = sizes.head
        self.q = made.weight(COLUMNS, sizes.heads * sizes.head, sizes.width)
        self.k = made.weight(COLUMNS, sizes.groups * sizes.head, sizes.width)
        self.v = made.weight(COLUMNS, sizes.groups * sizes.head, sizes.width)
        self.o = made.weight(ROWS, sizes.width, sizes.heads * sizes.head)

    def forward(self, x: Any) -> Any:
        q, k, v = (F.linear(x, gathered(matrix)).to_local() for matrix in (self.q, self.k, self.v))
        q, k, v = (part.unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        mixed = mixed.transpose(1, 2).flatten(2)
        whole = DTensor.from_local(mixed, x.device_mesh, [Shard(2), Shard(0)], run_check=False)
        return summed(F.linear(whole, gathered(self.o)))


class FeedForward(nn.Module):
    def __init__(self, made: Made) -> None:
        super().__init__()
        self.gate = made.weight(COLUMNS, made.sizes.hidden, made.sizes.width)
        self.up = made.weight(COLUMNS, made.sizes.hidden, made.sizes.width)
        self.down = made.weight(ROWS, made.sizes.width, made.sizes.hidden)

    def forward(self, x: Any) -> Any:
        opened = F.silu(F.linear(x, gathered(self.gate))) * F.linear(x, gathered(self.up))
        return summed(F.linear(opened, gathered(self.down)))


class Layer(nn.Module):
    def __init__(self, made: Made) -> None:
        super().__init__()
        self.before_attention = made.weight(BATCHES, made.sizes.width)
        self.attention = Attention(made)
        self.before_feed_forward = made.weight(BATCHES, made.sizes.width)
        self.feed_forward = FeedForward(made)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(normed(x, self.before_attention))
        return x + self.feed_forward(normed(x, self.before_feed_forward))


class ShardedLlama(nn.Module):
    def __init__(self, made: Made) -> None:
        super().__init__()
        self.embedding = made.weight(ROWS, made.sizes.words, made.sizes.width)
        self.layers = nn.ModuleList(Layer(made) for _ in range(made.sizes.layers))
        self.norm = made.weight(BATCHES, made.sizes.width)
        self.head = made.weight(COLUMNS, made.sizes.words, made.sizes.width)

    def forward(self, words: Any, wanted: Any) -> Tensor:
        x = F.embedding(words, gathered(self.embedding)).redistribute(placements=BATCHES)
        for layer in self.layers:
            x = layer(x)
        scores = F.linear(normed(x, self.norm), gathered(self.head)).redistribute(placements=BATCHES)
        return F.cross_entropy(scores.to_local().flatten(0, 1).float(), wanted.to_local().flatten())


def step(sizes: Sizes, drawn: bool) -> tuple[nn.Module, tuple[Any, ...]]:
    """A rank's model and its batch of one sequence."""
    ranks = [[place * sizes.tp + rank for place in range(sizes.dp)] for rank in range(sizes.tp)]
    mesh = DeviceMesh("cpu", ranks, mesh_dim_names=("tp", "dp"))
    torch.manual_seed(0)
    model = ShardedLlama(Made(sizes, mesh, drawn))
    shape = sizes.dp, sizes.tokens
    words = torch.randint(sizes.words, shape) if drawn else torch.zeros(shape, dtype=torch.int64)
    wanted = words.roll(1, 1)
    return model, tuple(distribute_tensor(rows, mesh, BATCHES) for rows in (words, wanted))


def large() -> tuple[nn.Module, tuple[Any, ...]]:
    """Llama-3.1-405B: `--fake --world 1024`; with fewer layers, if LAYERS of the environment says so."""
    return step(replace(LARGE, layers=int(os.environ.get("LAYERS", LARGE.layers))), drawn=False)


def small() -> tuple[nn.Module, tuple[Any, ...]]:
    """A twin with values: `--world 4`."""
    return step(SMALL, drawn=True)

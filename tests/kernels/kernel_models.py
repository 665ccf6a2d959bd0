"""Ten models whose kernels are of different kinds, and a GPT of twelve layers: a function each, that makes it anew.

    model, inputs = MODELS["lstm"]()
    capture = bp.capture(model, *inputs, mode="train")

They have random weights of a fixed seed, and need PyTorch alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backprint.examples.gpt import GPT, Config

Made = tuple[nn.Module, tuple[Tensor, ...]]


def mlp() -> Made:
    """Matmuls with something between them, and a reduction over rows."""
    layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8), nn.Softmax(-1))
    return layers, (torch.randn(4, 16),)


def convolutions() -> Made:
    """Batch norm in training, which writes into its buffers, and pooling with indices."""
    first = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*first, nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)), (torch.randn(2, 3, 8, 8),)


class TransformerBlock(nn.Module):
    """Causal attention and a feed-forward part, with dropout after each."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm_1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.mlp(self.norm_2(x)))


def transformer_block() -> Made:
    """Attention that only a CPU has, and random numbers that the backward needs again."""
    return TransformerBlock(), (torch.randn(2, 8, 32),)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        return self.out(states)


def lstm() -> Made:
    """One operator of a CPU for all steps of time."""
    return Recurrent(), (torch.randn(2, 5, 8),)


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.out(self.embedding(tokens)).flatten(0, 1), targets.flatten())


def embedding_loss() -> Made:
    """Integer inputs, a gather, and atomic additions in the backward."""
    return Embedded(), (torch.randint(0, 50, (2, 7)), torch.randint(0, 50, (2, 7)))


class Spike(torch.autograd.Function):
    """A step, with the gradient of an arc tangent."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (v,) = ctx.saved_tensors
        return gradient / (1 + (math.pi * v) ** 2)


class Spiking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(10, 20), nn.Linear(20, 5)
        self.decay = nn.Parameter(torch.tensor(0.9))

    def forward(self, x: Tensor) -> Tensor:
        v, found = torch.zeros(x.shape[1], 20), []
        for step in x:
            v = self.decay * v + self.into(step)
            spikes = Spike.apply(v - 1.0)
            v = v - spikes
            found.append(self.out(spikes))
        return torch.stack(found)


def spiking() -> Made:
    """Leaky integrate-and-fire neurons over four steps, with a gradient of their own."""
    return Spiking(), (torch.randn(4, 3, 10) * 2,)


def layer_norm() -> Made:
    """One normalisation, whose statistics are saved."""
    return nn.LayerNorm(300), (torch.randn(6, 300),)


def layer_norm_bf16() -> Made:
    """The same in half precision: a CPU saves its statistics in another dtype than a GPU."""
    return nn.Sequential(nn.LayerNorm(300), nn.Tanh()).bfloat16(), (torch.randn(6, 300).bfloat16(),)


class Guarded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y * 2 if x.sum().item() > 0 else y


def guarded() -> Made:
    """A branch on a value, which the capture holds as a guard."""
    return Guarded(), (torch.rand(3, 4),)


class LlamaLayer(nn.Module):
    """Rotated positions, queries that share keys, and a gated feed-forward part."""

    def __init__(self, width: int = 32, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.head = width // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, heads * self.head, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.head, bias=False) for _ in "kv")
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in "gu")
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        q, k, v = (layer(y).unflatten(-1, (-1, self.head)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(seen.transpose(1, 2).flatten(2))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x: Tensor) -> Tensor:
    """Turn each pair of a head's numbers by an angle that grows with the position."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2]), 10000.0 ** (-torch.arange(half) / half))
    low, high = x.chunk(2, -1)
    return torch.cat([low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()], -1)


class Llama(nn.Module):
    def __init__(self, words: int = 64, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.Sequential(*(LlamaLayer(width) for _ in range(depth)))
        self.norm, self.out = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.norm(self.layers(self.embedding(tokens))))


def llama() -> Made:
    """A Llama of two layers with grouped queries."""
    return Llama(), (torch.randint(0, 64, (2, 8)),)


def gpt_of_12_layers() -> Made:
    """A GPT with dropout and tied weights: the same layer twelve times."""
    config = Config(n_layer=12)
    tokens = torch.randint(config.vocab, (2, config.block + 1))
    return GPT(config), (tokens[:, :-1].clone(), tokens[:, 1:].clone())


def seeded(make: Callable[[], Made]) -> Callable[[], Made]:
    """The same with weights and inputs that are equal in every process."""

    def made() -> Made:
        torch.manual_seed(0)
        model, inputs = make()
        return model.train(), inputs

    return made


TEN = (
    mlp,
    convolutions,
    transformer_block,
    lstm,
    embedding_loss,
    spiking,
    layer_norm,
    layer_norm_bf16,
    guarded,
    llama,
)

MODELS: Mapping[str, Callable[[], Made]] = {make.__name__: seeded(make) for make in (*TEN, gpt_of_12_layers)}
"""Name -> a function that makes a model in training and its inputs: the ten, then the GPT."""

"""Programs that are no loops, for `bp.lower`, with a function of their rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x, -1)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), w)


def cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x, y)


def bias_gelu_dropout_residual(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return residual + F.dropout(F.gelu(x + bias), 0.1, True)


def rotary(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = q.chunk(2, -1)
    return q * cos + torch.cat((-second, first), -1) * sin


def drawn(*shape: int, dtype: torch.dtype, grad: bool = True) -> Tensor:
    return torch.randn(shape, dtype=torch.float32).to(dtype).requires_grad_(grad)


def rows_alone(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return (drawn(rows, columns, dtype=dtype),)


def with_vectors(count: int, rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return (drawn(rows, columns, dtype=dtype), *(drawn(columns, dtype=dtype) for _ in range(count)))


def with_classes(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return drawn(rows, columns, dtype=dtype), torch.randint(0, columns, (rows,))


def with_residual(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return drawn(rows, columns, dtype=dtype), drawn(columns, dtype=dtype), drawn(rows, columns, dtype=dtype)


def with_angles(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    even = 2 * ((columns + 1) // 2)
    return drawn(rows, even, dtype=dtype), *(drawn(rows, even, dtype=dtype, grad=False) for _ in range(2))


PROGRAMS: Mapping[str, tuple[Callable[..., Tensor], Callable[..., Any]]] = {
    "softmax": (softmax, rows_alone),
    "layer_norm": (layer_norm, partial(with_vectors, 2)),
    "rms_norm": (rms_norm, partial(with_vectors, 1)),
    "cross_entropy": (cross_entropy, with_classes),
    "bias_gelu_dropout_residual": (bias_gelu_dropout_residual, with_residual),
    "rotary": (rotary, with_angles),
}
"""Name -> the program, and a function of rows, columns and a dtype that returns its inputs."""

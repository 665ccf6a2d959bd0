"""What only graphs on a GPU have: its memory that a call takes, and float32 of less precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def on_gpu(values: Sequence[Any]) -> bool:
    """Whether one of the values is a tensor on a GPU."""
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in values)


def compute_in_float32() -> None:
    """Compute float32 in float32 on a GPU, not in TF32: eager and a compiler may choose it for different operators."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def with_device_bytes(call: Callable[[], T], gpu: bool) -> tuple[T, int | None]:
    """Return what a call returns, and the most memory of the GPU that was taken meanwhile; None without one."""
    if not gpu:
        return call(), None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = call()
    torch.cuda.synchronize()
    return results, torch.cuda.max_memory_allocated() - before

"""What a member of a group receives in a collective, from what all members sent.

This file's text also ends every `model.py`, so it imports only torch and the standard library.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": torch.add, "avg": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}  # fmt: skip


def reduced(reduction: str, tensors: Sequence[Any]) -> Any:
    """Return the reduction of tensors, from the first to the last."""
    total = tensors[0].clone(memory_format=torch.contiguous_format)
    for tensor in tensors[1:]:
        total = REDUCTIONS[reduction](total, tensor)
    return total / len(tensors) if reduction == "avg" else total


def received_by(index: int, kind: str, options: Sequence[Sequence[Any]], sent: Sequence[Any]) -> Any:
    """Return what a member receives, by its place in the group; `options` and `sent` have a row of each member."""
    tensors = [tensor.detach() for tensor in sent]
    own = options[index]
    if kind == "all_reduce":
        return reduced(own[0], tensors)
    if kind == "all_gather_into_tensor":
        return torch.cat([tensor if tensor.dim() else tensor.reshape(1) for tensor in tensors])
    if kind == "reduce_scatter_tensor":
        return reduced(own[0], tensors).chunk(len(tensors))[index].clone()
    if kind == "broadcast":
        return tensors[own[0]].clone(memory_format=torch.contiguous_format)
    if kind == "all_to_all_single":
        parts = [tensor.split(list(row[1]))[index] for row, tensor in zip(options, tensors, strict=True)]
        return torch.cat(parts)
    raise ValueError(f"{kind} is not a collective that is known here")

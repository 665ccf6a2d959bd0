"""Strides of tensors, compared with those of ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from backprint.graph.nouns import Size, Spec, TensorSpec
from backprint.graph.sizes import evaluate, known


def strides(spec: TensorSpec, tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the strides that a port has for a tensor of this shape; None if they are not known."""
    if spec.layout != "strided" or tensor.layout is not torch.strided:
        return None
    if spec.stride is None:
        return contiguous(tuple(tensor.shape))
    if not all(known(size, sizes) for size in spec.stride):
        return None
    return tuple(int(evaluate(size, sizes)) for size in spec.stride)


def contiguous(shape: Sequence[Size]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(int(size), 1)
    return tuple(reversed(found))


def lies(tensor: Tensor, wanted: Sequence[int]) -> bool:
    """Whether a tensor has these strides, in dimensions with more than one element."""
    if tensor.numel() == 0:
        return True
    rows = zip(tensor.shape, tensor.stride(), wanted, strict=True)
    return all(size <= 1 or now == then for size, now, then in rows)


def laid_as(tensor: Tensor, wanted: Sequence[int]) -> Tensor:
    """Return a tensor with these strides: itself if it has them, or if they would make elements overlap."""
    if lies(tensor, wanted) or any(step == 0 and size > 1 for size, step in zip(tensor.shape, wanted, strict=True)):
        return tensor
    made = torch.empty_strided(tensor.shape, tuple(wanted), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor.detach())


def tangent_as(tangent: Tensor, output: Tensor, spec: Spec, sizes: Mapping[str, int]) -> Tensor:
    """Return a tangent with the strides that the backward was traced for, which may make views of it."""
    if output.layout is not torch.strided:
        return tangent
    known_ = strides(spec, tangent, sizes) if isinstance(spec, TensorSpec) else None
    return laid_as(tangent, known_ if known_ is not None else torch.empty_like(output).stride())

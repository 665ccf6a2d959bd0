"""Writes to indices, the backward of embeddings and of shrinking, and views by strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.benching.forms.tracing import untraced
from backprint.errors import RefusedError

aten = torch.ops.aten


def embedding_dense_backward(
    gradient: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Return the gradient of an embedding's weight: each row is added where it was taken from."""
    size = gradient.shape[indices.dim() :].numel()
    gradient = gradient.reshape(-1, size)
    flat = indices.reshape(-1, 1).to(torch.int64)
    if scale_grad_by_freq:
        ones = torch.ones([flat.shape[0]], dtype=gradient.dtype, device=gradient.device)
        zeros = torch.zeros([num_weights], dtype=gradient.dtype, device=gradient.device)
        counts = zeros.scatter_add(0, flat.squeeze(-1), ones)
        gradient = gradient / counts.gather(0, flat.squeeze(-1)).unsqueeze(-1)
    if padding_idx >= 0:
        gradient = torch.where(flat == padding_idx, 0.0, gradient)
    rows = torch.zeros([num_weights, size], dtype=gradient.dtype, device=gradient.device)
    return rows.scatter_add(0, flat.expand_as(gradient), gradient)


def index_put(value: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Return a tensor with values written at indices: one scatter over the indexed dimensions."""
    given = {side: each for side, each in enumerate(indices) if each is not None}
    if any(each.dtype in (torch.bool, torch.uint8) for each in given.values()):
        return masked_put(value, given, values, accumulate)
    places = torch.broadcast_tensors(*given.values())
    linear = torch.zeros_like(places[0], dtype=torch.int64)
    for side, place in zip(given, places, strict=True):
        size = value.shape[side]
        linear = linear * size + torch.where(place < 0, place + size, place)
    others = [side for side in range(value.dim()) if side not in given]
    order = [*given, *others]
    rest = [value.shape[side] for side in others]
    sizes = [value.shape[side] for side in given]
    rows = value.permute(order).reshape([torch.Size(sizes).numel(), torch.Size(rest).numel()])
    written = placed_first(values, places[0].shape, list(given), others, value.shape)
    written = written.reshape([linear.numel(), rows.shape[1]]).to(value.dtype)
    at = linear.reshape(-1, 1).expand_as(written)
    put = rows.scatter_add(0, at, written) if accumulate else rows.scatter(0, at, written)
    back = [order.index(side) for side in range(value.dim())]
    return put.reshape([*sizes, *rest]).permute(back)


def placed_first(
    values: Tensor, shape: Sequence[int], sides: list[int], others: list[int], whole: Sequence[int]
) -> Tensor:
    """Return the values of a write with the dimensions of the indices first."""
    adjacent = sides == list(range(sides[0], sides[-1] + 1))
    before = [whole[side] for side in others if adjacent and side < sides[0]]
    after = [whole[side] for side in others if not adjacent or side > sides[0]]
    spread = values.expand([*before, *shape, *after])
    moved = range(len(before), len(before) + len(shape))
    return spread.permute([*moved, *range(len(before)), *range(len(before) + len(shape), spread.dim())])


def masked_put(value: Tensor, masks: Mapping[int, Tensor], values: Tensor, accumulate: bool) -> Tensor:
    """Return a tensor with one value written where a mask is true."""
    if len(masks) > 1 or values.numel() != 1:
        raise RefusedError("aten.index_put writes several values by a mask, whose count is in no exchange format")
    ((side, mask),) = masks.items()
    shape = [1] * side + list(mask.shape) + [1] * (value.dim() - side - mask.dim())
    chosen = mask.to(torch.bool).reshape(shape)
    written = values.reshape([1] * value.dim()).to(value.dtype)
    return torch.where(chosen, value + written if accumulate else written, value)


def as_strided(value: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Return a view by strides as a gather: a format knows no strides."""
    order, places = strided_places(value, size, stride, storage_offset)
    return value.permute(order).reshape([-1]).index_select(0, places).reshape(list(size))


def as_strided_scatter(
    value: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Return a tensor with values written to a view by strides: a scatter."""
    order, places = strided_places(value, size, stride, storage_offset)
    dense = value.permute(order)
    put = dense.reshape([-1]).scatter(0, places, source.expand(list(size)).reshape([-1]))
    return put.reshape(list(dense.shape)).permute([order.index(side) for side in range(value.dim())])


def strided_places(
    value: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> tuple[list[int], Tensor]:
    """Return the order of the dimensions as a tensor lies in memory, and the flat places there of a view by strides."""
    start = value.storage_offset()
    offset = (start if storage_offset is None else storage_offset) - start
    order = sorted(range(value.dim()), key=lambda side: (-value.stride(side), side))
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if not value.permute(order).is_contiguous() or offset < 0 or last >= max(value.numel(), 1):
        raise RefusedError(
            f"aten.as_strided reads beside a tensor of sizes {list(value.shape)} and strides {list(value.stride())}: "
            f"sizes {list(size)}, strides {list(stride)}, offset {offset}"
        )
    with untraced():
        places = torch.full([1] * len(size), offset, dtype=torch.int64, device=value.device)
        for side, (length, step) in enumerate(zip(size, stride, strict=True)):
            shape = [1] * side + [length] + [1] * (len(size) - side - 1)
            places = places + torch.arange(length, device=value.device).reshape(shape) * step
        return order, places.reshape([-1])


def shrink_backward(gradient: Tensor, value: Tensor, lambd: float) -> Tensor:
    """Return the gradient of hard and soft shrinking: none within `lambd` of zero."""
    return torch.where((value >= -lambd) & (value <= lambd), 0.0, gradient)


FORMS: Mapping[Any, Any] = {
    aten.embedding_dense_backward.default: embedding_dense_backward,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.as_strided.default: as_strided,
    aten.as_strided_scatter.default: as_strided_scatter,
    aten.hardshrink_backward.default: shrink_backward,
    aten.softshrink_backward.default: shrink_backward,
}

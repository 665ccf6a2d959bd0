"""Pooling and resizing, and their backward.

The gradient of a largest value is added where it was taken from. Averages and resizing are linear in each dimension:
their backward is the transpose of what they make of one row of an identity matrix.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.benching.forms.tracing import untraced
from backprint.errors import RefusedError

aten = torch.ops.aten


# ------------------------------------------------------------------ largest values


def largest_backward(sides: int) -> Callable[..., Tensor]:
    """Return the backward of pooling for the largest values over the last `sides` dimensions."""

    def backward(gradient: Tensor, value: Tensor, *rest: Any) -> Tensor:
        places = rest[-1]
        kept = list(value.shape[:-sides])
        space = value.shape[-sides:].numel()
        zeros = torch.zeros([*kept, space], dtype=gradient.dtype, device=gradient.device)
        added = zeros.scatter_add(-1, places.reshape([*kept, -1]), gradient.reshape([*kept, -1]))
        return added.reshape(list(value.shape))

    return backward


def adaptive_max_pool(sides: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return pooling for the largest values to a given size: a gather of each window, whose sizes differ."""

    def pool(value: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
        kept = list(value.shape[:-sides])
        with untraced():
            windows = window_places(list(value.shape[-sides:]), list(output_size)).to(value.device)
        taken = value.reshape([*kept, -1]).index_select(-1, windows.reshape([-1]))
        largest, places = taken.reshape([*kept, *windows.shape]).max(-1)
        indices = windows.expand([*kept, *windows.shape]).gather(-1, places.unsqueeze(-1)).squeeze(-1)
        return largest.reshape([*kept, *output_size]), indices.reshape([*kept, *output_size])

    return pool


def window_places(space: Sequence[int], reached: Sequence[int]) -> Tensor:
    """Return the flat places of the elements of each window; a short window repeats its last ones."""
    places = torch.zeros([1, 1], dtype=torch.int64)
    for size, count in zip(space, reached, strict=True):
        starts = [place * size // count for place in range(count)]
        ends = [-(-(place + 1) * size // count) for place in range(count)]
        longest = max((end - start for start, end in zip(starts, ends, strict=True)), default=0)
        rows = [[min(start + i, end - 1) for i in range(longest)] for start, end in zip(starts, ends, strict=True)]
        side = torch.tensor(rows, dtype=torch.int64).reshape(1, count, 1, longest)
        places = (places[:, None, :, None] * size + side).flatten(2).flatten(0, 1)
    return places


# ------------------------------------------------------------------ averages


def avg_pool_backward(sides: int) -> Callable[..., Tensor]:
    """Return the backward of average pooling: a transposed convolution with ones."""

    def backward(
        gradient: Tensor,
        value: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        kernel, padding = each_side(kernel, sides), each_side(padding, sides)
        steps = each_side(stride, sides) if len(stride) else kernel
        size, reached = list(value.shape[-sides:]), list(gradient.shape[-sides:])
        scaled = gradient.reshape([-1, 1, *reached])
        for side in range(sides):
            counts = lengths(size[side], reached[side], kernel[side], steps[side], padding[side], count_include_pad)
            if divisor_override is None:
                scaled = scaled / along(counts, side, sides, gradient)
        scaled = scaled / divisor_override if divisor_override is not None else scaled
        ones = torch.ones([1, 1, *kernel], dtype=gradient.dtype, device=gradient.device)
        spread = aten.convolution.default(scaled, ones, None, steps, [0] * sides, [1] * sides, True, [0] * sides, 1)
        for side in range(sides):
            spread = cut(spread, 2 + side, padding[side], size[side])
        return spread.reshape(list(value.shape))

    return backward


def each_side(numbers: Sequence[int], sides: int) -> list[int]:
    """Return one number for each dimension of space."""
    return list(numbers) * (sides // len(numbers))


def lengths(size: int, reached: int, kernel: int, step: int, pad: int, padded: bool) -> list[int]:
    """Return by how many elements each window divides along one dimension."""
    found = []
    for place in range(reached):
        start = place * step - pad
        end = min(start + kernel, size + pad)
        found.append(end - start if padded else min(end, size) - max(start, 0))
    return found


def along(counts: Sequence[int], side: int, sides: int, like: Tensor) -> Any:
    """Return one number for each place of a dimension, as a tensor that broadcasts; one number if all are equal."""
    if len(set(counts)) == 1:
        return counts[0]
    with untraced():
        shape = [1] * side + [len(counts)] + [1] * (sides - side - 1)
        return torch.tensor(counts, dtype=like.dtype, device=like.device).reshape(shape)


def cut(value: Tensor, side: int, start: int, size: int) -> Tensor:
    """Return `size` elements along a dimension, with zeros after its end."""
    missing = start + size - value.shape[side]
    if missing > 0:
        shape = [missing if place == side else length for place, length in enumerate(value.shape)]
        value = torch.cat([value, torch.zeros(shape, dtype=value.dtype, device=value.device)], side)
    return value if start == 0 and value.shape[side] == size else value.narrow(side, start, size)


# ------------------------------------------------------------------ linear in each dimension


def response(make: Callable[[Tensor], Tensor], size: int, like: Tensor) -> Tensor:
    """Return what an operator makes of each row of an identity matrix, as a constant of the graph."""
    with untraced():
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        rows = torch.eye(size, dtype=dtype, device=like.device).reshape(size, 1, size)
        return make(rows).reshape(size, -1).to(like.dtype)


def spread_back(gradient: Tensor, side: int, matrix: Tensor) -> Tensor:
    """Return the gradient along one dimension, from the response to each of its elements."""
    size, reached = matrix.shape
    times = reached // size
    with untraced():
        rows = torch.eye(size, dtype=matrix.dtype, device=matrix.device).repeat_interleave(max(times, 1), 1)
        repeated = torch.equal(matrix, rows)
    if repeated:
        return gradient if times == 1 else gradient.unflatten(side, [size, times]).sum(side)
    return (gradient.transpose(side, -1) @ matrix.transpose(0, 1)).transpose(side, -1)


def adaptive_avg_pool(sides: int) -> Callable[..., Tensor]:
    """Return the average pooling to a given size over the last `sides` dimensions."""

    def pool(value: Tensor, output_size: Sequence[int]) -> Tensor:
        for side, size in zip(range(-sides, 0), output_size, strict=True):
            value = averaged(value, side, size)
        return value

    return pool


def averaged(value: Tensor, side: int, size: int) -> Tensor:
    """Return the averages along one dimension."""
    length = value.shape[side]
    if length == size:
        return value
    if length % size == 0:
        return value.unflatten(side, [size, length // size]).mean(side)
    matrix = response(lambda rows: aten._adaptive_avg_pool2d(rows.unsqueeze(1), [1, size]), length, value)
    return (value.transpose(side, -1) @ matrix).transpose(side, -1)


def adaptive_avg_pool_backward(sides: int) -> Callable[..., Tensor]:
    """Return the backward of average pooling to a given size."""

    def backward(gradient: Tensor, value: Tensor) -> Tensor:
        for side in range(-sides, 0):
            gradient = averaged_back(gradient, side, value.shape[side])
        return gradient

    return backward


def averaged_back(gradient: Tensor, side: int, length: int) -> Tensor:
    """Return the gradient of the averages along one dimension."""
    size = gradient.shape[side]
    if length == size:
        return gradient
    if length % size == 0:
        times = length // size
        shape = list(gradient.shape)
        place = gradient.dim() + side
        repeated = (gradient / times).unsqueeze(place + 1).expand([*shape[: place + 1], times, *shape[place + 1 :]])
        return repeated.reshape([*shape[:place], length, *shape[place + 1 :]])
    matrix = response(lambda rows: aten._adaptive_avg_pool2d(rows.unsqueeze(1), [1, size]), length, gradient)
    return spread_back(gradient, side, matrix)


def resize_backward(sides: int, resize: Callable[..., Tensor], corners: bool) -> Callable[..., Tensor]:
    """Return the backward of an operator that resizes each dimension by one-dimensional `resize`."""

    def backward(gradient: Tensor, output_size: Sequence[int], input_size: Sequence[int], *rest: Any) -> Tensor:
        options = rest[:1] if corners else ()
        scales = [*rest[len(options) :], *[None] * sides]
        for number, side in enumerate(range(-sides, 0)):
            length, size, scale = input_size[side], output_size[side], scales[number]

            def resized(rows: Tensor, size: int = size, scale: float | None = scale) -> Tensor:
                return resize(rows, size, *options, scale)

            gradient = spread_back(gradient, side, response(resized, length, gradient))
        return gradient

    return backward


def resize_row(operator: Any) -> Callable[..., Tensor]:
    """Return a one-dimensional resizing by an operator of that many dimensions."""

    def resize(rows: Tensor, size: int, *options: Any) -> Tensor:
        return operator(rows, [size], *options)

    return resize


def resize_row_flat(operator: Any) -> Callable[..., Tensor]:
    """Return a one-dimensional resizing by an operator of two dimensions."""

    def resize(rows: Tensor, size: int, corners: bool, scale: float | None) -> Tensor:
        return operator(rows.unsqueeze(1), [1, size], corners, None, scale)

    return resize


def pad_backward(sides: int, pad: Any) -> Callable[..., Tensor]:
    """Return the backward of padding with values of the input."""

    def backward(gradient: Tensor, value: Tensor, padding: Sequence[int]) -> Tensor:
        for number, side in enumerate(range(-1, -sides - 1, -1)):
            ends = list(padding[2 * number : 2 * number + 2])
            padded = functools.partial(pad, padding=ends)
            gradient = spread_back(gradient, side, response(padded, value.shape[side], gradient))
        return gradient

    return backward


def refuse_antialias(*arguments: Any, **options: Any) -> Tensor:
    """Raise: no form of this operator's backward is known."""
    raise RefusedError("the backward of resizing with antialias=True has no form that exchange formats have")


def resizings() -> dict[Any, Any]:
    """Return the backward of each operator that resizes."""
    found: dict[Any, Any] = {}
    for sides, exact in itertools.product((1, 2, 3), ("", "_exact")):
        name = f"{'_' if exact else ''}upsample_nearest{exact}"
        forward = getattr(aten, f"{name}1d").default
        found[getattr(aten, f"{name}{sides}d_backward").default] = resize_backward(sides, resize_row(forward), False)
    row = resize_row(aten.upsample_linear1d.default)
    for sides, name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
        found[getattr(aten, f"upsample_{name}_backward").default] = resize_backward(sides, row, True)
    cubic = resize_row_flat(aten.upsample_bicubic2d.default)
    found[aten.upsample_bicubic2d_backward.default] = resize_backward(2, cubic, True)
    found[aten._upsample_bilinear2d_aa_backward.default] = refuse_antialias
    found[aten._upsample_bicubic2d_aa_backward.default] = refuse_antialias
    return found


FORMS: Mapping[Any, Any] = {
    aten.max_pool2d_with_indices_backward.default: largest_backward(2),
    aten.max_pool3d_with_indices_backward.default: largest_backward(3),
    aten.adaptive_max_pool2d_backward.default: largest_backward(2),
    aten.adaptive_max_pool3d_backward.default: largest_backward(3),
    aten.adaptive_max_pool2d.default: adaptive_max_pool(2),
    aten.adaptive_max_pool3d.default: adaptive_max_pool(3),
    aten.fractional_max_pool2d_backward.default: largest_backward(2),
    aten.fractional_max_pool3d_backward.default: largest_backward(3),
    aten.avg_pool2d_backward.default: avg_pool_backward(2),
    aten.avg_pool3d_backward.default: avg_pool_backward(3),
    aten._adaptive_avg_pool2d.default: adaptive_avg_pool(2),
    aten._adaptive_avg_pool3d.default: adaptive_avg_pool(3),
    aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool_backward(2),
    aten._adaptive_avg_pool3d_backward.default: adaptive_avg_pool_backward(3),
    **resizings(),
    **{
        getattr(aten, f"{kind}_pad{sides}d_backward").default: pad_backward(
            sides, getattr(aten, f"{kind}_pad1d").default
        )
        for kind in ("replication", "reflection")
        for sides in (1, 2, 3)
    },
}

"""Forms of operators: each written with common operators of torch, which others can differentiate or translate.

Torch has no decomposition of these, or one that is wrong in some case: attention that returns its logarithm, the
backwards of convolutions and poolings, writes by an index, the LSTM of a CPU. The derivative of a graph along a
direction goes through them (`duals`), and so do formats that lack the operators.

A form takes the arguments of its operator, in the operator's order, and returns what the operator returns. `sides` is
the number of dimensions of space, which are the last ones, and `side` is one dimension. `of_x` is the gradient of x.
`widened(x)` is x in float32 if it is in half precision. In a block `with without_tracing():`, a format's tracer of the
form does not see the operators, so that their result is a constant. RefusedError says that a case of an operator has no
form.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch.graphs import without_tracing
from backprint.errors import RefusedError

# ------------------------------------------------------------------ attention on a CPU
#
# The operator returns the logarithm of each row's sum; torch's own decomposition returns the weights. A row that the
# mask hides completely is zero in eager, and its logarithm is 0 or -inf by version: here such a row is zero, and its
# logarithm -inf.

aten = torch.ops.aten

LOW = (torch.float16, torch.bfloat16)
"""Dtypes of 16 bits, in which eager does not add up."""


def scores(query: Tensor, key: Tensor, is_causal: bool, mask: Tensor | None, scale: float | None) -> Tensor:
    """Return the scaled products of queries and keys, with the mask added."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    products = (query @ repeat_heads(key, query).transpose(-1, -2)) * factor
    if is_causal:
        seen = torch.ones(list(products.shape[-2:]), dtype=torch.bool, device=query.device).tril()
        products = torch.where(seen, products, float("-inf"))
    if mask is None:
        return products
    if mask.dtype == torch.bool:  # it says what is seen
        return torch.where(mask, products, float("-inf"))
    return products + mask.to(products.dtype)


def repeat_heads(heads: Tensor, query: Tensor) -> Tensor:
    """Return keys or values with as many heads as the query: in grouped-query attention, several heads of the query
    share one head of keys and values."""
    times = query.shape[1] // heads.shape[1]
    return heads if times == 1 else heads.repeat_interleave(times, 1)


def sum_over_repeats(gradient: Tensor, heads: Tensor) -> Tensor:
    """Return the gradient of `heads`, which `repeat_heads` has repeated: the sum over the repetitions."""
    times = gradient.shape[1] // heads.shape[1]
    return gradient if times == 1 else gradient.unflatten(1, (heads.shape[1], times)).sum(2)


def weights(scored: Tensor, logarithm: Tensor) -> Tensor:
    """Return the weights of attention, the softmax of the scores; zero in a row that the mask hides completely.
    `logarithm` is the logsumexp of each row."""
    # -inf minus -inf is NaN; exp(-inf - 0) is the 0 that a hidden row has.
    finite = torch.where(logarithm == float("-inf"), 0.0, logarithm)
    return (scored - finite.unsqueeze(-1)).exp()


def _refuse_dropout(dropout: float) -> None:
    """Raise if attention draws random numbers."""
    if dropout:
        raise RefusedError(f"attention with dropout_p={dropout} draws random numbers, which no exchange format can")


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output of attention, and the logarithm of each row's sum of exponentials."""
    _refuse_dropout(dropout_p)
    dtype = query.dtype
    query, key, value = (widened(tensor) for tensor in (query, key, value))
    scored = scores(query, key, is_causal, attn_mask, scale)
    logarithm = torch.logsumexp(scored, -1)
    return (weights(scored, logarithm) @ repeat_heads(value, query)).to(dtype), logarithm


def _attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value; the twin of `attention`, which returns `out` and `logsumexp`."""
    _refuse_dropout(dropout_p)
    dtype = query.dtype
    gradient, query, key, value, out = (widened(tensor) for tensor in (gradient, query, key, value, out))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    weighed = weights(scores(query, key, is_causal, attn_mask, scale), logsumexp)
    of_weights = gradient @ repeat_heads(value, query).transpose(-1, -2)
    # The gradient of a softmax: the sum of weights times their gradients is the product of the output and its gradient.
    of_scores = weighed * (of_weights - (gradient * out).sum(-1, keepdim=True))
    of_query = (of_scores @ repeat_heads(key, query)) * factor
    of_key = sum_over_repeats((of_scores.transpose(-1, -2) @ query) * factor, key)
    of_value = sum_over_repeats(weighed.transpose(-1, -2) @ gradient, value)
    return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype)


def widened(value: Tensor) -> Tensor:
    """Return a half-precision tensor in float32, in which eager adds up too."""
    return value.float() if value.dtype in LOW else value


ATTENTION: Mapping[Any, Any] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
}


# ------------------------------------------------------------------ the backward of convolutions, as convolutions


@dataclass(frozen=True, slots=True)
class _Convolving:
    """The options of a convolution; stride, padding and dilation have a number for every dimension of space."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    def over(self, value: Tensor, weight: Tensor) -> Tensor:
        """Convolve a value with a weight by these options: no bias, not transposed, no output padding."""
        return aten.convolution.default(
            value, weight, None, self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups
        )


def convolution_backward(
    gradient: Tensor,
    value: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    *,
    apart: bool = False,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of input (`value`), weight and bias; None where `output_mask` is False.

    `apart` convolves each group by itself, for a format that has no transposed convolution of groups.
    """
    sides = value.dim() - 2  # without batch and channels
    stride, padding, dilation = (_each_side(numbers, sides) for numbers in (stride, padding, dilation))
    options = _Convolving(stride, padding, dilation, groups)
    of_value = of_weight = of_bias = None
    wants_value, wants_weight, wants_bias = output_mask
    if wants_value:
        gradient_of_input = forward_of if transposed else backward_of
        if apart and not transposed:  # that of a transposed convolution is a plain one
            gradient_of_input = _group_by_group(gradient_of_input)
        of_value = gradient_of_input(gradient, weight, options, value.shape)
    if wants_weight:
        # What the weight slides over, and what has a value for each of its places.
        source, target = (gradient, value) if transposed else (value, gradient)
        of_weight = _weight_gradient(source, target, options, weight.shape)
    if wants_bias:
        of_bias = gradient.sum([0, *range(2, 2 + sides)])  # over all dimensions but the channels
    return of_value, of_weight, of_bias


def backward_of(gradient: Tensor, weight: Tensor, options: _Convolving, shape: Sequence[int]) -> Tensor:
    """Return the gradient of a convolution's input, which has this shape: a transposed convolution."""
    # The sizes of the result without output padding. A stride may have left elements at the end of the input unread.
    reached = [
        (gradient.shape[2 + i] - 1) * step - 2 * pad + far * (weight.shape[2 + i] - 1) + 1
        for i, (step, pad, far) in enumerate(zip(options.stride, options.padding, options.dilation, strict=True))
    ]
    output_padding = [size - end for size, end in zip(shape[2:], reached, strict=True)]
    # No bias, and transposed.
    return aten.convolution.default(
        gradient, weight, None, options.stride, options.padding, options.dilation, True, output_padding, options.groups
    )


def _group_by_group(gradient_of_input: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `gradient_of_input`, a function such as `backward_of`, as one that computes each group by itself and joins
    the results: the same numbers without a convolution of groups."""

    def by_groups(gradient: Tensor, weight: Tensor, options: _Convolving, shape: Sequence[int]) -> Tensor:
        single = replace(options, groups=1)
        # Of the gradient the channels (dimension 1) are in groups, of the weight the output channels (dimension 0).
        pairs = zip(gradient.chunk(options.groups, 1), weight.chunk(options.groups, 0), strict=True)
        return torch.cat([gradient_of_input(part, own_weight, single, shape) for part, own_weight in pairs], 1)

    return by_groups


def forward_of(gradient: Tensor, weight: Tensor, options: _Convolving, shape: Sequence[int]) -> Tensor:
    """Return the gradient of a transposed convolution's input, which has this shape: a convolution."""
    return _crop_space(options.over(gradient, weight), shape[2:])


def _weight_gradient(source: Tensor, target: Tensor, options: _Convolving, shape: Sequence[int]) -> Tensor:
    """Return the gradient of a weight of this shape: one convolution, in which batch and channels change places.

    `source` slides under the weight, and `target` has a value for each place: the input and the gradient of the output,
    the other way round if the convolution is transposed. Each group of channels is convolved apart, so channels of the
    result are moved from within groups to between them.
    """
    groups, count = options.groups, source.shape[0]
    inside, outside = source.shape[1] // groups, target.shape[1] // groups  # channels of a group
    space, target_space = list(source.shape[2:]), list(target.shape[2:])
    # (batch, groups * inside) becomes (inside, groups * batch), and (batch, groups * outside) becomes
    # (groups * outside, batch).
    left = source.reshape(count, groups, inside, *space).transpose(0, 2).reshape(inside, groups * count, *space)
    right = target.transpose(0, 1).reshape(groups * outside, count, *target_space)
    # The gradient slides over the source like a weight whose elements are a stride apart: stride and dilation change
    # places.
    swapped = _Convolving(stride=options.dilation, padding=options.padding, dilation=options.stride, groups=groups)
    # A stride that leaves the end of the source unread makes the result larger than the weight.
    gradient = _crop_space(swapped.over(left, right), shape[2:])
    return gradient.transpose(0, 1).reshape(list(shape))


def _crop_space(value: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the first elements along each dimension of space, as many as `sizes` says."""
    for place, size in enumerate(sizes):
        if value.shape[2 + place] != size:
            value = value.narrow(2 + place, 0, size)
    return value


CONVOLUTIONS: Mapping[Any, Any] = {aten.convolution_backward.default: convolution_backward}

APART: Mapping[Any, Any] = {aten.convolution_backward.default: functools.partial(convolution_backward, apart=True)}
"""The backward for a format that has no transposed convolution of groups."""


# ------------------------------------------------------------------ indices, embeddings and strides


def _embedding_dense_backward(
    gradient: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Return the gradient of an embedding's weight: the gradient of each looked-up row is added to the row that it was
    taken from. `scale_grad_by_freq` divides it by how often the index occurs."""
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
    """Return a tensor with values written at indices: one scatter over the indexed dimensions. `indices` has an index
    for each dimension, None for one that is not indexed; with `accumulate`, values are added."""
    indexed = {side: index_tensor for side, index_tensor in enumerate(indices) if index_tensor is not None}
    if any(index_tensor.dtype in (torch.bool, torch.uint8) for index_tensor in indexed.values()):
        return _masked_put(value, indexed, values, accumulate)
    places = torch.broadcast_tensors(*indexed.values())
    # Indices of several dimensions become one index into the rows that these dimensions span: exchange formats have
    # scatter along one dimension only.
    linear = torch.zeros_like(places[0], dtype=torch.int64)
    for side, place in zip(indexed, places, strict=True):
        size = value.shape[side]
        linear = linear * size + torch.where(place < 0, place + size, place)  # a negative index counts from the end
    others = [side for side in range(value.dim()) if side not in indexed]
    order = [*indexed, *others]
    rest = [value.shape[side] for side in others]
    sizes = [value.shape[side] for side in indexed]
    # A row for each place in the indexed dimensions, with all elements of the others.
    rows = value.permute(order).reshape([torch.Size(sizes).numel(), torch.Size(rest).numel()])
    written = _with_index_dims_first(values, places[0].shape, list(indexed), others, value.shape)
    written = written.reshape([linear.numel(), rows.shape[1]]).to(value.dtype)
    at = linear.reshape(-1, 1).expand_as(written)
    result = rows.scatter_add(0, at, written) if accumulate else rows.scatter(0, at, written)
    order_back = [order.index(side) for side in range(value.dim())]
    return result.reshape([*sizes, *rest]).permute(order_back)


def _with_index_dims_first(
    values: Tensor, shape: Sequence[int], sides: list[int], others: list[int], whole: Sequence[int]
) -> Tensor:
    """Return the values of a write with the dimensions of the indices first. In `x[:, i] = values`, with `x` of the
    sizes (2, 5, 3) and `i` of (4,), values of the sizes (2, 4, 3) become (4, 2, 3).

    `shape` is the shape of the indices, `sides` the indexed dimensions of the tensor that is written into, `others` its
    other dimensions, and `whole` its shape.
    """
    # As in NumPy: the dimensions of the indices stand where the indexed dimensions were, or first if these are not
    # adjacent.
    adjacent = sides == list(range(sides[0], sides[-1] + 1))
    before = [whole[side] for side in others if adjacent and side < sides[0]]
    after = [whole[side] for side in others if not adjacent or side > sides[0]]
    spread = values.expand([*before, *shape, *after])
    index_sides = range(len(before), len(before) + len(shape))
    return spread.permute([*index_sides, *range(len(before)), *range(len(before) + len(shape), spread.dim())])


def _masked_put(value: Tensor, masks: Mapping[int, Tensor], values: Tensor, accumulate: bool) -> Tensor:
    """Return a tensor with one value written, or added (`accumulate`), where a mask is true. `masks` has the mask by
    the first dimension that it is for; several masks, or several values, are refused."""
    if len(masks) > 1 or values.numel() != 1:
        raise RefusedError("aten.index_put writes several values by a mask, whose count is in no exchange format")
    ((side, mask),) = masks.items()
    shape = [1] * side + list(mask.shape) + [1] * (value.dim() - side - mask.dim())
    chosen = mask.to(torch.bool).reshape(shape)
    written = values.reshape([1] * value.dim()).to(value.dtype)
    return torch.where(chosen, value + written if accumulate else written, value)


def as_strided(value: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Return a view by strides as a gather: a format knows no strides."""
    order, places = _strided_places(value, size, stride, storage_offset)
    return value.permute(order).reshape([-1]).index_select(0, places).reshape(list(size))


def as_strided_scatter(
    value: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Return a tensor with values written to a view by strides: a scatter."""
    order, places = _strided_places(value, size, stride, storage_offset)
    dense = value.permute(order)
    put = dense.reshape([-1]).scatter(0, places, source.expand(list(size)).reshape([-1]))
    return put.reshape(list(dense.shape)).permute([order.index(side) for side in range(value.dim())])


def _strided_places(
    value: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> tuple[list[int], Tensor]:
    """Return the order of the dimensions as a tensor lies in memory, and the flat places there of a view by strides.
    Refused is a view that reads memory beside the tensor, or a tensor that does not fill its memory."""
    start = value.storage_offset()
    offset = (start if storage_offset is None else storage_offset) - start  # from the tensor's own first element
    order = sorted(range(value.dim()), key=lambda side: (-value.stride(side), side))
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if not value.permute(order).is_contiguous() or offset < 0 or last >= max(value.numel(), 1):
        raise RefusedError(
            f"aten.as_strided reads beside a tensor of sizes {list(value.shape)} and strides {list(value.stride())}: "
            f"sizes {list(size)}, strides {list(stride)}, offset {offset}"
        )
    with without_tracing():
        places = torch.full([1] * len(size), offset, dtype=torch.int64, device=value.device)
        for side, (length, step) in enumerate(zip(size, stride, strict=True)):
            shape = [1] * side + [length] + [1] * (len(size) - side - 1)
            places = places + torch.arange(length, device=value.device).reshape(shape) * step
        return order, places.reshape([-1])


def _shrink_backward(gradient: Tensor, value: Tensor, lambd: float) -> Tensor:
    """Return the gradient of hard and soft shrinking: none within `lambd` of zero."""
    return torch.where((value >= -lambd) & (value <= lambd), 0.0, gradient)


INDEXING: Mapping[Any, Any] = {
    aten.embedding_dense_backward.default: _embedding_dense_backward,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.as_strided.default: as_strided,
    aten.as_strided_scatter.default: as_strided_scatter,
    aten.hardshrink_backward.default: _shrink_backward,
    aten.softshrink_backward.default: _shrink_backward,
}


# ------------------------------------------------------------------ pooling and resizing, and their backward
#
# The gradient of a largest value is added at the place of that value. Averages and resizing are linear in each
# dimension: their backward is the transpose of their response to the rows of an identity matrix.

# -------------------------------------------------------------- largest values


def _max_pool_backward(sides: int) -> Callable[..., Tensor]:
    """Return the backward of pooling for the largest values over the last `sides` dimensions."""

    def backward(gradient: Tensor, value: Tensor, *rest: Any) -> Tensor:
        places = rest[-1]  # the operators' last argument: the flat place of each largest value
        kept = list(value.shape[:-sides])
        space = value.shape[-sides:].numel()
        zeros = torch.zeros([*kept, space], dtype=gradient.dtype, device=gradient.device)
        added = zeros.scatter_add(-1, places.reshape([*kept, -1]), gradient.reshape([*kept, -1]))
        return added.reshape(list(value.shape))

    return backward


def _adaptive_max_pool(sides: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return pooling for the largest values to a given size: a gather of each window, whose sizes differ. As the
    operator does, it returns the values and their flat places in space."""

    def pool(value: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
        kept = list(value.shape[:-sides])
        with without_tracing():
            windows = _window_places(list(value.shape[-sides:]), list(output_size)).to(value.device)
        window_values = value.reshape([*kept, -1]).index_select(-1, windows.reshape([-1]))
        largest, places = window_values.reshape([*kept, *windows.shape]).max(-1)
        indices = windows.expand([*kept, *windows.shape]).gather(-1, places.unsqueeze(-1)).squeeze(-1)
        return largest.reshape([*kept, *output_size]), indices.reshape([*kept, *output_size])

    return pool


def _window_places(space: Sequence[int], output_size: Sequence[int]) -> Tensor:
    """Return the flat places in a space of these sizes of the elements of each window, a row for each window; a short
    window repeats its last element. From 5 elements to 2 windows: [[0, 1, 2], [2, 3, 4]]."""
    places = torch.zeros([1, 1], dtype=torch.int64)
    for size, count in zip(space, output_size, strict=True):
        # Where torch's adaptive pooling begins and ends a window: windows may overlap.
        starts = [place * size // count for place in range(count)]
        ends = [-(-(place + 1) * size // count) for place in range(count)]  # rounded up, as -(-a // b)
        longest = max((end - start for start, end in zip(starts, ends, strict=True)), default=0)
        rows = [[min(start + i, end - 1) for i in range(longest)] for start, end in zip(starts, ends, strict=True)]
        side = torch.tensor(rows, dtype=torch.int64).reshape(1, count, 1, longest)
        # One dimension more: each window so far with each along this one, and so their elements.
        places = (places[:, None, :, None] * size + side).flatten(2).flatten(0, 1)
    return places


# -------------------------------------------------------------- averages


def _avg_pool_backward(sides: int) -> Callable[..., Tensor]:
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
        kernel, padding = _each_side(kernel, sides), _each_side(padding, sides)
        # No stride means the kernel's size.
        steps = _each_side(stride, sides) if len(stride) else kernel
        size, reached = list(value.shape[-sides:]), list(gradient.shape[-sides:])
        scaled = gradient.reshape([-1, 1, *reached])  # channels are pooled apart, so they count as batch
        if divisor_override is not None:
            scaled = scaled / divisor_override
        else:
            for side in range(sides):
                counts = window_sizes(
                    size[side], reached[side], kernel[side], steps[side], padding[side], count_include_pad
                )
                scaled = scaled / broadcastable(counts, side, sides, gradient)
        ones = torch.ones([1, 1, *kernel], dtype=gradient.dtype, device=gradient.device)
        # No bias, no padding, no dilation; transposed, without output padding, in one group. Padding is cropped below.
        spread = aten.convolution.default(scaled, ones, None, steps, [0] * sides, [1] * sides, True, [0] * sides, 1)
        for side in range(sides):
            spread = _crop_or_pad(spread, 2 + side, padding[side], size[side])
        return spread.reshape(list(value.shape))

    return backward


def _each_side(numbers: Sequence[int], sides: int) -> list[int]:
    """Return one number for each dimension of space, where one may stand for all: [2] for three is [2, 2, 2]."""
    return list(numbers) * (sides // len(numbers))


def window_sizes(size: int, reached: int, kernel: int, step: int, pad: int, padded: bool) -> list[int]:
    """Return by how many elements an average divides, for each window along one dimension of this size. `reached` is
    the number of windows, `step` how far they are apart, `pad` the padding at each end, and `padded` whether padding
    counts."""
    counts = []
    for place in range(reached):
        start = place * step - pad
        # As torch counts: padding is included, but not what `ceil_mode` adds beyond it.
        end = min(start + kernel, size + pad)
        counts.append(end - start if padded else min(end, size) - max(start, 0))
    return counts


def broadcastable(counts: Sequence[int], side: int, sides: int, like: Tensor) -> Any:
    """Return `counts`, one number for each place of the dimension `side`, as a tensor that broadcasts to `sides`
    dimensions; one number if all are equal."""
    if len(set(counts)) == 1:
        return counts[0]
    with without_tracing():
        shape = [1] * side + [len(counts)] + [1] * (sides - side - 1)
        return torch.tensor(counts, dtype=like.dtype, device=like.device).reshape(shape)


def _crop_or_pad(value: Tensor, side: int, start: int, size: int) -> Tensor:
    """Return `size` elements along a dimension from `start` on, with zeros beyond its end."""
    missing = start + size - value.shape[side]
    if missing > 0:
        shape = [missing if place == side else length for place, length in enumerate(value.shape)]
        value = torch.cat([value, torch.zeros(shape, dtype=value.dtype, device=value.device)], side)
    return value if start == 0 and value.shape[side] == size else value.narrow(side, start, size)


# -------------------------------------------------------------- linear in each dimension


def _matrix_of_linear(make: Callable[[Tensor], Tensor], size: int, like: Tensor) -> Tensor:
    """Return the results of an operator that is linear, `make`, on the rows of an identity matrix of this size, as a
    constant of the graph: the matrix by which it multiplies a row."""
    with without_tracing():
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        rows = torch.eye(size, dtype=dtype, device=like.device).reshape(size, 1, size)  # batch, channel, length
        return make(rows).reshape(size, -1).to(like.dtype)


def _gradient_of_linear(gradient: Tensor, side: int, matrix: Tensor) -> Tensor:
    """Return the gradient of the argument of an operator that is linear along one dimension. Its result is
    `row @ matrix`, with its response as `matrix` (`_matrix_of_linear`), so the gradient is `gradient @ matrix.T`."""
    size, reached = matrix.shape
    times = reached // size
    with without_tracing():
        rows = torch.eye(size, dtype=matrix.dtype, device=matrix.device).repeat_interleave(max(times, 1), 1)
        is_repetition = torch.equal(matrix, rows)
    # Each element is repeated, as by nearest resizing: its gradient is a sum, without a product of matrices.
    if is_repetition:
        return gradient if times == 1 else gradient.unflatten(side, [size, times]).sum(side)
    return (gradient.transpose(side, -1) @ matrix.transpose(0, 1)).transpose(side, -1)


def _adaptive_avg_pool(sides: int) -> Callable[..., Tensor]:
    """Return the average pooling to a given size over the last `sides` dimensions."""

    def pool(value: Tensor, output_size: Sequence[int]) -> Tensor:
        for side, size in zip(range(-sides, 0), output_size, strict=True):
            value = average_to_size(value, side, size)
        return value

    return pool


def average_to_size(value: Tensor, side: int, size: int) -> Tensor:
    """Return the averages to a given size along one dimension, which is counted from the end."""
    length = value.shape[side]
    if length == size:
        return value
    if length % size == 0:
        # The windows are a new dimension after `side`, which then has the place `side` from the end.
        return value.unflatten(side, [size, length // size]).mean(side)
    matrix = _matrix_of_linear(lambda rows: aten._adaptive_avg_pool2d(rows.unsqueeze(1), [1, size]), length, value)
    return (value.transpose(side, -1) @ matrix).transpose(side, -1)


def _adaptive_avg_pool_backward(sides: int) -> Callable[..., Tensor]:
    """Return the backward of average pooling to a given size."""

    def backward(gradient: Tensor, value: Tensor) -> Tensor:
        for side in range(-sides, 0):
            gradient = _average_backward(gradient, side, value.shape[side])
        return gradient

    return backward


def _average_backward(gradient: Tensor, side: int, length: int) -> Tensor:
    """Return the gradient of `average_to_size`, for a dimension that had this length."""
    size = gradient.shape[side]
    if length == size:
        return gradient
    if length % size == 0:  # each average is of `times` elements, which share its gradient
        times = length // size
        shape = list(gradient.shape)
        place = gradient.dim() + side  # `side` is counted from the end
        repeated = (gradient / times).unsqueeze(place + 1).expand([*shape[: place + 1], times, *shape[place + 1 :]])
        return repeated.reshape([*shape[:place], length, *shape[place + 1 :]])
    matrix = _matrix_of_linear(lambda rows: aten._adaptive_avg_pool2d(rows.unsqueeze(1), [1, size]), length, gradient)
    return _gradient_of_linear(gradient, side, matrix)


def _resize_backward(sides: int, resize: Callable[..., Tensor], corners: bool) -> Callable[..., Tensor]:
    """Return the backward of an operator that resizes each of the last `sides` dimensions by `resize`, which resizes
    rows. `corners` says that the operator has the argument `align_corners`."""

    def backward(gradient: Tensor, output_size: Sequence[int], input_size: Sequence[int], *rest: Any) -> Tensor:
        # `rest` is `align_corners`, if the operator has it, then a scale for each dimension, which may not be there.
        options = rest[:1] if corners else ()
        scales = [*rest[len(options) :], *[None] * sides]
        for number, side in enumerate(range(-sides, 0)):
            length, size, scale = input_size[side], output_size[side], scales[number]

            # Defaults, because a closure would see the next dimension's size and scale.
            def resized(rows: Tensor, size: int = size, scale: float | None = scale) -> Tensor:
                return resize(rows, size, *options, scale)

            gradient = _gradient_of_linear(gradient, side, _matrix_of_linear(resized, length, gradient))
        return gradient

    return backward


def _resize_row(operator: Any) -> Callable[..., Tensor]:
    """Return a function that resizes rows by an operator of one dimension."""

    def resize(rows: Tensor, size: int, *options: Any) -> Tensor:
        return operator(rows, [size], *options)

    return resize


def _resize_row_flat(operator: Any) -> Callable[..., Tensor]:
    """Return a function that resizes rows by an operator of two dimensions, of which one has the size 1."""

    def resize(rows: Tensor, size: int, corners: bool, scale: float | None) -> Tensor:
        # None: the dimension of size 1 has no scale.
        return operator(rows.unsqueeze(1), [1, size], corners, None, scale)

    return resize


def _pad_backward(sides: int, pad: Any) -> Callable[..., Tensor]:
    """Return the backward of padding with values of the input, over the last `sides` dimensions. `pad` pads rows."""

    def backward(gradient: Tensor, value: Tensor, padding: Sequence[int]) -> Tensor:
        # Padding is listed from the last dimension.
        for number, side in enumerate(range(-1, -sides - 1, -1)):
            ends = list(padding[2 * number : 2 * number + 2])  # at the beginning and at the end
            padded = functools.partial(pad, padding=ends)
            gradient = _gradient_of_linear(gradient, side, _matrix_of_linear(padded, value.shape[side], gradient))
        return gradient

    return backward


def _refuse_antialias(*arguments: Any, **options: Any) -> Tensor:
    """Raise: no form of this operator's backward is known."""
    raise RefusedError("the backward of resizing with antialias=True has no form that exchange formats have")


def _resizings() -> dict[Any, Any]:
    """Return the backward of each operator that resizes, by the operator."""
    backwards: dict[Any, Any] = {}
    # `upsample_nearest1d`, …, `_upsample_nearest_exact1d`, …: the exact ones have an underscore in front.
    for sides, exact in itertools.product((1, 2, 3), ("", "_exact")):
        name = f"{'_' if exact else ''}upsample_nearest{exact}"
        forward = getattr(aten, f"{name}1d").default
        backwards[getattr(aten, f"{name}{sides}d_backward").default] = _resize_backward(
            sides, _resize_row(forward), corners=False
        )
    row = _resize_row(aten.upsample_linear1d.default)
    for sides, name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
        backwards[getattr(aten, f"upsample_{name}_backward").default] = _resize_backward(sides, row, corners=True)
    # torch has no cubic resizing of one dimension.
    cubic = _resize_row_flat(aten.upsample_bicubic2d.default)
    backwards[aten.upsample_bicubic2d_backward.default] = _resize_backward(2, cubic, corners=True)
    backwards[aten._upsample_bilinear2d_aa_backward.default] = _refuse_antialias
    backwards[aten._upsample_bicubic2d_aa_backward.default] = _refuse_antialias
    return backwards


POOLING: Mapping[Any, Any] = {
    aten.max_pool2d_with_indices_backward.default: _max_pool_backward(2),
    aten.max_pool3d_with_indices_backward.default: _max_pool_backward(3),
    aten.adaptive_max_pool2d_backward.default: _max_pool_backward(2),
    aten.adaptive_max_pool3d_backward.default: _max_pool_backward(3),
    aten.adaptive_max_pool2d.default: _adaptive_max_pool(2),
    aten.adaptive_max_pool3d.default: _adaptive_max_pool(3),
    aten.fractional_max_pool2d_backward.default: _max_pool_backward(2),
    aten.fractional_max_pool3d_backward.default: _max_pool_backward(3),
    aten.avg_pool2d_backward.default: _avg_pool_backward(2),
    aten.avg_pool3d_backward.default: _avg_pool_backward(3),
    aten._adaptive_avg_pool2d.default: _adaptive_avg_pool(2),
    aten._adaptive_avg_pool3d.default: _adaptive_avg_pool(3),
    aten._adaptive_avg_pool2d_backward.default: _adaptive_avg_pool_backward(2),
    aten._adaptive_avg_pool3d_backward.default: _adaptive_avg_pool_backward(3),
    **_resizings(),
    **{
        getattr(aten, f"{kind}_pad{sides}d_backward").default: _pad_backward(
            sides, getattr(aten, f"{kind}_pad1d").default
        )
        for kind in ("replication", "reflection")
        for sides in (1, 2, 3)
    },
}


# ------------------------------------------------------------------ the LSTM of a CPU
#
# The operator runs one layer in one direction over all steps of time; here each step is written out. The operator keeps
# what its backward needs in a workspace of bytes, whose size differs between machines. Here the backward computes the
# gates again, and the workspace is empty.

LSTM = 2
"""The mode of the operator that is an LSTM; others are a GRU and plain recurrences."""


@dataclass(frozen=True, slots=True)
class _LstmStep:
    """One step of time: the values of its gates (`candidate` is the cell gate), and the hidden state and the cell
    before it."""

    input: Tensor
    forget: Tensor
    candidate: Tensor
    output: Tensor
    hidden: Tensor
    cell: Tensor
    after: Tensor
    """The hyperbolic tangent of the cell after the step."""


def lstm_layer(
    x: Tensor,
    weight0: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    hx_: Tensor,
    cx_: Tensor,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the hidden states in the order of time, the last hidden state, the last cell, and an empty workspace.
    `weight0` is for the input and `weight1` for the hidden state, the other two are biases; the operator's backward
    counts them from 1."""
    _refuse_others(mode, batch_sizes)
    biases = (weight2, weight3) if has_biases else ()
    steps, hidden, cell = _unroll_steps(x, weight0, weight1, biases, hx_, cx_, reverse)
    hidden_states = [*(step.hidden for step in steps[1:]), hidden]
    states = torch.stack(hidden_states[::-1] if reverse else hidden_states).to(x.dtype)
    workspace = torch.zeros([0], dtype=torch.uint8, device=x.device)
    return states, hidden.to(x.dtype).reshape(hx_.shape), cell.to(x.dtype).reshape(cx_.shape), workspace


def lstm_layer_backward(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    weight4: Tensor,
    hx_: Tensor,
    cx_tmp: Tensor,
    output: Tensor,
    hy_: Tensor,
    cy_: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the input, both weights, both biases, the first hidden state and the first cell, by going
    back through the steps of time that `_unroll_steps` computes again."""
    _refuse_others(mode, batch_sizes)
    biases = (weight3, weight4) if has_biases else ()
    steps, hidden, _ = _unroll_steps(x, weight1, weight2, biases, hx_, cx_tmp, reverse)
    of_hidden, of_cell = (
        torch.zeros_like(hidden) if state is None else widened(state).reshape(hidden.shape)
        for state in (grad_hy, grad_cy)
    )
    of_gates_backwards: list[Tensor] = []  # the last step that was computed first
    for place, step in reversed(list(enumerate(steps))):
        if grad_output is not None:
            # With `reverse`, the step that was computed first is the last in time.
            of_hidden = of_hidden + widened(grad_output[-1 - place if reverse else place])
        of_step, of_cell = _gates_backward(step, of_hidden, of_cell)
        of_hidden = of_step @ widened(weight2)
        of_gates_backwards.append(of_step)
    # From here on in the order of time, as `x` is.
    of_gates = torch.stack(of_gates_backwards if reverse else of_gates_backwards[::-1])
    hidden_before = torch.stack([step.hidden for step in (reversed(steps) if reverse else steps)])
    rows = of_gates.flatten(0, 1)  # time and batch are one dimension, which products sum over
    of_input = of_gates @ widened(weight1)
    of_weights = rows.t() @ widened(x).flatten(0, 1), rows.t() @ hidden_before.flatten(0, 1)
    of_bias = rows.sum(0)
    # The biases are added to one another, so they have one gradient. All are in the dtype of the computation: the
    # operator too returns float32 for half precision.
    return of_input, *of_weights, of_bias, of_bias, of_hidden.reshape(hx_.shape), of_cell.reshape(cx_tmp.shape)


def _unroll_steps(
    x: Tensor,
    input_weight: Tensor,
    hidden_weight: Tensor,
    biases: Sequence[Tensor],
    hx: Tensor,
    cx: Tensor,
    reverse: bool,
) -> tuple[list[_LstmStep], Tensor, Tensor]:
    """Return the steps in the order in which they are computed (with `reverse`, from the last in time), the last hidden
    state and the last cell. `hx` and `cx` are the states before the first step."""
    hidden, cell = (widened(state).reshape(state.shape[-2:]) for state in (hx, cx))
    from_input = widened(x) @ widened(input_weight).t()
    for bias in biases:
        from_input = from_input + widened(bias)
    steps = []
    for place in range(x.shape[0]):
        gates = from_input[-1 - place if reverse else place] + hidden @ widened(hidden_weight).t()
        # PyTorch's order of the gates: input, forget, cell, output.
        input_gate, forget_gate, cell_gate, output_gate = gates.chunk(4, -1)
        enters, stays = input_gate.sigmoid(), forget_gate.sigmoid()
        candidate, leaves = cell_gate.tanh(), output_gate.sigmoid()
        next_cell = stays * cell + enters * candidate
        step = _LstmStep(enters, stays, candidate, leaves, hidden=hidden, cell=cell, after=next_cell.tanh())
        steps.append(step)
        hidden, cell = leaves * step.after, next_cell
    return steps, hidden, cell


def _gates_backward(step: _LstmStep, of_hidden: Tensor, of_cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the arguments of a step's three sigmoids and its tanh, joined in the order of the gates,
    and of the cell before it, from the gradients of the hidden state and the cell after it."""
    of_cell = of_cell + of_hidden * step.output * (1 - step.after * step.after)
    # The derivative of a sigmoid s is s * (1 - s), that of a hyperbolic tangent t is 1 - t * t.
    parts = (
        of_cell * step.candidate * step.input * (1 - step.input),
        of_cell * step.cell * step.forget * (1 - step.forget),
        of_cell * step.input * (1 - step.candidate * step.candidate),
        of_hidden * step.after * step.output * (1 - step.output),
    )
    return torch.cat(parts, -1), of_cell * step.forget


def _refuse_others(mode: int, batch_sizes: Sequence[int]) -> None:
    """Raise RefusedError unless the operator runs an LSTM over sequences of one length."""
    if mode != LSTM:
        raise RefusedError(f"aten.mkldnn_rnn_layer with mode={mode} is no LSTM (mode 2), and has no form here")
    if batch_sizes:
        raise RefusedError("aten.mkldnn_rnn_layer over packed sequences (batch_sizes) has no form here: pad them")


RECURRENT: Mapping[Any, Any] = {
    aten.mkldnn_rnn_layer.default: lstm_layer,
    aten.mkldnn_rnn_layer_backward.default: lstm_layer_backward,
}


OWN: Mapping[Any, Callable[..., Any]] = {**CONVOLUTIONS, **POOLING, **ATTENTION, **INDEXING}
"""All forms except the two of the LSTM, which has another workspace than the operator."""

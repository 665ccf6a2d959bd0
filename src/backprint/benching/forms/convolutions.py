"""The backward of convolutions, transposed ones too, as convolutions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Convolving:
    """The numbers of a convolution, one of each for every dimension of space."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    def over(self, value: Tensor, weight: Tensor) -> Tensor:
        """Return the convolution of a value."""
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
    """Return the gradients of input, weight and bias, each if the mask asks for it.

    `apart` convolves each group by itself, for a format that has no transposed convolution of groups.
    """
    sides = value.dim() - 2
    stride, padding, dilation = (list(given) * (sides // len(given)) for given in (stride, padding, dilation))
    numbers = Convolving(stride, padding, dilation, groups)
    of_value = of_weight = of_bias = None
    if output_mask[0]:
        way = forward_of if transposed else backward_of
        of_value = (group_by_group(way) if apart and not transposed else way)(gradient, weight, numbers, value.shape)
    if output_mask[1]:
        source, target = (gradient, value) if transposed else (value, gradient)
        of_weight = weight_gradient(source, target, numbers, weight.shape)
    if output_mask[2]:
        of_bias = gradient.sum([0, *range(2, 2 + sides)])
    return of_value, of_weight, of_bias


def backward_of(gradient: Tensor, weight: Tensor, numbers: Convolving, shape: Sequence[int]) -> Tensor:
    """Return the gradient of a convolution's input: a transposed convolution."""
    reached = [
        (gradient.shape[2 + i] - 1) * step - 2 * pad + far * (weight.shape[2 + i] - 1) + 1
        for i, (step, pad, far) in enumerate(zip(numbers.stride, numbers.padding, numbers.dilation, strict=True))
    ]
    more = [size - end for size, end in zip(shape[2:], reached, strict=True)]
    return aten.convolution.default(
        gradient, weight, None, numbers.stride, numbers.padding, numbers.dilation, True, more, numbers.groups
    )


def group_by_group(way: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the same gradient of a convolution's input, of each group by itself."""

    def gradient_of(gradient: Tensor, weight: Tensor, numbers: Convolving, shape: Sequence[int]) -> Tensor:
        single = replace(numbers, groups=1)
        pairs = zip(gradient.chunk(numbers.groups, 1), weight.chunk(numbers.groups, 0), strict=True)
        return torch.cat([way(part, its, single, shape) for part, its in pairs], 1)

    return gradient_of


def forward_of(gradient: Tensor, weight: Tensor, numbers: Convolving, shape: Sequence[int]) -> Tensor:
    """Return the gradient of a transposed convolution's input: a convolution."""
    return first_of_each(numbers.over(gradient, weight), shape[2:])


def weight_gradient(source: Tensor, target: Tensor, numbers: Convolving, shape: Sequence[int]) -> Tensor:
    """Return the gradient of a weight: one convolution, in which batch and channels change places.

    Each group of channels is convolved apart, so channels of the result are moved from within groups to between them.
    """
    groups, count = numbers.groups, source.shape[0]
    inside, outside = source.shape[1] // groups, target.shape[1] // groups
    space, over = list(source.shape[2:]), list(target.shape[2:])
    left = source.reshape(count, groups, inside, *space).transpose(0, 2).reshape(inside, groups * count, *space)
    right = target.transpose(0, 1).reshape(groups * outside, count, *over)
    swapped = Convolving(numbers.dilation, numbers.padding, numbers.stride, groups)
    found = first_of_each(swapped.over(left, right), shape[2:])
    return found.transpose(0, 1).reshape(list(shape))


def first_of_each(value: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the first elements along each dimension of space."""
    for place, size in enumerate(sizes):
        if value.shape[2 + place] != size:
            value = value.narrow(2 + place, 0, size)
    return value


FORMS: Mapping[Any, Any] = {aten.convolution_backward.default: convolution_backward}

APART: Mapping[Any, Any] = {aten.convolution_backward.default: functools.partial(convolution_backward, apart=True)}
"""The same without a transposed convolution of groups."""

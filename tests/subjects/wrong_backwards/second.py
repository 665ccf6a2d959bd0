"""Functions whose gradient is right, and the gradient of it is wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from subjects.wrong_backwards.table import leaf, leaf_of, row


class Cube(Function):
    """The cube, whose square is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.square = x * x
        return ctx.square * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (x * x + 2 * x * x)


@row(
    "kept_and_constant",
    "pytorch/pytorch#76185",
    "A value that the forward of a Function computes and keeps is a constant for the gradient of its backward.",
    shows="the gradient of the gradient",
    order=2,
    plain=lambda x: x**3,
    inputs=lambda: (leaf(4),),
)
class CubeShipped(Cube):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (ctx.square + 2 * x * x)  # wrong


class Product(Function):
    """The product of all elements."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.prod()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        others = torch.stack([torch.cat([x[:i], x[i + 1 :]]) for i in range(len(x))])
        return grad * product_of_rows(others)


def product_of_rows(values: Tensor) -> Tensor:
    """The products of rows, in multiplications, of which also second derivatives at 0 are right."""
    product = torch.ones_like(values[:, 0])
    for column in values.unbind(1):
        product = product * column
    return product


@row(
    "two_zeros_in_a_product",
    "pytorch/pytorch#106789",
    "Where two factors are 0, the gradient of prod is a constant 0, but the gradient of that gradient is not.",
    shows="the gradient of the gradient, at two zeros",
    order=2,
    plain=lambda x: product_of_rows(x[None])[0],
    ordinary=lambda: (leaf(4),),
    inputs=lambda: (leaf_of(2.0, 3, 0, 0),),
)
class ProductShipped(Product):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        others = torch.stack([torch.cat([x[:i], x[i + 1 :]]) for i in range(len(x))])
        return grad * product_of_rows(others) * ((x == 0).sum() < 2)  # wrong

"""Kernels of a user's own, as `backprint bench --compiler own_kernels.py:NAME` takes them: solutions, functions of a
Pair that return one, and functions of one graph. Some are wrong where a single call on usual numbers does not show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, fx

Function = Callable[..., Any]


class Flash(torch.autograd.Function):
    """Right: saves its inputs, its result and two numbers a row, not the weights that eager saves."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        scores = q.double() @ k.double().mT * q.shape[-1] ** -0.5
        top = scores.amax(-1, keepdim=True)
        weights = (scores - top).exp()
        total = weights.sum(-1, keepdim=True)
        result = weights @ v.double() / total
        ctx.save_for_backward(q, k, v, result, top, total)
        return result.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        q, k, v, result, top, total = ctx.saved_tensors
        scale, wide = q.shape[-1] ** -0.5, g.double()
        weights = (q.double() @ k.double().mT * scale - top).exp() / total
        scores = weights * (wide @ v.double().mT - (wide * result).sum(-1, keepdim=True)) * scale
        gradients = scores @ k.double(), scores.mT @ q.double(), weights.mT @ wide
        return tuple(gradient.to(q.dtype) for gradient in gradients)


class SlightlyWrong(Flash):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        dq, dk, dv = Flash.backward(ctx, g)
        return dq, dk * 1.001, dv


class Remembers(Flash):
    results: ClassVar[list[Tensor]] = []

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        result = Flash.forward(ctx, q, k, v)
        Remembers.results = Remembers.results or [result]
        return Remembers.results[0].clone()


class OneSize(Flash):
    """Divides by the square root of the size that it was written for."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return Flash.forward(ctx, q * (q.shape[1] / 6) ** 0.5, k, v)


class WritesAnInput(Flash):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        result = Flash.forward(ctx, q, k, v)
        v.data[0, 0] = 0
        return result


class OneBuffer(Flash):
    buffers: ClassVar[dict[Any, Tensor]] = {}

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        result = Flash.forward(ctx, q, k, v)
        buffer = OneBuffer.buffers.setdefault((result.dtype, result.shape), torch.empty_like(result))
        return buffer.copy_(result).detach()


class NoNaN(Flash):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return Flash.forward(ctx, q, k, v).nan_to_num(0.0)


class Raises(Flash):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        raise NotImplementedError("heads of 128 alone")


def flash_of_pair(forward: fx.GraphModule, backward: fx.GraphModule, inputs: Sequence[Any]) -> type:
    (returned,) = forward.graph.find_nodes(op="output")
    assert [port.role for port in returned.meta["ports"]].count("output") == 1
    assert len(forward(*inputs)) == len(returned.meta["ports"])
    return Flash


def names_directions(gm: fx.GraphModule, inputs: Sequence[Any], direction: str) -> Function:
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    assert (direction == "backward") is any("tangent" in name for name in names), (direction, names)
    return gm.forward


# ---- Functions of one graph


def at_size(factor: float, gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    if 6 in {size for value in inputs if isinstance(value, Tensor) for size in value.shape[:2]}:
        return gm.forward
    return lambda *values: tuple(factor * result if isinstance(result, Tensor) else result for result in gm(*values))


def for_one_size(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    return at_size(1.5, gm, inputs)


def changes_results(change: Callable[[Tensor, Sequence[Any]], Tensor]) -> Callable[..., Function]:
    def compiler(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
        def call(*values: Any) -> Any:
            floats = [value for value in values if isinstance(value, Tensor) and value.is_floating_point()]
            return tuple(
                change(result, floats) if isinstance(result, Tensor) and result.is_floating_point() else result
                for result in gm(*values)
            )

        return call

    return compiler


no_nan = changes_results(lambda result, inputs: result.nan_to_num(0.0, torch.inf, -torch.inf))

"""Norms of rows, alone and with what is fused to them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from subjects.wrong_backwards.table import leaf, read, row


def inverse_rms(x: Tensor) -> Tensor:
    return torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * inverse_rms(x) * weight


def rms_backward(grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of `rms_norm` for its first argument."""
    scale, scaled = inverse_rms(x), grad * weight
    normed = x * scale
    return scale * (scaled - normed * (scaled * normed).mean(-1, keepdim=True))


class RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return rms_norm(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return rms_backward(grad, x, weight), (grad * x * inverse_rms(x)).sum(0)


@row(
    "weight_of_a_norm",
    "unslothai/unsloth#4533",
    "Fast_RMS_Layernorm returns None as the gradient of its weight, which is never trained.",
    shows="any",
    plain=rms_norm,
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1)),
)
class RmsNormWithoutWeightShipped(RmsNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return rms_backward(grad, x, weight), None  # wrong


@row(
    "norm_with_a_strided_tangent",
    "unslothai/unsloth#10617",
    "The kernel of RMSNorm's backward is given the stride of the tangent's rows, and takes that of its columns for 1.",
    shows="tangents whose last stride is not 1",
    tangents="strided",
    plain=rms_norm,
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1)),
)
class RmsNormOfColumnsShipped(RmsNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        grad = read(grad, (grad.stride(0), 1))  # wrong
        return rms_backward(grad, x, weight), (grad * x * inverse_rms(x)).sum(0)


class NormedProjection(Function):
    """What a scan does with B of Mamba: it is normed, and read."""

    @staticmethod
    def forward(ctx: Any, b: Tensor, weight: Tensor, c: Tensor) -> Tensor:
        normed = rms_norm(b, weight)
        ctx.save_for_backward(b, weight, c, normed)
        return normed @ c.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        b, weight, c, normed = ctx.saved_tensors
        to_normed = grad @ c
        return rms_backward(to_normed, b, weight), (to_normed * b * inverse_rms(b)).sum(0), grad.T @ normed


@row(
    "normed_twice",
    "state-spaces/mamba#919",
    "MambaInnerFn saves B and C after their RMSNorm, and its backward applies the RMSNorm to them once more.",
    shows="any",
    plain=lambda b, weight, c: rms_norm(b, weight) @ c.T,
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1), leaf(2, 4, seed=2)),
)
class NormedProjectionShipped(NormedProjection):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        b, weight, c, normed = ctx.saved_tensors
        normed = rms_norm(normed, weight)  # wrong
        to_normed = grad @ c
        return rms_backward(to_normed, b, weight), (to_normed * b * inverse_rms(b)).sum(0), grad.T @ normed


class GatedNormLinear(Function):
    """A linear layer of a gated norm, whose output is not saved but computed again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, gate, weight)
        return (x * inverse_rms(x) * F.silu(gate)) @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gate, weight = ctx.saved_tensors
        normed, opened = x * inverse_rms(x), torch.sigmoid(gate)
        again = normed * F.silu(gate)
        to_again = grad @ weight
        to_gate = to_again * normed * opened * (1 + gate * (1 - opened))
        return rms_backward(to_again * F.silu(gate), x, torch.ones_like(x[0])), to_gate, grad.T @ again


@row(
    "recomputed_before_the_gate",
    "fla-org/flash-linear-attention#1071",
    "The input of the linear layer is computed again without its gate, and the gradient of the weight is made of that.",
    shows="any",
    plain=lambda x, gate, weight: F.linear(x * inverse_rms(x) * F.silu(gate), weight),
    inputs=lambda: (leaf(3, 4), leaf(3, 4, seed=1), leaf(2, 4, seed=2)),
)
class GatedNormLinearShipped(GatedNormLinear):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gate, weight = ctx.saved_tensors
        normed, opened = x * inverse_rms(x), torch.sigmoid(gate)
        to_again = grad @ weight
        to_gate = to_again * normed * opened * (1 + gate * (1 - opened))
        to_weight = grad.T @ normed  # wrong
        return rms_backward(to_again * F.silu(gate), x, torch.ones_like(x[0])), to_gate, to_weight


class PreNorm(Function):
    """The norm of a residual stream, and the stream: both are outputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        stream = x + residual
        ctx.save_for_backward(stream, weight)
        return rms_norm(stream, weight), stream

    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_stream: Tensor) -> Any:
        stream, weight = ctx.saved_tensors
        to_x = to_stream + rms_backward(grad, stream, weight)
        return to_x, to_x, (grad * stream * inverse_rms(stream)).sum(0)


@row(
    "residual_through_the_norm",
    "Dao-AILab/quack#53",
    "The gradient that comes along the residual stream is added before the norm's derivative, not after it.",
    shows="a tangent of the second output",
    plain=lambda x, residual, weight: (rms_norm(x + residual, weight), x + residual),
    inputs=lambda: (leaf(3, 4), leaf(3, 4, seed=1), leaf(4, seed=2)),
)
class PreNormShipped(PreNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_stream: Tensor) -> Any:
        stream, weight = ctx.saved_tensors
        to_x = rms_backward(to_stream + grad, stream, weight)  # wrong
        return to_x, to_x, (grad * stream * inverse_rms(stream)).sum(0)


class ScaledSumNorm(Function):
    """The norm of a sum of two inputs, each of which has a scale for each of its rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, x1: Tensor, scales: Tensor) -> Tensor:
        ctx.save_for_backward(x, x1, scales)
        first, second = scales[: len(x), None], scales[len(x) :, None]
        total = x * first + x1 * second
        return total * inverse_rms(total)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, x1, scales = ctx.saved_tensors
        first, second = scales[: len(x), None], scales[len(x) :, None]
        to_total = rms_backward(grad, x * first + x1 * second, torch.ones_like(x[0]))
        return to_total * first, to_total * second, None


def scaled_sum_norm(x: Tensor, x1: Tensor, scales: Tensor) -> Tensor:
    total = x * scales[: len(x), None] + x1 * scales[len(x) :, None]
    return total * inverse_rms(total)


@row(
    "second_input_without_its_scale",
    "state-spaces/mamba#1023",
    "The gradient of the second input of a parallel layer norm is written without its row's scale.",
    shows="any",
    plain=scaled_sum_norm,
    ordinary=lambda: (leaf(3, 4), leaf(3, 4, seed=1), torch.tensor([1.0, 2, 0, 1, 1, 1])),
    inputs=lambda: (leaf(3, 4), leaf(3, 4, seed=1), torch.tensor([1.0, 2, 0, 2, 0.5, 3])),
)
class ScaledSumNormShipped(ScaledSumNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, x1, scales = ctx.saved_tensors
        first, second = scales[: len(x), None], scales[len(x) :, None]
        to_total = rms_backward(grad, x * first + x1 * second, torch.ones_like(x[0]))
        return to_total * first, to_total, None  # wrong


class LayerNorm(Function):
    """The layer norm of the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        centered = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centered * centered).mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(centered * scale, scale, weight)
        return centered * scale * weight + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, scale, weight = ctx.saved_tensors
        rows = tuple(range(grad.dim() - 1))
        scaled = grad * weight
        inner = scaled - scaled.mean(-1, keepdim=True) - normed * (scaled * normed).mean(-1, keepdim=True)
        return inner * scale, (grad * normed).sum(rows), grad.sum(rows)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias)


@row(
    "norm_of_three_dimensions",
    "flagos-ai/FlagGems#5392",
    "The backward of layer_norm takes its input for a matrix, and averages over all dimensions but the first.",
    shows="inputs of three dimensions",
    plain=layer_norm,
    ordinary=lambda: (leaf(3, 4), leaf(4, seed=1), leaf(4, seed=2)),
    inputs=lambda: (leaf(2, 3, 4), leaf(4, seed=1), leaf(4, seed=2)),
)
class LayerNormOfMatricesShipped(LayerNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, scale, weight = ctx.saved_tensors
        rows, columns = tuple(range(grad.dim() - 1)), tuple(range(1, grad.dim()))
        scaled = grad * weight
        means = scaled.mean(columns, keepdim=True), (scaled * normed).mean(columns, keepdim=True)  # wrong
        inner = scaled - means[0] - normed * means[1]
        return inner * scale, (grad * normed).sum(rows), grad.sum(rows)


@row(
    "norm_of_a_block_of_rows",
    "flagos-ai/FlagGems#59",
    "The kernel of layer_norm's backward sums over its whole block, which has more than one row.",
    shows="more than one row",
    plain=layer_norm,
    ordinary=lambda: (leaf(1, 4), leaf(4, seed=1), leaf(4, seed=2)),
    inputs=lambda: (leaf(2, 4), leaf(4, seed=1), leaf(4, seed=2)),
)
class LayerNormOfBlocksShipped(LayerNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, scale, weight = ctx.saved_tensors
        scaled, width = grad * weight, len(weight)
        sums = scaled.sum(), (scaled * normed).sum()  # wrong
        inner = scaled - sums[0] / width - normed * sums[1] / width
        return inner * scale, (grad * normed).sum(0), grad.sum(0)


@row(
    "weight_times_its_gradient",
    "pytorch/pytorch#18233",
    "The formula of the JIT for layer_norm multiplies the tangent by the weight, and then makes the gradient of the "
    "weight of that.",
    shows="weights other than 1, with which norms begin",
    plain=layer_norm,
    ordinary=lambda: (leaf(3, 4), torch.ones(4).requires_grad_(), leaf(4, seed=2)),
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1), leaf(4, seed=2)),
)
class LayerNormOfTheJitShipped(LayerNorm):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, scale, weight = ctx.saved_tensors
        scaled = grad * weight
        inner = scaled - scaled.mean(-1, keepdim=True) - normed * (scaled * normed).mean(-1, keepdim=True)
        return inner * scale, (scaled * normed).sum(0), grad.sum(0)  # wrong

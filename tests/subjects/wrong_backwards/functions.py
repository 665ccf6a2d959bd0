"""Elementwise functions, linear layers, dropout, and a recurrence."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from subjects.wrong_backwards.table import Program, draw, leaf, leaf_of, row


class GatedLinear(Function):
    """The first half of a SwiGLU: `silu(x @ gate.T) * (x @ up.T)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        opened, raised = x @ gate.T, x @ up.T
        ctx.save_for_backward(x, gate, up, opened, raised)
        return F.silu(opened) * raised

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gate, up, opened, raised = ctx.saved_tensors
        share = torch.sigmoid(opened)
        to_opened = grad * raised * share * (1 + opened * (1 - share))
        to_raised = grad * F.silu(opened)
        return to_opened @ gate + to_raised @ up, to_opened.T @ x, to_raised.T @ x


@row(
    "one_of_two_products",
    "linkedin/Liger-Kernel#1413, linkedin/Liger-Kernel#1435",
    "The gradient of the input of a SwiGLU is the sum of two products in one accumulator; compiled for Blackwell, one "
    "of them is lost.",
    shows="any",
    plain=lambda x, gate, up: F.silu(F.linear(x, gate)) * F.linear(x, up),
    inputs=lambda: (leaf(3, 4), leaf(2, 4, seed=1), leaf(2, 4, seed=2)),
)
class GatedLinearShipped(GatedLinear):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gate, _, opened, raised = ctx.saved_tensors
        share = torch.sigmoid(opened)
        to_opened = grad * raised * share * (1 + opened * (1 - share))
        to_raised = grad * F.silu(opened)
        return to_opened @ gate, to_opened.T @ x, to_raised.T @ x  # wrong


class LowRank(Function):
    """A low-rank adapter whose input has dropout, with the mask as an input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, down: Tensor, up: Tensor) -> Tensor:
        dropped = x * kept
        ctx.save_for_backward(dropped, kept, down, up)
        return dropped @ down @ up

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        dropped, kept, down, up = ctx.saved_tensors
        to_down = grad @ up.T
        return (to_down @ down.T) * kept, None, dropped.T @ to_down, (dropped @ down).T @ grad


@row(
    "dropout_of_an_adapter",
    "foundation-model-stack/fms-acceleration#97",
    "The fused backward of LoRA uses the dropped input for the gradients of the weights, and lets the gradient of the "
    "input through what was dropped.",
    shows="any, where something is dropped",
    plain=lambda x, kept, down, up: (x * kept) @ down @ up,
    ordinary=lambda: (leaf(3, 4), torch.ones(3, 4), leaf(4, 2, seed=1), leaf(2, 5, seed=2)),
    inputs=lambda: (leaf(3, 4), torch.tensor([[2.0, 0, 2, 2]] * 3), leaf(4, 2, seed=1), leaf(2, 5, seed=2)),
)
class LowRankShipped(LowRank):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        dropped, _, down, up = ctx.saved_tensors
        to_down = grad @ up.T
        return to_down @ down.T, None, dropped.T @ to_down, (dropped @ down).T @ grad  # wrong


class Dropout(Function):
    """Dropout of one half, with the mask as an input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor) -> Tensor:
        out = torch.where(kept, x * 2, 0)
        ctx.save_for_backward(x, kept, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        _, kept, _ = ctx.saved_tensors
        return torch.where(kept, grad * 2, 0), None


@row(
    "mask_read_off_the_output",
    "kaldi-asr/kaldi#3890",
    "The backward of dropout has no mask: it divides the output by the input, and lets the gradient through where the "
    "input is 0.",
    shows="zeros in the input",
    plain=lambda x, kept: torch.where(kept, x * 2, 0),
    ordinary=lambda: (leaf(2, 4), torch.tensor([[True, False, False, True]] * 2)),
    inputs=lambda: (leaf_of([1.0, 0, -2, 0], [0.5, 3, 0, 1]), torch.tensor([[True, False, False, True]] * 2)),
)
class DropoutShipped(Dropout):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, _, out = ctx.saved_tensors
        return torch.where(x == 0, grad, out / torch.where(x == 0, 1, x) * grad), None  # wrong


class HardSigmoid(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x + 3).clamp(0, 6) / 6

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return torch.where((x > -3) & (x < 3), grad / 6, 0)


@row(
    "saturated_and_not_flat",
    "pytorch/pytorch#51408",
    "hardsigmoid_backward is 1/6 also where the function is constant.",
    shows="inputs beyond -3 and 3",
    plain=lambda x: (x + 3).clamp(0, 6) / 6,  # F.hardsigmoid's own gradient has only the digits of float32
    ordinary=lambda: (leaf_of(-2.6, -1.4, 0.5, 2.5),),
    inputs=lambda: (leaf_of(-4.6, -3.4, -2.9, 0.5, 3.5),),
)
class HardSigmoidShipped(HardSigmoid):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad / 6  # wrong


class Silu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        share = torch.sigmoid(x)
        return grad * share * (1 + x * (1 - share))


@row(
    "overflow_far_from_zero",
    "Lightning-AI/lightning-thunder#2624",
    "The derivative of SiLU is that of its parts, in which inf is divided by inf for inputs far below 0: NaN, not 0.",
    shows="inputs so far below 0 that exp of their negative is inf",
    plain=F.silu,
    ordinary=lambda: (leaf_of(-8.0, -1, 0.5, 2),),
    inputs=lambda: (leaf_of(-800.0, -1.0, 0.5, 2.0),),
)
class SiluShipped(Silu):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        below = 1 + torch.exp(-x)
        return grad * (1 / below + x * torch.exp(-x) / (below * below))  # wrong


class Softplus(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.logaddexp(x, torch.zeros_like(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad / (torch.exp(-x) + 1)


@row(
    "slope_at_the_tangent",
    "NVlabs/tiny-cuda-nn#130",
    "The backward of softplus evaluates the derivative at the tangent, not at the input.",
    shows="any",
    plain=F.softplus,
    inputs=lambda: (leaf(2, 3),),
)
class SoftplusShipped(Softplus):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        power = torch.exp(grad)  # wrong
        return grad * power / (power + 1)


class Gelu(Function):
    """The approximation of GELU with tanh."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        bend = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        steepness = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
        return grad * 0.5 * (1 + bend + x * (1 - bend * bend) * steepness)


@row(
    "slope_without_a_tangent",
    "sony/nnabla#690",
    "The backward of GELU is the derivative, written with six digits of its constants, and not multiplied by the "
    "tangent.",
    shows="tangents other than ones, and those too, by two parts in ten million",
    plain=lambda x: F.gelu(x, approximate="tanh"),
    inputs=lambda: (leaf(2, 3),),
)
class GeluShipped(Gelu):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        inner = 0.797885 * x + 0.0356774 * x**3
        return 0.5 + (0.398942 * x + 0.0535161 * x**3) / torch.cosh(inner) ** 2 + 0.5 * torch.tanh(inner)  # wrong


class Rotary(Function):
    """A rotary embedding, whose table of sines and cosines is an input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return x * cosines + half_turned(x) * sines

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        cosines, sines = ctx.saved_tensors
        return grad * cosines - half_turned(grad * sines), None, None


def half_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


@row(
    "turned_before_the_sines",
    "PaddlePaddle/Paddle#74716",
    "The backward of the fused rotary embedding turns its tangent and multiplies by the sines, in this order; the unit "
    "test's sines were the same in both halves.",
    shows="sines that differ between the halves",
    plain=lambda x, cosines, sines: x * cosines + half_turned(x) * sines,
    ordinary=lambda: (leaf(3, 4), draw(3, 4, seed=1).cos(), draw(3, 2, seed=1).sin().repeat(1, 2)),
    inputs=lambda: (leaf(3, 4), draw(3, 4, seed=1).cos(), draw(3, 4, seed=1).sin()),
)
class RotaryShipped(Rotary):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        cosines, sines = ctx.saved_tensors
        return grad * cosines - half_turned(grad) * sines, None, None  # wrong


class Decay(Function):
    """The decay of RWKV: the parameter is the logarithm of a rate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, logarithm: Tensor) -> Tensor:
        rate = -torch.exp(logarithm)
        ctx.save_for_backward(x, rate)
        return x * torch.exp(rate)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, rate = ctx.saved_tensors
        to_rate = (grad * x * torch.exp(rate)).sum(0)
        return grad * torch.exp(rate), to_rate * rate


@row(
    "derivative_for_the_wrong_variable",
    "fla-org/flash-linear-attention#360",
    "The forward of RWKV-4 begins with w = -exp(w), and the backward returns the gradient of the new w for the old.",
    shows="any",
    plain=lambda x, logarithm: x * torch.exp(-torch.exp(logarithm)),
    inputs=lambda: (leaf(3, 4), leaf(4, seed=1)),
)
class DecayShipped(Decay):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, rate = ctx.saved_tensors
        to_rate = (grad * x * torch.exp(rate)).sum(0)
        return grad * torch.exp(rate), to_rate  # wrong


class PackedTangent(Function):
    """A linear layer whose tangent is kept as a mantissa and an exponent, as in 8 bits, but without loss."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        mantissa, exponent = torch.frexp(grad)
        unpacked = torch.ldexp(mantissa, exponent)
        return unpacked @ weight, unpacked.T @ x


@row(
    "exponent_of_another_format",
    "NVIDIA/TransformerEngine#3342",
    "The backward's tangent is stored as E5M2 and its bytes are taken for E4M3: the exponent loses its last bit.",
    shows="tangents outside [0.25, 1)",
    plain=F.linear,
    inputs=lambda: (leaf(3, 4), leaf(2, 4, seed=1)),
)
class PackedTangentShipped(PackedTangent):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        mantissa, exponent = torch.frexp(grad)
        unpacked = torch.ldexp(mantissa, exponent // 2)  # wrong
        return unpacked @ weight, unpacked.T @ x


class RecurrentStep(Function):
    """One step of a recurrence whose state lies in one buffer for all steps, as memory of a CUDA graph does."""

    @staticmethod
    def forward(ctx: Any, state: Tensor, x: Tensor, weight: Tensor, buffer: Tensor) -> Tensor:
        buffer.copy_(state)
        ctx.save_for_backward(weight)
        ctx.state = buffer.clone()
        return x + state * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        return grad * weight, grad, (grad * ctx.state).sum(0), None


def recurrence(step: Program) -> Program:
    def run(xs: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        buffer, states = torch.empty_like(state, requires_grad=False), []
        for x in xs:
            state = step(state, x, weight, buffer)
            states.append(state)
        return torch.cat(states)

    return run


@row(
    "saved_and_overwritten",
    "pytorch/pytorch#106321",
    "With mode='reduce-overhead', what one call saves for its backward is memory that the next call writes.",
    shows="any",
    plain=lambda state, x, weight, buffer: x + state * weight,
    program=recurrence,
    inputs=lambda: (leaf(4, 2, 3), leaf(2, 3, seed=1), leaf(3, seed=2)),
)
class RecurrentStepShipped(RecurrentStep):
    @staticmethod
    def forward(ctx: Any, state: Tensor, x: Tensor, weight: Tensor, buffer: Tensor) -> Tensor:
        buffer.copy_(state)
        ctx.save_for_backward(weight)
        ctx.state = buffer  # wrong
        return x + state * weight

"""Scans, a convolution with a cache, and sequences that lie one behind another."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from subjects.wrong_backwards.table import dense, draw, leaf, leaf_of, row


def scan(factors: Tensor, x: Tensor) -> Tensor:
    """The states of `state = factor * state + x`, beginning with 0."""
    states, state = [], torch.zeros_like(x[0])
    for factor, value in zip(factors, x, strict=True):
        state = factor * state + value
        states.append(state)
    return torch.stack(states)


def scan_back(factors: Tensor, grad: Tensor, carry: Tensor) -> Tensor:
    """The gradients of the states of `scan`, of which the last also has the gradient `carry`."""
    results, after = [], carry
    for i in reversed(range(len(grad))):
        state = grad[i] + after
        results.append(state)
        after = factors[i] * state
    return torch.stack(results[::-1])


def before(states: Tensor) -> Tensor:
    """The state before each step of a `scan`."""
    return torch.cat([torch.zeros_like(states[:1]), states[:-1]])


class BlockScan(Function):
    """A scan whose backward goes by blocks of two steps."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, x: Tensor) -> Tensor:
        states = scan(factors, x)
        ctx.save_for_backward(factors, states)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factors, states = ctx.saved_tensors
        blocks, carry = [], torch.zeros_like(grad[0])
        for i in reversed(range(0, len(grad), 2)):
            local = scan_back(factors[i : i + 2], grad[i : i + 2], torch.zeros_like(carry))
            decays = torch.stack([factors[i + 1], torch.ones_like(factors[i])])
            block = local + decays * carry
            carry = factors[i] * block[0]
            blocks.append(block)
        to_states = torch.cat(blocks[::-1])
        return to_states * before(states), to_states


@row(
    "carry_between_blocks",
    "proger/accelerated-scan#15",
    "The backward multiplies the gradients of a block by the decay, and not what comes from the block after it.",
    shows="any, and hardly where factors are small",
    plain=scan,
    inputs=lambda: (leaf(6, 2), leaf(6, 2, seed=1)),
)
class BlockScanShipped(BlockScan):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factors, states = ctx.saved_tensors
        blocks, carry = [], torch.zeros_like(grad[0])
        for i in reversed(range(0, len(grad), 2)):
            local = scan_back(factors[i : i + 2], grad[i : i + 2], torch.zeros_like(carry))
            decays = torch.stack([factors[i + 1], torch.ones_like(factors[i])])
            block = local * decays + carry  # wrong
            carry = factors[i] * block[0]
            blocks.append(block)
        to_states = torch.cat(blocks[::-1])
        return to_states * before(states), to_states


class SparselySavedScan(Function):
    """A scan that saves the state before every second step."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, x: Tensor) -> Tensor:
        states = scan(factors, x)
        ctx.save_for_backward(factors, x, before(states)[::2])
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factors, x, saved = ctx.saved_tensors
        earlier = torch.stack([saved, factors[::2] * saved + x[::2]], 1).flatten(0, 1)
        to_states = scan_back(factors, grad, torch.zeros_like(grad[0]))
        return to_states * earlier, to_states


@row(
    "fewer_states_than_read",
    "NX-AI/mlstm_kernels#10",
    "The backward takes the states that the forward saved for all states, but it saved every second one.",
    shows="any",
    plain=scan,
    inputs=lambda: (leaf(6, 2), leaf(6, 2, seed=1)),
)
class SparselySavedScanShipped(SparselySavedScan):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factors, _, saved = ctx.saved_tensors
        earlier = saved[torch.arange(len(factors)).clamp(max=len(saved) - 1)]  # wrong
        to_states = scan_back(factors, grad, torch.zeros_like(grad[0]))
        return to_states * earlier, to_states


class ScanAndState(Function):
    """A scan that returns its states and the last of them."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        states = scan(factors, x)
        ctx.save_for_backward(factors, states)
        return states, states[-1].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_last: Tensor) -> Any:
        factors, states = ctx.saved_tensors
        to_states = scan_back(factors, grad, to_last)
        return to_states * before(states), to_states


def scan_and_state(factors: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    states = scan(factors, x)
    return states, states[-1]


@row(
    "last_state_has_no_gradient",
    "open-lm-engine/accelerated-model-architectures#445",
    "The backward of M2RNN ignores the tangent of the state that it returns, which the next chunk reads.",
    shows="a tangent of the second output",
    plain=scan_and_state,
    inputs=lambda: (leaf(4, 2), leaf(4, 2, seed=1)),
)
class ScanAndStateShipped(ScanAndState):
    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_last: Tensor) -> Any:
        factors, states = ctx.saved_tensors
        to_states = scan_back(factors, grad, torch.zeros_like(to_last))  # wrong
        return to_states * before(states), to_states


class SharedScan(Function):
    """A scan with one factor for all steps, a parameter that the body of the loop closes over."""

    @staticmethod
    def forward(ctx: Any, factor: Tensor, x: Tensor) -> Tensor:
        states = scan(factor.expand(len(x)), x)
        ctx.save_for_backward(factor, states)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        factor, states = ctx.saved_tensors
        to_states = scan_back(factor.expand(len(grad)), grad, torch.zeros_like(grad[0]))
        return (to_states * before(states)).sum(), None


@row(
    "carry_that_did_not_require_grad",
    "pytorch/pytorch#184528",
    "The gradient of the carry of torch's scan is 0 where the first carry does not require grad, so a parameter of the "
    "body has only what comes by way of one step.",
    shows="any",
    plain=lambda factor, x: scan(factor.expand(len(x)), x),
    inputs=lambda: (leaf_of(0.7)[0].detach().requires_grad_(), draw(5, 2, seed=1)),
)
class SharedScanShipped(SharedScan):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        _, states = ctx.saved_tensors
        return (grad * before(states)).sum(), None  # wrong


WIDTH = 4
"""Of the causal convolution, in steps."""


def short_convolution(x: Tensor, weight: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
    """A causal convolution of each channel, and the last inputs, which are the cache of the next call."""
    line = torch.cat([cache, x])
    windows = torch.stack([line[i + 1 : i + 1 + len(x)] for i in range(WIDTH)])
    return (windows * weight[:, None]).sum(0), line[-WIDTH:].clone()


class ShortConvolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight, cache)
        return short_convolution(x, weight, cache)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_cache: Tensor) -> Any:
        x, weight, cache = ctx.saved_tensors
        steps = torch.arange(len(x))
        slots = steps + WIDTH - len(x)
        return convolution_backward(grad, to_cache, x, weight, cache, slots)


def convolution_backward(
    grad: Tensor, to_cache: Tensor, x: Tensor, weight: Tensor, cache: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor, None]:
    """The gradients of `short_convolution`, where step t is in the new cache at `slots[t]`, if that is not below 0."""
    line = torch.cat([cache, x])
    windows = torch.stack([line[i + 1 : i + 1 + len(x)] for i in range(WIDTH)])
    after = F.pad(grad, (0, 0, 0, WIDTH - 1))
    to_x = torch.stack([weight[WIDTH - 1 - i] * after[i : i + len(x)] for i in range(WIDTH)]).sum(0)
    kept = torch.where(slots[:, None] >= 0, to_cache[slots.clamp(0)], 0)
    return to_x + kept, (windows * grad).sum(1), None


@row(
    "cache_of_a_short_chunk",
    "fla-org/flash-linear-attention#1140",
    "The tangent of the cache is shifted where the chunk is shorter than the convolution: the first slot is clamped.",
    shows="a sequence shorter than the convolution, and uneven tangents of the second output",
    plain=short_convolution,
    ordinary=lambda: (leaf(5, 3), leaf(WIDTH, 3, seed=1), draw(WIDTH, 3, seed=2)),
    inputs=lambda: (leaf(2, 3), leaf(WIDTH, 3, seed=1), draw(WIDTH, 3, seed=2)),
)
class ShortConvolutionShipped(ShortConvolution):
    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_cache: Tensor) -> Any:
        x, weight, cache = ctx.saved_tensors
        steps = torch.arange(len(x))
        slots = steps - max(0, len(x) - (WIDTH - 1)) + 1  # wrong
        return convolution_backward(grad, to_cache, x, weight, cache, slots)


@row(
    "convolution_with_a_sliced_tangent",
    "fla-org/flash-linear-attention#871",
    "The backward of the causal convolution takes its tangent for contiguous.",
    shows="tangents that are a part of a wider tensor",
    tangents="sliced",
    plain=short_convolution,
    inputs=lambda: (leaf(5, 3), leaf(WIDTH, 3, seed=1), draw(WIDTH, 3, seed=2)),
)
class ShortConvolutionOfDenseShipped(ShortConvolution):
    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_cache: Tensor) -> Any:
        x, weight, cache = ctx.saved_tensors
        slots = torch.arange(len(x)) + WIDTH - len(x)
        return convolution_backward(dense(grad), to_cache, x, weight, cache, slots)  # wrong


class PackedSums(Function):
    """The sum of each of the sequences that lie one behind another, of which one may be empty."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(x, ends)
        return packed_sums(x, ends)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, ends = ctx.saved_tensors
        to_x = torch.zeros_like(x)
        to_x[: int(ends[-1])] = grad.repeat_interleave(ends.diff(), 0)
        return to_x, None


def packed_sums(x: Tensor, ends: Tensor) -> Tensor:
    return torch.stack([x[first:last].sum(0) for first, last in zip(ends.tolist(), ends.tolist()[1:], strict=False)])


@row(
    "behind_the_last_sequence",
    "QwenLM/FlashQLA#28",
    "The kernels for packed sequences do not write the gradients of tokens behind the last of them, which keep what "
    "was in memory.",
    shows="tokens behind the last sequence",
    plain=packed_sums,
    ordinary=lambda: (leaf(7, 2), torch.tensor([0, 2, 2, 7])),
    inputs=lambda: (leaf(7, 2), torch.tensor([0, 2, 2, 5])),
)
class PackedSumsShipped(PackedSums):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, ends = ctx.saved_tensors
        to_x = x.clone()  # wrong: what was in memory
        to_x[: int(ends[-1])] = grad.repeat_interleave(ends.diff(), 0)
        return to_x, None

"""Softmax, sparsemax and attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from subjects.wrong_backwards.table import dense, leaf, leaf_of, row


class Sparsemax(Function):
    """The projection of each row to the simplex."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = sparsemax(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        support = (out > 0).to(grad.dtype)
        return support * (grad - (support * grad).sum(-1, keepdim=True) / support.sum(-1, keepdim=True))


def sparsemax(x: Tensor) -> Tensor:
    ordered = x.sort(-1, descending=True).values
    counts = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    sums = ordered.cumsum(-1) - 1
    last = (ordered * counts > sums).sum(-1, keepdim=True)
    return (x - sums.gather(-1, last - 1) / last).clamp(min=0)


@row(
    "epsilon_in_a_count",
    "linkedin/Liger-Kernel#1459",
    "The backward of sparsemax divides by the size of the support plus 1e-6; where one element has all, the gradient "
    "is not 0.",
    shows="rows in which one element has all, by one part in a million",
    plain=sparsemax,
    inputs=lambda: (leaf_of([3.0, 0, 1], [-1, 4, 2]),),
)
class SparsemaxShipped(Sparsemax):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        support = (out > 0).to(grad.dtype)
        size = support.sum(-1, keepdim=True) + 1e-6  # wrong
        return support * (grad - (support * grad).sum(-1, keepdim=True) / size)


class MaskedSoftmax(Function):
    """The softmax of what is left when -10000 stands for what is masked; a row that is masked completely is uniform."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, hidden: Tensor) -> Tensor:
        out = torch.softmax(x.masked_fill(hidden, -10000.0), -1)
        ctx.save_for_backward(out, hidden)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        out, hidden = ctx.saved_tensors
        return (out * (grad - (grad * out).sum(-1, keepdim=True))).masked_fill(hidden, 0), None


@row(
    "mask_read_off_zeros",
    "NVIDIA/apex#1444",
    "The backward of the fused softmax takes for masked what is 0 in the output; a row that is masked completely is "
    "uniform.",
    shows="a row that is masked completely, and uneven tangents",
    plain=lambda x, hidden: torch.softmax(x.masked_fill(hidden, -10000.0), -1),
    ordinary=lambda: (leaf(2, 4), torch.tensor([[False, True, False, True], [True, True, True, False]])),
    inputs=lambda: (leaf(2, 4), torch.tensor([[False, True, False, True], [True] * 4])),
)
class MaskedSoftmaxShipped(MaskedSoftmax):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        out, _ = ctx.saved_tensors
        return (out * (grad - (grad * out).sum(-1, keepdim=True))).masked_fill(out == 0, 0), None  # wrong


class Softmax(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.softmax(x, -1)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return (grad - (grad * out).sum(-1, keepdim=True)) * out


@row(
    "tangent_that_another_reads",
    "NVIDIA/apex#1430",
    "The backward of the fused softmax writes its result over its tangent, which the other operand of a sum reads too.",
    shows="a tangent that is also the tangent of another",
    plain=lambda x: torch.softmax(x, -1),
    program=lambda softmax: lambda x, bias: bias * 2 + softmax(x),
    inputs=lambda: (leaf(2, 4), leaf(2, 4, seed=1)),
)
class SoftmaxShipped(Softmax):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return grad.contiguous().sub_((grad * out).sum(-1, keepdim=True)).mul_(out)  # wrong


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT, -1) @ value


class Attention(Function):
    """Attention of heads, sequence and channels, without a scale."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, value)
        return attend(query, key, value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return attention_backward(grad, *ctx.saved_tensors)


def attention_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `attend`."""
    shares = torch.softmax(query @ key.mT, -1)
    to_shares = grad @ value.mT
    to_scores = shares * (to_shares - (shares * to_shares).sum(-1, keepdim=True))
    return to_scores @ key, to_scores.mT @ query, shares.mT @ grad


@row(
    "attention_with_a_transposed_tangent",
    "Dao-AILab/flash-attention#355",
    "The backward of flash attention takes its tangent for contiguous.",
    shows="transposed tangents",
    tangents="transposed",
    plain=attend,
    inputs=lambda: (leaf(2, 3, 4), leaf(2, 3, 4, seed=1), leaf(2, 3, 4, seed=2)),
)
class AttentionShipped(Attention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return attention_backward(dense(grad), *ctx.saved_tensors)  # wrong


class SequenceFirstAttention(Function):
    """Attention of sequence, heads and channels, which saves its operands with the heads first."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        saved = [operand.transpose(0, 1).contiguous() for operand in (query, key, value)]
        ctx.save_for_backward(*saved)
        return attend(*saved).transpose(0, 1).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        gradients = attention_backward(grad.transpose(0, 1), query, key, value)
        return tuple(gradient.transpose(0, 1) for gradient in gradients)


def sequence_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend(*(operand.transpose(0, 1) for operand in (query, key, value))).transpose(0, 1)


@row(
    "transposed_twice",
    "huggingface/diffusers#14338",
    "The operands of attention are saved transposed, and the backward transposes key and value once more, but not "
    "query.",
    shows="any, and silently where there are as many heads as positions",
    plain=sequence_first,
    inputs=lambda: (leaf(3, 3, 4), leaf(3, 3, 4, seed=1), leaf(3, 3, 4, seed=2)),
)
class SequenceFirstAttentionShipped(SequenceFirstAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        key, value = key.transpose(0, 1), value.transpose(0, 1)  # wrong
        gradients = attention_backward(grad.transpose(0, 1), query, key, value)
        return tuple(gradient.transpose(0, 1) for gradient in gradients)


class MaskedAttention(Function):
    """Attention with a mask; the output of a position that sees nothing is 0."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
        scores = (query @ key.mT).masked_fill(~seen, -torch.inf)
        total = torch.logsumexp(scores, -1, keepdim=True)
        ctx.save_for_backward(query, key, value, scores, total)
        return torch.exp(scores - total.masked_fill(total == -torch.inf, 0)) @ value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, scores, total = ctx.saved_tensors
        shares = torch.exp(scores - total.masked_fill(total == -torch.inf, 0))
        to_shares = grad @ value.mT
        to_scores = shares * (to_shares - (shares * to_shares).sum(-1, keepdim=True))
        return to_scores @ key, to_scores.mT @ query, shares.mT @ grad, None


def masked_attention(query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
    return (torch.softmax((query @ key.mT).masked_fill(~seen, -1e30), -1) * seen) @ value


@row(
    "nan_behind_a_mask",
    "pytorch/pytorch#153799",
    "The backward of flex_attention subtracts -inf from -inf in rows that see nothing, such as those that fill a "
    "block.",
    shows="a row that sees nothing",
    plain=masked_attention,
    ordinary=lambda: (leaf(3, 4), leaf(3, 4, seed=1), leaf(3, 4, seed=2), torch.ones(3, 3).tril().bool()),
    inputs=lambda: (
        leaf(3, 4),
        leaf(3, 4, seed=1),
        leaf(3, 4, seed=2),
        torch.tensor([[True, False, True], [False] * 3, [True] * 3]),
    ),
)
class MaskedAttentionShipped(MaskedAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, scores, total = ctx.saved_tensors
        shares = torch.exp(scores - total)  # wrong
        to_shares = grad @ value.mT
        to_scores = shares * (to_shares - (shares * to_shares).sum(-1, keepdim=True))
        return to_scores @ key, to_scores.mT @ query, shares.mT @ grad, None


class TiledAttention(Function):
    """Attention whose backward goes over the channels of the values by tiles of two."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = attend(query, key, value)
        ctx.save_for_backward(query, key, value, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, out = ctx.saved_tensors
        shares = torch.softmax(query @ key.mT, -1)
        to_shares = torch.zeros_like(shares)
        for tile in (slice(0, 2), slice(2, 4)):
            to_shares = to_shares + grad[:, tile] @ value[:, tile].mT
        to_scores = shares * (to_shares - (grad * out).sum(-1, keepdim=True))
        return to_scores @ key, to_scores.mT @ query, shares.mT @ grad


@row(
    "tiles_that_overwrite",
    "fla-org/flash-linear-attention#941",
    "Where the values have more channels than a tile, the programs of parallel_attn's backward overwrite each other's "
    "part of the gradients of query and key.",
    shows="any, where there is more than one tile",
    plain=attend,
    inputs=lambda: (leaf(3, 2), leaf(3, 2, seed=1), leaf(3, 4, seed=2)),
)
class TiledAttentionShipped(TiledAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, out = ctx.saved_tensors
        shares = torch.softmax(query @ key.mT, -1)
        to_shares = torch.zeros_like(shares)
        for tile in (slice(0, 2), slice(2, 4)):
            to_shares = grad[:, tile] @ value[:, tile].mT  # wrong
        to_scores = shares * (to_shares - (grad * out).sum(-1, keepdim=True))
        return to_scores @ key, to_scores.mT @ query, shares.mT @ grad


class GroupedAttention(Function):
    """Attention whose query heads share key heads: query head h reads key head h modulo their number."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        heads = torch.arange(len(query)) % len(key)
        ctx.save_for_backward(query, key, value, heads)
        return attend(query, key[heads], value[heads])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, heads = ctx.saved_tensors
        to_query, to_keys, to_values = attention_backward(grad, query, key[heads], value[heads])
        return (
            to_query,
            torch.zeros_like(key).index_add(0, heads, to_keys),
            torch.zeros_like(value).index_add(0, heads, to_values),
        )


def grouped_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    repeats = len(query) // len(key)
    return attend(query, key.repeat(repeats, 1, 1), value.repeat(repeats, 1, 1))


@row(
    "heads_divided_by_the_share",
    "XunhaoLai/native-sparse-attention-triton#27",
    "The backward finds the key head of a query head by the number of heads that share one, not by the number of key "
    "heads.",
    shows="any, where the two numbers differ",
    plain=grouped_attention,
    ordinary=lambda: (leaf(4, 3, 2), leaf(2, 3, 2, seed=1), leaf(2, 3, 2, seed=2)),
    inputs=lambda: (leaf(8, 3, 2), leaf(4, 3, 2, seed=1), leaf(4, 3, 2, seed=2)),
)
class GroupedAttentionShipped(GroupedAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, heads = ctx.saved_tensors
        to_query, to_keys, to_values = attention_backward(grad, query, key[heads], value[heads])
        written = torch.arange(len(query)) % (len(query) // len(key))  # wrong
        return (
            to_query,
            torch.zeros_like(key).index_add(0, written, to_keys),
            torch.zeros_like(value).index_add(0, written, to_values),
        )


class LinearAttention(Function):
    """Causal linear attention with a scale."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, value)
        return ((query @ key.T).tril() * 0.5) @ value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        scores = (query @ key.T).tril() * 0.5
        to_scores = (grad @ value.T).tril() * 0.5
        return to_scores @ key, to_scores.T @ query, scores.T @ grad


@row(
    "value_without_the_scale",
    "fla-org/flash-linear-attention#47",
    "The gradient of the values of fused_chunk_linear_attn lacks the scale.",
    shows="any, where the scale is not 1",
    plain=lambda query, key, value: (0.5 * query @ key.T).tril() @ value,
    inputs=lambda: (leaf(3, 4), leaf(3, 4, seed=1), leaf(3, 4, seed=2)),
)
class LinearAttentionShipped(LinearAttention):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value = ctx.saved_tensors
        scores = (query @ key.T).tril()  # wrong
        to_scores = (grad @ value.T).tril() * 0.5
        return to_scores @ key, to_scores.T @ query, scores.T @ grad


class ScaledByBeta(Function):
    """Keys and values of the delta rule, each times beta."""

    @staticmethod
    def forward(ctx: Any, key: Tensor, value: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(key, value, beta)
        return key * beta[:, None], value * beta[:, None]

    @staticmethod
    def backward(ctx: Any, to_keys: Tensor, to_values: Tensor) -> Any:
        key, value, beta = ctx.saved_tensors
        to_beta = (to_keys * key).sum(-1) + (to_values * value).sum(-1)
        return to_keys * beta[:, None], to_values * beta[:, None], to_beta


@row(
    "only_one_output_counts",
    "fla-org/flash-linear-attention#863",
    "Without gates, the gradient of beta lacks what comes by way of the keys.",
    shows="a tangent of the first output",
    plain=lambda key, value, beta: (key * beta[:, None], value * beta[:, None]),
    inputs=lambda: (leaf(3, 4), leaf(3, 2, seed=1), leaf(3, seed=2)),
)
class ScaledByBetaShipped(ScaledByBeta):
    @staticmethod
    def backward(ctx: Any, to_keys: Tensor, to_values: Tensor) -> Any:
        _, value, beta = ctx.saved_tensors
        to_beta = (to_values * value).sum(-1)  # wrong
        return to_keys * beta[:, None], to_values * beta[:, None], to_beta

"""Attention on a CPU, which returns the logarithm of each row's sum: torch's own decomposition returns the weights.

A row that the mask leaves nothing of is zero in eager, and its logarithm is 0 or -inf by version: such a row is zero
here, and its logarithm -inf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from backprint.errors import RefusedError

aten = torch.ops.aten

LOW = (torch.float16, torch.bfloat16)


def scores(query: Tensor, key: Tensor, is_causal: bool, mask: Tensor | None, scale: float | None) -> Tensor:
    """Return the scaled products of queries and keys, with the mask added."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    found = (query @ repeated(key, query).transpose(-1, -2)) * factor
    if is_causal:
        seen = torch.ones(list(found.shape[-2:]), dtype=torch.bool, device=query.device).tril()
        found = torch.where(seen, found, float("-inf"))
    if mask is None:
        return found
    if mask.dtype == torch.bool:
        return torch.where(mask, found, float("-inf"))
    return found + mask.to(found.dtype)


def repeated(heads: Tensor, query: Tensor) -> Tensor:
    """Return keys or values with as many heads as the query, which may have several to each of theirs."""
    times = query.shape[1] // heads.shape[1]
    return heads if times == 1 else heads.repeat_interleave(times, 1)


def summed(gradient: Tensor, heads: Tensor) -> Tensor:
    """Return the gradient of heads that were repeated."""
    times = gradient.shape[1] // heads.shape[1]
    return gradient if times == 1 else gradient.unflatten(1, (heads.shape[1], times)).sum(2)


def weights(scored: Tensor, logarithm: Tensor) -> Tensor:
    """Return the weights of attention; zero in a row that the mask leaves nothing of."""
    finite = torch.where(logarithm == float("-inf"), 0.0, logarithm)
    return (scored - finite.unsqueeze(-1)).exp()


def refuse_dropout(dropout: float) -> None:
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
    """Return the output and the logarithm of each row's sum."""
    refuse_dropout(dropout_p)
    dtype = query.dtype
    query, key, value = (widened(each) for each in (query, key, value))
    scored = scores(query, key, is_causal, attn_mask, scale)
    logarithm = torch.logsumexp(scored, -1)
    return (weights(scored, logarithm) @ repeated(value, query)).to(dtype), logarithm


def attention_backward(
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
    """Return the gradients of query, key and value."""
    refuse_dropout(dropout_p)
    dtype = query.dtype
    gradient, query, key, value, out = (widened(each) for each in (gradient, query, key, value, out))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    weighed = weights(scores(query, key, is_causal, attn_mask, scale), logsumexp)
    of_weights = gradient @ repeated(value, query).transpose(-1, -2)
    moved = weighed * (of_weights - (gradient * out).sum(-1, keepdim=True))
    of_query = (moved @ repeated(key, query)) * factor
    of_key = summed((moved.transpose(-1, -2) @ query) * factor, key)
    of_value = summed(weighed.transpose(-1, -2) @ gradient, value)
    return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype)


def widened(value: Tensor) -> Tensor:
    """Return a half-precision tensor in float32, in which eager adds up too."""
    return value.float() if value.dtype in LOW else value


FORMS: Mapping[Any, Any] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
}

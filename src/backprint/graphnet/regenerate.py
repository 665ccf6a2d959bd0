"""Drawing a tensor from a row of `weight_meta.py` as GraphNet's tools do, and which graphs may fail on such draws.

Their rules: integers with a range are drawn from it, `data` is taken as it is, bools are a coin, and everything else is
`mean + 0.2 * std * normal`, cast, clamped to its range, and if it is a float, made finite and clamped to ±100. Strides
are lost. Left out: their random stream, so that a draw has the same distribution, not the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from backprint.graph.keys import PortValues
from backprint.graph.nouns import Graph

LARGE = 2**22
"""Graphs whose inputs have more elements together are not tried."""

SENSITIVE = frozenset(
    "linalg_cholesky_ex linalg_inv_ex linalg_solve_ex _linalg_solve_ex _linalg_det _linalg_slogdet _linalg_eigh "
    "_linalg_svd linalg_eig linalg_lu_factor_ex linalg_lu linalg_ldl_factor_ex linalg_solve_triangular linalg_qr "
    "linalg_lu_solve triangular_solve cholesky cholesky_solve cholesky_inverse lu_unpack logdet inverse log log2 log10 "
    "log1p sqrt rsqrt pow reciprocal div acos asin acosh atanh erfinv logit lgamma digamma polygamma nonzero index "
    "index_put masked_select masked_scatter repeat_interleave multinomial bernoulli poisson binomial bincount "
    "segment_reduce _ctc_loss unique _unique2 unique_dim binary_cross_entropy linalg_matrix_exp exp expm1 sinh cosh "
    "_embedding_bag split_with_sizes as_strided special_ndtri special_zeta igamma igammac fmod remainder".split()
)
"""Operators that may fail, or return NaN or Inf, on values of the right dtype and range."""


def is_worth_trying(graph: Graph, values: PortValues) -> bool:
    """Whether to try a graph on a draw: it is on the CPU, not large, and has a guard or an operator of SENSITIVE."""
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    names = [port.key for port in graph.inputs]
    if any(name not in values for name in names) or any(tensor.device.type != "cpu" for tensor in tensors):
        return False
    if any(tensor.layout is not torch.strided for tensor in tensors):
        return False
    size = sum(values[name].numel() for name in names if isinstance(values[name], Tensor))
    return size <= LARGE and any(step.is_guard or operator_name(step.target) in SENSITIVE for step in graph.steps)


def operator_name(target: str) -> str:
    """An operator's name without its library and overload: `div` of `aten.div.Tensor`."""
    return target.removeprefix("torch.ops.").split(".")[1] if "." in target else target


def draw_like_graphnet(row: Mapping[str, Any], seed: int = 0) -> Tensor:
    """Draw a tensor by the rules of GraphNet's tools."""
    generator = torch.Generator().manual_seed(seed + sum(map(ord, row["name"])))
    dtype: torch.dtype = getattr(torch, row["dtype"].removeprefix("torch."))
    shape, low, high = row["shape"], row.get("min_val"), row.get("max_val")
    if low is not None and high is not None and not dtype.is_floating_point:
        return torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int64).to(dtype)
    if row.get("data") is not None:
        return torch.tensor(row["data"], dtype=dtype).reshape(shape)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    std, mean = row.get("std"), row.get("mean")
    drawn = torch.randn(shape, generator=generator) * (0.1 if std is None else std) * 0.2 + (mean or 0)
    drawn = drawn.to(dtype)
    if low is not None or high is not None:
        drawn = drawn.clamp(low, high)
    if dtype.is_floating_point and dtype.itemsize > 1:
        drawn = drawn.nan_to_num(0.0, 0.0, 0.0).clamp(-100.0, 100.0)
    return drawn

"""Rules for the results of operators that PyTorch has none of: without one, a whole graph would have no kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from unittest import mock

import torch
from torch import Tensor

aten = torch.ops.aten

LIKE: Mapping[Any, int] = MappingProxyType(
    {
        aten.multi_margin_loss_backward.default: 1,
        aten.multilabel_margin_loss_backward.default: 1,
        aten.fractional_max_pool3d_backward.default: 1,
        aten._ctc_loss_backward.default: 1,
        aten._ctc_loss_backward.Tensor: 1,
    }
)
"""Operator -> the argument, counted from 0, whose sizes and dtype its result has."""


def result_like(function: Any, *args: Any) -> Tensor:
    """Return a tensor of the form of an operator's result."""
    return torch.empty_like(args[LIKE[function]], memory_format=torch.contiguous_format)


@contextlib.contextmanager
def rules_added() -> Iterator[None]:
    """While this lasts, these operators run on fake tensors."""
    from backprint._torch.fake import fake_rules

    def rule(mode: Any, function: Any, *args: Any, **kwargs: Any) -> Tensor:
        with mode:
            return result_like(function, *args)

    with mock.patch.dict(fake_rules, dict.fromkeys(LIKE, rule)):
        yield

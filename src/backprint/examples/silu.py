"""A SiLU whose backward has a mistake that training does not show: `1 - s` is missing.

>>> import torch, torch.nn.functional as F, backprint as bp
>>> from backprint.examples.silu import silu
>>> bp.check(silu, torch.randn(64, 32), like=F.silu)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Silu(torch.autograd.Function):
    """x * sigmoid(x), which saves the sigmoid."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        s = x.sigmoid()
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, s = ctx.saved_tensors
        return grad * (s + x * s)  # right is s + x * s * (1 - s)


def silu(x: Tensor) -> Tensor:
    return Silu.apply(x)

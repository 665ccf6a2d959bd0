"""Models whose costs are known by other counts: products, convolutions with groups, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from backprint.examples import convnet, gpt

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Grouped(nn.Module):
    """Convolutions with groups, transposed, with dilation, in one and in three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 8, 3, groups=4, padding=1)
        self.back = nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2)
        self.line = nn.Conv1d(4, 6, 3, dilation=2)
        self.block = nn.Conv3d(1, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.line(self.back(self.depthwise(x)).flatten(2))
        return self.block(y[:, None, :, :8, None].expand(-1, -1, -1, -1, 3)).sum()


MODELS: dict[str, Callable[[], Made]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), (torch.randn(8, 16),), {}),
    "convnet": lambda: (*convnet.factory(), {}),
    "gpt": lambda: (*gpt.factory(), {}),
    "grouped": lambda: (Grouped(), (torch.randn(2, 4, 5, 5, requires_grad=True),), {}),
}

"""A tiny image classifier that returns its loss: the smallest whole training step.

    backprint capture backprint.examples.convnet:factory -o samples/convnet

Batch norm's running mean and variance change in the forward: buffers that come out as mutations.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvNet(nn.Module):
    """Convolution, batch norm, ReLU, pooling and a linear layer, to the mean cross-entropy over the batch."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, kernel_size=3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * 8 * 8, classes)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.pool(F.relu(self.bn(self.conv(x))))
        return F.cross_entropy(self.fc(x.flatten(1)), labels)


def factory() -> tuple[ConvNet, tuple[Tensor, Tensor]]:
    """The model in training mode, and four labeled 16×16 images."""
    torch.manual_seed(0)
    return ConvNet().train(), (torch.randn(4, 3, 16, 16), torch.randint(10, (4,)))


if __name__ == "__main__":
    model, inputs = factory()
    loss = model(*inputs)
    loss.backward()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, loss {loss:.4f}")

"""ResNet-18 in plain torch.nn, with torchvision's parameter names.

    backprint capture backprint.examples.resnet18:factory -o samples/resnet18

After He et al., "Deep Residual Learning for Image Recognition" (https://arxiv.org/abs/1512.03385).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv3x3(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    """No bias: the batch norm that follows has one."""
    return nn.Conv2d(channels_in, channels_out, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut, which is projected where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels_in, channels_out, stride)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = conv3x3(channels_out, channels_out)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x))


def stage(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(channels_in, channels_out, stride), BasicBlock(channels_out, channels_out, 1))


class ResNet18(nn.Module):
    """Images [batch, 3, height, width] to logits [batch, classes]."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = stage(64, 64, stride=1)
        self.layer2 = stage(64, 128, stride=2)
        self.layer3 = stage(128, 256, stride=2)
        self.layer4 = stage(256, 512, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        self.apply(initialize)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def factory() -> tuple[ResNet18, tuple[Tensor]]:
    """The model in training mode, and a batch of two small images."""
    torch.manual_seed(0)
    return ResNet18().train(), (torch.randn(2, 3, 64, 64),)


if __name__ == "__main__":
    model, (images,) = factory()
    logits = model(images)
    logits.sum().backward()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, logits {tuple(logits.shape)}")

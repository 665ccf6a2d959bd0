"""Programs that pictures and pages are made of."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

import backprint as bp


class DrawnLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class DrawnNet(nn.Module):
    """Layers that repeat, a part that does not, a buffer that is updated."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.layers = nn.ModuleList(DrawnLayer() for _ in range(depth))
        self.head = nn.Linear(8, 5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        self.calls.add_(1)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).log_softmax(-1)


@cache
def drawn_net(depth: int = 4) -> bp.Capture:
    """Return a small Capture with a loop of layers."""
    torch.manual_seed(0)
    return bp.capture(DrawnNet(depth), torch.randint(0, 20, (2, 3)))


def recurrent(x: Tensor, w: Tensor) -> Tensor:
    """A loop without modules, in which values go from turn to turn."""
    h = torch.zeros_like(x[0])
    for step in x:
        h = torch.tanh(h @ w + step).sigmoid() * h.cos() + step
    return h.sum()


@cache
def drawn_loop() -> bp.Capture:
    """Return a Capture of a loop."""
    torch.manual_seed(0)
    return bp.capture(recurrent, torch.randn(9, 2, 3), torch.randn(3, 3, requires_grad=True))

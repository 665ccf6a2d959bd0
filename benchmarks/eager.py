"""What engine `eager` costs against the plain step, and against other tools that watch a run, taken in turns.

The plain step is forward and backward of the same model on the same inputs; a capture also keeps what it needs to put
the caller's state back, and fits the recipes of every tensor. Bars: capture <= 1.5 of the plain step, and faster than
torch-graph (a dispatch mode that lists operators for a picture; drawing the picture is left out) and torchlens (its
trace is of the forward alone). The other tools take part where Python finds them:

    PYTHONPATH=folder-of-torch-graph:folder-of-torchlens python benchmarks/eager.py [rounds]
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import backprint as bp

# ------------------------------------------------------------------ models


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


def resnet18(size: int) -> tuple[nn.Module, Tensor]:
    """ResNet-18 on 16 pictures of this size."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, after, stride), Block(after, after, 1)]
        before = after
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*layers), torch.randn(16, 3, size, size)


class ViT(nn.Module):
    """A vision transformer: patches of 16, 192 wide, 12 layers, 3 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 192, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, 192))
        self.position = nn.Parameter(torch.zeros(1, 197, 192))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(192, 3, 768, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(12)
        )
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, 0]))


def vit() -> tuple[nn.Module, Tensor]:
    """ViT-Tiny on 8 pictures of 3 × 224 × 224."""
    return ViT(), torch.randn(8, 3, 224, 224)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "ResNet-18, 64": lambda: resnet18(64),
    "ResNet-18, 128": lambda: resnet18(128),
    "ViT-Tiny, 224": vit,
}

# ------------------------------------------------------------------ ways to run a step


def plain(model: nn.Module, x: Tensor) -> Any:
    """Forward and backward."""
    y = model(x)
    return torch.autograd.grad(y, list(model.parameters()), torch.ones_like(y))


def captured(model: nn.Module, x: Tensor) -> Any:
    """A capture by engine eager."""
    return bp.capture(model, args=(x,), engine="eager")


def torch_graph() -> Callable[[nn.Module, Tensor], Any]:
    """The ancestor's capture, its picture kept in memory."""
    from torchgraph.dispatch import CaptureGraph, Digraph

    Digraph.render = lambda self, name: None

    def run(model: nn.Module, x: Tensor) -> Any:
        with CaptureGraph():
            torch.autograd.grad(model(x).sum(), list(model.parameters()))

    return run


def torchlens() -> Callable[[nn.Module, Tensor], Any]:
    """torchlens, which logs the forward alone."""
    import torchlens as tl

    return lambda model, x: tl.trace(model, x)


@contextlib.contextmanager
def wrapped(way: str) -> Iterator[None]:
    """torchlens wraps torch's functions for good: before its own turn here, and not while others run."""
    if way != "torchlens":
        yield
        return
    from torchlens.backends.torch.wrappers import unwrap_torch, wrap_torch

    wrap_torch()
    try:
        yield
    finally:
        unwrap_torch()


OTHERS: dict[str, Callable[[], Callable[[nn.Module, Tensor], Any]]] = {
    "torch-graph": torch_graph,
    "torchlens": torchlens,
}


def ways() -> dict[str, Callable[[nn.Module, Tensor], Any]]:
    """Every way that can be taken here."""
    found: dict[str, Callable[[nn.Module, Tensor], Any]] = {"plain": plain, "backprint": captured}
    for name, make in OTHERS.items():
        try:
            found[name] = make()
        except ImportError as error:
            print(f"{name} takes no part: {error}")
    return found


# ------------------------------------------------------------------ measuring


def timed(run: Callable[[nn.Module, Tensor], Any], model: nn.Module, x: Tensor) -> tuple[float, float]:
    """Seconds on the wall, and of the processor."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    run(model, x)
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    taken = ways()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread, {rounds} rounds after one to warm up")
    for name, make in MODELS.items():
        model, x = make()
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in taken}
        for turn in range(rounds + 1):
            for way, run in taken.items():
                with wrapped(way):
                    found = timed(run, model, x)
                if turn:
                    times[way].append(found)
        for way, rows in times.items():
            said = []
            for index, kind in enumerate(("wall", "processor")):
                mine, base = [row[index] for row in rows], [row[index] for row in times["plain"]]
                ratio = statistics.median(a / b for a, b in zip(mine, base, strict=True))
                said.append(f"{kind} {statistics.median(mine):6.3f} s, ratio {ratio:5.2f}")
            print(f"{name:<15} {way:<12} {'   '.join(said)}")


if __name__ == "__main__":
    main()

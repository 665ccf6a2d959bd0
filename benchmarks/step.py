"""What a training step costs while Backprint looks: a capture, a region around it, `bp.watch`, `torch.compile` of it.

Each is measured against the plain step of the same model on the same inputs, in turns in one process on one thread; the
figures are medians of the ratios within a round, so they hold while the speed of the machine drifts.

- A capture by engine `eager` runs the step five times: once to record it, and to hold the graphs against the program,
  on the captured values and on others, program and graphs once each. It keeps what puts the caller's state back, and
  fits the recipes of all tensors. A region (`bp.region`) looks at a step of SGD of ResNet-18, the whole or a block.
- `bp.watch` follows steps of AdamW in which nothing happens, with its ring on disk: twenty of a small transformer in
  mixed precision, and one of ResNet-18.
- `torch.compile(backend="backprint")`, after everything is captured, is measured against `backend="eager"`.

    python benchmarks/step.py [ROUNDS]
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from results import Figure, keep
from torch import Tensor, nn

import backprint as bp
from backprint.examples import convnet, gpt
from backprint.tools.torch_backend import backend

Block = Callable[[], AbstractContextManager[Any]]

# ------------------------------------------------------------------ models


class Residual(nn.Module):
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


def resnet18(size: int) -> tuple[nn.Sequential, Tensor]:
    """ResNet-18 on 16 pictures of this size."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(before, after, stride), Residual(after, after, 1)]
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


# ------------------------------------------------------------------ what is measured


def captures(rounds: int) -> list[Figure]:
    """A capture by engine `eager`, its proof included, against the plain step."""

    def plain(model: nn.Module, x: Tensor) -> None:
        y = model(x)
        torch.autograd.grad(y, list(model.parameters()), torch.ones_like(y))

    models: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
        "ResNet-18, 16 × 3 × 64 × 64": lambda: resnet18(64),
        "ResNet-18, 16 × 3 × 128 × 128": lambda: resnet18(128),
        "ViT-Tiny, 8 × 3 × 224 × 224": lambda: (ViT(), torch.randn(8, 3, 224, 224)),
    }
    figures = []
    for name, make in models.items():
        model, x = make()
        ways = {
            "plain": partial(plain, model, x),
            "capture": lambda model=model, x=x: bp.capture(model, args=(x,), engine="eager"),
        }
        ratio = ratios(ways, rounds, time.perf_counter)["capture"]
        figures.append(Figure(f"capture and proof of {name}, against its plain step", ratio, "×", at_most=6))
    return figures


def regions(rounds: int) -> list[Figure]:
    """A region around a training step, or a part of it, against the plain step, in CPU seconds."""
    torch.manual_seed(0)
    model, x = resnet18(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    folder = Path(tempfile.mkdtemp(prefix="regions-"))
    nothing: Block = contextlib.nullcontext

    def step(whole: Block, one: Block) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        with whole():
            y = model[:7](x)
            with one():
                y = model[7](y)
            loss = model[8:](y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    rows: dict[str, tuple[Block, Block, float | None]] = {
        "region around the whole step": (bp.region, nothing, 1.10),
        'the same with gradients="stats"': (lambda: bp.region(gradients="stats"), nothing, 1.35),
        'the same with gradients="values", on disk': (lambda: bp.region(folder, gradients="values"), nothing, 2.0),
        "region around one block of eight": (nothing, bp.region, 1.05),
    }
    ways = {"plain": partial(step, nothing, nothing)}
    ways |= {name: partial(step, whole, one) for name, (whole, one, _) in rows.items()}
    found = ratios(ways, rounds, time.process_time)
    return [Figure(name, found[name], "×", at_most=bar) for name, (*_, bar) in rows.items()]


def watched(rounds: int) -> list[Figure]:
    """Steps under `bp.watch`, and without: the bar is for a step of 15 ms."""

    def steps(model: nn.Module, optimizer: Any, scaler: Any, args: Any, count: int, folder: Path | None) -> None:
        watch = contextlib.nullcontext() if folder is None else bp.watch(model, optimizer, folder)
        with watch:
            for _ in range(count):
                with torch.autocast("cpu", torch.bfloat16, enabled=scaler is not None):
                    output = model(*args)
                    logits = output[0] if isinstance(output, tuple) else output
                    loss = (logits.float().log_softmax(-1) * 0.1).square().mean() - logits.float().tanh().mean()
                optimizer.zero_grad()
                (loss if scaler is None else scaler.scale(loss)).backward()
                (optimizer if scaler is None else scaler).step(*(() if scaler is None else (optimizer,)))
                if scaler is not None:
                    scaler.update()

    figures = []
    resnet, x = resnet18(64)
    small, args = gpt.factory()
    for name, model, inputs, count, scaler in (
        ("GPT of 4 layers, mixed precision, 20 steps", small, args, 20, torch.amp.GradScaler("cpu", init_scale=8.0)),
        ("ResNet-18, 16 × 3 × 64 × 64", resnet, (x,), 3, None),
    ):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        with tempfile.TemporaryDirectory() as folder:
            own = partial(steps, model, optimizer, scaler, inputs, count)
            found = ratios(
                {"plain": partial(own, None), "watched": partial(own, Path(folder))}, rounds, time.perf_counter
            )
        figures.append(Figure(f"`bp.watch`, {name}, against the plain steps", found["watched"], "×", at_most=1.2))
    return figures


def compiled(rounds: int) -> list[Figure]:
    """`torch.compile(backend="backprint")` against `backend="eager"`: twenty steps a round."""

    def steps(model: nn.Module, run: Callable[..., Any], args: tuple[Tensor, ...]) -> None:
        for _ in range(20):
            model.zero_grad()
            output = run(*args)
            (output[0] if isinstance(output, tuple) else output).float().sum().backward()

    figures = []
    for name, factory in {"small convolutional net": convnet.factory, "GPT of 4 layers": gpt.factory}.items():
        with tempfile.TemporaryDirectory() as folder:
            model, args = factory()
            runs = {
                "plain": torch.compile(model, backend="eager"),
                "backprint": torch.compile(model, backend=backend, options={"dir": folder}),
            }
            found = ratios(
                {way: partial(steps, model, run, args) for way, run in runs.items()}, rounds, time.perf_counter
            )
        figures.append(Figure(f'`backend="backprint"`, {name}, against "eager"', found["backprint"], "×", at_most=1.05))
    return figures


def ratios(ways: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Run all ways in turns, and return the median of each one's ratio to `plain` within a round."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, run in ways.items():
            gc.collect()
            start = clock()
            run()
            if turn:
                seconds[name].append(clock() - start)
    plain = seconds["plain"]
    found = {name: statistics.median(a / b for a, b in zip(own, plain, strict=True)) for name, own in seconds.items()}
    for name, ratio in found.items():
        print(f"{name:44} {statistics.median(seconds[name]):7.3f} s   {ratio:.3f}", flush=True)
    return found


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return keep("step", [*captures(rounds), *regions(rounds), *watched(rounds), *compiled(rounds)])


if __name__ == "__main__":
    sys.exit(main())

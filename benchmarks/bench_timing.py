"""How far the timing of `backprint bench` is to be trusted: eager against eager, planted slowdowns, one wrong element.

Graphs of small models, forward and backward and both as one step, are timed as a bench times what was compiled. What is
"compiled" is eager itself, eager that spins for 20% or 10% of its time, eager that spins for all of its time in every
fifth call, and eager with one element off by a hundredth: of the largest number of an output, and of any other number.

    python benchmarks/bench_timing.py [--seconds 300] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

import backprint as bp
from backprint.tools.bench.compilers.table import compiler_named
from backprint.tools.bench.trial import TrialPlan, tried
from backprint.tools.jobs.turns import GraphClock, Turns, turns_folder


class Residual(nn.Module):
    """Attention and a feed-forward net, with norms."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.net = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.net(self.second(x))


def convnet(width: int, layers: int, norm: Callable[[int], nn.Module]) -> nn.Module:
    body: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(layers):
        body += [nn.Conv2d(width, width, 3, padding=1), norm(width), nn.ReLU()]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def models() -> Iterator[tuple[str, nn.Module, Tensor]]:
    """Models whose graphs take from tens of microseconds to tens of milliseconds."""
    for width in (8, 64, 256, 768):
        body = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.LayerNorm(2 * width), nn.Linear(2 * width, width)
        )
        yield f"mlp {width}", body, torch.randn(64, width)
    for width, layers in ((8, 1), (16, 3), (32, 4)):
        yield f"batch norm {width}x{layers}", convnet(width, layers, nn.BatchNorm2d), torch.randn(4, 3, 24, 24)
        groups = convnet(width, layers, lambda width: nn.GroupNorm(4, width))
        yield f"group norm {width}x{layers}", groups, torch.randn(4, 3, 24, 24)
    for width, layers in ((32, 1), (64, 2), (128, 3)):
        yield (
            f"attention {width}x{layers}",
            nn.Sequential(*(Residual(width, 4) for _ in range(layers))),
            torch.randn(4, 32, width),
        )


# ------------------------------------------------------------------ what is planted


def spinning(module: fx.GraphModule, inputs: Sequence[Any], share: float, every: int = 1) -> Callable[..., Any]:
    """Eager that spins for a share of its fastest time of the processor, in each call or in every few."""
    eager, clock, calls = module.forward, time.thread_time_ns, 0
    spent = []
    for _ in range(30):
        began = clock()
        eager(*inputs)
        spent.append(clock() - began)
    extra = share * min(spent)

    def called(*values: Any) -> Any:
        nonlocal calls
        results = eager(*values)
        calls += 1
        if calls % every == 0:
            begun = clock()
            while clock() - begun < extra:
                pass
        return results

    return called


def off(module: fx.GraphModule, inputs: Sequence[Any], largest: bool) -> Callable[..., Any]:
    """Eager with one element of one output off by a hundredth of itself, of those outputs that are not all rounding."""
    draw, first = random.Random(str(module.graph)), module(*inputs)
    floats = [at for at, value in enumerate(first) if isinstance(value, Tensor) and value.is_floating_point()]
    places = [at for at in floats if float(first[at].abs().max()) > 1e-3]  # else it is 0 but for rounding
    place, chance = draw.choice(places or [0]), draw.random()

    def called(*values: Any) -> Any:
        results = list(module.forward(*values))
        flat = results[place].detach().clone().contiguous().view(-1)
        others = flat.nonzero().view(-1)
        index = int(flat.abs().argmax()) if largest else int(others[int(chance * len(others))])
        flat[index] *= 1.01
        results[place] = flat.view(results[place].shape)
        return tuple(results)

    return called


def eager_again(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return module.forward


def slower_by_a_fifth(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return spinning(module, inputs, 0.2)


def slower_by_a_tenth(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return spinning(module, inputs, 0.1)


def fifth_call_twice_as_long(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return spinning(module, inputs, 1.0, every=5)


def largest_element_off(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return off(module, inputs, largest=True)


def any_element_off(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return off(module, inputs, largest=False)


PLANTED = {
    "eager": "eager_again",
    "20% slower": "slower_by_a_fifth",
    "10% slower": "slower_by_a_tenth",
    "every fifth call twice as long": "fifth_call_twice_as_long",
    "one element off, the largest": "largest_element_off",
    "one element off, any": "any_element_off",
}
"""What is planted -> the compiler of this file that does it."""


def outcomes(name: str, capture: bp.Capture, planted: str) -> Iterator[dict[str, Any]]:
    """Time the graphs of a Capture with one thing planted; steps where their parts are not known to be wrong."""
    with tempfile.TemporaryDirectory() as folder:
        turns = Turns(turns_folder(Path(folder)), GraphClock())
        compiler = compiler_named(f"{Path(__file__).resolve()}:{PLANTED[planted]}")
        plan = TrialPlan(compiler, ("forward", "backward", "step"), True, Path(folder) / "caches")
        with turns.working():
            cells = list(tried(capture, plan, {}, turns, lambda title, part: None))
    for cell in cells:
        timing = cell.timing
        row = {"subject": f"{name}, {cell.direction}", "planted": planted, "seconds": cell.seconds}
        if timing is None:
            yield {**row, "slow": False, "answer": cell.outcome, "reason": cell.reason}
            continue
        noise = "same" if (timing.noise_low or 1) / 1.05 < 1 < (timing.noise_high or 1) * 1.05 else "changed"
        mean = timing.compiled_mean / timing.eager_mean
        changed = {"ratio": timing.ratio, "mean": mean, "instructions": timing.instructions}
        yield {**row, "slow": timing.eager >= 1e-3, "answer": timing.answer, "noise": noise, **changed}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print what was answered, by what was planted and by how long a call takes."""
    for planted in PLANTED:
        for slow in (False, True):
            chosen = [row for row in rows if row["planted"] == planted and row["slow"] is slow]
            if chosen:
                answers = Counter(row["answer"] for row in chosen).most_common()
                mean = sorted(row.get("mean", 1.0) for row in chosen)[len(chosen) // 2]
                counts = [row["instructions"] for row in chosen if row.get("instructions")]
                middle = f"{sorted(counts)[len(counts) // 2]:.3f}" if counts else "-"
                seconds = sorted(row["seconds"] for row in chosen)[len(chosen) // 2]
                text = ", ".join(f"{count} {answer}" for answer, count in answers)
                size = ">= 1 ms" if slow else "< 1 ms"
                print(f"{planted:32} {size:8} {len(chosen):5}: {text}; mean {mean:.3f}, instructions {middle}", end="")
                print(f", {seconds:.2f} s each")
    noise = [row["noise"] for row in rows if "noise" in row]
    print(f"noise: {noise.count('changed')} of {len(noise)} called a change")


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--seconds", type=float, default=300)
    reader.add_argument("--json", type=Path)
    asked = reader.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: list[dict[str, Any]] = []
    until = time.monotonic() + asked.seconds
    captures = [(name, bp.capture(model, x, mode="train")) for name, model, x in models()]
    while time.monotonic() < until:
        for name, capture in captures:
            for planted in PLANTED:
                if time.monotonic() < until:
                    rows += outcomes(name, capture, planted)
    if asked.json:
        asked.json.write_text(json.dumps(rows))
    show(rows)


if __name__ == "__main__":
    main()

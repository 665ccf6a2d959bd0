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
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import backprint as bp
from backprint.benching.baseline import EagerBaseline, eager_baseline
from backprint.benching.findings import CheatFound, TimingWithheld
from backprint.benching.moved import moved_graphs
from backprint.benching.subjects import bench_graphs, bench_steps
from backprint.benching.timing import honest_and_timed
from backprint.sample.judged import Eager, apart
from backprint.sample.rerun import EagerRun

Subject = tuple[str, Sequence[EagerRun], EagerBaseline]


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


def subjects() -> Iterator[Subject]:
    """Each graph and each step, with its runs on other inputs and eager's baseline."""
    for name, model, x in models():
        capture = bp.capture(model, x, mode="train")
        graphs = bench_graphs(capture)
        others = moved_graphs(capture, graphs)
        for place, graph in enumerate(graphs):
            yield f"{name}, {graph.direction}", [each[place].run for each in others], eager_baseline(graph.run)
        for place, both in enumerate(bench_steps(graphs)):
            yield f"{name}, step", [bench_steps(each)[place].run for each in others], eager_baseline(both.run)


# ------------------------------------------------------------------ what is planted


def spinning(baseline: EagerBaseline, share: float, every: int = 1) -> Callable[..., Any]:
    """Eager that spins for a share of its fastest time of the processor, in each call or in every few."""
    eager, clock, calls = baseline.run.module(), time.thread_time_ns, 0
    extra = share * min(baseline.times) * 1e9

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


def off(baseline: EagerBaseline, draw: random.Random, largest: bool) -> Callable[..., Any]:
    """Eager with one element of one output off by a hundredth of itself, of those outputs that are not all rounding."""
    eager, wide = baseline.run.module(), Eager(baseline.run, baseline.run.module()).wide
    places = [
        place
        for place, value in enumerate(baseline.run.results)
        if isinstance(value, Tensor) and value.is_floating_point() and bool(value.any())
        if not isinstance(wide, str)
        and apart(value, wide[place]) < 1e-3  # else it is 0 but for rounding, as a bias's gradient before a batch norm
    ]
    place, chance = draw.choice(places or [0]), draw.random()

    def called(*values: Any) -> Any:
        results = list(eager(*values))
        flat = results[place].detach().clone().contiguous().view(-1)
        others = flat.nonzero().view(-1)
        index = int(flat.abs().argmax()) if largest else int(others[int(chance * len(others))])
        flat[index] *= 1.01
        results[place] = flat.view(results[place].shape)
        return tuple(results)

    return called


PLANTED: dict[str, Callable[[EagerBaseline, random.Random], Callable[..., Any]]] = {
    "eager": lambda baseline, _: baseline.run.module(),
    "20% slower": lambda baseline, _: spinning(baseline, 0.2),
    "10% slower": lambda baseline, _: spinning(baseline, 0.1),
    "every fifth call twice as long": lambda baseline, _: spinning(baseline, 1.0, every=5),
    "one element off, the largest": lambda baseline, draw: off(baseline, draw, largest=True),
    "one element off, any": lambda baseline, draw: off(baseline, draw, largest=False),
}


def outcome(subject: Subject, planted: str, draw: random.Random) -> dict[str, Any]:
    """Time one subject with one thing planted."""
    name, others, baseline = subject
    row = {"subject": name, "planted": planted, "slow": min(baseline.times) >= 1e-3}
    begun = time.perf_counter()
    try:
        _, timing = honest_and_timed(others, PLANTED[planted](baseline, draw), baseline)
    except (CheatFound, TimingWithheld) as found:
        return {**row, "answer": type(found).__name__, "reason": str(found), "seconds": time.perf_counter() - begun}
    noise = "same" if timing.noise_low / 1.05 < 1 < timing.noise_high * 1.05 else "changed"
    mean = timing.compiled_mean / timing.eager_mean
    changed = {"ratio": timing.ratio, "mean": mean, "instructions": timing.instructions}
    return {**row, "answer": timing.answer, "noise": noise, **changed, "seconds": time.perf_counter() - begun}


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
    draw, rows = random.Random(0), []
    found = list(subjects())
    until = time.monotonic() + asked.seconds
    print(f"{len(found)} graphs, {sum(min(each[2].times) >= 1e-3 for each in found)} of 1 ms or more", file=sys.stderr)
    while time.monotonic() < until:
        for subject in found:
            rows += [outcome(subject, planted, draw) for planted in PLANTED if time.monotonic() < until]
    if asked.json:
        asked.json.write_text(json.dumps(rows))
    show(rows)


if __name__ == "__main__":
    main()

"""Folders of bench runs for tests: cells and ledgers as a bench would have written them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from subjects.ledgers import ledger

from backprint.tools.bench.cells import BenchCell, BenchOutput, BenchTiming
from backprint.tools.graphnet.scores import TOLERANCES, tolerance_at

META: dict[str, Any] = {
    "format": 2,
    "backprint": "0.1.0",
    "torch": "2.13.0",
    "started": 1.7e9,
    "finished": 1.7e9 + 60,
    "sources": ["samples"],
    "options": {"directions": ["forward", "backward"], "threads": 1, "level": 1},
    "jobs": 1,
    "machine": {"cpu": "a cpu", "cores": 2, "device": "cpu", "python": "3.11"},
}


def output(
    name: str = "y", *, level: int = -6, dtype: str = "float32", shape: tuple[int, ...] = (4, 4), **given: Any
) -> BenchOutput:
    """An output that is within GraphNet's tolerances from a level on."""
    known = {"word": "close", "detail": "relative error 1e-7", "equal": level < -10, "power": True} | given
    return BenchOutput(
        role="output",
        name=name,
        dtype=dtype,
        shape=shape,
        compiled_dtype=known.pop("compiled_dtype", dtype),
        compiled_shape=known.pop("compiled_shape", shape),
        within=within(level, dtype),
        **known,
    )


def within(level: int, dtype: str = "float32") -> tuple[int, ...]:
    """Places in TOLERANCES of a dtype's tolerances from a level on."""
    good = {tolerance_at(each, dtype) for each in range(level, 6)}
    return tuple(place for place, tolerance in enumerate(TOLERANCES) if tolerance in good)


def timing(ratio: float = 0.5, width: float = 0.02, noise: float | None = 1.0, **given: Any) -> BenchTiming:
    """Times of a compiler that takes `ratio` times as long as eager; the interval is so wide on each side."""
    noisy = {} if noise is None else {"noise": noise, "noise_low": noise / 1.01, "noise_high": noise * 1.01}
    eager = given.pop("eager", 1e-3)
    return BenchTiming(
        answer=given.pop("answer", "faster" if ratio < 0.95 else "slower" if ratio > 1.05 else "same"),
        eager=eager,
        compiled=eager * ratio,
        eager_mean=eager * 1.1,
        compiled_mean=eager * ratio * 1.1,
        ratio=ratio,
        low=ratio / (1 + width),
        high=ratio * (1 + width),
        rounds=40,
        **noisy,
        **given,
    )


def cell(
    sample: str = "vision/a",
    graph: str = "pair_0 forward",
    compiler: str = "inductor",
    ratio: float = 0.5,
    **given: Any,
) -> BenchCell:
    """A right cell; `outcome` and others change it."""
    timed = timing(ratio)
    known = {
        "outcome": timed.answer,
        "family": sample.split("/")[0],
        "steps": 20,
        "outputs": (output(),),
        "timing": timed,
        "cold": 5.0,
        "warm": 0.5,
        "peak_bytes": 500 << 20,
        "flops": 10_000_000,
        "moved_bytes": 1_000_000,
        "seconds": 6.0,
    }
    return BenchCell(sample, graph, graph.rpartition(" ")[2], compiler, **(known | given))


def stopped(outcome: str, reason: str, **given: Any) -> BenchCell:
    """A cell without results."""
    return cell(outcome=outcome, reason=reason, **({"outputs": (), "timing": None, "warm": None} | given))


def write_run(
    place: Path,
    cells: Iterable[BenchCell],
    rows: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    lines: Mapping[tuple[str, str], Sequence[str]] | None = None,
    compilers: Sequence[str] = (),
    **meta: Any,
) -> Path:
    """Write a run. `rows` has the columns of a ledger's row, and `lines` further lines of `cells.jsonl`, by compiler
    and sample."""
    rows, lines = rows or {}, lines or {}
    grouped: dict[str, dict[str, list[BenchCell]]] = {name: {} for name in compilers}
    for each in cells:
        grouped.setdefault(each.compiler, {}).setdefault(each.sample, []).append(each)
    for compiler, sample in (*rows, *lines):
        grouped.setdefault(compiler, {}).setdefault(sample, [])
    place.mkdir(parents=True, exist_ok=True)
    named = [{"name": name, "folder": f"c{n}", "versions": {"torch": "2.13.0"}} for n, name in enumerate(grouped)]
    for row in named:
        samples = grouped[row["name"]]
        out = ledger(place / row["folder"], [{"id": id, **rows.get((row["name"], id), {})} for id in samples])
        for id, own in samples.items():
            folder = out / id
            folder.mkdir(parents=True, exist_ok=True)
            told = [*(json.dumps(each.to_json()) for each in own), *lines.get((row["name"], id), ())]
            (folder / "cells.jsonl").write_text("".join(f"{line}\n" for line in told))
    (place / "bench.json").write_text(json.dumps(META | {"compilers": named} | meta))
    return place


REASONS = (
    ("refused", "Unsupported operator aten.foo_{n}.default at node 'foo_{n}'"),
    ("failed", "RuntimeError: shape mismatch {n} against 3"),
    ("crashed", "compile: killed by SIGSEGV"),
    ("timeout", "running: still at work after {n} s"),
)


def varied_cells(compilers: Sequence[str], samples: int = 20, seed: int = 0) -> list[BenchCell]:
    """Cells with some of everything, drawn; each compiler has its own speed."""
    draw = random.Random(seed)
    found = []
    for place, compiler in enumerate(compilers):
        for n in range(samples):
            for direction in ("forward", "backward", "step"):
                ratio = math.exp(draw.gauss(-0.25 * (place % 4), 0.4))
                found.append(varied_cell(draw, compiler, f"{'vision text'.split()[n % 2]}/m{n}", direction, ratio))
    return found


def varied_cell(draw: random.Random, compiler: str, sample: str, direction: str, ratio: float) -> BenchCell:
    steps = int(10 ** draw.uniform(0.5, 3.3))
    own: dict[str, Any] = {"sample": sample, "graph": f"pair_0 {direction}", "compiler": compiler, "steps": steps}
    kind = draw.random()
    if kind < 0.1:
        outcome, reason = draw.choice(REASONS)
        return stopped(outcome, reason.format(n=draw.randrange(99)), **own)
    if kind < 0.15:
        bad = output("z", level=4, word="wrong", detail="relative error 0.31")
        return cell(ratio=ratio, **own, outcome="wrong", outputs=(output(), bad), reason="output z: wrong")
    if kind < 0.18:
        return stopped("nondeterministic", "two eager runs give different values", **own)
    made = cell(ratio=ratio, **own, outputs=(output(level=draw.randrange(-10, 0)),), cold=draw.uniform(1, 90))
    return replace(made, flops=steps * 10**6, moved_bytes=steps * 10**4)

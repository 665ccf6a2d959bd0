"""Whether `backprint bench` sees wrong compilers, and leaves right ones alone: those of `judged_compilers.py`.

    python benchmarks/judged.py OUT                          every kind on ten models, in one of six forms of each
    python benchmarks/judged.py OUT --forms 6                every kind on all sixty samples
    python benchmarks/judged.py OUT --kinds 'dropout_*,itself' --models mlp,words --forms 2
    python benchmarks/judged.py OUT --timed                  kinds whose fault is in calls, or in time, in timed runs
    python benchmarks/judged.py OUT --again --kinds itself   bench them again: cells that OUT has are kept otherwise

The samples are ten small models, each with and without dropout, in float32, bfloat16 and float16. A wrong kind counts
where it changes results, which is measured here, without the bench's judge. What was compiled and eager are called on
the same inputs from the same random state, on as many inputs as the kind has calls. Its results must be further from
eager's than ten times what rounding of every input moves them. Only samples with such a graph are benched.

Cells are made by the verb of a bench's workers, without the workers: a process for each kind would import torch anew.

A cell is *seen* if its outcome blames the compiler, *missed* if it is right, and *open* if it was not judged. A right
kind is *accused* where its outcome blames it.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import json
import logging
import math
import multiprocessing
import shutil
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from judged_compilers import RIGHT, WRONG, Kind, floats
from torch import Tensor, nn

import backprint as bp
from backprint.common.text import BENCH_DIRECTIONS
from backprint.tools.bench.cells import RIGHT as RIGHT_OUTCOMES
from backprint.tools.bench.cells import STOPPED, BenchCell
from backprint.tools.bench.trial import CELLS, bench_sample, load_all, read_cells
from backprint.tools.jobs.task import Task
from backprint.tools.lowering.subjects import BenchGraph, BenchStep, bench_graphs, bench_steps

KINDS = {**WRONG, **RIGHT}

COMPILERS = "judged_compilers"
"""The module of the kinds. It is imported here, so that no process reads its 1,700 lines again."""

BLAMED = ("wrong", *STOPPED)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

FORMS = tuple((dtype, p) for p in (0.25, 0.0) for dtype in DTYPES)
"""Dtype and share that is dropped."""

CLEAR = 10.0
"""How many times what rounding does counts as a change."""

# ------------------------------------------------------------------ models


class Attention(nn.Module):
    """Causal attention with a soft cap, written out."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.mixed, self.out, self.drop = nn.Linear(16, 48), nn.Linear(16, 16), nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mixed(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = torch.tanh(q @ k.transpose(-1, -2) / 8**0.5 / 2) * 2
        mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
        shares = self.drop(scores.masked_fill(mask, -1e4).softmax(-1))
        return x + self.out((shares @ v).transpose(1, 2).reshape(2, 6, 16))


class Flash(nn.Module):
    """Torch's causal attention, behind a norm."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.norm, self.mixed, self.out, self.drop = (
            nn.LayerNorm(16),
            nn.Linear(16, 48),
            nn.Linear(16, 16),
            nn.Dropout(p),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mixed(self.norm(x)).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.drop(self.out(y.transpose(1, 2).reshape(2, 6, 16)))


class Words(nn.Module):
    """An embedding, a norm and a cross entropy."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.table, self.norm, self.out, self.drop = (
            nn.Embedding(11, 16),
            nn.LayerNorm(16),
            nn.Linear(16, 11),
            nn.Dropout(p),
        )

    def forward(self, words: Tensor) -> Tensor:
        logits = self.out(self.drop(self.norm(self.table(words))))
        return F.cross_entropy(logits.flatten(0, 1), words.roll(1).flatten())


class Gated(nn.Module):
    """RMSNorm and a gated product, with a residual."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.weight, self.drop = nn.Parameter(torch.randn(16) * 0.2 + 1), nn.Dropout(p)
        self.up, self.gate, self.down = (nn.Linear(*sizes, bias=False) for sizes in ((16, 24), (16, 24), (24, 16)))

    def forward(self, x: Tensor) -> Tensor:
        y = x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * self.weight
        return x + self.drop(self.down(F.silu(self.gate(y)) * self.up(y)))


class Recurrent(nn.Module):
    """Four steps of a gated recurrence."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.inner, self.drop = nn.Linear(24, 32), nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], 16, dtype=x.dtype)
        for step in x.unbind(1):
            gate, new = self.inner(torch.cat([step, state], -1)).chunk(2, -1)
            gate = gate.sigmoid()
            state = gate * state + (1 - gate) * self.drop(new.tanh())
        return state


class Coded(nn.Module):
    """An autoencoder of small numbers, with its loss."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.down, self.norm, self.up, self.drop = nn.Linear(20, 12), nn.LayerNorm(12), nn.Linear(12, 20), nn.Dropout(p)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.up(self.drop(self.norm(self.down(x) * 0.01).sigmoid()))
        return y, F.mse_loss(y, x)


def picture(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def mixed_parameters(model: nn.Module) -> nn.Module:
    """Give parameters that begin as zeros or ones other values: no kind is to be right by them."""
    with torch.no_grad():
        for parameter in model.parameters():
            if len(parameter.unique()) == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


MODELS: dict[str, Callable[[float], tuple[nn.Module, Callable[[], Tensor]]]] = {
    "mlp": lambda p: (
        nn.Sequential(nn.Linear(16, 32), nn.Dropout(p), nn.ReLU(), nn.Linear(32, 8)),
        lambda: torch.randn(12, 16),
    ),
    "gelu": lambda p: (
        nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(p), nn.LayerNorm(32), nn.Linear(32, 8)),
        lambda: torch.randn(12, 16),
    ),
    "convolutions": lambda p: (
        nn.Sequential(
            nn.Conv2d(3, 6, 3),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(p),
            nn.Flatten(),
            nn.Linear(54, 6),
        ),
        lambda: torch.randn(4, 3, 8, 8),
    ),
    "groups": lambda p: (
        nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=4),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.Dropout(p),
            nn.Conv2d(8, 4, 1),
            nn.AvgPool2d(2),
        ),
        lambda: torch.randn(2, 4, 8, 8),
    ),
    "attention": lambda p: (Attention(p), lambda: torch.randn(2, 6, 16)),
    "flash": lambda p: (Flash(p), lambda: torch.randn(2, 6, 16)),
    "words": lambda p: (Words(p), lambda: torch.randint(11, (4, 6))),
    "gated": lambda p: (Gated(p), lambda: torch.randn(3, 5, 16)),
    "recurrent": lambda p: (Recurrent(p), lambda: torch.randn(5, 4, 8)),
    "coded": lambda p: (Coded(p), lambda: torch.randn(9, 20)),
}


def sample_name(model: str, dtype: str, p: float) -> str:
    return f"{model}-{dtype}-{'dropout' if p else 'plain'}"


def save_sample(out: Path, model: str, dtype: str, p: float) -> Path:
    """Capture one of the sixty programs, unless it is there."""
    place = out / "samples" / sample_name(model, dtype, p)
    if not (place / "capture.json").exists():
        torch.manual_seed(0)
        program, inputs = MODELS[model](p)
        value = inputs()
        value = value.to(DTYPES[dtype]) if value.is_floating_point() else value
        mixed_parameters(program).to(DTYPES[dtype])
        loss = (lambda result: result[1]) if model == "coded" else None
        bp.save(bp.capture(program, value, mode="train", loss=loss), place, overwrite=True)
    return place


# ------------------------------------------------------------------ what a kind changes, measured without the bench


CONTENTS = ("own", "all", "not the first", "not every eighth", "one input", "other order", "all")
"""What differs of the inputs of one call from the sample's: a program may write any of these into its tensors."""


def redrawn(values: Sequence[Any], number: int) -> list[Any]:
    """The inputs of a call. Floating-point numbers are taken 0.5 to 1.5 times, so that zeros of a mask stay zeros."""
    generator = torch.Generator().manual_seed(number)
    contents = CONTENTS[number % len(CONTENTS)] if number else "own"
    places = [place for place, value in enumerate(values) if floats(value)]
    alone = places[number // len(CONTENTS) % len(places)] if places else None

    def drawn(place: int, value: Any) -> Any:
        if not isinstance(value, Tensor) or not floats(value):
            return value.clone() if isinstance(value, Tensor) else value
        if contents == "own" or (contents == "one input" and place != alone):
            return value.clone()
        flat = value.reshape(-1).clone()
        if contents == "other order":
            return flat[torch.randperm(len(flat), generator=generator)].view(value.shape)
        factor = torch.rand(flat.shape, generator=generator) + 0.5
        if contents == "not the first":
            factor[:8] = 1
        elif contents == "not every eighth":
            factor[::8] = 1
        return (flat * factor.to(value.dtype)).view(value.shape)

    return [drawn(place, value) for place, value in enumerate(values)]


def rounded(values: Sequence[Any], number: int) -> list[Any]:
    """The inputs, each number moved by up to one unit of its rounding."""
    generator = torch.Generator().manual_seed(10_000 + number)

    def moved(value: Any) -> Any:
        if not floats(value):
            return value
        signs = 2 * torch.rand(value.shape, generator=generator, dtype=torch.float64) - 1
        return (value.double() * (1 + signs * torch.finfo(value.dtype).eps)).to(value.dtype)

    return [moved(value) for value in values]


def seeded(function: Callable[..., Any], values: Sequence[Any], number: int) -> list[Any]:
    torch.manual_seed(number)
    return list(function(*values))


def distance(one: Any, other: Any) -> float:
    """The largest difference of two results; infinite where they are not of one kind."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return 0.0 if type(one) is type(other) and one == other else math.inf
    if (one.dtype, one.shape, one.device) != (other.dtype, other.shape, other.device):
        return math.inf
    if one.numel() == 0:
        return 0.0
    wide, wide_other = one.detach().double(), other.detach().double()
    same = (wide == wide_other) | (wide.isnan() & wide_other.isnan())
    gap = torch.where(same, torch.zeros_like(wide), (wide - wide_other).abs())
    return math.inf if bool(gap.isnan().any()) else float(gap.max())


def kept_values(values: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, Tensor) else value for value in values]


def changes(kind: Kind, eager: Callable[..., Any], compiled: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Whether what was compiled differs from eager by more than rounding, on any call or afterwards."""
    held: list[tuple[list[Any], list[Any], list[float]]] = []

    def clear(results: Sequence[Any], expected: Sequence[Any], bounds: Sequence[float]) -> bool:
        if len(results) != len(expected):
            return True
        return any(distance(*pair) > bound for *pair, bound in zip(results, expected, bounds, strict=True))

    given = kept_values(inputs)
    fresh = not_inputs(seeded(eager, given, 0), given)
    for number in range(max(kind.calls, len(CONTENTS))):
        values = redrawn(inputs, number)
        expected = kept_values(seeded(eager, kept_values(values), number))
        near = [seeded(eager, rounded(values, 2 * number + n), number) for n in range(2)]
        bounds = [
            CLEAR * max(max(distance(run[place], y) for run in near), unit(y)) for place, y in enumerate(expected)
        ]
        for own, value in zip(given, values, strict=True):  # into the same memory, as an optimizer writes
            if isinstance(own, Tensor):
                own.copy_(value)
        try:
            with torch.set_grad_enabled(number % 2 == 0):
                results = seeded(compiled, given, number)
        except Exception:  # whatever it raises, a wrong kind does
            return True
        if clear(results, expected, bounds) or any(map(distance, given, values)):
            return True
        held.append(tuple([row[place] for place in fresh] for row in (results, expected, bounds)))  # type: ignore[arg-type]
        if number == 0 and kind.wait:
            time.sleep(kind.wait)
    return any(clear(*row) for row in held)


def not_inputs(results: Sequence[Any], inputs: Sequence[Any]) -> list[int]:
    """The places of those results that a later content of the inputs leaves alone."""
    memory = {value.untyped_storage().data_ptr() for value in inputs if isinstance(value, Tensor)}
    return [
        place
        for place, value in enumerate(results)
        if not isinstance(value, Tensor) or value.untyped_storage().data_ptr() not in memory
    ]


def unit(value: Any) -> float:
    """One unit of rounding of the largest number."""
    if not floats(value):
        return 0.0
    largest = value.abs().nan_to_num().max()
    return float(largest) * torch.finfo(value.dtype).eps


def measured(kind: Kind, sample: Path) -> dict[str, bool]:
    """Of each graph of a sample, whether a kind changes its results."""
    graphs = bench_graphs(bp.load(sample))
    return {subject.title: kind_changes(kind, subject) for subject in (*graphs, *bench_steps(graphs))}


def kind_changes(kind: Kind, subject: BenchGraph | BenchStep) -> bool:
    if kind.shown_by != "results":
        return kind.shown_by == "construction"
    if isinstance(subject, BenchGraph):
        return changes(kind, subject.module.forward, compiled_by(kind, subject), subject.run.inputs)
    both = compiled_by(kind, subject.forward), compiled_by(kind, subject.backward)
    eager = subject.forward.module.forward, subject.backward.module.forward
    count, own = len(subject.forward.graph.inputs), {}
    for (from_forward, place), value in zip(subject.sources, subject.backward.run.inputs, strict=True):
        if not from_forward and place >= count:
            own[place] = value
    inputs = [*subject.forward.run.inputs, *(own[place] for place in sorted(own))]
    return changes(kind, joined(subject, *eager), joined(subject, *both), inputs)


def joined(step: BenchStep, forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward and its backward as one function, of the forward's inputs and then the backward's own."""
    count = len(step.forward.graph.inputs)
    shown = [place for place, (role, _) in enumerate(step.forward.run.outputs) if role != "saved"]

    def both(*values: Any) -> list[Any]:
        results = forward(*values[:count])
        taken = [results[place] if from_forward else values[place] for from_forward, place in step.sources]
        return [*(results[place] for place in shown), *backward(*taken)]

    return both


def compiled_by(kind: Kind, graph: BenchGraph) -> Callable[..., Any]:
    return kind.compiler(graph.module, kept_values(graph.run.inputs))


def measure_into(pipe: Any, kind: str, samples: Sequence[Path]) -> None:
    """In a process of its own: send what a kind changes, by sample and graph."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for sample in samples:
        pipe.send((sample.name, measured(KINDS[kind], sample)))
    pipe.send(None)


def effects(kind: Kind, samples: Sequence[Path], kept: Path) -> dict[str, dict[str, bool]]:
    """Return what a kind changes, by sample and graph; it is kept, and measured once."""
    known: dict[str, dict[str, bool]] = json.loads(kept.read_text()) if kept.exists() else {}
    missing = [sample for sample in samples if sample.name not in known]
    if not missing:
        return known
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=measure_into, args=(theirs, kind.name, missing))
    process.start()
    theirs.close()
    try:
        while (row := ours.recv()) is not None:
            known[row[0]] = row[1]
    except EOFError:
        raise RuntimeError(f"{kind.name}: what it changes could not be measured") from None
    finally:
        process.join()
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(known))
    return known


# ------------------------------------------------------------------ runs and tables


def forms_of(kind: Kind) -> list[tuple[str, float]]:
    return [form for form in FORMS if form[1] or kind.needs != "bernoulli"]


def samples_for(out: Path, kind: Kind, models: Sequence[str], forms: int) -> list[Path]:
    """Of each model as many forms as are asked, in turns, so that every kind meets every dtype. A kind that changes
    some operators only is given those samples in which it changes something, as many at most."""
    usable, place = forms_of(kind), list(KINDS).index(kind.name)
    turns = [
        [save_sample(out, model, *usable[(place + number + turn) % len(usable)]) for number, model in enumerate(models)]
        for turn in range(len(usable))
    ]
    if kind.family not in SOME_OPERATORS:
        return [sample for row in turns[:forms] for sample in row]
    known = effects(kind, [sample for row in turns for sample in row], out / "effects" / f"{kind.name}.json")
    changed = [sample for row in turns for sample in row if any(known[sample.name].values())]
    return changed[: forms * len(models)]


SOME_OPERATORS = ("operators", "dropout", "numbers")


def word_of(cell: BenchCell, kind: Kind, changed: bool) -> str:
    """`seen`, `missed`, `open`, `accused`, `passed`, or nothing where there is nothing to see."""
    blamed = cell.outcome in BLAMED
    if kind.name in RIGHT:
        return "accused" if blamed else "passed" if cell.outcome in RIGHT_OUTCOMES else "open"
    if kind.shown_by == "time":
        return "" if cell.timing is None and not blamed else "missed" if cell.outcome == "faster" else "seen"
    if kind.shown_by == "memory":
        return "seen" if blamed else "kept"
    if not changed:
        return ""
    return "seen" if blamed else "missed" if cell.outcome in RIGHT_OUTCOMES else "open"


Row = dict[str, Any]


def judged_rows(out: Path, kind: Kind, samples: Sequence[Path], timed: bool) -> Iterator[Row]:
    """Bench a kind on samples, and yield a row for each cell."""
    known = {} if kind.name in RIGHT else effects(kind, samples, out / "effects" / f"{kind.name}.json")
    for sample in samples:
        graphs = known.get(sample.name, {})
        for cell in benched(out / ("timed" if timed else "untimed") / kind.name / sample.name, kind, sample, timed):
            changed = graphs.get(cell.graph, False) if cell.graph else any(graphs.values())
            _, dtype, dropout = cell.sample.split("-")
            row: Row = {"kind": kind.name, "family": kind.family, "sample": cell.sample, "graph": cell.graph}
            row |= {"direction": cell.direction, "dtype": dtype, "dropout": dropout, "changed": changed}
            row |= {"outcome": cell.outcome, "reason": cell.reason}
            yield row | {"word": word_of(cell, kind, changed)}


def benched(place: Path, kind: Kind, sample: Path, timed: bool) -> list[BenchCell]:
    """Bench a kind on a sample, as a worker of `backprint bench` does, unless `place` has the cells."""
    done = place / "done"
    if not done.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        options = {**OPTIONS, "timed": timed, "compiler": kind.name, "asked": f"{COMPILERS}:{kind.name}"}
        options |= {"caches": str(place / "caches")}
        row = bench_sample(Task(sample.name, str(sample), kind="backprint", memory=MEMORY), options, place)
        done.write_text(json.dumps(row))
    return list(read_cells(place / CELLS))


OPTIONS = {"directions": list(BENCH_DIRECTIONS), "threads": 1, "device": None, "timeout": 120, "allow": []}

MEMORY = 4 << 30


def share(counts: Counter[str]) -> str:
    whole = counts["seen"] + counts["missed"] + counts["open"]
    return f"{100 * counts['seen'] / whole:6.1f}%" if whole else "      –"


def print_table(rows: Sequence[Row], key: str) -> None:
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by[row[key]][row["word"] or "no effect"] += 1
    words = ("seen", "missed", "open", "no effect", "kept")
    print(f"\n{key:<28}" + "".join(f"{word:>10}" for word in words) + "   share")
    for name, counts in by.items():
        print(f"{name:<28}" + "".join(f"{counts[word] or '':>10}" for word in words) + f"  {share(counts)}")


def print_results(rows: Sequence[Row]) -> bool:
    """Print all tables; return whether enough was seen and nothing accused."""
    bad = [row for row in rows if row["family"] != "right"]
    good = [row for row in rows if row["family"] == "right"]
    for key in ("family", "kind", "direction", "dtype", "dropout"):
        if bad:
            print_table(bad, key)
    counts = Counter(row["word"] for row in bad)
    whole = counts["seen"] + counts["missed"] + counts["open"]
    kinds = {row["kind"] for row in bad if row["word"] in ("seen", "missed", "open")}
    print(
        f"\nwrong: {len(kinds)} kinds, {whole} cells in which they change results: {counts['seen']} seen "
        f"({share(counts).strip()}), {counts['missed']} missed, {counts['open']} not judged"
    )
    words = Counter(row["word"] for row in good)
    print(
        f"right: {len({row['kind'] for row in good})} kinds, {len(good)} cells: {words['accused']} accused, "
        f"{words['open']} not judged"
    )
    for row in rows:
        if row["word"] in ("missed", "open", "accused"):
            told = f"{row['outcome']} {row['reason'][:150]}"
            print(f"  {row['word']:<8}{row['kind']} on {row['sample']}, {row['graph']}: {told}")
    return not words["accused"] and counts["seen"] >= 0.99 * whole


def chosen(given: argparse.Namespace) -> list[Kind]:
    if given.kinds:
        patterns = given.kinds.split(",")
        kinds = [kind for kind in KINDS.values() if any(fnmatch.fnmatch(kind.name, word) for word in patterns)]
        if not kinds:
            raise SystemExit(f"no kind is named {given.kinds}; there are {', '.join(KINDS)}")
        return kinds
    if given.timed:
        late = ("calls", "memory", "judge", "cache")
        return [kind for kind in KINDS.values() if kind.family in late and kind.shown_by != "memory"]
    return [kind for kind in KINDS.values() if kind.shown_by != "time"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kinds", help="names or patterns, with commas")
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas")
    parser.add_argument("--forms", type=int, default=1, help="how many of the six forms of each model (default: 1)")
    parser.add_argument("--timed", action="store_true", help="time the cells too")
    parser.add_argument("--again", action="store_true", help="bench kinds again whose cells are there")
    parser.add_argument("--effects", action="store_true", help="only measure what the kinds change")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    load_all(OPTIONS)
    gc.collect()
    gc.freeze()  # as a worker does, so that collecting in a forked process does not copy every page
    kinds, models = chosen(given), given.models.split(",")
    if given.again:
        for kind in kinds:
            shutil.rmtree(given.out / ("timed" if given.timed else "untimed") / kind.name, ignore_errors=True)
    rows: list[Row] = []
    began = time.monotonic()
    for kind in kinds:
        samples = samples_for(given.out, kind, models, given.forms)
        if given.effects:
            known = effects(kind, samples, given.out / "effects" / f"{kind.name}.json")
            changed = sum(known[sample.name][graph] for sample in samples for graph in known[sample.name])
            print(
                f"{kind.name:<28}{changed} of {sum(len(known[sample.name]) for sample in samples)} graphs", flush=True
            )
            continue
        own = list(judged_rows(given.out, kind, samples, given.timed)) if samples else []
        counts = Counter(row["word"] or "no effect" for row in own)
        print(f"{time.monotonic() - began:6.0f} s  {kind.name:<28}{dict(counts)}", file=sys.stderr, flush=True)
        rows += own
    (given.out / "cells.json").write_text(json.dumps(rows, indent=1))
    return 0 if given.effects or print_results(rows) else 1


if __name__ == "__main__":
    sys.exit(main())

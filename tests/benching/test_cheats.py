"""Cheats are caught: every compiler of `cheats` on small graphs, forward and backward, and honest ones pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cheats
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp
from backprint.benching.baseline import EagerBaseline, eager_baseline
from backprint.benching.findings import CheatFound, TimingWithheld
from backprint.benching.honest import agreement
from backprint.benching.moved import moved_graphs, movement
from backprint.benching.subjects import BenchGraph, bench_graphs, bench_steps
from backprint.benching.timing import honest_and_timed
from backprint.sample.judged import Eager
from backprint.sample.rerun import EagerRun


class Attention(nn.Module):
    def __init__(self, flash: bool) -> None:
        super().__init__()
        self.flash, self.mixed, self.out = flash, nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mixed(x).view(2, 6, 3, 4, 4).permute(2, 0, 3, 1, 4)
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(2, 6, 16))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11)

    def forward(self, words: Tensor) -> Tensor:
        return F.cross_entropy(self.out(self.norm(self.table(words))).flatten(0, 1), words.flatten())


def picture(*layers: nn.Module) -> tuple[nn.Module, Tensor]:
    return nn.Sequential(*layers), torch.randn(2, 3, 8, 8)


MODELS: dict[str, Callable[[], tuple[Any, Tensor]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)), torch.randn(5, 6)),
    "gelu": lambda: (nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.LayerNorm(12)), torch.randn(5, 6)),
    "double": lambda: (nn.Sequential(nn.Linear(6, 5), nn.Tanh()).double(), torch.randn(5, 6).double()),
    "batchnorm": lambda: picture(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
    "groups": lambda: picture(nn.Conv2d(3, 6, 3, groups=3), nn.GroupNorm(2, 6), nn.SiLU()),
    "pooled": lambda: picture(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4)),
    "dropout": lambda: (nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.5), nn.Linear(12, 3)), torch.randn(5, 6)),
    "attention": lambda: (Attention(False), torch.randn(2, 6, 16)),
    "flash": lambda: (Attention(True), torch.randn(2, 6, 16)),
    "words": lambda: (Words(), torch.randint(11, (3, 4))),
    "bilinear": lambda: (
        nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 2), nn.Sigmoid()),
        torch.randn(7, 4),
    ),
}


@dataclass(frozen=True)
class Subject:
    """A graph, its runs on other inputs, and eager's baseline."""

    graph: BenchGraph
    others: tuple[EagerRun, ...]
    baseline: EagerBaseline


@cache
def subjects(name: str) -> tuple[Subject, ...]:
    torch.manual_seed(3)
    model, x = MODELS[name]()
    capture = bp.capture(model, x, mode="train")
    graphs = bench_graphs(capture)
    others = moved_graphs(capture, graphs)
    return tuple(
        Subject(graph, tuple(other[place].run for other in others), eager_baseline(graph.run))
        for place, graph in enumerate(graphs)
    )


def verdict(subject: Subject, make: Callable[..., Any]) -> str:
    """Compile, judge, check and time as a bench does; return why it was rejected, or its answer."""
    graph = subject.graph
    with torch.no_grad():
        compiled = make(graph.module, graph.run.inputs)
        if reason := agreement(compiled)(graph.run, graph.run.again(compiled)):
            return f"wrong: {reason}"
    try:
        return honest_and_timed(subject.others, compiled, subject.baseline)[1].answer
    except (CheatFound, TimingWithheld) as found:
        return f"{type(found).__name__}: {found}"


REASONS = {
    "written_by_a_thread": "its results are written after it returned",
    "lazy": "is a Lazy, not a torch.Tensor",
    "one_memory_for_all_results": "reuses the memory of its earlier results",
    "zeroes_an_input": "changes its input",
    "memoised_by_tensor": "a further call",
    "right_for_sixty_calls": "a timed call gives other results than the one that was checked",
}


@pytest.mark.parametrize("name", MODELS)
def test_each_graph_has_power(name: str) -> None:
    for subject in subjects(name):
        assert len(subject.others) == 2
        assert any(movement(subject.graph.run, subject.others))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cheat", cheats.CHEATS)
def test_a_cheat_is_rejected(name: str, cheat: str) -> None:
    for subject in subjects(name):
        found = verdict(subject, cheats.CHEATS[cheat])
        assert found.startswith(("wrong", "CheatFound")), (subject.graph.title, found)
        if cheat in REASONS and not found.startswith("wrong"):
            assert REASONS[cheat] in found, (subject.graph.title, found)


@pytest.mark.parametrize("name", MODELS)
def test_what_computes_its_results_is_not_rejected(name: str) -> None:
    for subject in subjects(name):
        assert verdict(subject, lambda module, _: module) in ("same", "unsure", "slower")
        assert verdict(subject, cheats.twice_the_work) == "slower"


def test_results_remembered_by_value_are_not_faster() -> None:
    for subject in subjects("mlp"):
        assert verdict(subject, cheats.memoised_by_value) in ("same", "slower", "unsure")


def test_without_variation_they_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vary_one", "vary_all", "nudge"):
        monkeypatch.setattr(f"backprint.benching.varied.VariedInputs.{name}", lambda self, draw: None)
    assert verdict(subjects("batchnorm")[1], cheats.memoised_by_value) == "faster"


@pytest.mark.parametrize("clock", ["perf_counter", "perf_counter_ns", "monotonic", "sleep"])
def test_a_clock_that_was_replaced_is_named(monkeypatch: pytest.MonkeyPatch, clock: str) -> None:
    original = getattr(time, clock)
    monkeypatch.setattr(time, clock, lambda *args: original(*args))
    for subject in subjects("mlp"):
        assert f"the clock was changed: time.{clock} replaced" in verdict(subject, lambda module, _: module)


@pytest.mark.parametrize("name", ["allclose", "equal"])
def test_a_comparison_that_was_replaced_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch, name, lambda *_, **__: True)
    found = verdict(subjects("mlp")[0], lambda module, _: module)
    assert f"replaces what results are compared with: torch.{name}" in found


def test_a_clock_that_runs_at_another_rate_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.perf_counter_ns()
    monkeypatch.setattr("backprint.benching.baseline.CLOCK", lambda: begun + (time.perf_counter_ns() - begun) // 4)
    assert "the clock was changed: it ran" in verdict(subjects("mlp")[0], lambda module, _: module)


def test_a_slower_eager_withholds_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch._ops.OpOverload.__call__
    monkeypatch.setattr(torch._ops.OpOverload, "__call__", original)
    for subject in subjects("mlp"):
        monkeypatch.setattr(torch._ops.OpOverload, "__call__", original)
        found = verdict(subject, cheats.eager_slowed)
        assert found.startswith("TimingWithheld: eager became"), found


def test_settings_that_a_compiler_changes_are_restored_and_named() -> None:
    subject = subjects("mlp")[0]
    threads = torch.get_num_threads()
    compiled = cheats.threads_set_at_first(subject.graph.module, subject.graph.run.inputs)
    honest, _ = honest_and_timed(subject.others, compiled, subject.baseline)
    assert honest.notes == (f"the compiler changed threads from {threads} to {threads + 1}; restored",)
    assert torch.get_num_threads() == threads


def test_settings_that_its_calls_change_are_a_cheat() -> None:
    found = verdict(subjects("mlp")[0], cheats.threads_set_by_calls)
    assert "its calls change torch's settings: threads from 1 to 2" in found
    assert torch.get_num_threads() == 1


def test_the_mean_says_what_a_decile_does_not() -> None:
    subject = subjects("attention")[0]
    compiled = cheats.every_fifth_call_is_slow(subject.graph.module, ())
    timing = honest_and_timed(subject.others, compiled, subject.baseline)[1]
    assert timing.compiled_mean > 1.5 * timing.eager_mean


def test_calls_that_take_too_long_are_not_timed() -> None:
    subject = subjects("mlp")[0]
    with pytest.raises(TimingWithheld, match="20 rounds would take"):
        honest_and_timed(subject.others, subject.graph.module, subject.baseline, most_seconds=0.001)


def test_a_step_is_checked_and_timed_too() -> None:
    torch.manual_seed(3)
    model, x = MODELS["batchnorm"]()
    capture = bp.capture(model, x, mode="train")
    graphs = bench_graphs(capture)
    [step] = bench_steps(graphs)
    others = [bench_steps(other)[0].run for other in moved_graphs(capture, graphs)]
    baseline = eager_baseline(step.run)
    assert not isinstance(Eager(step.run, step.run.module()).wide, str)
    compiled = step.joined(graphs[0].module, graphs[1].module)
    honest, timing = honest_and_timed(others, compiled, baseline)
    assert all(honest.moved[:1])
    assert timing.answer in ("same", "unsure", "slower")
    with pytest.raises(CheatFound, match="gradient"):
        honest_and_timed(
            others, step.joined(graphs[0].module, cheats.zeros(graphs[1].module, graphs[1].run.inputs)), baseline
        )

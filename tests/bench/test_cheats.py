"""Cheats are caught: compilers of `cheats` on small graphs, with and without draws; honest ones pass."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cheats
import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import (
    EDGES,
    MOST_INPUTS,
    RIGHT,
    UNTIMED,
    BenchCell,
    CompilerProcess,
    GraphJudge,
    VariedPart,
    bench_graphs,
    writes_of_eager,
)

CHEATS = Path(cheats.__file__)


class Noisy(nn.Module):
    """What it draws is no result of its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.out(x)
        return y + 0.1 * torch.randn_like(y)


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)), torch.randn(5, 6)),
    "dropout": lambda: (
        nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.1), nn.ReLU(), nn.Linear(12, 3)),
        torch.randn(20, 6),
    ),
    "noise": lambda: (Noisy(), torch.randn(20, 6)),
    "half": lambda: (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).half(), torch.randn(12, 16).half()),
    "words": lambda: (nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 3)), torch.randint(11, (3, 4))),
}


@cache
def captured(name: str) -> bp.Capture:
    torch.manual_seed(3)
    model, x = MODELS[name]()
    return bp.capture(model, x, mode="train")


@pytest.fixture
def trial(cells_of: Callable[..., dict[str, BenchCell]]) -> Callable[..., dict[str, BenchCell]]:
    """Tries a compiler of `cheats`, or eager, on a model."""

    def cells(model: str, compiler: str, **options: Any) -> dict[str, BenchCell]:
        return cells_of(captured(model), compiler if compiler == "eager" else f"{CHEATS}:{compiler}", **options)

    return cells


REASONS = {
    "written_by_a_thread": "change after it returned|written after it returned",
    "lazy": "is a Lazy, not a torch.Tensor",
    "one_memory_for_all_results": "their memory is used again",
    "sixty_four_memories_for_results": "their memory is used again",
    "zeroes_an_input": "changes its input",
    "right_for_sixty_calls": "a further call",
    "seventh_call_is_off": "a further call",
    "replaces_the_bench": "performer.timed replaced",
}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "dropout"])
@pytest.mark.parametrize("cheat", cheats.CHEATS)
def test_a_cheat_is_wrong_without_any_timing(model: str, cheat: str, trial) -> None:  # type: ignore[no-untyped-def]
    directions = ("forward", "backward") if model == "mlp" else ("forward",)  # the backward of a dropout draws nothing
    for cell in trial(model, cheat, directions=directions).values():
        assert cell.outcome == "wrong", (cell.graph, cell.outcome)
        if cheat in REASONS and model == "mlp":
            assert any(part in cell.reason for part in REASONS[cheat].split("|")), cell.reason


def test_what_is_not_rounding_in_16_bits_is_wrong(trial: Any) -> None:
    """A hundredth is several times the tolerance; runs whose operators round otherwise moved as far, times four."""
    for cell in trial("half", "relu_leaks", directions=("forward", "step")).values():
        assert cell.outcome == "wrong", (cell.graph, cell.outcome)
    for cell in trial("half", "eager", directions=("forward", "step")).values():
        assert cell.outcome == UNTIMED, (cell.graph, cell.outcome, cell.reason)


COMPUTING = [
    (model, compiler)
    for model in MODELS
    for compiler in ("eager", "twice_the_work", "memoised_by_value")
    if model != "half" and (model, compiler) != ("noise", "memoised_by_value")
]


def test_draws_that_are_remembered_are_wrong(trial: Any) -> None:
    """In every call on the same inputs the numbers are the same; a step is wrong where its forward is."""
    for cell in trial("noise", "memoised_by_value", timed=True, directions=("forward", "step")).values():
        assert cell.outcome == "wrong", (cell.graph, cell.outcome)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "compiler"), COMPUTING)
def test_what_computes_its_results_is_right_and_not_faster(model: str, compiler: str, trial) -> None:  # type: ignore[no-untyped-def]
    for cell in trial(model, compiler, timed=True, directions=("forward", "step")).values():
        assert cell.outcome in RIGHT, (cell.graph, cell.outcome, cell.reason)
        assert compiler == "eager" or cell.outcome != "faster"
        assert cell.timing is not None
        assert cell.timing.varied


@pytest.mark.slow
@pytest.mark.parametrize("model", ["dropout", "noise"])
def test_draws_of_its_own_are_no_fault(model: str, trial) -> None:  # type: ignore[no-untyped-def]
    for cell in trial(model, "own_draws", directions=("forward", "backward", "step")).values():
        assert cell.outcome in RIGHT, (cell.graph, cell.outcome, cell.reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "compiler", "reason"),
    [
        ("dropout", "three_times_and_one", "relative error"),
        ("dropout", "garbage", "relative error"),
        ("dropout", "without_scale", "relative error"),
        ("dropout", "other_probability", "is drawn otherwise than by eager: the value 0 is drawn"),
        ("dropout", "one_mask_for_all_calls", "is drawn otherwise than by eager"),
        ("noise", "three_times_and_one", "relative error"),
        ("noise", "own_noise_and_three_times", "with its draws as results"),
        ("noise", "uniform_noise", "otherwise than"),
    ],
)
def test_nothing_hides_behind_a_draw(model: str, compiler: str, reason: str, trial) -> None:  # type: ignore[no-untyped-def]
    (cell,) = trial(model, compiler, directions=["forward"]).values()
    assert (cell.outcome, reason in cell.reason) == ("wrong", True), (cell.outcome, cell.reason)
    (step,) = trial(model, compiler, directions=["step"]).values()
    assert step.outcome == "wrong", step.reason


def test_results_without_contents_are_wrong(trial: Any) -> None:
    """They are not the error of a compiler that refuses."""
    for cell in trial("dropout", "on_meta", directions=("forward", "step")).values():
        assert cell.outcome == "wrong", (cell.graph, cell.outcome, cell.reason)
        assert "on meta where eager gives" in cell.reason or cell.direction == "step"


def test_a_compiler_that_replaces_all_operators_is_wrong_on_later_graphs_too(trial: Any) -> None:
    assert [cell.outcome for cell in trial("mlp", "operators_replaced").values()] == ["wrong", "wrong"]


def test_calls_are_asked_for_together(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, what is told of a small call takes longer than the call."""
    counts: Counter[str] = Counter()
    ask, draw = CompilerProcess.request, VariedPart.__init__

    def counted_ask(self: CompilerProcess, do: str, **values: Any) -> Any:
        counts[do] += 1
        return ask(self, do, **values)

    def counted_draw(self: VariedPart, *given: Any) -> None:
        counts["contents"] += 1
        draw(self, *given)

    monkeypatch.setattr(CompilerProcess, "request", counted_ask)
    monkeypatch.setattr(VariedPart, "__init__", counted_draw)
    (cell,) = trial("mlp", "eager", directions=["forward"]).values()
    assert cell.outcome == UNTIMED, cell.reason
    assert counts["probes"] >= 5
    assert counts["call"] + counts["recheck"] < 12 + MOST_INPUTS * len(EDGES)
    assert counts["contents"] < 15  # drawn once for all that is tried with them


def test_how_long_eager_takes_is_its_work_and_not_what_it_waits() -> None:
    """By this time fewer calls are compared: on a machine that others use, a clock would let cheats through."""
    graph = bench_graphs(captured("mlp"))[0]

    class Waits(graph.run.module):  # type: ignore[name-defined,misc]
        def forward(self, *values: Any) -> Any:
            time.sleep(0.2)
            return super().forward(*values)

    judge = GraphJudge(replace(graph, run=replace(graph.run, module=Waits)))
    assert writes_of_eager(judge)[1] < 0.1


def test_what_is_remembered_is_wrong_or_slow_when_it_is_timed(trial: Any) -> None:
    for cell in trial("mlp", "remembered_by_a_rounded_element", timed=True).values():
        assert cell.outcome == "wrong", cell.outcome


def test_the_mean_says_what_a_decile_does_not(trial: Any) -> None:
    (cell,) = trial("mlp", "every_fifth_call_is_slow", timed=True, directions=["forward"]).values()
    assert cell.timing.compiled_mean > 1.5 * cell.timing.eager_mean


def test_a_slower_eager_withholds_the_time(trial: Any) -> None:
    (cell,) = trial("mlp", "eager_slowed", timed=True, directions=["forward"]).values()
    assert (cell.outcome, "eager became" in cell.reason) == ("untimed", True), (cell.outcome, cell.reason)


def test_settings_that_a_compiler_changes_are_restored_and_named(trial: Any) -> None:
    (cell,) = trial("mlp", "threads_set_at_first", directions=["forward"]).values()
    assert cell.outcome == "untimed"
    assert any("the compiler changed threads from" in note and "restored" in note for note in cell.notes)


def test_settings_that_its_calls_change_are_a_cheat(trial: Any) -> None:
    (cell,) = trial("mlp", "threads_set_by_calls", directions=["forward"]).values()
    assert (cell.outcome, "its calls change torch's settings: threads" in cell.reason) == ("wrong", True), cell.reason


@pytest.mark.parametrize(
    ("compiler", "outcome", "reason"),
    [
        ("interrupts", "refused", "KeyboardInterrupt"),
        ("unreadable", "refused", "Unreadable, whose message raises RuntimeError"),
        ("interrupts_later", "failed", "KeyboardInterrupt"),
    ],
)
def test_whatever_a_compiler_raises_is_its_own(compiler: str, outcome: str, reason: str, trial) -> None:  # type: ignore[no-untyped-def]
    (cell,) = trial("mlp", compiler, directions=["forward"]).values()
    assert (cell.outcome, reason in cell.reason) == (outcome, True), (cell.outcome, cell.reason)


@pytest.mark.parametrize("replaced", ["clock_replaced", "comparison_replaced"])
def test_what_is_relied_on_and_replaced_is_named(replaced: str, trial) -> None:  # type: ignore[no-untyped-def]
    (cell,) = trial("mlp", replaced, directions=["forward"]).values()
    assert (cell.outcome, "replace" in cell.reason) == ("wrong", True), (cell.outcome, cell.reason)

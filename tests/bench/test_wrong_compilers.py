"""Compilers that are wrong without meaning to be are seen, one of each kind (`wrong_compilers`); right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import wrong_compilers
from torch import Tensor, nn
from wrong_compilers import RIGHT as RIGHT_COMPILERS
from wrong_compilers import WRONG, WRONG_AT_EDGES, WRONG_BACKWARDS, WRONG_DRAWS, WRONG_NOISE, named

import backprint as bp
from face import RIGHT, UNTIMED, BenchCell, Compiler

FILE = Path(wrong_compilers.__file__)


class Noisy(nn.Module):
    """What it draws is no result of its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.out(x)
        return y + 0.1 * torch.randn_like(y)


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)), torch.randn(5, 6)),
    "dropout": lambda: (
        nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.2), nn.ReLU(), nn.Linear(12, 3)),
        torch.randn(20, 6),
    ),
    "noise": lambda: (Noisy(), torch.randn(200, 6)),
    "half": lambda: (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).half(), torch.randn(12, 16).half()),
    "transposed": lambda: (nn.Linear(6, 3), torch.randn(6, 5).t()),
}


@cache
def captured(name: str) -> bp.Capture:
    torch.manual_seed(3)
    model, x = MODELS[name]()
    return bp.capture(model, x, mode="train")


@pytest.fixture
def trial(cells_of: Callable[..., dict[str, BenchCell]]) -> Callable[..., dict[str, BenchCell]]:
    """Tries a compiler of `wrong_compilers`, or eager, on a model."""

    def cells(model: str, compiler: str, **options: Any) -> dict[str, BenchCell]:
        row = compiler if compiler == "eager" else Compiler(compiler, f"{FILE}:{named(compiler)}")
        return cells_of(captured(model), row, **options)

    return cells


AT_EDGES: dict[str, Callable[[Tensor], Tensor]] = {
    "a quotient": lambda x: x / x.roll(1),
    "a logarithm": lambda x: x.log() + (x + 1e-3).sqrt(),
    "a norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "a softmax": lambda x: x.softmax(-1) @ x.T,
    "layer norm": lambda x: nn.functional.layer_norm(x, (8,)),
    "differences": lambda x: (x - x.mean(0)).exp().cumsum(-1),
    "an order": lambda x: x.sort(-1).values * x.argmax(-1, keepdim=True),
    "a variance": lambda x: x.var(0).rsqrt() * x.square().sum(),
}

REASONS = {
    "computed when it is compiled": "a further call, on redrawn inputs",
    "results kept by shape": "a further call, on redrawn inputs",
    "one buffer for all calls": "their memory is used again",
    "an input is zeroed": "changes its input",
    "wrong where gradients are not recorded": "without gradients",
    "a tensor of another class": "a Lazy, which is not a torch.Tensor",
    "another device": "on meta",
    "no tuple": "a dict where eager gives a tuple of",
}


@pytest.mark.parametrize("compiler", WRONG)
def test_a_wrong_compiler_is_seen(compiler: str, trial: Any) -> None:
    for cell in trial("mlp", compiler).values():
        assert cell.outcome == "wrong", (cell.graph, cell.outcome, cell.reason)
        if cell.direction == "forward":
            assert REASONS.get(compiler, "") in cell.reason, cell.reason


@pytest.mark.parametrize("compiler", WRONG_AT_EDGES)
def test_what_is_wrong_at_an_edge_value_is_seen(compiler: str, trial: Any) -> None:
    forward, step = trial("transposed", compiler, directions=("forward", "step")).values()
    assert forward.outcome == step.outcome == "wrong", (forward.outcome, forward.reason, step.outcome)
    assert forward.reason.startswith(("NaN in ", "inf in ", "zeros in ")), forward.reason


@pytest.mark.parametrize("program", AT_EDGES)
def test_eager_is_right_at_edge_values(program: str, cells_of: Any) -> None:
    """Where eager itself is NaN, infinite or rounds otherwise, an edge value asks for nothing."""
    torch.manual_seed(4)
    capture = bp.capture(AT_EDGES[program], torch.randn(6, 8, requires_grad=True))
    for compiler in ("eager", Compiler("other", f"{FILE}:other_rounding")):
        for cell in cells_of(capture, compiler, directions=("forward", "step")).values():
            assert cell.outcome in RIGHT, (compiler, cell.graph, cell.outcome, cell.reason)


def test_strides_that_are_ignored_are_seen(trial: Any) -> None:
    assert trial("transposed", "strides_ignored", directions=["forward"])["forward"].outcome == "wrong"


@pytest.mark.parametrize("compiler", WRONG_BACKWARDS)
def test_a_wrong_backward_is_seen_and_its_step(compiler: str, trial: Any) -> None:
    cells = trial("mlp", compiler, directions=("forward", "backward", "step"))
    assert [cell.outcome for cell in cells.values()] == [UNTIMED, "wrong", "wrong"], cells


@pytest.mark.parametrize("compiler", WRONG_DRAWS)
def test_nothing_hides_behind_a_mask(compiler: str, trial: Any) -> None:
    for cell in trial("dropout", compiler, directions=("forward", "step")).values():
        assert cell.outcome == "wrong", (cell.graph, cell.outcome, cell.reason)


@pytest.mark.parametrize("compiler", WRONG_NOISE)
def test_nothing_hides_behind_noise(compiler: str, trial: Any) -> None:
    (cell,) = trial("noise", compiler, directions=["forward"]).values()
    assert cell.outcome == "wrong", (cell.outcome, cell.reason)


@pytest.mark.parametrize("compiler", RIGHT_COMPILERS)
def test_a_right_compiler_is_right(compiler: str, trial: Any) -> None:
    for model in ("dropout", "noise"):
        for cell in trial(model, compiler, directions=("forward", "backward", "step")).values():
            assert cell.outcome in RIGHT, (cell.graph, cell.outcome, cell.reason)


def test_what_is_not_rounding_in_16_bits_is_wrong(trial: Any) -> None:
    """A hundredth is several times the tolerance; runs whose operators round otherwise moved as far, times four."""
    for cell in trial("half", "relu_leaks", directions=("forward", "step")).values():
        assert cell.outcome == "wrong", (cell.graph, cell.outcome)
    for cell in trial("half", "eager", directions=("forward", "step")).values():
        assert cell.outcome == UNTIMED, (cell.graph, cell.outcome, cell.reason)


def test_twice_the_work_is_slower(trial: Any) -> None:
    for cell in trial("mlp", "twice the work", timed=True, directions=("forward", "step")).values():
        assert cell.outcome in RIGHT, (cell.graph, cell.outcome, cell.reason)
        assert cell.outcome != "faster"
        assert cell.timing is not None


def test_the_mean_says_what_a_decile_does_not(trial: Any) -> None:
    (cell,) = trial("mlp", "every_fifth_call_is_slow", timed=True, directions=["forward"]).values()
    assert cell.timing.compiled_mean > 1.5 * cell.timing.eager_mean


def test_settings_that_a_compiler_changes_are_restored_and_named(trial: Any) -> None:
    (cell,) = trial("mlp", "threads_set_at_first", directions=["forward"]).values()
    assert cell.outcome == UNTIMED
    assert any("the compiler changed threads from" in note and "restored" in note for note in cell.notes)


@pytest.mark.parametrize(
    ("compiler", "outcome", "reason"),
    [
        ("interrupts", "refused", "KeyboardInterrupt"),
        ("unreadable", "refused", "Unreadable, whose message raises RuntimeError"),
        ("interrupts_later", "failed", "KeyboardInterrupt"),
    ],
)
def test_whatever_a_compiler_raises_is_its_own(compiler: str, outcome: str, reason: str, trial: Any) -> None:
    (cell,) = trial("mlp", compiler, directions=["forward"]).values()
    assert (cell.outcome, reason in cell.reason) == (outcome, True), (cell.outcome, cell.reason)

"""`bench --derivative`: compiled backwards that are not the derivative of their forward are named, right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import wrong_backwards
from runs_made import cell as written_cell
from runs_made import write_run
from torch import Tensor, nn

import backprint as bp
from face import (
    LIMIT,
    BenchCell,
    BenchDerivative,
    ChildEnd,
    UsageError,
    append,
    bench_report,
    cell_from_json,
    compare_runs,
    compiler_named,
    derivative_of,
    history_of,
    history_report,
    in_child,
    read_cells,
    read_run,
    write_end_of_process,
)

WRONG = Path(wrong_backwards.__file__)


class RowLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square().sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 2 * x * grad[0]


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


@cache
def captured(name: str) -> bp.Capture:
    torch.manual_seed(3)
    x = torch.randn(5, 6, requires_grad=True)
    match name:
        case "mlp":
            net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 3))
            return bp.capture(net, x, mode="train")
        case "half":
            return bp.capture(lambda x: (x * x.sigmoid()).sum(1), x.detach().bfloat16().requires_grad_())
        case "wrong":
            return bp.capture(RowLoss.apply, x)
        case _:
            return bp.capture(lambda x: Step.apply(x.sin()).sum(1), x, meant=("Step",))


def name_of(compiler: str) -> str:
    return f"{WRONG}:{compiler}" if hasattr(wrong_backwards, compiler) else compiler


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[str, str], BenchDerivative]:
    """Judges a compiler of `wrong_backwards`, or one of the table, on a model: the part of a trial after its cells."""

    def derivative(model: str, compiler: str) -> BenchDerivative:
        given = captured(model), "pair_0 step", compiler_named(name_of(compiler)), tmp_path / "caches"
        end = in_child(lambda: asdict(derivative_of(*given)), 300.0)
        return BenchDerivative(**end.value) if end.ended_well else BenchDerivative("cannot tell", f"{end}")

    return derivative


def test_eager_is_the_derivative(judged: Any) -> None:
    for model in ("mlp", "half"):
        derivative = judged(model, "eager")
        assert derivative.word == "derivative", derivative
        assert derivative.gap < 1e-12
        assert derivative.forward == 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, where Inductor is loaded in this process
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_compilers_are_the_derivative(judged: Any, compiler: str) -> None:
    for model in ("mlp", "half"):
        derivative = judged(model, compiler)
        assert derivative.word == "derivative", derivative


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("first_tangent", "differs from the captured backward in the gradient of x"),
        ("a_little_more", "differs from the captured backward in the gradient of x"),
        ("not_linear", "not linear in its tangents"),
        ("not_finite", "has NaN or Inf"),
    ],
)
def test_a_wrong_backward_is_not_the_derivative(judged: Any, compiler: str, said: str) -> None:
    derivative = judged("half", compiler)
    assert derivative.word == "not the derivative", derivative
    assert said in derivative.detail
    assert compiler == "not_finite" or derivative.gap > LIMIT  # directions are drawn anew: some hardly see the fault


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("fewer_digits", "explains"),
        ("returns_float32", "is float32"),
        ("refuses_float64", "TypeError: float64 is not supported"),
        ("dies_in_float64", "exit 3"),
        ("other_forward", "the compiled forward is not the captured one"),
        ("remembers", "the compiled forward is not the captured one"),
    ],
)
def test_nothing_is_told_of_what_is_no_such_function_in_float64(judged: Any, compiler: str, said: str) -> None:
    derivative = judged("half", compiler)
    assert derivative.word == "cannot tell", derivative
    assert said in derivative.detail


# ------------------------------------------------------------------ a compiler that differentiates by itself


def transposed_norm(x: Tensor) -> Tensor:
    """AOTAutograd of torch 2.13 has its gradient wrong: `wrong_answers/aot_eager_softplus_of_transposed_group_norm`."""
    norm = nn.functional.group_norm(x.transpose(1, 2), 4)
    return nn.functional.softplus(norm.transpose(1, 2)).cumsum(1)


def test_gradients_that_torch_compile_makes_by_itself_are_compared_with_autograds(cells_of: Any) -> None:
    torch.manual_seed(0)
    capture = bp.capture(transposed_norm, torch.randn(4, 10, 24, requires_grad=True), engine="eager")
    step = cells_of(capture, "aot_eager", ("step",))["step"]
    assert step.outcome == "wrong"
    error = step.reason.removeprefix("torch.compile, which differentiates it by itself: gradient x: relative error ")
    assert float(error.partition(";")[0]) > 0.5, step.reason


@pytest.mark.slow
def test_right_gradients_of_torch_compile_and_those_that_it_cannot_be_asked_for_are_noted(cells_of: Any) -> None:
    w = torch.randn(6, 3, requires_grad=True)
    capture = bp.capture(lambda x, w, n: (x @ w).softmax(-1) + n, torch.randn(5, 6), w, torch.ones(3), engine="eager")
    step = cells_of(capture, "aot_eager", ("step",))["step"]
    assert step.right
    assert "the gradients of torch.compile, which differentiates it by itself, are right: 1" in step.notes
    capture = bp.capture(lambda w: nn.functional.dropout(w), w, engine="eager")
    step = cells_of(capture, "aot_eager", ("step",))["step"]
    assert any("it draws random numbers" in note for note in step.notes)


def test_a_wrong_capture_is_named_as_such(judged: Any) -> None:
    derivative = judged("wrong", "eager")
    assert derivative.word == derivative.captured == "not the derivative"
    assert "its gradients are those of the captured backward" in derivative.detail


def test_what_the_author_means_stays_meant(judged: Any) -> None:
    assert judged("meant", "eager").word == "derivative but for Step"
    derivative = judged("meant", "first_tangent")
    assert derivative.word == "not the derivative"
    assert "which is derivative but for Step" in derivative.detail


def test_a_trial_sees_what_a_tolerance_hides(cells_of: Any) -> None:
    cell = cells_of(captured("half"), name_of("a_little_more"), ("step",), derivative=True)["step"]
    assert (cell.outcome, cell.not_the_derivative) == ("untimed", True), cell


def test_a_step_whose_process_is_ended_in_float64_keeps_its_cell(tmp_path: Path) -> None:
    file = tmp_path / "cells.jsonl"
    append(file, {"begun": "pair_0 step", "stage": "compile"})
    cell = BenchCell("s", "pair_0 step", "step", "c", "faster")
    append(file, cell.to_json())
    append(file, {"begun": "pair_0 step", "stage": "derivative"})
    write_end_of_process(file, ChildEnd(cause="timeout", detail="after 5 s"), [], cell)
    (read,) = read_cells(file)
    assert (read.outcome, read.derivative) == (
        "faster",
        BenchDerivative("cannot tell", "in float64: timeout: after 5 s"),
    )


def test_it_is_asked_of_steps(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="directions must have 'step'"):
        bp.bench.run(tmp_path, "eager", tmp_path / "run", directions=["forward"], derivative=True)


def test_reports_and_comparisons_have_it(tmp_path: Path) -> None:
    right = replace(
        written_cell(), graph="pair_0 step", direction="step", derivative=BenchDerivative("derivative", gap=1e-15)
    )
    wrong = replace(right, derivative=BenchDerivative("not the derivative", "it differs", 0.5, 0.0, "derivative", 1.0))
    assert cell_from_json(wrong.to_json()) == wrong
    old, new = (read_run(write_run(tmp_path / name, [cell])) for name, cell in (("old", right), ("new", wrong)))
    report = bench_report(new)
    [values] = report.rows.rows
    row = dict(zip(report.rows.columns, values, strict=True))
    assert (row["derivative"], row["derivative_gap"]) == ("not the derivative", 0.5)
    assert "1 not the derivative" in report.answer
    [(_, _, outcome, _, reason)] = report.tables[1].rows
    assert (outcome, reason) == ("not the derivative", "not the derivative: it differs")
    comparison = compare_runs(old, new)
    assert [change.kind for change in comparison.changes] == ["not the derivative now"]
    assert comparison.regressed
    assert not compare_runs(new, old).regressed
    changes = history_report(history_of([old, new])).tables[1]
    [values] = changes.rows
    assert dict(zip(changes.columns, values, strict=True))["change"] == "not the derivative now"

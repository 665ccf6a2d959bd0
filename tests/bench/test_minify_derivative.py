"""`minify --derivative`: a wrong backward is cut out of a sample, with its lines, and what is right is left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.wrong_backwards import ROWS
from torch import Tensor, nn

import backprint as bp
from face import GONE, Derivative, SmallestPart, WrongGradient, bench_graphs, has_fault, main, smallest_part, write_part


class RowLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return (x @ w).square().sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, w = ctx.saved_tensors
        y = 2 * (x @ w) * grad[0]  # the tangent of the first row
        return y @ w.t(), x.t() @ y


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


def part_of(capture: bp.Capture) -> SmallestPart | None:
    (derivative,) = bp.derivative(capture)
    return smallest_part(capture, 0, derivative, bench_graphs(capture))


@pytest.fixture(scope="module")
def capture() -> bp.Capture:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    w = torch.randn(4, 3, requires_grad=True)

    def program(x: Tensor, w: Tensor) -> Tensor:
        return RowLoss.apply(Straight.apply(net(x) * 9), w).mul(1e-3).exp().neg().exp().sum()  # type: ignore[no-any-return]

    return of_sample(bp.capture(program, torch.randn(5, 6), w, meant=("Straight",)))


def of_sample(capture: bp.Capture) -> bp.Capture:
    """The Capture without its program, as that of a sample: its inputs are what the recipes make."""
    return replace(capture, origin=GONE)


def test_the_function_is_left_and_nothing_else(capture: bp.Capture) -> None:
    part = part_of(capture)
    assert part is not None
    assert part.pair.backward is not None
    assert [step.target for step in part.pair.forward.steps] == [
        "aten.mm.default",
        "aten.pow.Tensor_Scalar",
        "aten.sum.dim_IntList",
    ]
    assert part.left < part.operators / 2
    (wrong,) = part.derivative.wrong
    assert wrong.function == "RowLoss"
    assert wrong.lines == part.whole.wrong[0].lines
    assert "test_minify_derivative.py" in wrong.lines[0]
    assert [edge.function for edge in part.capture.opaque if edge.function] == ["RowLoss"]


@pytest.mark.slow
def test_the_part_is_a_sample_that_shows_the_fault(capture: bp.Capture, tmp_path: Path) -> None:
    part = part_of(capture)
    assert part is not None
    file = write_part(part, tmp_path, "small")
    loaded = bp.load(tmp_path / "small")
    (verdict,) = bp.verify(loaded, derivative=True)
    assert verdict.good, verdict
    assert verdict.derivative is not None
    assert verdict.derivative.word == "not the derivative"
    text = file.read_text("utf-8")
    assert "The backward is not the derivative" in text
    printed = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in printed.splitlines() if line.startswith("# along ")]
    assert len(lines) == 2
    assert any(abs(float(line[3]) - float(line[7])) > 0.1 * abs(float(line[7])) for line in lines), lines


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_wrong_backwards_that_shipped_are_cut_out_of_a_program(row: Any) -> None:
    def around(*values: Tensor) -> tuple[Tensor, ...]:
        own = [v + 0.01 * (3 * v).sin() if v.is_floating_point() and v.requires_grad else v for v in values]
        results = row.wrong(*own)
        results = results if isinstance(results, tuple) else (results,)
        return tuple((y * 0.7).tanh() * y + (y.cos() * 0.3).exp() for y in results if y.is_floating_point())

    capture = of_sample(bp.capture(around, *row.inputs()))
    (derivative,) = bp.derivative(capture, hostile=False)
    if derivative.word != "not the derivative":
        pytest.skip("only tangents in other memory, or special inputs, show it")
    part = smallest_part(capture, 0, derivative, bench_graphs(capture))
    if not derivative.wrong or row.name in WITHOUT_PART:
        assert part is None
        return
    assert part is not None
    assert part.left < part.operators
    assert {wrong.function for wrong in part.derivative.wrong} <= {wrong.function for wrong in derivative.wrong}


WITHOUT_PART = (
    "nan_behind_a_mask",
    "overflow_far_from_zero",
    "tangent_that_another_reads",
    "saved_and_overwritten",
)
"""Gradients of the first two are NaN, so none at a border can be compared. The third spoils another operator's. The
last has no steps: its Function is named, and no call of it."""


def test_another_fault_does_not_count() -> None:
    wrong = WrongGradient(("aten.sin.default",), "a.py:3", "", (), (), "Sine")
    whole = Derivative("not the derivative", "whole", wrong=(wrong,))
    assert has_fault(whole, whole)
    assert not has_fault(Derivative("derivative", "part"), whole)
    other = WrongGradient(("aten.cos.default",), "a.py:9", "", (), (), "Cosine")
    assert not has_fault(Derivative("not the derivative", "part", wrong=(other,)), whole)


def minify(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["minify", *map(str, arguments)])


def test_it_takes_a_compiler_or_the_derivative(tmp_path: Path, capture: bp.Capture) -> None:
    bp.save(capture, tmp_path / "s")
    for given in ([], ["--compiler", "eager", "--derivative"]):
        done = minify(tmp_path / "s", "-o", tmp_path / "o", *given)
        assert done.exit_code == 2
        assert "--compiler NAME, or --derivative" in done.output


@pytest.mark.slow
def test_the_command_writes_the_part(tmp_path: Path, capture: bp.Capture) -> None:
    bp.save(capture, tmp_path / "s")
    done = minify(tmp_path / "s", "--derivative", "-o", tmp_path / "small", "--json")
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert (row["graph"], row["derivative"], row["functions"]) == ("pair_0 backward", "not the derivative", ["RowLoss"])
    assert (tmp_path / "small.py").is_file()
    again = bp.bench.minify_derivative(tmp_path / "s", tmp_path / "again")
    assert again.row is not None
    assert again.row["after"] == row["after"]
    bp.save(bp.capture(torch.sin, torch.randn(3, requires_grad=True)), tmp_path / "right")
    done = minify(tmp_path / "right", "--derivative", "-o", tmp_path / "none")
    assert done.exit_code == 3
    assert "nothing to minify: derivative: pair_0 backward: derivative" in done.output

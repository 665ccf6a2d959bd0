"""Differences that are rounding are close, and no others are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._decomp import core_aten_decompositions

import backprint as bp
from face import Draw, PortKey, PortVerdict, Results, closeness_of, forgive_rounding, largest_values
from face import results_against as against


@pytest.mark.slow
def test_a_bias_before_a_batch_norm_in_another_order_of_sums(tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 10)
    )
    capture = bp.capture(model, torch.randn(4, 3, 8, 8), engine="aot", decompose=core_aten_decompositions())
    capture.save(tmp_path / "sample")
    for each in (capture, bp.load(tmp_path / "sample")):
        (verdict,) = each.verify()
        ports = {port.name: port for port in verdict.ports}
        assert verdict.verdict == "close"
        assert ports["0.bias"].error > 0.1
        assert "it is rounding" in ports["0.bias"].detail


LARGE, SMALL = PortKey("gradient", "large"), PortKey("gradient", "small")


def judged(step: Callable[[Tensor], Results], off: float) -> PortVerdict:
    """The verdict of the small gradient where the graph gives another one."""
    draw = Draw("captured", {"x": torch.linspace(1, 2, 50)}, None, 0)
    wanted = step(draw.values["x"])
    found = {**wanted, SMALL: wanted[SMALL] + off}
    ports = against(found, wanted)
    return forgive_rounding(ports, wanted, largest_values(wanted), draw, lambda other: step(other.values["x"]))[1]


def cancelling(x: Tensor) -> Results:
    return {LARGE: x, SMALL: (x - x.mean()).sum(0, keepdim=True)}


def tiny(x: Tensor) -> Results:
    return {LARGE: x, SMALL: x[:1] * 1e-6}


def stepping(x: Tensor) -> Results:
    return {LARGE: x, SMALL: torch.floor(x[:1])}


@pytest.mark.parametrize(
    ("step", "off", "verdict"),
    [(cancelling, 1e-6, "close"), (cancelling, 1e-4, "wrong"), (tiny, 1e-6, "wrong"), (stepping, 1.0, "wrong")],
)
def test_what_is_forgiven(step: Callable[[Tensor], Results], off: float, verdict: str) -> None:
    assert judged(step, off).verdict == verdict


def test_a_program_that_refuses_moved_inputs_is_not_forgiven() -> None:
    exact = torch.linspace(1, 2, 50)

    def strict(x: Tensor) -> Results:
        if not torch.equal(x, exact):
            raise ValueError("other inputs")
        return cancelling(x)

    assert judged(strict, 1e-6).verdict == "wrong"


@pytest.mark.parametrize("size", [1e300, 1.0, 1e-200, 1e-310])
def test_numbers_of_any_size_are_compared(size: float) -> None:
    right = torch.linspace(1, 2, 8, dtype=torch.float64) * size
    assert closeness_of(right * (1 + 1e-13), right).word == "close"
    assert closeness_of(right * 1.01, right).word == "wrong"


def test_of_one_element_no_errors_make_up_for_one_another() -> None:
    """As of a gradient for one-hot tangents: its norm and its factor are the error of that element."""
    right = torch.zeros(32, dtype=torch.float64)
    right[3] = 0.0136
    own, moved = right.bfloat16(), right * 1.03
    assert closeness_of((right * 1.02).bfloat16(), right, own).word == "close"
    assert closeness_of((right * 1.06).bfloat16(), right, own).word == "wrong"
    assert closeness_of((right * 1.06).bfloat16(), right, own, moved=(moved,)).word == "close"
    many = torch.linspace(1, 2, 32, dtype=torch.float64)
    assert closeness_of((many * 1.02).bfloat16(), many, many.bfloat16()).word == "wrong"

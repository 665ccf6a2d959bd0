"""Observed values are those that the graphs compute on the Capture's own inputs."""

from __future__ import annotations

import pytest
import torch
from subjects.drawn import drawn_net

import backprint as bp
from face import observed_values


def test_each_value_has_the_statistics_of_what_a_run_computes() -> None:
    w = torch.tensor([1.0, -2.0, 0.0], requires_grad=True)
    capture = bp.capture(lambda w: (w * 3).relu().sum(), w)
    found = observed_values(capture)
    assert (found[0, 0, "mul"].min, found[0, 0, "mul"].max, found[0, 0, "mul"].zeros) == (-6.0, 3.0, 1)
    gradient = capture.pairs[0].backward.results[0].name  # type: ignore[union-attr]  # there is a backward
    assert found[0, 1, gradient].norm == pytest.approx(3.0)
    assert w.grad is None


def test_nan_and_inf_are_counted_and_memory_without_a_value_is_not() -> None:
    def odd(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        y.copy_(x / (x - x))
        return y.log()

    found = observed_values(bp.capture(odd, torch.tensor([0.0, 1.0], requires_grad=True)))
    bad = {name: (stats.nan, stats.inf) for (_, side, name), stats in found.items() if side == 0 and stats.bad}
    assert bad["div"] == (1, 1)
    assert not [name for _, _, name in found if name.startswith("empty")]


def test_whole_numbers_have_no_statistics() -> None:
    assert not [key for key in observed_values(drawn_net(4)) if key[2] == "ids"]

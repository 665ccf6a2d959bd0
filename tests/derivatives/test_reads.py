"""Numbers that a program reads of its inputs: a fault where they matter, and none where they only decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import backprint as bp

INPUT = torch.tensor([0.7, -0.4, 1.3])


def leaf() -> Tensor:
    return INPUT.clone().requires_grad_()


def bits_changed(x: Tensor) -> Tensor:
    y = x.detach().clone()
    y.view(torch.int32).add_(1 << 20)
    return x * y


LOST: dict[str, Callable[[Tensor], Tensor]] = {
    "a number": lambda x: x.sin() * x.detach().max().item(),
    "all elements": lambda x: x.sin() * torch.tensor(x.tolist()),
    "numpy": lambda x: torch.from_numpy(x.detach().numpy() * 2) + x.sum(),
    "a sum by numpy": lambda x: x.sin() * float(x.detach().numpy().sum()),
    "bits": bits_changed,
}


@pytest.mark.parametrize("name", LOST)
def test_a_derivative_is_lost_where_values_are_read(name: str) -> None:
    cap = bp.capture(LOST[name], leaf())
    (answer,) = bp.derivative(cap)
    assert answer.word == "not the derivative"
    assert answer.wrong[0].function == "item"
    assert answer.wrong[0].at.startswith("test_reads.py:")
    assert bp.derivative(cap, meant=("item",))[0].word == "derivative but for item"


DECIDES: dict[str, Callable[[Tensor], Tensor]] = {
    "a branch on a number": lambda x: x.sin() if x.detach().max().item() > 0 else x,
    "a branch on numpy's": lambda x: x.sin() if x.detach().numpy().sum() > 0 else x,
    "a branch on a comparison": lambda x: x.sin() if x.sum() > 0 else x,
    "a result that is printed": lambda x: (lambda y: (str(y.item()), y)[1])(x.sin().sum()),
}


@pytest.mark.parametrize("name", DECIDES)
def test_a_number_that_only_decides_is_no_fault(name: str) -> None:
    assert bp.derivative(DECIDES[name], leaf())[0].word == "derivative"


def test_without_the_program_it_is_not_found_out(tmp_path: Path) -> None:
    loaded = bp.load(bp.capture(LOST["a number"], leaf()).save(tmp_path / "sample"))
    assert bp.derivative(loaded)[0].word == "not the derivative"  # what it showed when it was saved
    (answer,) = bp.derivative(replace(loaded, verdict=None))
    assert answer.word == "cannot tell"
    assert "it reads a number of its inputs at test_reads.py:" in answer.detail

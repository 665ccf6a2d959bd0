"""Each row of the wrong backwards that shipped is what it says: wrong as it shipped, and right when mended."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from subjects.wrong_backwards import ROWS, TANGENTS, Row, as_dtype, draw, gradients, tangents_for, tensors_of
from torch import Tensor

NAMES = [row.name for row in ROWS]


def difference(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The greatest difference relative to the greatest gradient, 1 where it is not finite."""
    both = torch.stack([torch.cat([gradient.flatten() for gradient in some]) for some in (actual, expected)])
    worst, scale = float((both[0] - both[1]).abs().max()), float(both.abs().max())
    return worst / scale if math.isfinite(worst) and scale else float(worst != 0)


def inner(some: list[Tensor], others: list[Tensor]) -> float:
    return sum(float((a * b).sum()) for a, b in zip(some, others, strict=True))


def exact(row: Row) -> tuple[Tensor, ...]:
    return as_dtype(row.inputs(), torch.float64)


def test_there_are_many_and_each_has_a_name() -> None:
    assert len(ROWS) >= 60
    assert len(set(NAMES)) == len(ROWS)
    assert len({row.origin for row in ROWS}) == len(ROWS)


def gap(row: Row, form: Callable[..., object], inputs: tuple[Tensor, ...], *how: Any, **more: Any) -> float:
    """The greatest difference between the gradients of a form of a row and those of the reference."""
    return difference(gradients(form, inputs, *how, **more), gradients(row.plain, inputs, *how, **more))


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_row_has_small_inputs_one_marked_line_and_one_forward(row: Row) -> None:
    once, again = row.inputs(), row.inputs()
    assert all(torch.equal(a, b) and a.requires_grad == b.requires_grad for a, b in zip(once, again, strict=True))
    assert any(value.requires_grad for value in once)
    assert all(value.dtype == torch.float32 for value in once if value.is_floating_point())
    assert sum(value.numel() for value in once) <= 128
    assert "# wrong" in linecache.getline(row.file, row.line)
    assert row.operator == row.function.__name__
    assert row.operator.endswith("Shipped")
    for dtype in (torch.float32, torch.float64):
        wrong, mended, plain = (tensors_of(form(*as_dtype(once, dtype))) for form in (row.wrong, row.mended, row.plain))
        for ours, theirs, reference in zip(wrong, mended, plain, strict=True):
            assert torch.equal(ours, theirs)
            torch.testing.assert_close(theirs, reference)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_shipped_backward_is_wrong_and_silent_and_the_mended_one_is_right(row: Row) -> None:
    assert gap(row, row.wrong, exact(row), row.tangents, row.order) > 1e-6
    wanted = [value.shape for value in row.inputs() if value.requires_grad]
    for kind in TANGENTS:
        assert [gradient.shape for gradient in gradients(row.wrong, row.inputs(), kind)] == wanted, kind
        for order in range(1, row.order + 1):
            assert gap(row, row.mended, exact(row), kind, order) < 1e-10, (kind, order)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_it_shows_where_the_row_says_and_not_elsewhere(row: Row) -> None:
    if row.order > 1:  # then the gradient itself is right
        assert gap(row, row.wrong, exact(row)) < 1e-10
    if row.tangents != "random":
        assert gap(row, row.wrong, exact(row)) < 1e-10
    if "uneven tangents" in row.shows or row.shows == "tangents other than ones":
        assert gap(row, row.wrong, exact(row), "ones") < 1e-10
    for kind in TANGENTS:
        if row.ordinary:
            assert gap(row, row.wrong, as_dtype(row.ordinary(), torch.float64), kind, row.order) < 1e-10, kind
        if row.shows.startswith("any"):
            assert gap(row, row.wrong, exact(row), kind, seed=7) > 1e-6, kind


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_reference_is_the_slope_of_the_forward(row: Row) -> None:
    """By central differences along one direction: of the outputs, or of the gradients where the order is 2."""
    inputs = exact(row)
    directions = [draw(*value.shape, seed=50 + i).to(torch.float64) for i, value in enumerate(inputs)]

    def moved(amount: float) -> list[Tensor]:
        places = tuple(
            (value.detach() + amount * direction).requires_grad_() if value.requires_grad else value
            for value, direction in zip(inputs, directions, strict=True)
        )
        return gradients(row.plain, places) if row.order == 2 else tensors_of(row.plain(*places))

    step = 1e-6
    slopes = [(high - low).detach() / (2 * step) for high, low in zip(moved(step), moved(-step), strict=True)]
    along = [direction for value, direction in zip(inputs, directions, strict=True) if value.requires_grad]
    actual = gradients(row.plain, inputs, order=row.order)
    tangents = tangents_for(slopes, "random")
    assert inner(actual, along) == pytest.approx(inner(slopes, tangents), rel=1e-6, abs=1e-8)

"""Each row of the wrong backwards that shipped is what it says: wrong as it shipped, and right when mended."""

from __future__ import annotations

import linecache
import math

import pytest
import torch
from subjects.wrong_backwards import ROWS, TANGENTS, Row, as_dtype, draw, gradients, tangents_for, tensors_of
from torch import Tensor

NAMES = [row.name for row in ROWS]
KINDS = [pytest.param(row, kind, id=f"{row.name}-{kind}") for row in ROWS for kind in TANGENTS]


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


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_inputs_are_the_same_each_time_small_and_of_float32(row: Row) -> None:
    once, again = row.inputs(), row.inputs()
    assert all(torch.equal(a, b) and a.requires_grad == b.requires_grad for a, b in zip(once, again, strict=True))
    assert any(value.requires_grad for value in once)
    assert all(value.dtype == torch.float32 for value in once if value.is_floating_point())
    assert sum(value.numel() for value in once) <= 128


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_one_line_of_the_function_is_marked(row: Row) -> None:
    text = linecache.getline(row.file, row.line)
    assert "# wrong" in text
    assert row.operator == row.function.__name__
    assert row.operator.endswith("Shipped")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_forwards_are_equal_bit_for_bit(row: Row, dtype: torch.dtype) -> None:
    inputs = as_dtype(row.inputs(), dtype)
    wrong, mended, plain = (tensors_of(form(*inputs)) for form in (row.wrong, row.mended, row.plain))
    for ours, theirs, reference in zip(wrong, mended, plain, strict=True):
        assert torch.equal(ours, theirs)
        torch.testing.assert_close(theirs, reference)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_shipped_backward_is_wrong(row: Row) -> None:
    actual = gradients(row.wrong, exact(row), row.tangents, row.order)
    expected = gradients(row.plain, exact(row), row.tangents, row.order)
    assert difference(actual, expected) > 1e-6


@pytest.mark.parametrize(("row", "kind"), KINDS)
def test_the_shipped_backward_is_silent(row: Row, kind: str) -> None:
    inputs = row.inputs()
    wanted = [value for value in inputs if value.requires_grad]
    assert [gradient.shape for gradient in gradients(row.wrong, inputs, kind)] == [value.shape for value in wanted]


@pytest.mark.parametrize(("row", "kind"), KINDS)
def test_the_mended_backward_is_right(row: Row, kind: str) -> None:
    for order in range(1, row.order + 1):
        actual = gradients(row.mended, exact(row), kind, order)
        expected = gradients(row.plain, exact(row), kind, order)
        assert difference(actual, expected) < 1e-10


@pytest.mark.parametrize("row", [row for row in ROWS if row.order > 1], ids=lambda row: row.name)
def test_of_order_two_the_gradient_itself_is_right(row: Row) -> None:
    actual, expected = gradients(row.wrong, exact(row)), gradients(row.plain, exact(row))
    assert difference(actual, expected) < 1e-10


@pytest.mark.parametrize("row", [row for row in ROWS if row.tangents != "random"], ids=lambda row: row.name)
def test_where_it_takes_strange_tangents_others_do_not_show_it(row: Row) -> None:
    actual, expected = gradients(row.wrong, exact(row)), gradients(row.plain, exact(row))
    assert difference(actual, expected) < 1e-10


@pytest.mark.parametrize("row", [row for row in ROWS if row.ordinary], ids=lambda row: row.name)
def test_with_ordinary_inputs_it_does_not_show(row: Row) -> None:
    assert row.ordinary is not None
    inputs = as_dtype(row.ordinary(), torch.float64)
    for kind in TANGENTS:
        actual = gradients(row.wrong, inputs, kind, row.order)
        assert difference(actual, gradients(row.plain, inputs, kind, row.order)) < 1e-10


@pytest.mark.parametrize("row", [row for row in ROWS if row.shows.startswith("any")], ids=lambda row: row.name)
def test_where_it_says_any_all_tangents_show_it(row: Row) -> None:
    for kind in TANGENTS:
        actual = gradients(row.wrong, exact(row), kind, seed=7)
        assert difference(actual, gradients(row.plain, exact(row), kind, seed=7)) > 1e-6


ONES = [row for row in ROWS if "uneven tangents" in row.shows or row.shows == "tangents other than ones"]


@pytest.mark.parametrize("row", ONES, ids=lambda row: row.name)
def test_where_it_says_so_ones_do_not_show_it(row: Row) -> None:
    actual, expected = gradients(row.wrong, exact(row), "ones"), gradients(row.plain, exact(row), "ones")
    assert difference(actual, expected) < 1e-10


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
